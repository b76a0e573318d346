//! A database's records of its replication, in a separate keyspace.
//!
//! ```text
//!   es.repl:  "e" + number (big-endian) --> mark, start       an epoch, replicated like data
//!             "p"                       --> position          of a primary's newest commit, written by it
//!             "r"                       --> role              primary since a commit, or replica of a server
//!             "b"                       --> ballot, quorum    the newest election it took part in: ballot.rs
//!             "s" + name                --> position, commit  a replica's slot: slots.rs
//!             "i"                       --> name              under which this database follows primaries
//!   es.none:  always empty: shown for a database that the primary has not created yet
//! ```
//!
//! All records except epochs belong to this database alone, and are not sent. A copy starts without slots.
//!
//! Bytes: docs/formats/replication.md

use crate::config::source::Source;
use std::collections::BTreeMap;

use esker::{Db, Error, Isolation, Keyspace, Result, WriteBatch};

use super::ballot::Ballot;
use super::bytes::{Broken, Reader, put_string};
use super::position::{Epoch, History, Position};
use super::slots::{self, Slot};

/// The keyspace of the records.
pub const KEYSPACE: &str = "es.repl";
/// The keyspace that is always empty.
pub const NOTHING: &str = "es.none";
/// First byte of the keys of epochs.
pub const EPOCH_PREFIX: u8 = b'e';
/// The key of the position.
pub const POSITION_KEY: &[u8] = b"p";
const ROLE_KEY: &[u8] = b"r";
const BALLOT_KEY: &[u8] = b"b";
const NAME_KEY: &[u8] = b"i";
const SLOT_PREFIX: u8 = b's';
/// Maximum number of epochs kept. A replica that was away for more takes a copy.
const EPOCHS_MAX: usize = 256;

/// A commit of this database, and its number in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// The engine's number of the commit.
    pub local: u64,
    /// Its number in the history. Later commits continue from it.
    pub seq: u64,
}

impl Base {
    /// Returns the number in the history of a commit at or after the base.
    pub fn seq_of(self, local: u64) -> Option<u64> {
        local.checked_sub(self.local).map(|behind| self.seq + behind)
    }
}

/// A database's role in replication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Its commits from the base on are the history.
    Primary(Base),
    /// It becomes a primary after this commit.
    Rising(u64),
    /// It takes commits from this server, or waits until an election gives it one.
    Replica(Source),
}

impl Role {
    /// Returns the address of a replica's primary.
    pub fn source(&self) -> Option<&Source> {
        if let Role::Replica(source) = self { Some(source) } else { None }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Role::Replica(source) => {
                out.push(0);
                out.extend_from_slice(&source.port.to_le_bytes());
                put_string(&mut out, source.host.as_bytes());
            }
            Role::Primary(base) => {
                out.push(1);
                out.extend_from_slice(&base.local.to_le_bytes());
                out.extend_from_slice(&base.seq.to_le_bytes());
            }
            Role::Rising(last) => {
                out.push(2);
                out.extend_from_slice(&last.to_le_bytes());
            }
        }
        out
    }

    fn decode(bytes: &[u8]) -> std::result::Result<Role, Broken> {
        Role::read(&mut Reader::new(bytes))
    }

    fn read(reader: &mut Reader<'_>) -> std::result::Result<Role, Broken> {
        Ok(match reader.u8()? {
            0 => {
                let port = u16::from_le_bytes([reader.u8()?, reader.u8()?]);
                Role::Replica(Source { host: reader.text()?.to_owned(), port })
            }
            1 => Role::Primary(Base { local: reader.u64()?, seq: reader.u64()? }),
            2 => Role::Rising(reader.u64()?),
            _ => return Err(Broken("a role that is not known: the database was written by a newer version")),
        })
    }
}

/// The records of a database.
#[derive(Clone)]
pub struct Records {
    db: Db,
    space: Keyspace,
}

fn corrupt(key: &[u8], broken: &Broken) -> Error {
    Error::Invalid(format!(
        "the record {:?} of the keyspace {KEYSPACE} is damaged: {broken}",
        key.escape_ascii()
    ))
}

