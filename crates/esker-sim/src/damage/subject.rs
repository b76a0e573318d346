//! The database to be damaged, and what the model knows of it.
//!
//! ```text
//!   seed --generate.rs--> fault-free operations --World--> close, drop or kill --> files, states by commit
//!                                            `--> the files at some earlier points
//! ```
//!
//! subject.1. The undamaged files contain the newest state: an opening finds a state that the history allows.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use esker::KeyspaceId;
use fastrand::Rng;

use super::draw::Drawing;
use super::files::{Files, disk, env, read};
use super::harm::Harm;
use super::hidden::{self, Hidden};
use super::tail::Tail;
use esker_world::generate::generate;
use esker_world::judge::read::contents;
use esker_world::model::keys::KeyNo;
use esker_world::model::state::{Id, State};
use esker_world::model::values::ValueNo;
use esker_world::op::{End, Mishap, Op, Opening, Restart, Write};
use esker_world::world::{DIR, Left, World, builder};

/// Separates the random numbers of a campaign from those of the generator with the same seed.
const SALT: u64 = 0xDA3A_6E00_0000_0000;
/// Number of points at which files are kept, besides restarts.
const MOMENTS: usize = 2;

/// How the database of a seed is created.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) opening: Opening,
    pub(super) ops: Vec<Op>,
    end: End,
    /// Numbers of operations before which the files are kept.
    moments: BTreeSet<usize>,
}

impl Plan {
    /// Returns the plan of a seed with up to `ops` operations, without those that make calls fail.
    pub(super) fn of(seed: u64, ops: usize) -> Plan {
        let (opening, ops) = generate(seed, ops);
        // The damaged database is opened at other times, so nothing may expire.
        let ops: Vec<Op> = ops.into_iter().map(Op::unlimited).collect();
        let ops: Vec<_> = ops.into_iter().filter_map(calm).collect();
        let mut rng = Rng::with_seed(seed ^ SALT);
        let end = [End::Close, End::Drop, End::Kill, End::Kill][rng.usize(0..4)];
        let is_restart = |op: &Op| matches!(op, Op::Restart(_) | Op::RestartIn { .. });
        let mut restarts: Vec<_> = (0..ops.len()).filter(|n| is_restart(&ops[*n])).collect();
        rng.shuffle(&mut restarts);
        let around = restarts.iter().take(MOMENTS).flat_map(|n| [*n, n + 1]);
        let others: Vec<_> = (0..MOMENTS).map(|_| rng.usize(0..ops.len().max(1))).collect();
        let moments = around.chain(others).collect();
        Plan { seed, opening, ops, end, moments }
    }

    /// Returns the plan with other operations.
    pub(super) fn with_ops(&self, ops: &[Op]) -> Plan {
        Plan { ops: ops.to_vec(), ..self.clone() }
    }

    /// Creates the database. `done` counts the operations.
    ///
    /// # Panics
    /// If it disagrees with the model before it is damaged.
    pub(super) fn subject(&self, done: &AtomicU64) -> Subject {
        let mut world = World::new(self.seed, None);
        // Harms are drawn and judged by what the files say.
        world.forgo_encryption();
        world.forgo_sharing();
        world.start_seed(self.opening);
        let (mut chronicle, mut moments) = (Chronicle::default(), Vec::new());
        for (n, op) in self.ops.iter().enumerate() {
            if self.moments.contains(&n) {
                moments.push((n, read(&world.image())));
            }
            done.fetch_add(1, Ordering::Relaxed);
            world.perform(op);
            chronicle.add(world.newest(), world.seqno());
        }
        self.examine(world.leave(self.end), chronicle, moments)
    }

