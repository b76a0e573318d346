//! Effects of commands apart from changes of data. Messages and notices go out after the commit; waiting
//! commands run before it.
//!
//! - A message is published after the commit of the command that caused it, so that its receivers find the
//!   data it refers to.
//! - The effects of a script or a transaction are bounded: the command that exceeds the limit fails.

use crate::base::events::{Event, KEYEVENT, KEYSPACE};
use crate::clients::pubsub::{Hearing, Said};
use crate::holdings::topics::{Change, Saying};
use crate::resp::fail::{Done, Fail};
use crate::resp::numbers::shown;
use crate::run::memory::Progress;
use crate::store::Durability;

/// Estimated bytes of an effect beside its content.
const EFFECT_OVERHEAD: usize = 64;

fn too_much(limit: usize) -> Fail {
    let limit = shown(limit);
    Fail::text(format!("ERR the script or transaction would publish more than {limit}: split it into parts"))
}

/// What the commands of one commit cause besides changes of data.
#[derive(Debug, Default)]
pub struct Effects {
    /// Messages to publish on channels.
    pub messages: Vec<Said>,
    /// Databases and keys that may have received what a command waits for.
    pub filled: Vec<(usize, Vec<u8>)>,
    /// Databases whose keys may all have changed.
    pub replaced: Vec<usize>,
    /// Number of key changes.
    pub changes: u64,
    /// Number of versions given out.
    pub versions: u64,
    /// Set while watchers are not notified of changes.
    pub is_quiet: bool,
    /// Set when a command failed and its writes could not be undone: nothing may be committed.
    pub must_not_commit: bool,
    /// Set when a script was ended in the middle of its writes. They are undone with the command that ran it.
    pub has_ended_script: bool,
    /// Messages to publish on topics.
    pub said: Vec<Saying>,
    /// Changes of keys, for connections that watch ranges.
    pub changed: Vec<Change>,
    /// Minimum durability that the commit waits for.
    pub durability: Option<Durability>,
    /// Reusable buffer for records.
    pub scratch: Vec<u8>,
    /// Bytes used by these effects, in total and at the start of the outermost command.
    pub bytes: usize,
    pub bytes_before: usize,
    /// Progress of the current command.
    pub progress: Progress,
}

/// State of the effects at one moment.
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
    /// Returns the current state, to undo back to.
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

    /// Discards the effects added since `mark` by a failed command.
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

    /// Adds a message for channels.
    ///
    /// # Errors
    /// See [`add`](Self::add).
    pub fn publish(&mut self, said: Said, limit: usize) -> Done {
        self.add(said.channel.len() + said.text.len(), limit)?;
        self.messages.push(said);
        Ok(())
    }

    /// Adds messages for topics.
    ///
    /// # Errors
    /// See [`add`](Self::add).
    pub fn say(&mut self, sayings: Vec<Saying>, limit: usize) -> Done {
        self.add(sayings.iter().map(|said| said.place.len() + said.bytes() + EFFECT_OVERHEAD).sum(), limit)?;
        self.said.extend(sayings);
        Ok(())
    }

    /// Adds to the bytes that are kept until the commit. The first effect may have any size, because its
    /// command holds the same bytes.
    ///
    /// # Errors
    /// Fails if the script or transaction would keep too much.
    fn add(&mut self, bytes: usize, limit: usize) -> Done {
        let after = self.bytes + bytes + EFFECT_OVERHEAD;
        if self.bytes > self.bytes_before && after - self.bytes_before > limit {
            return Err(too_much(limit));
        }
        self.bytes = after;
        Ok(())
    }

    /// Adds the bytes that a change of a key keeps, beside messages.
    pub fn count(&mut self, bytes: usize) {
        self.bytes += bytes + EFFECT_OVERHEAD;
    }

    /// Checks the limit after a command of a script or a transaction, because some effects are added without
    /// a check.
    ///
    /// # Errors
    /// Fails if there are too many effects.
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
    use crate::base::events::events_of;

    #[test]
    fn wanted_events_become_messages() {
        let mut effects = Effects::default();
        effects.event(events_of(b"Eg").unwrap(), Event::Generic, "del", 3, b"k");
        effects.event(events_of(b"Eg").unwrap(), Event::List, "lpush", 3, b"k");
        let said =
            Said { on: Hearing::Channel, channel: b"__keyevent@3__:del".to_vec(), text: b"k".to_vec() };
        assert_eq!(effects.messages, [said]);
    }
}
