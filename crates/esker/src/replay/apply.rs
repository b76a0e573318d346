//! `Replay`: turns encoded changes into commits.
//!
//! ```text
//!   bytes, bytes, ... --change by change--> batch --names of keyspaces--> one commit
//! ```

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use super::change::decode;
use crate::db::{Db, FeedChange, FeedOperand, Keyspace, WriteBatch};
use crate::encoding::operand::Operand;
use crate::engine::writes::sweep::CommitHold;
use crate::txn::commit::Durability;
use crate::types::canary::{self, Canary};
use crate::types::limits::VALUE_BYTES_MAX;
use crate::types::{Error, KeyspaceId, Result, SeqNo};

/// Largest size of a change.
const CHANGE_BYTES_MAX: usize = VALUE_BYTES_MAX.saturating_add(1 << 20);
/// Prefix of temporary names of keyspaces, used only within a commit.
const SPARE_NAME: &str = "es.spare.";

/// Repeats the commits of another database. See the [module](super).
///
/// A replay knows the keyspaces that existed when it was made, and those that it has created. Nothing else
/// may create, drop or rename keyspaces meanwhile. After an error the replay is unusable, and none of the
/// commit was applied.
///
/// Until it is dropped, its database makes no commits of its own: it does not [sweep](Db::sweep), and runs no
/// compaction filters. Make the replay right after opening the database.
pub struct Replay {
    db: Db,
    /// Keeps the database from making commits of its own.
    _hold: CommitHold,
    /// Keyspaces and their names, by number.
    spaces: HashMap<u32, Keyspace>,
    names: BTreeMap<u32, String>,
    batch: WriteBatch,
    /// Received bytes that are not in the batch yet: an incomplete change.
    rest: Vec<u8>,
    /// New owner of each name that this commit changes.
    renamed: BTreeMap<String, Option<u32>>,
    /// Keyspaces that this commit creates.
    made: Vec<u32>,
}

impl std::fmt::Debug for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Replay({:?})", self.db)
    }
}

