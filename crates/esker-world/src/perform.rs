//! Does operations to a database: the only place that knows which call each of them is.
//!
//! ```text
//!   Op --perform--> Db        Write --write--> a keyspace, a batch, a transaction
//! ```

use std::ops::Bound;
use std::time::Duration;

use esker::{Builder, Db, Keyspace, Result, Transaction, WriteBatch};

use crate::model::keys::{bounds, key};
use crate::model::state::{DEFAULT, State};
use crate::model::values::ValueNo;
use crate::op::{HISTORIES, KeyspaceNo, NAMES, Op, Write};

/// The name of the merge operator of all keyspaces.
pub const OPERATOR: &str = "merged numbers";

/// An opening with the operator that merges are done by: the values are those of the model.
pub fn with_operator(builder: Builder) -> Builder {
    builder.merge_operator(OPERATOR, |existing, operands| {
        let parse = |bytes: &[u8]| ValueNo::parse(bytes).ok_or_else(|| "no value has these bytes".to_owned());
        let mut all = existing.into_iter().chain(operands.iter().copied()).map(parse);
        let first = all.next().ok_or_else(|| "no operands".to_owned())??;
        let merged = all.try_fold(first, |before, operand| operand.map(|operand| before.merged(operand)))?;
        Ok(merged.bytes())
    })
}

