//! Applies the commits of a primary to the database of a replica.
//!
//! ```text
//!   Ops, Ops, ... --Replay--> batch --Commit: position--> one commit of the database --> Changed: notices
//! ```
//!
//! A commit is applied as a whole, together with the replica's new position (replication.2). A commit that
//! does not follow the position is refused.

use esker::replay::Replay;
use esker::{Db, Durability, FeedChange};

use super::Replication;
use super::position::{Epoch, Position};
use super::records::{EPOCH_PREFIX, KEYSPACE, POSITION_KEY, Records, decode_epoch};
use crate::holdings::topics::{Change as Notice, Saying};
use crate::store::Store;
use crate::store::database::Database;
use crate::store::spans::Stretch;

/// The error is a reason for people.
pub type Applied<T = ()> = Result<T, String>;

/// Applies commits one after the other.
pub struct Applier {
    replay: Replay,
    records: Records,
    /// The role's number when it was made.
    term: u64,
    epoch: Option<Epoch>,
    changed: Changed,
}

/// What a commit has changed, for notifications.
#[derive(Debug, Default)]
pub struct Changed {
    /// Whether keyspaces were created, dropped or renamed.
    pub has_names: bool,
    /// Changed keys of databases. `None` instead of a key: all keys.
    pub keys: Vec<(usize, Option<Vec<u8>>)>,
    /// Changes in any keyspace, for watchers.
    pub places: Vec<Notice>,
}

/// Returns an error as a text.
pub(crate) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Which changes of a commit are recorded, because there are watchers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noted {
    /// Keys of databases.
    pub keys: bool,
    /// Changes in any keyspace.
    pub places: bool,
}

/// Describes a change of the keyspace with this name, for watchers.
fn notice(change: &FeedChange<'_>, key: &[u8], name: &str) -> Notice {
    let (place, key) = (name.to_owned(), key.to_vec());
    let how = match change {
        FeedChange::DeleteRange { end, .. } => {
            let how = if database_of(name).is_some() { "all" } else { "delrange" };
            return Notice::Stretch(place, Stretch { from: key, to: end.map(<[u8]>::to_vec) }, how);
        }
        FeedChange::Put { .. } | FeedChange::Merge { .. } => "set",
        _ => "del",
    };
    Notice::Key(Saying { place, topic: key, message: how.as_bytes().to_vec() })
}

/// Returns the number of the database whose keys are in a keyspace of this name.
fn database_of(name: &str) -> Option<usize> {
    name.strip_prefix('r').filter(|number| !number.starts_with('+'))?.parse().ok()
}

impl Applier {
    /// Starts at the database's position.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub fn new(replication: &Replication, term: u64) -> Applied<Self> {
        let (db, records) = replication.local().ok_or(super::NO_DATABASE)?.clone();
        let replay = Replay::new(&db).map_err(text)?;
        Ok(Applier { replay, records, term, epoch: None, changed: Changed::default() })
    }

    /// Takes a part of the changes of a commit.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn take(&mut self, bytes: &[u8], noted: Noted) -> Applied {
        let Applier { replay, epoch, changed, .. } = self;
        let mut damaged = None;
        let mut see = |change: &FeedChange<'_>, name: Option<&str>| {
            let (Some((_, key)), Some(name)) = (change.key(), name) else { return };
            if let FeedChange::Put { value, .. } = change
                && (name, key.first()) == (KEYSPACE, Some(&EPOCH_PREFIX))
            {
                match decode_epoch(key, value.bytes().unwrap_or_default()) {
                    Ok((begun, _)) => *epoch = Some(begun),
                    Err(broken) => damaged = Some(broken),
                }
                return;
            }
            if noted.places {
                changed.places.push(notice(change, key, name));
            }
            if noted.keys
                && let Some(number) = database_of(name)
            {
                let is_range = matches!(change, FeedChange::DeleteRange { .. });
                changed.keys.push((number, (!is_range).then(|| key.to_vec())));
            }
        };
        replay.take(bytes, &mut see).map_err(text)?;
        damaged.map_or(Ok(()), |broken| Err(text(broken)))
    }

    /// Commits the changes taken.
    ///
    /// # Errors
    /// Why it failed. Nothing of the commit is applied, and the applier cannot be used again.
    pub fn commit(&mut self, replication: &Replication, at: Position) -> Applied<Changed> {
        let turn = replication.take_turn();
        let (applied, epoch, term) = {
            let state = replication.state.lock();
            (state.applied, state.history.epoch_of(at.seq), state.term)
        };
        if term != self.term {
            return Err("the role of this server has changed".to_owned());
        }
        if at.seq != applied.seq + 1 {
            return Err(format!("commit {} arrived after commit {}", at.seq, applied.seq));
        }
        if self.epoch.unwrap_or(epoch) != at.epoch {
            return Err(format!("commit {} is of epoch {}, which is not known here", at.seq, at.epoch));
        }
        self.changed.has_names = self.replay.changes_names();
        let mut position = Vec::new();
        at.encode(&mut position);
        self.replay.batch().put(self.records.space(), POSITION_KEY, position).map_err(text)?;
        let local = self.replay.commit(Durability::Buffered).map_err(text)?.get();
        let history = self.epoch.take().map(|_| self.records.history()).transpose().map_err(text)?;
        {
            let mut state = replication.state.lock();
            (state.applied, state.applied_local) = (at, local);
            state.upstream.newest = state.upstream.newest.max(at.seq);
            state.history = history.unwrap_or_else(|| std::mem::take(&mut state.history));
        }
        drop(turn);
        replication.tell();
        Ok(std::mem::take(&mut self.changed))
    }

    /// Drops the changes taken of a commit.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub fn abandon(&mut self) -> Applied {
        (self.epoch, self.changed) = (None, Changed::default());
        self.replay.abandon().map_err(text)
    }
}

/// Returns whether a database holds no data that could be missed.
///
/// # Errors
/// Fails if the engine fails.
pub fn is_pristine(db: &Db) -> esker::Result<bool> {
    let is_own = |name: &str| name == KEYSPACE || name == super::NOTHING;
    for name in db.keyspaces()?.iter().filter(|name| !is_own(name)) {
        if db.open_keyspace(name)?.first()?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the maps of a database that its primary has not created yet. They are empty.
///
/// # Errors
/// Fails if the store fails.
pub fn empty_database(store: &dyn Store, number: usize) -> crate::store::Result<Database> {
    let nothing = store.space(super::NOTHING, true)?;
    Ok(Database {
        number,
        main: nothing.clone(),
        sub: nothing.clone(),
        ttl: nothing.clone(),
        garbage: nothing,
    })
}