fn epoch_key(number: u32) -> [u8; 5] {
    let [a, b, c, d] = number.to_be_bytes();
    [EPOCH_PREFIX, a, b, c, d]
}

/// Decodes an epoch, and the last commit before it.
pub fn decode_epoch(key: &[u8], value: &[u8]) -> std::result::Result<(Epoch, u64), Broken> {
    read_epoch(key, &mut Reader::new(value))
}

fn read_epoch(key: &[u8], reader: &mut Reader<'_>) -> std::result::Result<(Epoch, u64), Broken> {
    let number = key.strip_prefix(&[EPOCH_PREFIX]).and_then(|number| number.try_into().ok());
    let number = u32::from_be_bytes(number.ok_or(Broken("its key is none"))?);
    Ok((Epoch { number, mark: reader.u64()? }, reader.u64()?))
}

/// Describes what is wrong with an entry of the records' keyspace, if anything is.
pub fn problem(key: &[u8], value: &[u8]) -> Option<&'static str> {
    let reader = &mut Reader::new(value);
    let read = match key {
        POSITION_KEY => Position::decode(reader).map(drop),
        ROLE_KEY => Role::read(reader).map(drop),
        BALLOT_KEY => Ballot::decode(reader).map(drop),
        NAME_KEY => is_slot_name(reader.take(value.len()).unwrap_or_default()),
        [EPOCH_PREFIX, ..] => read_epoch(key, reader).map(drop),
        [SLOT_PREFIX, name @ ..] => is_slot_name(name).and_then(|()| Slot::read(reader).map(drop)),
        _ => return Some("no record has this key"),
    };
    match read {
        Err(Broken(why)) => Some(why),
        Ok(()) => (reader.left() > 0).then_some("bytes after the end of the record"),
    }
}

fn is_slot_name(name: &[u8]) -> std::result::Result<(), Broken> {
    let is_name = std::str::from_utf8(name).is_ok_and(slots::is_name);
    if is_name { Ok(()) } else { Err(Broken("no slot has this name")) }
}

