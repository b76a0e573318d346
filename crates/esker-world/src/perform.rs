//! Performs operations on a database: maps each to its call.
//!
//! ```text
//!   Op --perform--> Db        Write --write--> a keyspace, a batch, a transaction
//! ```

use std::collections::HashMap;
use std::ops::Bound;
use std::time::Duration;

use esker::{
    Builder, Counting, Db, Durability, Error, Keyspace, Result, Transaction, ViewMut, WriteBatch,
    WriteOptions,
};

use crate::model::keys::{KeyNo, bounds, key};
use crate::model::state::{DEFAULT, Named, State};
use crate::model::values::ValueNo;
use crate::op::{HISTORIES, KeyspaceNo, NAMES, Op, Update, Write, lifetime};

/// Name of the merge operator of all keyspaces.
pub const OPERATOR: &str = "merged numbers";

/// Adds the merge operator that computes the model's values.
pub fn with_operator(builder: Builder) -> Builder {
    builder.merge_operator(OPERATOR, |existing, operands| {
        let parse = |bytes: &[u8]| ValueNo::parse(bytes).ok_or_else(|| "no value has these bytes".to_owned());
        let mut all = existing.into_iter().chain(operands.iter().copied()).map(parse);
        let first = all.next().ok_or_else(|| "no operands".to_owned())??;
        let merged = all.try_fold(first, |before, operand| operand.map(|operand| before.merged(operand)))?;
        Ok(merged.bytes())
    })
}

/// A target of writes.
pub trait Target {
    /// Sets a key.
    fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<()>;
    /// Sets a key with a lifetime.
    fn put_with_ttl(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8], ttl: Duration) -> Result<()>;
    /// Applies a merge operand to a key of a keyspace with an operator.
    fn merge(&mut self, keyspace: &Keyspace, key: &[u8], operand: &[u8]) -> Result<()>;
    /// Removes a key.
    fn remove(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<()>;
    /// Removes the keys within bounds.
    fn delete_range(&mut self, keyspace: &Keyspace, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<()>;
    /// Removes all keys.
    fn clear(&mut self, keyspace: &Keyspace) -> Result<()> {
        self.delete_range(keyspace, (Bound::Unbounded, Bound::Unbounded))
    }
}

/// Commits each write separately.
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
        keyspace.delete(key).map(drop)
    }

    fn delete_range(&mut self, keyspace: &Keyspace, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<()> {
        keyspace.delete_range(bounds).map(drop)
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
                self.delete(keyspace, key)
            }

            fn delete_range(
                &mut self,
                keyspace: &Keyspace,
                bounds: (Bound<&[u8]>, Bound<&[u8]>),
            ) -> Result<()> {
                self.delete_range(keyspace, bounds)
            }
        }
    };
}

collects!(WriteBatch);
collects!(Transaction);

