//! A reader of the change feed across processes: it applies what it reads to a copy, which must be a state of
//! the history.
//!
//! ```text
//!   feed --commit by commit--> Reader (a copy of the database) --digest--> History: a state since the last
//!                                                                         durable one
//!   too far behind: start with the current contents and the next commit
//! ```
//!
//! The copy is the state after some commit, at least the last durable one: no commit is missing or
//! duplicated. No crash undoes a commit that the feed has shown: the reader continues, or is refused with the
//! oldest commit. The refusal must not happen if everything is retained.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use esker::{Db, Error, Feed, FeedChange, FeedOperand, KeyspaceId, Result, SeqNo};

use super::World;
use super::faults::attempt;
use crate::judge::read;
use crate::model::keys::{self, KeyNo};
use crate::model::map::Map;
use crate::model::state::{DEFAULT, contents_digest};
use crate::model::values::ValueNo;
use crate::op::Merged;

/// A reader of the change feed, and its copy.
#[derive(Default)]
pub(super) struct Reader {
    /// The next commit; `None` if it must start again.
    next: Option<SeqNo>,
    names: BTreeMap<String, KeyspaceId>,
    maps: BTreeMap<KeyspaceId, Map>,
    /// Keyspaces that the model does not know.
    ignored: BTreeSet<KeyspaceId>,
    /// The feed of this process.
    feed: Option<Feed>,
    /// Whether everything was retained since it started.
    is_kept: bool,
}

/// The effect of a change.
enum Done {
    /// The last field is the expiry time in milliseconds.
    Put(KeyspaceId, KeyNo, ValueNo, Option<u64>),
    Merge(KeyspaceId, KeyNo, Vec<(ValueNo, Merged)>),
    Remove(KeyspaceId, KeyNo),
    RemoveRange(KeyspaceId, Vec<KeyNo>),
    Named(KeyspaceId, String),
    Unnamed(String),
}

impl Reader {
    /// Returns this reader for another process.
    pub(super) fn passed_on(&self) -> Reader {
        let Reader { next, names, maps, ignored, is_kept, .. } = self;
        let (next, is_kept, ignored) = (*next, *is_kept, ignored.clone());
        Reader { next, names: names.clone(), maps: maps.clone(), ignored, feed: None, is_kept }
    }

    /// Closes the feed at the end of the process.
    pub(super) fn let_go(&mut self) {
        self.feed = None;
    }

    /// Reads all available commits. Returns their number.
    fn read(&mut self, db: &Db, next: SeqNo) -> Result<u64> {
        let mut commits = 0;
        if self.feed.is_none() {
            self.feed = Some(db.feed_after(next.prev())?);
        }
        let Some(feed) = &mut self.feed else { return Ok(0) };
        loop {
            let mut commit = match feed.try_next() {
                Ok(Some(commit)) => commit,
                // There are no more commits.
                Ok(None) | Err(Error::Poisoned(_)) => return Ok(commits),
                Err(error) => return Err(error),
            };
            let mut all = Vec::new();
            while let Some(change) = commit.next_change()? {
                if is_ignored(&change, &mut self.ignored) {
                    continue;
                }
                all.extend(done(change, &self.maps, &all)?);
            }
            all.into_iter().for_each(|done| apply(done, &mut self.names, &mut self.maps));
            self.next = Some(commit.seqno().next());
            commits += 1;
        }
    }

    /// Returns the digest of the copy, without entries that expire by `now_ms`.
    fn digest(&self, now_ms: u64) -> u64 {
        let named = |(name, id): (&String, &KeyspaceId)| {
            let mut map = self.maps.get(id).cloned().unwrap_or_default();
            map.expire(now_ms);
            (name.clone(), map)
        };
        let all: Vec<_> = self.names.iter().map(named).collect();
        contents_digest(all.iter().map(|(name, map)| (name.as_str(), map)))
    }
}

