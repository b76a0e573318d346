//! Applies the commits of a primary to the database of a replica.
//!
//! ```text
//!   Ops, Ops, ... --change by change--> batch --Commit: names, position--> one commit of the database
//! ```
//!
//! repl_apply.1. A commit is applied as a whole, and with it what the replica's position is (replication.2). One that does not follow the position is refused.
//! repl_apply.2. A keyspace gets the number that it has at the primary (change.1). Where that is not possible the replica needs a copy.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use esker::{Counting, Db, Durability, Keyspace, VALUE_BYTES_MAX, WriteBatch};

use super::change::Change;
use super::position::{Epoch, Position};
use super::records::{EPOCH_PREFIX, POSITION_KEY, Records, decode_epoch};
use crate::clock;
use crate::data::Database;
use crate::holdings::topics::{Change as Told, Saying};
use crate::server::Server;
use crate::spans::Stretch;
use crate::store::Store;

/// A change takes no more bytes.
const CHANGE_BYTES_MAX: usize = VALUE_BYTES_MAX + (1 << 20);
/// Names that keyspaces have only inside of a commit.
const SPARE_NAME: &str = "es.spare.";

/// What keeps a commit from being applied, for people.
pub type Applied<T = ()> = Result<T, String>;

/// See the module's text.
pub struct Applier {
    server: Arc<Server>,
    db: Db,
    records: Records,
    /// The role's number while it applies.
    term: u64,
    /// Keyspaces, and their names, by their numbers.
    spaces: HashMap<u32, Keyspace>,
    names: BTreeMap<u32, String>,
    batch: WriteBatch,
    /// What has come of changes and is not in the batch yet.
    rest: Vec<u8>,
    /// Whose each name is from this commit on.
    renamed: BTreeMap<String, Option<u32>>,
    epoch: Option<Epoch>,
    /// Keys of databases that change; no key: all.
    touched: Vec<(usize, Option<Vec<u8>>)>,
    /// The same of all places, for those who watch them.
    changed: Vec<Told>,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The number of the database whose keys lie in a keyspace of this name.
fn database_of(name: &str) -> Option<usize> {
    name.strip_prefix('r').filter(|number| !number.starts_with('+'))?.parse().ok()
}

impl Applier {
    /// Goes on where the database is.
    ///
    /// # Errors
    /// The engine's.
    pub fn new(server: &Arc<Server>, term: u64) -> Applied<Self> {
        let (db, records) = server.replication.local().ok_or(super::NO_DATABASE)?.clone();
        let (mut spaces, mut names) = (HashMap::new(), BTreeMap::new());
        for name in db.keyspaces().map_err(text)? {
            let space = db.open_keyspace(&name).map_err(text)?;
            names.insert(space.id().get(), name);
            spaces.insert(space.id().get(), space);
        }
        let batch = db.batch();
        let server = server.clone();
        Ok(Applier {
            server,
            db,
            records,
            term,
            spaces,
            names,
            batch,
            rest: Vec::new(),
            renamed: BTreeMap::new(),
            epoch: None,
            touched: Vec::new(),
            changed: Vec::new(),
        })
    }

    /// Takes a part of the changes of a commit.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn take(&mut self, bytes: &[u8]) -> Applied {
        let mut rest = std::mem::take(&mut self.rest);
        rest.extend_from_slice(bytes);
        let mut at = 0;
        while let Some((change, len)) = Change::decode(&rest[at..]).map_err(text)? {
            self.change(&change)?;
            at += len;
        }
        rest.drain(..at);
        if rest.len() > CHANGE_BYTES_MAX {
            return Err("a change is too long".to_owned());
        }
        self.rest = rest;
        Ok(())
    }

