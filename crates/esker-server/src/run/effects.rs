//! What commands cause beside changes of data. It happens once they have committed.
//!
//! effects.1. A message is published after the commit of the command that caused it: who hears it finds what
//!     it speaks of.
//! effects.2. What the commands of a script or a transaction cause is bounded: the command that exceeds the
//!     limit fails.

use crate::base::fail::{Done, Fail};
use crate::base::numbers::shown;
use crate::clients::pubsub::{Hearing, Said};
use crate::run::memory::Progress;
use crate::store::Durability;
use crate::store::holdings::topics::{Change, Saying};

/// A class of events of keys: see the option `notify-keyspace-events`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Commands for any type.
    Generic,
    /// Strings.
    String,
    /// Lists.
    List,
    /// Sets.
    Set,
    /// Hashes.
    Hash,
    /// Sorted sets.
    SortedSet,
    /// Streams.
    Stream,
    /// Keys that have expired.
    Expired,
    /// Keys that are new.
    New,
}

/// Letters of the classes, in their order, then those of the two kinds of channels, then those of what this
/// server never does: evictions, modules, misses.
const LETTERS: &[u8] = b"g$lshztxnKEedm";
/// The order in which letters are shown.
const SHOWN: &[u8] = b"g$lshzxetdKEmn";
const KEYSPACE: u32 = 1 << 9;
const KEYEVENT: u32 = 1 << 10;
/// What `A` stands for: all but misses and new keys.
const ALL: u32 = 0xFF | 1 << 11 | 1 << 12;

/// The classes that letters name; none if one names nothing.
pub fn events_of(letters: &[u8]) -> Option<u32> {
    letters.iter().try_fold(0, |events, letter| match letter {
        b'A' => Some(events | ALL),
        letter => LETTERS.iter().position(|known| known == letter).map(|at| events | 1 << at),
    })
}

/// The letters of classes.
pub fn letters_of(events: u32) -> String {
    let mut letters = String::new();
    let mut rest = events;
    if events & ALL == ALL {
        letters.push('A');
        rest &= !ALL;
    }
    let is_in =
        |letter: &u8| LETTERS.iter().position(|known| known == letter).is_some_and(|at| rest >> at & 1 == 1);
    letters.extend(SHOWN.iter().filter(|letter| is_in(letter)).map(|letter| char::from(*letter)));
    letters
}

/// What an effect takes beside its bytes, about.
const EFFECT_OVERHEAD: usize = 64;

fn too_much(limit: usize) -> Fail {
    let limit = shown(limit);
    Fail::text(format!(
        "ERR the script or transaction would publish and tell more than {limit}: do it in parts"
    ))
}

/// What is to be done after the commit.
#[derive(Debug, Default)]
pub struct Effects {
    /// What is to be said on channels (effects.1).
    pub messages: Vec<Said>,
    /// Databases and keys that may have what somebody waits for.
    pub filled: Vec<(usize, Vec<u8>)>,
    /// Databases all of whose keys may have changed.
    pub replaced: Vec<usize>,
    /// Changes of keys so far.
    pub changes: u64,
    /// Versions given so far.
    pub versions: u64,
    /// Changes are not told to those who watch keys.
    pub is_quiet: bool,
    /// A command failed and its writes could not be undone: nothing may be committed.
    pub must_not_commit: bool,
    /// A script was ended in the midst of its writes: they are undone with the command that ran it (parts.1).
    pub has_ended_script: bool,
    /// What was said (effects.1).
    pub said: Vec<Saying>,
    /// Keys that have changed and how, for those who watch them (effects.1).
    pub changed: Vec<Change>,
    /// What the commit waits for, at least.
    pub durability: Option<Durability>,
    /// A buffer for records.
    pub scratch: Vec<u8>,
    /// Memory that has been taken by all of these so far, and at the beginning of the outermost command.
    pub bytes: usize,
    pub bytes_before: usize,
    /// How far the command is.
    pub progress: Progress,
}

/// How far the effects were at a moment.
#[derive(Clone, Copy, Debug)]
pub struct EffectsMark {
    messages: usize,
    filled: usize,
    replaced: usize,
    said: usize,
    changed: usize,
    changes: u64,
    bytes: usize,
}