/// Converts a time to the engine's milliseconds.
fn ms(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn known(key: &[u8]) -> KeyNo {
    keys::find(key).unwrap_or_else(|| panic!("unknown key {}", key.escape_ascii()))
}

fn value_of(bytes: &[u8]) -> ValueNo {
    ValueNo::parse(bytes).unwrap_or_else(|| panic!("unknown value"))
}

/// Returns whether a change concerns a keyspace that the model does not know.
fn is_ignored(change: &FeedChange<'_>, ignored: &mut BTreeSet<KeyspaceId>) -> bool {
    match change {
        FeedChange::Named { keyspace, name } => {
            *name == read::RECORDS && {
                ignored.insert(*keyspace);
                true
            }
        }
        FeedChange::Unnamed { name } => *name == read::RECORDS,
        FeedChange::Put { keyspace, .. }
        | FeedChange::Merge { keyspace, .. }
        | FeedChange::Delete { keyspace, .. }
        | FeedChange::Expire { keyspace, .. }
        | FeedChange::DeleteRange { keyspace, .. } => ignored.contains(keyspace),
        _ => false,
    }
}

/// Converts a change. Ranges are resolved to the keys that exist then, in `maps` or by earlier changes of the
/// commit.
fn done(change: FeedChange<'_>, maps: &BTreeMap<KeyspaceId, Map>, before: &[Done]) -> Result<Option<Done>> {
    Ok(Some(match change {
        FeedChange::Put { keyspace, key, value } => {
            Done::Put(keyspace, known(key), value_of(&value.read()?), value.expires_at().map(ms))
        }
        FeedChange::Merge { keyspace, key, operands } => {
            let merged = |operand: &FeedOperand<'_>| Merged {
                at_ms: ms(operand.merged_at()),
                lifetime_ms: operand.lifetime().map_or(0, |lifetime| lifetime.as_millis() as u64),
            };
            let of = |operand: &FeedOperand<'_>| (value_of(operand.bytes()), merged(operand));
            Done::Merge(keyspace, known(key), operands.iter().map(of).collect())
        }
        FeedChange::Delete { keyspace, key } | FeedChange::Expire { keyspace, key } => {
            Done::Remove(keyspace, known(key))
        }
        FeedChange::DeleteRange { keyspace, start, end } => {
            let there = maps.get(&keyspace).into_iter().flat_map(|map| map.entries().keys().copied());
            let put = before.iter().filter_map(|done| match done {
                Done::Put(id, key, ..) | Done::Merge(id, key, _) if *id == keyspace => Some(*key),
                _ => None,
            });
            let is_inside = |no: &KeyNo| {
                let key = keys::key(*no);
                key >= start && end.is_none_or(|end| key < end)
            };
            Done::RemoveRange(keyspace, there.chain(put).filter(is_inside).collect())
        }
        FeedChange::Named { keyspace, name } => Done::Named(keyspace, name.to_owned()),
        FeedChange::Unnamed { name } => Done::Unnamed(name.to_owned()),
        _ => return Ok(None),
    }))
}

fn apply(done: Done, names: &mut BTreeMap<String, KeyspaceId>, maps: &mut BTreeMap<KeyspaceId, Map>) {
    match done {
        Done::Put(id, key, value, until) => {
            let map = maps.entry(id).or_default();
            map.put(key, value);
            until.into_iter().for_each(|until| map.set_until(key, until));
        }
        Done::Merge(id, key, operands) => {
            let map = maps.entry(id).or_default();
            operands.into_iter().for_each(|(operand, merged)| map.merge_at(key, operand, merged));
        }
        Done::Remove(id, key) => maps.entry(id).or_default().remove(key),
        Done::RemoveRange(id, keys) => {
            let map = maps.entry(id).or_default();
            keys.into_iter().for_each(|key| map.remove(key));
        }
        Done::Named(id, name) => drop(names.insert(name, id)),
        Done::Unnamed(name) => drop(names.remove(&name)),
    }
}

impl World {
    /// Returns whether there is a feed, and whether it retains everything.
    pub(super) fn keeps_all(&self) -> Option<bool> {
        self.process.opening.and_then(|opening| opening.feed_bytes).map(|bytes| bytes == u64::MAX)
    }

    /// Notes an opening of the database.
    pub(super) fn note_opening_for_feed(&mut self) {
        self.copies.reader.is_kept &= self.keeps_all() == Some(true);
    }

    /// Reads the available commits and compares the copy.
    pub(super) fn follow(&mut self) {
        if self.keeps_all().is_none() || self.is_dead() || self.db.is_none() {
            return;
        }
        self.expire();
        let mut reader = std::mem::take(&mut self.copies.reader);
        let followed = match reader.next {
            Some(next) => attempt(|| reader.read(self.db(), next)),
            // Sweeps and changes of options are commits, too, but not in the model.
            None if self.history.is_durable() => {
                let synced = attempt(|| self.db().sync());
                synced.and_then(|()| self.start_again(&mut reader)).map(|()| 0)
            }
            None => Ok(0),
        };
        match followed {
            Ok(commits) if reader.next.is_some() => {
                self.tally.followed += commits;
                let digest = reader.digest(self.history.latest_ms());
                assert!(
                    self.history.may_be_shown(digest),
                    "the copy is no state since the last durable one; the next commit is {:?}",
                    reader.next
                );
            }
            Ok(_) => {}
            Err(Error::FeedTruncated { oldest }) => {
                assert!(!reader.is_kept, "the feed begins with {oldest}");
                assert!(reader.next < Some(oldest));
                reader = Reader::default();
                self.tally.truncated += 1;
            }
            Err(error) if reader.next.is_none() => drop(self.excused::<()>(Err(error))),
            Err(error) => {
                reader.feed = None;
                self.read::<()>(Err(error));
            }
        }
        self.copies.reader = reader;
    }

    /// Starts with the current contents, once they are durable.
    fn start_again(&self, reader: &mut Reader) -> Result<()> {
        let (db, snapshot) = (self.db(), self.db().snapshot());
        // Expired entries count until they are swept.
        let contents = attempt(|| read::contents_with(db, false, false, Some(self.now_ms())))?;
        let mut found = Reader { is_kept: self.keeps_all() == Some(true), ..Reader::default() };
        found.ignored.extend(db.open_keyspace(read::RECORDS).ok().map(|records| records.id()));
        for (name, map) in contents {
            let id = if name == DEFAULT { KeyspaceId::DEFAULT } else { db.open_keyspace(&name)?.id() };
            found.names.insert(name, id);
            found.maps.insert(id, map);
        }
        found.next = Some(snapshot.seqno().next());
        *reader = found;
        Ok(())
    }
}