    fn change(&mut self, change: &Change<'_>) -> Applied {
        let done = match *change {
            Change::Put { keyspace, key, value, expires } => {
                if keyspace == self.records.space().id().get() && key.first() == Some(&EPOCH_PREFIX) {
                    self.epoch = Some(decode_epoch(key, value).map_err(text)?.0);
                }
                self.touch(keyspace, Some(key), "set");
                let space = self.space(keyspace)?;
                match expires {
                    0 => self.batch.put(&space, key, value),
                    expires => match expires.saturating_sub(clock::now_ms()) {
                        0 => self.batch.remove(&space, key),
                        ms => self.batch.put_with_ttl(&space, key, value, Duration::from_millis(ms)),
                    },
                }
            }
            Change::Merge { keyspace, key, operand } => {
                self.touch(keyspace, Some(key), "set");
                let space = self.space(keyspace)?;
                self.batch.merge(&space, key, operand)
            }
            Change::Remove { keyspace, key } => {
                self.touch(keyspace, Some(key), "del");
                let space = self.space(keyspace)?;
                self.batch.remove(&space, key)
            }
            Change::RemoveRange { keyspace, start, end } => {
                self.touch(keyspace, None, "");
                self.change_of(keyspace, |place| {
                    let how = if database_of(&place).is_some() { "all" } else { "delrange" };
                    Told::Stretch(place, Stretch { from: start.to_vec(), to: end.map(<[u8]>::to_vec) }, how)
                });
                let space = self.space(keyspace)?;
                let end = end.map_or(Bound::Unbounded, Bound::Excluded);
                self.batch.remove_range(&space, (Bound::Included(start), end))
            }
            Change::Named { keyspace, name, is_lazy } => {
                if !self.spaces.contains_key(&keyspace) {
                    self.create(keyspace, name, is_lazy)?;
                }
                self.renamed.insert(name.to_owned(), Some(keyspace));
                Ok(())
            }
            Change::Unnamed { name } => {
                self.renamed.insert(name.to_owned(), None);
                Ok(())
            }
        };
        done.map_err(text)
    }

    fn space(&self, id: u32) -> Applied<Keyspace> {
        self.spaces
            .get(&id)
            .cloned()
            .ok_or_else(|| format!("the primary writes to keyspace {id}, which is not here"))
    }

    /// Notes a change for those who watch keys.
    fn change_of(&mut self, id: u32, change: impl FnOnce(String) -> Told) {
        if !self.server.holdings.changes.is_empty()
            && let Some(place) = self.names.get(&id)
        {
            self.changed.push(change(place.clone()));
        }
    }

    /// Who watches a key is told of it once it has changed.
    fn touch(&mut self, id: u32, key: Option<&[u8]>, how: &str) {
        if let Some(key) = key {
            self.change_of(id, |place| {
                Told::Key(Saying { place, topic: key.to_vec(), message: how.as_bytes().to_vec() })
            });
        }
        if (!self.server.watches.is_empty() || self.server.sequencer.has_waiters())
            && let Some(number) = self.names.get(&id).and_then(|name| database_of(name))
        {
            self.touched.push((number, key.map(<[u8]>::to_vec)));
        }
    }

    /// Creates a keyspace of this number (repl_apply.2).
    fn create(&mut self, id: u32, name: &str, is_lazy: bool) -> Applied {
        let counting = if is_lazy { Counting::Lazy } else { Counting::Exact };
        // The name may be another one's until the end of the commit.
        let spare = format!("{SPARE_NAME}{id}");
        let name = if self.names.values().any(|known| known == name) { &spare } else { name };
        let mut made = self.batch.create_keyspace_counting(name, counting).map_err(text)?;
        if made.id().get() < id {
            // The primary has given numbers to keyspaces that came to nothing.
            self.batch.drop_keyspace(name).map_err(text)?;
            let mut others = self.db.batch();
            while others
                .create_keyspace(&format!("{SPARE_NAME}{}", fastrand::u64(..)))
                .map_err(text)?
                .id()
                .get()
                + 1
                < id
            {}
            drop(others);
            made = self.batch.create_keyspace_counting(name, counting).map_err(text)?;
        }
        if made.id().get() != id {
            return Err(format!(
                "the primary has made keyspace {id}, and here the next one is {}: this database has keyspaces of its own",
                made.id()
            ));
        }
        self.names.insert(id, name.to_owned());
        self.spaces.insert(id, made);
        Ok(())
    }