impl Records {
    /// Opens the records of a database. Creates them if there are none.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub fn open(db: &Db) -> Result<Self> {
        db.keyspace(NOTHING)?;
        Ok(Records { db: db.clone(), space: db.keyspace(KEYSPACE)? })
    }

    /// Returns the keyspace.
    pub fn space(&self) -> &Keyspace {
        &self.space
    }

    /// Returns the role. `None` before the first record.
    ///
    /// # Errors
    /// Fails if the engine fails: the record is damaged.
    pub fn role(&self) -> Result<Option<Role>> {
        let raw = self.space.get(ROLE_KEY)?;
        raw.map(|raw| Role::decode(&raw).map_err(|broken| corrupt(ROLE_KEY, &broken))).transpose()
    }

    /// Returns the newest election that the server took part in.
    ///
    /// # Errors
    /// Fails if the engine fails: the record is damaged.
    pub fn ballot(&self) -> Result<Ballot> {
        let Some(raw) = self.space.get(BALLOT_KEY)? else { return Ok(Ballot::default()) };
        Ballot::decode(&mut Reader::new(&raw)).map_err(|broken| corrupt(BALLOT_KEY, &broken))
    }

    /// Returns the position of the newest commit that came from a primary.
    ///
    /// # Errors
    /// Fails if the engine fails: the record is damaged.
    pub fn position(&self) -> Result<Option<Position>> {
        let raw = self.space.get(POSITION_KEY)?;
        let decode = |raw: esker::Value| {
            Position::decode(&mut Reader::new(&raw)).map_err(|broken| corrupt(POSITION_KEY, &broken))
        };
        raw.map(decode).transpose()
    }

    /// Returns the epochs.
    ///
    /// # Errors
    /// Fails if the engine fails: a record is damaged.
    pub fn history(&self) -> Result<History> {
        let mut epochs = Vec::new();
        for entry in self.space.prefix([EPOCH_PREFIX]) {
            let (key, value) = entry?;
            epochs.push(decode_epoch(&key, &value).map_err(|broken| corrupt(&key, &broken))?);
        }
        Ok(History::new(epochs))
    }

    /// Begins an epoch, and records the role. `start` gets the engine's number of the newest commit, and
    /// returns the history's: no commit of other threads comes between it and the recording one, whose
    /// number is returned.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub fn begin_epoch(&self, epoch: Epoch, start: impl FnOnce(u64) -> u64, role: &Role) -> Result<u64> {
        let mut transaction = self.db.transaction().isolation(Isolation::Exclusive).begin();
        let start = start(transaction.snapshot().seqno().get());
        let history = self.history()?;
        let epochs = history.epochs();
        // Left by an attempt that did not finish.
        for (stale, _) in epochs.iter().filter(|(_, from)| *from >= start) {
            transaction.delete(&self.space, epoch_key(stale.number))?;
        }
        if epochs.len() >= EPOCHS_MAX {
            transaction.delete(&self.space, epoch_key(epochs[0].0.number))?;
        }
        let value = [epoch.mark.to_le_bytes(), start.to_le_bytes()].concat();
        transaction.put(&self.space, epoch_key(epoch.number), value)?;
        transaction.put(&self.space, ROLE_KEY, role.encode())?;
        Ok(transaction.commit_with(esker::Durability::Sync)?.get())
    }

    /// Removes all epochs, and what the server took part in, because the data belongs to another history.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub fn forget_epochs(&self) -> Result<()> {
        let mut batch = self.db.batch();
        batch.delete_prefix(&self.space, [EPOCH_PREFIX])?;
        batch.delete(&self.space, BALLOT_KEY)?;
        Ok(batch.commit_with(esker::Durability::Sync).map(drop)?)
    }

    /// Returns the slots and their names.
    ///
    /// # Errors
    /// Fails if the engine fails: a record is damaged.
    pub fn slots(&self) -> Result<BTreeMap<String, Slot>> {
        let mut slots = BTreeMap::new();
        for entry in self.space.prefix([SLOT_PREFIX]) {
            let (key, value) = entry?;
            let slot = Slot::decode(&value).map_err(|broken| corrupt(&key, &broken))?;
            slots.insert(String::from_utf8_lossy(&key[1..]).into_owned(), slot);
        }
        Ok(slots)
    }

    /// Writes slots, or removes those without a value.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub fn write_slots(&self, slots: &[(String, Option<Slot>)]) -> Result<()> {
        let mut batch = self.db.batch();
        for (name, slot) in slots {
            let key = [&[SLOT_PREFIX], name.as_bytes()].concat();
            match slot {
                Some(slot) => batch.put(&self.space, key, slot.encode())?,
                None => batch.delete(&self.space, key)?,
            }
        }
        Ok(batch.commit_with(esker::Durability::Sync).map(drop)?)
    }

    /// Returns the name under which this database follows primaries, if it has one.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub fn name(&self) -> Result<Option<String>> {
        Ok(self.space.get(NAME_KEY)?.map(|name| String::from_utf8_lossy(&name).into_owned()))
    }

    /// Sets its name.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub fn set_name(&self, name: &str) -> Result<()> {
        self.space.with(esker::Durability::Sync).put(NAME_KEY, name).map(drop)?;
        Ok(())
    }

    /// Makes a copy of another database a replica at this position, with this name or none, in this ballot,
    /// and without the original's slots.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub fn begin_copy(
        &self,
        source: &Source,
        position: Position,
        name: Option<&str>,
        ballot: Ballot,
    ) -> Result<()> {
        let mut batch = self.db.batch();
        batch.delete_prefix(&self.space, [SLOT_PREFIX])?;
        batch.delete(&self.space, NAME_KEY)?;
        self.put_ballot(&mut batch, ballot)?;
        if let Some(name) = name {
            batch.put(&self.space, NAME_KEY, name)?;
        }
        self.put_role(&mut batch, &Role::Replica(source.clone()), Some(position))?;
        Ok(batch.commit_with(esker::Durability::Sync).map(drop)?)
    }

    /// Records the role, and the position if it came from a primary. Returns the engine's number of the
    /// commit.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub fn write_role(&self, role: &Role, position: Option<Position>) -> Result<u64> {
        let mut batch = self.db.batch();
        self.put_role(&mut batch, role, position)?;
        Ok(batch.commit_with(esker::Durability::Sync)?.get())
    }

    /// Records the role and the election together. Returns the engine's number of the commit.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub fn write_elected(&self, role: &Role, position: Option<Position>, ballot: Ballot) -> Result<u64> {
        let mut batch = self.db.batch();
        self.put_ballot(&mut batch, ballot)?;
        self.put_role(&mut batch, role, position)?;
        Ok(batch.commit_with(esker::Durability::Sync)?.get())
    }

    fn put_ballot(&self, batch: &mut WriteBatch, ballot: Ballot) -> Result<()> {
        match ballot.number {
            0 => batch.delete(&self.space, BALLOT_KEY),
            _ => batch.put(&self.space, BALLOT_KEY, ballot.encode()),
        }
    }

    fn put_role(&self, batch: &mut WriteBatch, role: &Role, position: Option<Position>) -> Result<()> {
        if let Some(position) = position {
            let mut bytes = Vec::new();
            position.encode(&mut bytes);
            batch.put(&self.space, POSITION_KEY, bytes)?;
        }
        batch.put(&self.space, ROLE_KEY, role.encode())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn roles_and_epochs_are_kept() {
        let source = Source { host: "db.example".to_owned(), port: 6379 };
        let roles = [Role::Replica(source), Role::Primary(Base { local: 9, seq: 1 << 40 }), Role::Rising(77)];
        for role in &roles {
            assert_eq!(Role::decode(&role.encode()).as_ref(), Ok(role));
        }
        assert_eq!(roles[2].encode(), [2, 77, 0, 0, 0, 0, 0, 0, 0]);
        assert!(Role::decode(&[]).is_err() && Role::decode(&[9]).is_err() && Role::decode(&[0, 1]).is_err());

        let records = Records::open(&Db::in_memory().unwrap()).unwrap();
        assert_eq!((records.role().unwrap(), records.position().unwrap()), (None, None));
        let first = Epoch::default().next();
        for (epoch, start) in [(first, 0), (first.next(), 40), (first.next().next(), 40)] {
            records.begin_epoch(epoch, |_| start, &roles[2]).unwrap();
        }
        let history = records.history().unwrap();
        let starts: Vec<_> = history.epochs().iter().map(|(epoch, start)| (epoch.number, *start)).collect();
        assert_eq!(starts, [(1, 0), (3, 40)], "what came to no end is forgotten");
        let position = Position { epoch: first, seq: 40 };
        records.write_role(&roles[0], Some(position)).unwrap();
        assert_eq!(
            (records.role().unwrap(), records.position().unwrap()),
            (Some(roles[0].clone()), Some(position))
        );
        for n in 4..300 {
            records.begin_epoch(Epoch { number: n, mark: 1 }, |_| u64::from(n) * 100, &roles[2]).unwrap();
        }
        assert_eq!(records.history().unwrap().epochs().len(), EPOCHS_MAX);
    }

    #[test]
    fn no_commit_of_the_program_comes_between_an_epoch_and_its_start() {
        let db = Db::in_memory().unwrap();
        let records = Records::open(&db).unwrap();
        let is_over = AtomicBool::new(false);
        let late = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    db.default_keyspace().put("key", "value").unwrap();
                }
            });
            let mut late = 0;
            for number in 1..200 {
                let mut newest = 0;
                let start = |visible| {
                    newest = visible;
                    visible
                };
                let local = records.begin_epoch(Epoch { number, mark: 1 }, start, &Role::Rising(1));
                late += u64::from(local.ok() != Some(newest + 1));
            }
            is_over.store(true, Ordering::Relaxed);
            late
        });
        assert_eq!(late, 0);
    }
}