impl Effects {
    /// This moment.
    pub fn mark(&self) -> EffectsMark {
        EffectsMark {
            messages: self.messages.len(),
            filled: self.filled.len(),
            replaced: self.replaced.len(),
            said: self.said.len(),
            changed: self.changed.len(),
            changes: self.changes,
            bytes: self.bytes,
        }
    }

    /// Forgets what a failed command added since a moment.
    pub fn undo(&mut self, mark: EffectsMark) {
        self.messages.truncate(mark.messages);
        self.filled.truncate(mark.filled);
        self.replaced.truncate(mark.replaced);
        self.said.truncate(mark.said);
        self.changed.truncate(mark.changed);
        self.changes = mark.changes;
        self.bytes = mark.bytes;
        self.is_quiet = false;
    }

    pub(crate) fn event(&mut self, wanted: u32, event: Event, name: &str, db: usize, key: &[u8]) {
        if wanted & 1 << event as u32 == 0 {
            return;
        }
        if wanted & KEYSPACE != 0 {
            let channel = [format!("__keyspace@{db}__:").as_bytes(), key].concat();
            self.note(Said { on: Hearing::Channel, channel, text: name.as_bytes().to_vec() });
        }
        if wanted & KEYEVENT != 0 {
            let channel = format!("__keyevent@{db}__:{name}").into_bytes();
            self.note(Said { on: Hearing::Channel, channel, text: key.to_vec() });
        }
    }

    fn note(&mut self, said: Said) {
        self.bytes += said.channel.len() + said.text.len() + EFFECT_OVERHEAD;
        self.messages.push(said);
    }

    /// Adds a message (effects.1).
    ///
    /// # Errors
    /// See [`add`](Self::add).
    pub fn publish(&mut self, said: Said, limit: usize) -> Done {
        self.add(said.channel.len() + said.text.len(), limit)?;
        self.messages.push(said);
        Ok(())
    }

    /// Adds what is said of topics (effects.1).
    ///
    /// # Errors
    /// See [`add`](Self::add).
    pub fn say(&mut self, sayings: Vec<Saying>, limit: usize) -> Done {
        self.add(sayings.iter().map(|said| said.place.len() + said.bytes() + EFFECT_OVERHEAD).sum(), limit)?;
        self.said.extend(sayings);
        Ok(())
    }

    /// Counts bytes that are kept until the commit. The first effect may have any size: its command holds it,
    /// too.
    ///
    /// # Errors
    /// The script or transaction would keep too much (effects.2).
    fn add(&mut self, bytes: usize, limit: usize) -> Done {
        let after = self.bytes + bytes + EFFECT_OVERHEAD;
        if self.bytes > self.bytes_before && after - self.bytes_before > limit {
            return Err(too_much(limit));
        }
        self.bytes = after;
        Ok(())
    }

    /// Counts what a change of a key adds, beside messages.
    pub fn count(&mut self, bytes: usize) {
        self.bytes += bytes + EFFECT_OVERHEAD;
    }

    /// Called after a command of a script or a transaction: it may have caused effects that cannot fail by
    /// themselves.
    ///
    /// # Errors
    /// There are too many (effects.2).
    pub fn check(&self, before: EffectsMark, limit: usize) -> Done {
        if self.bytes > before.bytes
            && self.bytes - self.bytes_before > limit
            && before.bytes > self.bytes_before
        {
            return Err(too_much(limit));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_name_classes() {
        let events = events_of(b"KEA").unwrap();
        assert_eq!(letters_of(events), "AKE");
        assert_eq!(letters_of(events_of(b"Klx").unwrap()), "lxK");
        assert_eq!(events_of(b"Kq"), None);
        let mut effects = Effects::default();
        effects.event(events_of(b"Eg").unwrap(), Event::Generic, "del", 3, b"k");
        effects.event(events_of(b"Eg").unwrap(), Event::List, "lpush", 3, b"k");
        let said =
            Said { on: Hearing::Channel, channel: b"__keyevent@3__:del".to_vec(), text: b"k".to_vec() };
        assert_eq!(effects.messages, [said]);
    }
}