/// Commits changes of keyspaces and their contents atomically. Names in the database start with `prefix`.
///
/// # Errors
/// Those of the calls.
pub fn names(db: &Db, changes: &[Named], durability: Durability, prefix: &str) -> Result<()> {
    let full = |name: &str| format!("{prefix}{name}");
    let is_merge = |change: &Named| matches!(change, Named::Write(_, write) if write.is_merge());
    let mut made = HashMap::new();
    macro_rules! changed {
        ($target:ident) => {
            for change in changes {
                match change {
                    Named::Create(name) => {
                        let keyspace = $target.create_keyspace(&full(name))?;
                        if changes.iter().any(is_merge) {
                            let mut options = keyspace.options();
                            options.merge_operator = Some(OPERATOR.to_owned());
                            $target.set_options(&keyspace, options)?;
                        }
                        made.insert(name.clone(), keyspace);
                    }
                    Named::Drop(name) => {
                        made.remove(name);
                        $target.drop_keyspace(&full(name))?;
                    }
                    Named::Rename(from, to) => {
                        let keyspace = match made.remove(from) {
                            Some(made) => made,
                            None => db.open_keyspace(&full(from))?,
                        };
                        $target.rename_keyspace(&full(from), &full(to))?;
                        made.insert(to.clone(), keyspace);
                    }
                    Named::Write(name, change) => {
                        let keyspace = match made.get(name) {
                            Some(made) => made.clone(),
                            // A writer's own default keyspace is created when needed.
                            None if name == DEFAULT => db.keyspace(&full(name))?,
                            None => db.open_keyspace(&full(name))?,
                        };
                        write_merging(&mut $target, &keyspace, change)?;
                    }
                }
            }
            $target.commit_with(durability)?;
        };
    }
    // Merge operators are set by earlier, separate commits.
    for change in changes {
        if changes.iter().any(is_merge)
            && let Named::Write(name, _) | Named::Rename(name, _) = change
        {
            // A writer's own default keyspace is created when needed.
            match if name == DEFAULT { db.keyspace(&full(name)) } else { db.open_keyspace(&full(name)) } {
                Ok(there) => there.set_merge_operator(OPERATOR)?,
                Err(Error::KeyspaceNotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
    // By a batch or by a transaction.
    if changes.len().is_multiple_of(2) {
        let mut batch = db.batch();
        changed!(batch);
    } else {
        let mut transaction = db.begin();
        changed!(transaction);
    }
    Ok(())
}

/// Performs a write.
///
/// # Errors
/// Those of the call.
pub fn write(target: &mut impl Target, keyspace: &Keyspace, write: &Write) -> Result<()> {
    if write.is_merge() {
        keyspace.set_merge_operator(OPERATOR)?;
    }
    write_merging(target, keyspace, write)
}

/// Performs a write in a keyspace that has the operator.
fn write_merging(target: &mut impl Target, keyspace: &Keyspace, write: &Write) -> Result<()> {
    match write {
        Write::Put(no, value) => target.put(keyspace, key(*no), &value.bytes()),
        Write::PutFor(no, value, ms) => {
            target.put_with_ttl(keyspace, key(*no), &value.bytes(), lifetime(*ms))
        }
        Write::PutUntil(..) | Write::MergeAt(..) => panic!("the model's own"),
        Write::Merge(no, operand) => target.merge(keyspace, key(*no), &operand.bytes()),
        Write::MergeFor(no, operand, ms) => {
            let brief = keyspace.with(WriteOptions::new().ttl(lifetime(*ms)));
            target.merge(&brief, key(*no), &operand.bytes())
        }
        Write::Remove(no) => target.remove(keyspace, key(*no)),
        Write::RemoveRange(range) => target.delete_range(keyspace, bounds(*range)),
        Write::Clear => target.clear(keyspace),
    }
}

/// Returns the addend that changes a key to this number.
pub(crate) fn addend(old: Option<&[u8]>, sum: u32) -> i64 {
    let old = old.and_then(ValueNo::parse).and_then(ValueNo::as_number);
    i64::from(sum) - i64::from(old.unwrap_or(0))
}

macro_rules! updates {
    ($name:ident, $target:ty) => {
        /// Performs a read-modify-write change.
        ///
        /// # Errors
        /// Those of the calls.
        pub fn $name(target: $target, update: &Update) -> Result<()> {
            match update {
                Update::Change(no, value) => target
                    .update(key(*no), |old| {
                        let old = old.and_then(ValueNo::parse);
                        Some(old.map_or(*value, |old| old.merged(*value)).bytes())
                    })
                    .map(drop),
                Update::Swap(no, value, is_right) => {
                    let old = target.get(key(*no))?;
                    let wrong = ValueNo::new(9, u32::MAX).bytes();
                    let expected = if *is_right { old.as_deref() } else { Some(&wrong[..]) };
                    let swap = target.compare_and_swap(key(*no), expected, Some(&value.bytes()))?;
                    assert_eq!((swap.swapped, &swap.old), (*is_right, &old), "world.1: compare_and_swap");
                    Ok(())
                }
                Update::Add(no, sum) => {
                    let add = addend(target.get(key(*no))?.as_deref(), *sum);
                    let old = target.fetch_add(key(*no), add)?;
                    assert_eq!(old + add, i64::from(*sum), "world.1: fetch_add");
                    Ok(())
                }
                Update::Lease(..) => Err(Error::Invalid("transactions have no sequences".to_owned())),
                Update::Take(no) => target.remove(key(*no)).map(drop),
                Update::PopFirst => target.pop_first().map(drop),
                Update::PopLast => target.pop_last().map(drop),
                Update::Expire(no, ms) => target.expire(key(*no), lifetime(*ms)).map(drop),
                Update::Persist(no) => target.persist(key(*no)).map(drop),
            }
        }
    };
}

updates!(update_alone, &Keyspace);
updates!(update_within, &mut ViewMut<'_>);

/// Takes a number from a sequence.
fn take_number(keyspace: &Keyspace, no: KeyNo, lease: u8) -> Result<()> {
    let old = keyspace.get(key(no))?;
    let number = keyspace.sequence(key(no), u64::from(lease))?.next()?;
    let expected = old.as_deref().and_then(ValueNo::parse).and_then(ValueNo::as_number);
    assert_eq!(number, u64::from(expected.unwrap_or(0)), "world.1: a number of a sequence");
    Ok(())
}

/// Performs an operation of a writer, or a background step. `find` returns keyspaces; names start with
/// `prefix`.
///
/// # Errors
/// Those of the call.
///
/// # Panics
/// If the operation requires a `World`.
pub fn perform(db: &Db, op: &Op, find: impl Fn(KeyspaceNo) -> Result<Keyspace>, prefix: &str) -> Result<()> {
    let name = |no: u8| format!("{prefix}{}", NAMES[usize::from(no)]);
    match op {
        Op::Write(no, change) => write(&mut Single, &find(*no)?, change),
        Op::Update(no, Update::Lease(key, lease)) => take_number(&find(*no)?, *key, *lease),
        Op::Update(no, change) => update_alone(&find(*no)?, change),
        Op::Batch(writes, durability) => {
            let mut batch = db.batch();
            for (no, change) in writes {
                write(&mut batch, &find(*no)?, change)?;
            }
            batch.commit_with(*durability)?;
            Ok(())
        }
        Op::Ingest(no, pairs) => {
            let mut ingest = find(*no)?.ingest();
            pairs.iter().try_for_each(|(no, value)| ingest.put(key(*no), value.bytes()))?;
            ingest.commit()?;
            Ok(())
        }
        Op::Create(new) => db.create_keyspace(&name(*new)).map(drop),
        Op::Drop(no) => db.drop_keyspace(&find(*no)?.name()),
        Op::Rename(no, to) => db.rename_keyspace(&find(*no)?.name(), &name(*to)),
        Op::SetLifetime(no, ms) => {
            let ttl = (*ms > 0).then(|| Duration::from_millis(u64::from(*ms)));
            find(*no)?.set_default_ttl(ttl)
        }
        Op::SetLazyCounting(no, is_lazy) => {
            find(*no)?.set_counting(if *is_lazy { Counting::Lazy } else { Counting::Exact })
        }
        Op::SetHistory(no, which) => find(*no)?.set_history(HISTORIES[usize::from(*which)]),
        Op::SetBytesMax(no, bytes) => find(*no)?.set_bytes_max((*bytes > 0).then_some(u64::from(*bytes))),
        Op::Flush => db.flush(),
        Op::Compact => db.compact(),
        Op::CompactRange(no, range) => find(*no)?.compact_range(bounds(*range)),
        Op::Sync => db.sync(),
        Op::Step(step) => db.step(*step).map(drop),
        other => panic!("{other:?} needs a world"),
    }
}

/// The keyspaces of one writer: those whose names start with its prefix.
#[derive(Clone, Debug)]
pub struct Part {
    /// Prefix of the names.
    pub prefix: String,
    /// Expected contents.
    pub state: State,
}

impl Part {
    /// Opens a keyspace. The writer's default keyspace is created if missing.
    ///
    /// # Errors
    /// Those of the call.
    pub fn find(&self, db: &Db, no: KeyspaceNo) -> Result<Keyspace> {
        let name = self.state.pick(no);
        let full = format!("{}{name}", self.prefix);
        if name == DEFAULT { db.keyspace(&full) } else { db.open_keyspace(&full) }
    }

    /// Performs an operation on the database.
    ///
    /// # Errors
    /// Those of the call.
    pub fn perform(&self, db: &Db, op: &Op) -> Result<()> {
        match op {
            Op::Names(changes, durability) => {
                names(db, &self.state.changes_of(changes), *durability, &self.prefix)
            }
            op => perform(db, op, |no| self.find(db, no), &self.prefix),
        }
    }
}
