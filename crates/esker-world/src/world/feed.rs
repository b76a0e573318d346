//! A reader of the change feed that outlives processes: it applies what it reads to a copy, which must be a state of the history.
//!
//! ```text
//!   feed --commit by commit--> Reader (a copy of the database) --digest--> History: one of the states from the last durable one on
//!   too far behind: the contents of now, and the feed from the next commit on
//! ```
//!
//! world_feed.1. The copy is the state after some commit, none before the last that is known to be durable: nothing is left out, nor comes twice.
//! world_feed.2. No end of a process takes back what the feed has shown: the reader goes on where it was, or is told what is the oldest commit.
//! world_feed.3. Where everything is kept, it is not told so.

use std::collections::BTreeMap;
use std::time::SystemTime;

use esker::{Db, Error, Feed, FeedChange, FeedOperand, KeyspaceId, Result, SeqNo};

use super::World;
use super::trouble::attempt;
use crate::judge::read;
use crate::model::keys::{self, KeyNo};
use crate::model::state::{DEFAULT, Map, contents_digest};
use crate::model::values::ValueNo;
use crate::op::Merged;

/// See the module's text.
#[derive(Default)]
pub(super) struct Reader {
    /// The commit to come; none: it has to begin anew.
    next: Option<SeqNo>,
    names: BTreeMap<String, KeyspaceId>,
    maps: BTreeMap<KeyspaceId, Map>,
    /// Of this process.
    feed: Option<Feed>,
    /// Nothing may have gone since it has begun.
    is_kept: bool,
}

/// What a commit does.
enum Done {
    /// The last is when it expires, in milliseconds.
    Put(KeyspaceId, KeyNo, ValueNo, Option<u64>),
    Merge(KeyspaceId, KeyNo, Vec<(ValueNo, Merged)>),
    Remove(KeyspaceId, KeyNo),
    RemoveRange(KeyspaceId, Vec<KeyNo>),
    Named(KeyspaceId, String),
    Unnamed(String),
}

impl Reader {
    /// The same one, for another process.
    pub(super) fn passed_on(&self) -> Reader {
        let Reader { next, names, maps, is_kept, .. } = self;
        Reader { next: *next, names: names.clone(), maps: maps.clone(), feed: None, is_kept: *is_kept }
    }

    /// The process ends.
    pub(super) fn let_go(&mut self) {
        self.feed = None;
    }

    /// Reads all that is there; how many commits.
    fn read(&mut self, db: &Db, next: SeqNo) -> Result<u64> {
        let mut commits = 0;
        if self.feed.is_none() {
            self.feed = Some(db.feed(next)?);
        }
        let Some(feed) = &mut self.feed else { return Ok(0) };
        loop {
            let mut commit = match feed.try_next() {
                Ok(Some(commit)) => commit,
                // Nothing more comes.
                Ok(None) | Err(Error::Poisoned(_)) => return Ok(commits),
                Err(error) => return Err(error),
            };
            let mut all = Vec::new();
            while let Some(change) = commit.next_change()? {
                all.extend(done(change, &self.maps, &all)?);
            }
            all.into_iter().for_each(|done| apply(done, &mut self.names, &mut self.maps));
            self.next = Some(commit.seqno().next());
            commits += 1;
        }
    }

    /// Of the copy, without what expires by this time.
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

/// A time as the engine's, in milliseconds.
fn ms(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn known(key: &[u8]) -> KeyNo {
    keys::find(key).unwrap_or_else(|| panic!("world_feed.1: nobody put the key {}", key.escape_ascii()))
}

fn value_of(bytes: &[u8]) -> ValueNo {
    ValueNo::parse(bytes).unwrap_or_else(|| panic!("world_feed.1: nobody put the value"))
}

/// A change, of keys that are there by then: in the maps, or by what the commit has done before.
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
        FeedChange::Remove { keyspace, key } | FeedChange::Expire { keyspace, key } => {
            Done::Remove(keyspace, known(key))
        }
        FeedChange::RemoveRange { keyspace, start, end } => {
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
    /// Whether there is a feed, and all of it is kept.
    pub(super) fn keeps_all(&self) -> Option<bool> {
        self.opening.and_then(|opening| opening.feed_bytes).map(|bytes| bytes == u64::MAX)
    }

    /// A process has opened the database.
    pub(super) fn note_opening_for_feed(&mut self) {
        self.reader.is_kept &= self.keeps_all() == Some(true);
    }

    /// Has the reader read what is there, and looks at its copy.
    pub(super) fn follow(&mut self) {
        if self.keeps_all().is_none() || self.is_dead() || self.db.is_none() {
            return;
        }
        self.expire();
        let mut reader = std::mem::take(&mut self.reader);
        let followed = match reader.next {
            Some(next) => attempt(|| reader.read(self.db(), next)),
            // Sweeps and options are commits, too, which the model does not have.
            None if self.history.is_durable() => {
                let synced = attempt(|| self.db().sync());
                synced.and_then(|()| self.begin_anew(&mut reader)).map(|()| 0)
            }
            None => Ok(0),
        };
        match followed {
            Ok(commits) if reader.next.is_some() => {
                self.tally.followed += commits;
                let digest = reader.digest(self.history.latest_ms());
                assert!(
                    self.history.may_be_shown(digest),
                    "world_feed.1: what the feed has made is no state from the last durable one on; the next commit is {:?}",
                    reader.next
                );
            }
            Ok(_) => {}
            Err(Error::FeedTruncated { oldest }) => {
                assert!(!reader.is_kept, "world_feed.3: the feed begins with {oldest}");
                assert!(reader.next < Some(oldest), "world_feed.3");
                reader = Reader::default();
                self.tally.truncated += 1;
            }
            Err(error) if reader.next.is_none() => drop(self.excused::<()>(Err(error))),
            Err(error) => {
                reader.feed = None;
                self.read::<()>(Err(error));
            }
        }
        self.reader = reader;
    }

    /// Begins with what the database holds, once all of it is durable.
    fn begin_anew(&self, reader: &mut Reader) -> Result<()> {
        let (db, snapshot) = (self.db(), self.db().snapshot());
        // What has expired counts until it is swept.
        let contents = attempt(|| read::contents_with(db, false, false, Some(self.now_ms())))?;
        let mut found = Reader { is_kept: self.keeps_all() == Some(true), ..Reader::default() };
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
