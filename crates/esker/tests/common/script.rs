//! A fixed workload, and what may be left of it.
//!
//! ```text
//!   steps() --Script::run--> Db, and in parallel Journal: every state that the disk may hold after each step
//! ```
//!
//! S1. A step that was acknowledged counts; one that failed may count or not, until the next open tells. Steps
//!     refused because writes are stopped already do not count.
//! S2. After a crash the state is one that the journal has at or after its last durable step.

use std::collections::BTreeSet;

use esker::{BackgroundStep, Builder, Db, Durability, Error, Keyspace, Result, WriteBatch};

use super::contents::{Contents, Map, difference, dump};
use super::dir;

/// One change of a keyspace.
#[derive(Clone, Debug)]
pub enum Change {
    Put(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    /// From the first key to before the second.
    RemoveRange(Vec<u8>, Vec<u8>),
}

/// One step of the workload.
#[derive(Clone, Debug)]
pub enum Step {
    /// An atomic batch over keyspaces that exist.
    Commit(Vec<(&'static str, Change)>, Durability),
    Create(&'static str),
    Drop(&'static str),
    Rename(&'static str, &'static str),
    Clear(&'static str),
    Flush,
    Compact,
    Sync,
    Background,
    Reopen,
}

fn key(n: usize) -> Vec<u8> {
    format!("a/common/prefix/of/keys/{n:04}").into_bytes()
}

fn puts(keyspace: &'static str, keys: std::ops::Range<usize>, tag: u8) -> Vec<(&'static str, Change)> {
    let value = |n: usize| vec![tag; 10 + n * 7 % 60];
    keys.map(|n| (keyspace, Change::Put(key(n), value(n)))).collect()
}

/// The workload: all file kinds, all operations, all durabilities, several memtables and merges.
pub fn steps() -> Vec<Step> {
    use Durability::{Buffered, None as NotSoon, Sync};
    let remove_range =
        |keyspace, from, to| Step::Commit(vec![(keyspace, Change::RemoveRange(key(from), key(to)))], Sync);
    let mut steps = vec![
        Step::Commit(puts("default", 0..1, b'a'), Sync),
        Step::Create("users"),
        Step::Commit(puts("users", 0..30, b'b'), Sync),
        Step::Commit(puts("default", 0..40, b'c'), Buffered),
        Step::Flush,
        Step::Commit(vec![("users", Change::Remove(key(3))), ("default", Change::Remove(key(4)))], Sync),
        remove_range("users", 5, 12),
        Step::Commit(puts("users", 8..10, b'd'), NotSoon),
        Step::Create("gone"),
        Step::Commit(puts("gone", 0..10, b'e'), Sync),
        Step::Flush,
        Step::Background,
        Step::Reopen,
    ];
    // Small commits until memtables fill of themselves.
    for n in 0..24 {
        let durability = [Sync, Buffered, NotSoon][n % 3];
        steps.push(Step::Commit(puts("default", n * 3..n * 3 + 6, b'f' + n as u8 % 8), durability));
    }
    let mut both = puts("default", 10..20, b'x');
    both.push(("default", Change::RemoveRange(key(14), key(40))));
    both.extend(puts("users", 10..20, b'y'));
    both.extend(puts("default", 16..18, b'z'));
    steps.extend([
        Step::Sync,
        Step::Background,
        Step::Commit(both, Sync),
        Step::Rename("users", "people"),
        Step::Drop("gone"),
        Step::Compact,
        Step::Commit(puts("people", 20..22, b'1'), NotSoon),
        Step::Clear("people"),
        Step::Commit(puts("people", 2..5, b'2'), Buffered),
        Step::Reopen,
        Step::Commit(puts("default", 60..75, b'3'), Sync),
        Step::Flush,
        Step::Background,
        remove_range("default", 0, 9),
        Step::Compact,
        Step::Commit(puts("default", 7..8, b'4'), Sync),
    ]);
    steps
}

/// What the step makes of a state; the same state for steps that change nothing.
fn apply(step: &Step, state: &Contents) -> Contents {
    let mut next = state.clone();
    match step {
        Step::Commit(changes, _) => {
            // A failed step may have left out what this one builds on: then there is nothing to change.
            for (keyspace, change) in changes {
                let Some(map) = next.get_mut(*keyspace) else { continue };
                match change {
                    Change::Put(key, value) => drop(map.insert(key.clone(), value.clone())),
                    Change::Remove(key) => drop(map.remove(key)),
                    Change::RemoveRange(from, to) => map.retain(|key, _| !(from <= key && key < to)),
                }
            }
        }
        Step::Create(name) => drop(next.entry((*name).to_owned()).or_default()),
        Step::Drop(name) => drop(next.remove(*name)),
        Step::Rename(from, to) => {
            if let Some(map) = next.remove(*from) {
                next.insert((*to).to_owned(), map);
            }
        }
        Step::Clear(name) => drop(next.get_mut(*name).map(Map::clear)),
        Step::Flush | Step::Compact | Step::Sync | Step::Background | Step::Reopen => {}
    }
    next
}

/// Everything the disk may hold.
#[derive(Debug)]
pub struct Journal {
    /// After each attempted step, oldest first: the states that are possible (S1).
    possible: Vec<BTreeSet<Contents>>,
    /// The last entry of `possible` that a crash cannot undo.
    durable: usize,
    /// Steps that failed since the last open; each may double the states that are possible.
    pub doubtful: usize,
    /// What readers of the open database see.
    pub visible: Contents,
}

impl Journal {
    fn new() -> Self {
        // A crash while the first database is made may leave none, which opens as an empty one.
        let empty = Contents::from([("default".to_owned(), Map::new())]);
        Journal { possible: vec![BTreeSet::from([empty.clone()])], durable: 0, doubtful: 0, visible: empty }
    }

    fn attempt(&mut self, step: &Step) {
        let last = self.possible.last().expect("there is a first");
        let maybe = last.iter().map(|state| apply(step, state)).chain(last.iter().cloned()).collect();
        self.possible.push(maybe);
    }

    fn acknowledge(&mut self, step: &Step) {
        let at = self.possible.len() - 1;
        self.possible[at] = self.possible[at - 1].iter().map(|state| apply(step, state)).collect();
        self.visible = apply(step, &self.visible);
        let durable = match step {
            Step::Commit(_, durability) => *durability == Durability::Sync,
            Step::Background => false,
            _ => true,
        };
        if durable {
            self.durable = at;
        }
    }

    /// The last attempt did nothing.
    fn refused(&mut self) {
        self.possible.pop();
        self.possible.push(self.possible.last().expect("there is a first").clone());
    }

    /// An open without a crash in between has found this.
    fn settle(&mut self, found: Contents) {
        *self.possible.last_mut().expect("there is a first") = BTreeSet::from([found.clone()]);
        self.visible = found;
        self.doubtful = 0;
    }

    /// Whether a crash may have left this (S2).
    pub fn allows_after_crash(&self, found: &Contents) -> bool {
        self.possible[self.durable..].iter().any(|states| states.contains(found))
    }

    /// Whether closing without an error may have left this.
    pub fn allows_after_close(&self, found: &Contents) -> bool {
        self.possible.last().is_some_and(|states| states.contains(found))
    }

    /// The states after each step, for those who damage files.
    pub fn history(&self) -> &[BTreeSet<Contents>] {
        &self.possible
    }
}

/// The workload on its way.
pub struct Script {
    builder: Builder,
    pub db: Option<Db>,
    pub journal: Journal,
    /// An error has said so since the database was opened.
    writes_stopped: bool,
    /// The database was closed without an error, so that nothing acknowledged may be missing.
    closed_cleanly: bool,
}

impl Script {
    /// Before anything is opened.
    pub fn new(builder: Builder) -> Self {
        Script { builder, db: None, journal: Journal::new(), writes_stopped: false, closed_cleanly: true }
    }

    /// Opens the database if it is not open, and reads it: what failed steps left is known then.
    pub fn open(&mut self) -> Result<&Db> {
        if self.db.is_none() {
            let db = self.builder.clone().open(dir())?;
            let found = dump(&db)?;
            let allowed = match self.closed_cleanly {
                true => self.journal.allows_after_close(&found),
                false => self.journal.allows_after_crash(&found),
            };
            assert!(allowed, "reopening: {}", difference(&found, &self.journal.visible));
            self.journal.settle(found);
            (self.writes_stopped, self.closed_cleanly) = (false, false);
            self.db = Some(db);
        }
        Ok(self.db.as_ref().expect("just opened"))
    }

    /// Closes the database if it is open.
    pub fn close(&mut self) -> Result<()> {
        let Some(db) = self.db.take() else { return Ok(()) };
        let closed = db.close();
        self.closed_cleanly = closed.is_ok();
        closed
    }

    /// Does all steps; ends at the first error.
    pub fn run(&mut self, steps: &[Step]) -> Result<()> {
        self.open()?;
        steps.iter().try_for_each(|step| self.step(step))
    }

    /// Does one step.
    pub fn step(&mut self, step: &Step) -> Result<()> {
        if let Step::Reopen = step {
            self.close()?;
        }
        self.open()?;
        self.journal.attempt(step);
        let result = self.perform(step);
        match &result {
            Ok(()) => self.journal.acknowledge(step),
            Err(Error::KeyspaceNotFound(_) | Error::KeyspaceExists(_)) => self.journal.refused(),
            Err(Error::Poisoned(_)) if self.writes_stopped => self.journal.refused(),
            Err(error) => {
                self.writes_stopped |= matches!(error, Error::Poisoned(_));
                self.journal.doubtful += 1;
            }
        }
        result
    }

    fn perform(&self, step: &Step) -> Result<()> {
        let db = self.db.as_ref().expect("open");
        match step {
            Step::Commit(changes, durability) => batch(db, changes)?.commit_with(*durability),
            Step::Create(name) => db.create_keyspace(name).map(drop),
            Step::Drop(name) => db.drop_keyspace(name),
            Step::Rename(from, to) => db.rename_keyspace(from, to),
            Step::Clear(name) => db.open_keyspace(name)?.clear(),
            Step::Flush => db.flush(),
            Step::Compact => db.compact(),
            Step::Sync => db.sync(),
            Step::Background => {
                let flushed = db.step(BackgroundStep::Flush)?;
                if flushed { Ok(()) } else { db.step(BackgroundStep::Compact { idle: true }).map(drop) }
            }
            Step::Reopen => Ok(()),
        }
    }

    /// Readers of the open database see all that was acknowledged and nothing else.
    pub fn verify_reads(&self) -> Result<()> {
        let Some(db) = &self.db else { return Ok(()) };
        let found = dump(db)?;
        assert!(found == self.journal.visible, "{}", difference(&found, &self.journal.visible));
        Ok(())
    }
}

fn batch(db: &Db, changes: &[(&'static str, Change)]) -> Result<WriteBatch> {
    let mut batch = db.batch();
    for (name, change) in changes {
        let keyspace: Keyspace = db.open_keyspace(name)?;
        match change {
            Change::Put(key, value) => batch.put(&keyspace, key, value)?,
            Change::Remove(key) => batch.remove(&keyspace, key)?,
            Change::RemoveRange(from, to) => {
                batch.remove_range::<Vec<u8>>(&keyspace, from.clone()..to.clone())?
            }
        }
    }
    Ok(batch)
}