/// Something that takes writes.
pub trait Target {
    /// Sets a key.
    fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<()>;
    /// Sets a key for some time.
    fn put_with_ttl(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8], ttl: Duration) -> Result<()>;
    /// Merges an operand into a key of a keyspace that has an operator.
    fn merge(&mut self, keyspace: &Keyspace, key: &[u8], operand: &[u8]) -> Result<()>;
    /// Removes a key.
    fn remove(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<()>;
    /// Removes the keys between bounds.
    fn remove_range(&mut self, keyspace: &Keyspace, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<()>;
    /// Removes all keys.
    fn clear(&mut self, keyspace: &Keyspace) -> Result<()> {
        self.remove_range(keyspace, (Bound::Unbounded, Bound::Unbounded))
    }
}

/// Commits each write by itself.
pub struct Single;

impl Target for Single {
    fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<()> {
        keyspace.put(key, value).map(drop)
    }

    fn put_with_ttl(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8], ttl: Duration) -> Result<()> {
        keyspace.put_with_ttl(key, value, ttl).map(drop)
    }

    fn merge(&mut self, keyspace: &Keyspace, key: &[u8], operand: &[u8]) -> Result<()> {
        keyspace.merge(key, operand).map(drop)
    }

    fn remove(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<()> {
        keyspace.remove(key).map(drop)
    }

    fn remove_range(&mut self, keyspace: &Keyspace, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<()> {
        keyspace.remove_range(bounds).map(drop)
    }

    fn clear(&mut self, keyspace: &Keyspace) -> Result<()> {
        keyspace.clear().map(drop)
    }
}

macro_rules! collects {
    ($type:ty) => {
        impl Target for $type {
            fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<()> {
                self.put(keyspace, key, value)
            }

            fn put_with_ttl(
                &mut self,
                keyspace: &Keyspace,
                key: &[u8],
                value: &[u8],
                ttl: Duration,
            ) -> Result<()> {
                self.put_with_ttl(keyspace, key, value, ttl)
            }

            fn merge(&mut self, keyspace: &Keyspace, key: &[u8], operand: &[u8]) -> Result<()> {
                self.merge(keyspace, key, operand)
            }

            fn remove(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<()> {
                self.remove(keyspace, key)
            }

            fn remove_range(
                &mut self,
                keyspace: &Keyspace,
                bounds: (Bound<&[u8]>, Bound<&[u8]>),
            ) -> Result<()> {
                self.remove_range(keyspace, bounds)
            }
        }
    };
}

collects!(WriteBatch);
collects!(Transaction);

/// Does a write.
///
/// # Errors
/// Those of the call.
pub fn write(target: &mut impl Target, keyspace: &Keyspace, write: &Write) -> Result<()> {
    match write {
        Write::Put(no, value) => target.put(keyspace, key(*no), &value.bytes()),
        Write::PutFor(no, value, ms) => {
            target.put_with_ttl(keyspace, key(*no), &value.bytes(), Duration::from_millis(u64::from(*ms)))
        }
        Write::PutUntil(..) | Write::MergeAt(..) => panic!("the model's own"),
        Write::Merge(no, operand) => {
            keyspace.set_merge_operator(OPERATOR)?;
            target.merge(keyspace, key(*no), &operand.bytes())
        }
        Write::Remove(no) => target.remove(keyspace, key(*no)),
        Write::RemoveRange(range) => target.remove_range(keyspace, bounds(*range)),
        Write::Clear => target.clear(keyspace),
    }
}

/// Does an operation of a writer, or a step of background work. `find` gives the keyspaces; names begin with `prefix`.
///
/// # Errors
/// Those of the call.
///
/// # Panics
/// If the operation is another one: those need a `World`.
pub fn perform(db: &Db, op: &Op, find: impl Fn(KeyspaceNo) -> Result<Keyspace>, prefix: &str) -> Result<()> {
    let name = |no: u8| format!("{prefix}{}", NAMES[usize::from(no)]);
    match op {
        Op::Write(no, change) => write(&mut Single, &find(*no)?, change),
        Op::Batch(writes, durability) => {
            let mut batch = db.batch();
            for (no, change) in writes {
                write(&mut batch, &find(*no)?, change)?;
            }
            batch.commit_with(*durability)?;
            Ok(())
        }
        Op::Replace(no, writes, durability) => {
            let name = find(*no)?.name();
            // In either way.
            if writes.len().is_multiple_of(2) {
                let mut batch = db.batch();
                batch.drop_keyspace(&name)?;
                let new = batch.create_keyspace(&name)?;
                writes.iter().try_for_each(|change| write(&mut batch, &new, change))?;
                batch.commit_with(*durability)?;
            } else {
                let mut transaction = db.begin();
                transaction.drop_keyspace(&name)?;
                let new = transaction.create_keyspace(&name)?;
                writes.iter().try_for_each(|change| write(&mut transaction, &new, change))?;
                transaction.commit_with(*durability)?;
            }
            Ok(())
        }
        Op::Create(new) => db.create_keyspace(&name(*new)).map(drop),
        Op::Drop(no) => db.drop_keyspace(&find(*no)?.name()),
        Op::Rename(no, to) => db.rename_keyspace(&find(*no)?.name(), &name(*to)),
        Op::SetLifetime(no, ms) => {
            let ttl = (*ms > 0).then(|| Duration::from_millis(u64::from(*ms)));
            find(*no)?.set_default_ttl(ttl)
        }
        Op::SetHistory(no, which) => find(*no)?.set_history(HISTORIES[usize::from(*which)]),
        Op::Flush => db.flush(),
        Op::Compact => db.compact(),
        Op::Sync => db.sync(),
        Op::Step(step) => db.step(*step).map(drop),
        other => panic!("{other:?} needs a world"),
    }
}

/// The part of a database that one writer has for itself: the keyspaces whose names begin with its own.
#[derive(Clone, Debug)]
pub struct Part {
    /// What the names begin with.
    pub prefix: String,
    /// What it must hold.
    pub state: State,
}

impl Part {
    /// A keyspace. The default one is made when it is needed.
    ///
    /// # Errors
    /// Those of the call.
    pub fn find(&self, db: &Db, no: KeyspaceNo) -> Result<Keyspace> {
        let name = self.state.pick(no);
        let full = format!("{}{name}", self.prefix);
        if name == DEFAULT { db.keyspace(&full) } else { db.open_keyspace(&full) }
    }

    /// Does an operation to the database.
    ///
    /// # Errors
    /// Those of the call.
    pub fn perform(&self, db: &Db, op: &Op) -> Result<()> {
        perform(db, op, |no| self.find(db, no), &self.prefix)
    }
}