    /// Determines the contents of the undamaged files (subject.1).
    fn examine(&self, left: Left, mut chronicle: Chronicle, moments: Vec<(usize, Files)>) -> Subject {
        let mut history = left.history;
        let states = history.states();
        let opened = builder(env(&left.disk.kill(), self.seed), self.opening).open(DIR);
        let db = opened.unwrap_or_else(|error| panic!("subject.1: the undamaged database: {error}"));
        let found = contents(&db, true);
        let found = found.unwrap_or_else(|error| panic!("subject.1: the undamaged database: {error}"));
        if let Err(complaint) = history.recovered(&found, left.reach) {
            panic!("subject.1: {complaint}");
        }
        let newest = history.newest().clone();
        let shown = states.iter().rposition(|state| state.digest() == newest.digest());
        let mut recent = states;
        // A commit in doubt is the last one.
        recent.truncate(shown.map_or(recent.len(), |at| at + 1));
        recent.reverse();
        begin_with(&mut recent, &newest);
        // An operation without effect may have no commit.
        recent.dedup_by_key(|state| state.digest());
        chronicle.add(&newest, db.stats().seqno.get());

        let files = read(&left.disk);
        Subject {
            seed: self.seed,
            opening: self.opening,
            ids: ids(self, &files, &newest),
            closed: !matches!(self.end, End::Kill),
            newest,
            recent,
            hidden: hidden::values(&self.ops),
            chronicle: chronicle.states,
            until: chronicle.until,
            tail: Tail::of(&files),
            files,
            moments,
        }
    }

    /// Returns the harms of the seed.
    pub(super) fn harms(&self, subject: &Subject, donor: &Donor) -> Vec<Harm> {
        Drawing::new(Rng::with_seed(self.seed ^ SALT.rotate_left(32)), subject, donor).harms()
    }
}

/// Removes faults from the operation. Returns `None` if nothing remains.
fn calm(op: Op) -> Option<Op> {
    let calm = |mut restart: Restart| {
        restart.mishaps.retain(|mishap| matches!(mishap, Mishap::End { .. }));
        restart
    };
    match op {
        Op::Fault(_) | Op::DiskFull(_) | Op::Mend(_) => None,
        Op::Checkpoint | Op::Backup | Op::Between(_) => None,
        Op::Update(..) | Op::TransactionUpdate(..) | Op::Point(..) | Op::Ingest(..) => None,
        Op::Archive(_) | Op::Unload(_) | Op::Follow(_) => None,
        // Several commits each, or none without guests.
        Op::Crowd(_) | Op::TakeTurns(..) | Op::Guest(_) => None,
        Op::Restart(restart) => Some(Op::Restart(calm(restart))),
        Op::RestartIn { after, keep, restart } => Some(Op::RestartIn { after, keep, restart: calm(restart) }),
        op => Some(op.with_writes(unmerged)),
    }
}

/// Replaces a merge by a put. If a part of the operands were lost, the key would have a value that was never
/// written.
fn unmerged(write: Write) -> Write {
    match write {
        Write::Merge(key, operand) => Write::Put(key, operand),
        Write::MergeFor(key, operand, ms) => Write::PutFor(key, operand, ms),
        write => write,
    }
}

/// Makes the newest state the first one.
fn begin_with(recent: &mut Vec<State>, newest: &State) {
    if recent.first().is_none_or(|state| state.digest() != newest.digest()) {
        recent.insert(0, newest.clone());
    }
}

/// Returns the ids of the keyspaces of the newest state, as a repair reports them.
fn ids(plan: &Plan, files: &Files, newest: &State) -> BTreeMap<Id, KeyspaceId> {
    let disk = disk(files);
    let report = builder(env(&disk, plan.seed), plan.opening).repair(DIR, "numbered");
    let report =
        report.unwrap_or_else(|error| panic!("subject.1: repair of the undamaged database: {error}"));
    assert!(
        report.losses.is_empty(),
        "subject.1: repair of the undamaged database loses {:#?}",
        report.losses
    );
    let number =
        |keyspace: &esker::RepairedKeyspace| newest.names().get(&keyspace.name).map(|id| (*id, keyspace.id));
    report.keyspaces.iter().filter_map(number).collect()
}