    /// Gives keyspaces their names, and drops those that have none any more.
    fn give_names(&mut self) -> Applied {
        let renamed = std::mem::take(&mut self.renamed);
        let is_named = |id: u32| renamed.values().any(|other| *other == Some(id));
        let wrong: Vec<(String, u32)> = renamed
            .iter()
            .filter_map(|(name, id)| Some((name.clone(), (*id)?)))
            .filter(|(name, id)| self.names.get(id) != Some(name))
            .collect();
        for (_, id) in &wrong {
            let spare = format!("{SPARE_NAME}{id}");
            let name = self.names.insert(*id, spare.clone()).unwrap_or_default();
            if name != spare {
                self.batch.rename_keyspace(&name, &spare).map_err(text)?;
            }
        }
        for (name, _) in renamed.iter().filter(|(_, id)| id.is_none()) {
            let found = self.names.iter().find(|(_, known)| *known == name).map(|(id, _)| *id);
            if let Some(id) = found.filter(|id| !is_named(*id)) {
                self.batch.drop_keyspace(name).map_err(text)?;
                self.names.remove(&id);
                self.spaces.remove(&id);
            }
        }
        for (name, id) in wrong {
            self.batch.rename_keyspace(&format!("{SPARE_NAME}{id}"), &name).map_err(text)?;
            self.names.insert(id, name);
        }
        Ok(())
    }

    /// Commits what has come (repl_apply.1).
    ///
    /// # Errors
    /// What keeps it from that: nothing of the commit is there then, and this is of no more use.
    pub fn commit(&mut self, at: Position) -> Applied {
        if !self.rest.is_empty() {
            return Err("the changes of a commit break off".to_owned());
        }
        let server = self.server.clone();
        let replication = &server.replication;
        let turn = replication.take_turn();
        let (applied, epoch, term) = {
            let state = replication.state.lock();
            (state.applied, state.history.epoch_of(at.seq), state.term)
        };
        if term != self.term {
            return Err("the role of this server has changed".to_owned());
        }
        if at.seq != applied.seq + 1 {
            return Err(format!("commit {} came behind commit {}", at.seq, applied.seq));
        }
        if self.epoch.unwrap_or(epoch) != at.epoch {
            return Err(format!("commit {} is of epoch {}, which is not known here", at.seq, at.epoch));
        }
        let has_names = !self.renamed.is_empty();
        self.give_names()?;
        let mut position = Vec::new();
        at.encode(&mut position);
        self.batch.put(self.records.space(), POSITION_KEY, position).map_err(text)?;
        let batch = std::mem::replace(&mut self.batch, self.db.batch());
        let local = batch.commit_with(Durability::Buffered).map_err(text)?.get();
        let history = self.epoch.take().map(|_| self.records.history()).transpose().map_err(text)?;
        {
            let mut state = replication.state.lock();
            (state.applied, state.applied_local) = (at, local);
            state.history = history.unwrap_or_else(|| std::mem::take(&mut state.history));
        }
        drop(turn);
        if has_names {
            server.find_databases().map_err(text)?;
        }
        for (number, key) in self.touched.drain(..) {
            match key {
                Some(key) => {
                    server.watches.touch(number, &key);
                    server.sequencer.fill(number, key);
                }
                None => server.watches.touch_all(number),
            }
        }
        for change in self.changed.drain(..) {
            server.holdings.changes.tell(&change);
        }
        replication.tell();
        Ok(())
    }

    /// Forgets what has come of a commit.
    pub fn abandon(&mut self) -> Applied {
        // Keyspaces that it has made are known no more either.
        *self = Applier::new(&self.server, self.term)?;
        Ok(())
    }
}

/// Whether there is nothing in a database that somebody might miss.
///
/// # Errors
/// The engine's.
pub fn is_pristine(db: &Db) -> esker::Result<bool> {
    for name in db.keyspaces()?.iter().filter(|name| !name.starts_with(super::OWN_PREFIX)) {
        if db.open_keyspace(name)?.first()?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The maps of a database that its primary has not made yet: there is nothing in them.
///
/// # Errors
/// The store's.
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