impl Replay {
    /// Starts a replay into this database.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn new(db: &Db) -> Result<Self> {
        let (mut spaces, mut names) = (HashMap::new(), BTreeMap::new());
        for name in db.keyspaces()? {
            let space = db.open_keyspace(&name)?;
            names.insert(space.id().get(), name);
            spaces.insert(space.id().get(), space);
        }
        let batch = db.batch();
        Ok(Replay {
            db: db.clone(),
            _hold: CommitHold::new(&db.handle.core),
            spaces,
            names,
            batch,
            rest: Vec::new(),
            renamed: BTreeMap::new(),
            made: Vec::new(),
        })
    }

    /// Takes some of the changes of a commit. The bytes may end within a change. Calls `see` with each
    /// change, and with the name of the keyspace whose keys it changes.
    ///
    /// # Errors
    /// Those of batches; [`Error::UnknownChange`]; [`Error::OtherHistory`] if this database is not a copy of
    /// the source of the changes (replay.2); [`Error::Invalid`] for other bytes.
    pub fn take(&mut self, bytes: &[u8], mut see: impl FnMut(&FeedChange<'_>, Option<&str>)) -> Result<()> {
        let mut rest = std::mem::take(&mut self.rest);
        rest.extend_from_slice(bytes);
        let mut at = 0;
        while let Some((change, len)) = decode(&rest[at..])? {
            self.change(&change)?;
            let name = change.key().and_then(|(id, _)| self.names.get(&id.get()));
            see(&change, name.map(String::as_str));
            at += len;
        }
        rest.drain(..at);
        if rest.len() > CHANGE_BYTES_MAX {
            return Err(Error::Invalid("a change is too long".to_owned()));
        }
        self.rest = rest;
        Ok(())
    }

    /// The batch of the commit. Writes added to it are committed together with the changes.
    pub fn batch(&mut self) -> &mut WriteBatch {
        &mut self.batch
    }

    /// Adds a change to the batch.
    fn change(&mut self, change: &FeedChange<'_>) -> Result<()> {
        match change {
            FeedChange::Put { keyspace, key, value } => {
                let space = self.space(*keyspace)?;
                self.batch.put_until_expiry(&space, key, &value.read()?, value.expiry())
            }
            FeedChange::Merge { keyspace, key, operands } => {
                let space = self.space(*keyspace)?;
                let now = canary::is_set(Canary::ReplayForgetsTime).then(|| self.db.time_ms());
                operands.iter().try_for_each(|FeedOperand(operand)| {
                    let operand = Operand { at_ms: now.unwrap_or(operand.at_ms), ..*operand };
                    self.batch.merge_of(&space, key, operand)
                })
            }
            FeedChange::Delete { keyspace, key } | FeedChange::Expire { keyspace, key } => {
                let space = self.space(*keyspace)?;
                self.batch.delete(&space, key)
            }
            FeedChange::DeleteRange { keyspace, start, end } => {
                // In a commit, range removals come before the name of a keyspace that it creates. Such a
                // keyspace is empty.
                let Some(space) = self.spaces.get(&keyspace.get()) else { return Ok(()) };
                let end = end.map_or(Bound::Unbounded, Bound::Excluded);
                self.batch.delete_range(space, (Bound::Included(*start), end))
            }
            FeedChange::Named { keyspace, name } => {
                if !self.spaces.contains_key(&keyspace.get()) {
                    self.create(*keyspace, name)?;
                }
                self.renamed.insert((*name).to_owned(), Some(keyspace.get()));
                Ok(())
            }
            FeedChange::Unnamed { name } => {
                self.renamed.insert((*name).to_owned(), None);
                Ok(())
            }
            FeedChange::Options { keyspace, options } => {
                let space = self.space(*keyspace)?;
                self.batch.set_options(&space, options.clone())
            }
            FeedChange::Internal { .. } => Ok(()),
        }
    }

    fn space(&self, id: KeyspaceId) -> Result<Keyspace> {
        let missing =
            || Error::OtherHistory(format!("a commit writes to keyspace {id}, which does not exist here"));
        self.spaces.get(&id.get()).cloned().ok_or_else(missing)
    }

    /// Creates a keyspace with this number (replay.2).
    fn create(&mut self, id: KeyspaceId, name: &str) -> Result<()> {
        // Another keyspace may have the name until the end of the commit.
        let spare = format!("{SPARE_NAME}{id}");
        if canary::is_set(Canary::RecreatedNameRefused) && self.names.values().any(|known| known == name) {
            return Err(Error::KeyspaceExists(name.to_owned()));
        }
        let name = if self.names.values().any(|known| known == name) { &spare } else { name };
        let made = self.batch.create_numbered_keyspace(name, id)?;
        self.names.insert(id.get(), name.to_owned());
        self.made.push(id.get());
        self.spaces.insert(id.get(), made);
        Ok(())
    }

    /// Gives keyspaces their names after the commit, and drops those without a name.
    ///
    /// A commit reports only the final owner of each name. A keyspace that is dropped while another one takes
    /// its name is not mentioned. So a keyspace that lost its name and got no other is dropped, even if the
    /// commit created it.
    fn give_names(&mut self) -> Result<()> {
        let renamed = std::mem::take(&mut self.renamed);
        let given: BTreeMap<u32, &String> =
            renamed.iter().filter_map(|(name, id)| Some(((*id)?, name))).collect();
        let made = std::mem::take(&mut self.made);
        let (mut dropped, mut moved) = (Vec::new(), Vec::new());
        for (id, before) in &self.names {
            match given.get(id) {
                None if renamed.contains_key(before) || made.contains(id) => {
                    dropped.push((*id, before.clone()));
                }
                Some(name) if *name != before => {
                    if !made.contains(id) && !renamed.contains_key(before) {
                        return Err(not_a_copy(*id, name, before));
                    }
                    moved.push((*id, (*name).clone()));
                }
                _ => {}
            }
        }
        for (id, name) in dropped {
            self.batch.drop_keyspace(&name)?;
            self.names.remove(&id);
            self.spaces.remove(&id);
        }
        // Keyspaces can swap names, so each gets a temporary name first.
        for (id, _) in &moved {
            let spare = format!("{SPARE_NAME}{id}");
            let name = self.names.insert(*id, spare.clone()).unwrap_or_default();
            if name != spare {
                self.batch.rename_keyspace(&name, &spare)?;
            }
        }
        for (id, name) in moved {
            self.batch.rename_keyspace(&format!("{SPARE_NAME}{id}"), &name)?;
            self.names.insert(id, name);
        }
        Ok(())
    }

    /// Returns whether the changes so far create, drop or rename keyspaces.
    pub fn changes_names(&self) -> bool {
        !self.renamed.is_empty()
    }

    /// Commits the received changes. Returns the number of the commit in this database.
    ///
    /// # Errors
    /// Those of [`WriteBatch::commit`]; [`Error::Invalid`] if the last change is incomplete.
    pub fn commit(&mut self, durability: Durability) -> Result<SeqNo> {
        if !self.rest.is_empty() {
            return Err(Error::Invalid("the last change of a commit is incomplete".to_owned()));
        }
        self.give_names()?;
        let batch = std::mem::replace(&mut self.batch, self.db.batch());
        Ok(batch.commit_with(durability)?)
    }

    /// Discards the received changes of a commit.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn abandon(&mut self) -> Result<()> {
        // Also forget the keyspaces that it has created.
        *self = Replay::new(&self.db)?;
        Ok(())
    }
}

/// The error if a keyspace gets a name before its name in this database is freed (replay.2).
fn not_a_copy(id: u32, name: &str, before: &str) -> Error {
    Error::OtherHistory(format!(
        "a commit creates keyspace {id}, named {name:?}, but this database has a keyspace {id} of its own, {before:?}"
    ))
}