/// All states of a database, each once, oldest first.
struct Chronicle {
    states: Vec<State>,
    /// For each digest, the last commit at which it was the newest state.
    until: BTreeMap<u64, u64>,
    /// Digest of the last state.
    last: u64,
}

impl Default for Chronicle {
    /// Returns the chronicle of a new database.
    fn default() -> Self {
        let mut chronicle = Chronicle { states: Vec::new(), until: BTreeMap::new(), last: 0 };
        chronicle.add(&State::new(), 0);
        chronicle
    }
}

impl Chronicle {
    /// Adds the state of the database at this commit.
    fn add(&mut self, state: &State, seqno: u64) {
        let digest = state.digest();
        // Of the commits since the last call, only the last one may have changed anything.
        if digest != self.last
            && let Some(until) = self.until.get_mut(&self.last)
        {
            *until = (*until).max(seqno.saturating_sub(1));
        }
        let until = self.until.entry(digest).or_insert_with(|| {
            self.states.push(state.clone());
            0
        });
        *until = (*until).max(seqno);
        self.last = digest;
    }
}

/// A database to damage.
pub(super) struct Subject {
    pub(super) seed: u64,
    pub(super) opening: Opening,
    pub(super) files: Files,
    /// The files before these numbers of operations.
    pub(super) moments: Vec<(usize, Files)>,
    pub(super) newest: State,
    /// The states since the last opening, newest first.
    pub(super) recent: Vec<State>,
    /// Values that may never have been visible.
    pub(super) hidden: BTreeMap<(KeyNo, ValueNo), Hidden>,
    /// All states, starting with that of a new database.
    pub(super) chronicle: Vec<State>,
    /// For each digest, the last commit at which it was the newest state.
    until: BTreeMap<u64, u64>,
    /// Whether the log was closed and the manifest records its end.
    pub(super) closed: bool,
    /// The last segment of the log.
    pub(super) tail: Tail,
    /// Ids of the keyspaces of the newest state.
    pub(super) ids: BTreeMap<Id, KeyspaceId>,
}

impl Subject {
    /// Returns the last commit at which the database showed this state.
    pub(super) fn shown_until(&self, state: &State) -> u64 {
        self.until.get(&state.digest()).copied().unwrap_or(0)
    }

    /// Canary: makes the state before the newest commit the newest.
    pub(super) fn forget_newest_commit(&mut self) {
        let newest = self.newest.digest();
        if let Some(older) = self.chronicle.iter().rev().find(|state| state.digest() != newest) {
            self.newest = older.clone();
            self.recent = vec![older.clone()];
        }
    }
}

/// Another database, created on demand, whose files replace some of the damaged one.
pub(super) struct Donor {
    plan: Plan,
    subject: OnceCell<Subject>,
}

impl Donor {
    /// Creates the other database of a seed.
    pub(super) fn of(seed: u64, ops: usize) -> Donor {
        Donor { plan: Plan::of(!seed, ops / 2), subject: OnceCell::new() }
    }

    /// Returns the database.
    pub(super) fn get(&self) -> &Subject {
        self.subject.get_or_init(|| self.plan.subject(&AtomicU64::new(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_world::op::Write;

    #[test]
    fn a_state_is_the_newest_until_the_commit_that_changes_it() {
        let state = |n: u16| {
            let mut state = State::new();
            state.write(Id(0), &Write::Put(KeyNo(n), ValueNo::new(4, u32::from(n))));
            state
        };
        let mut chronicle = Chronicle::default();
        // Commits without effect, several at once, a recurring state, and commits lost in a crash.
        for (n, seqno) in [(1, 5), (1, 6), (2, 9), (1, 12), (3, 10)] {
            chronicle.add(&state(n), seqno);
        }
        let until = |n| chronicle.until[&state(n).digest()];
        assert_eq!([until(1), until(2), until(3)], [12, 11, 10]);
        assert_eq!(chronicle.until[&State::new().digest()], 4);
        assert_eq!(chronicle.states.len(), 4);
    }
}
