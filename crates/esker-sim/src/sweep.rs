//! Sweeps: a fixed workload that touches every kind of file and operation, with something wrong at each single call.
//!
//! ```text
//!   workload --World--> runs to the so-manieth call: the process dies there, or the call fails, or the disk is full
//!      each death: every kind of loss of its own, and a kill; then more writes, another power loss, a check
//!      each call that fails, each full disk: the process ends behind that operation, in three ways; and after every
//!      operation that follows, everything is read
//! ```
//!
//! sweep.1. After a death at any change the database opens with a state that the history allows, and carries on.
//! sweep.2. A call that fails, once, for ever, or after it was made, gives a typed error, and so does a wrong byte that is read and matters; reads go
//!      on; nothing acknowledged is lost, even if the machine loses power right after it.
//!      A call that panics, in a file system of the user's for one, ends no more than the operation: what follows is refused, or goes on as if that
//!      one had failed. Whatever fails or panics behind it for no reason of its own is a failure of the sweep.
//! sweep.3. A disk that is full at any write loses nothing; with space again the database goes on, or does after opening.
//!
//! Whoever opens the database behind a death or a failure does so as the workload does.
//!
//! The positions of a sweep are those of the workload without compression, then those with it on a disk without direct I/O whose reads
//! are short, then those with all data beyond the cache and small files, then those with values in blob files.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use esker::{Durability, TableCompression};
use esker_env::{BrokenSync, FaultAction, FaultRule, OpKind};

use esker_world::Failure;
use esker_world::model::keys::KeyNo;
use esker_world::model::values::ValueNo;
use esker_world::op::{self, Calls, End, Fault, KeyspaceNo, Loss, Mishap, Op, Opening, Restart, Write};
use esker_world::workload::{Way, opening, script};

use crate::runner::{Sabotage, alone};
use esker_world::world::trouble::{death, misread};
use esker_world::world::{DIR, Tally, World};

/// What is swept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The process dies at each change: writes, syncs, changes of names and lengths.
    Deaths,
    /// The same, and then again at each change of the recovery.
    DeathsInRecovery,
    /// Each call fails once.
    FailsOnce,
    /// Each call fails, and all after it.
    FailsForever,
    /// Each change fails once after it has been made, as when an answer is lost.
    FailsLate,
    /// Each sync of a file fails once, and what it was to write is never written, although readers see it.
    LostSyncs,
    /// The process dies at some of the changes, and some calls of each recovery fail, one at a time.
    FailsInRecovery,
    /// Each write is cut short.
    ShortWrites,
    /// The disk is full from each write on.
    DiskFull,
    /// Each sync of a directory fails once.
    DirSyncs,
    /// Each read gives a wrong byte once.
    Misreads,
    /// Each call panics once.
    Panics,
}

/// Operations with a failed call before it is mended.
const PATIENCE: u32 = 8;
/// Of so many changes, one is a death after which calls of the recovery fail.
const DEATHS_STRIDE: u64 = 4;
/// Of so many calls of a recovery one fails; which ones changes from death to death.
const RECOVERY_STRIDE: u32 = 4;
/// The calls that take space.
const GROWING: [OpKind; 4] = [OpKind::Create, OpKind::Write, OpKind::SetLen, OpKind::Allocate];

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 12] = [
        Kind::Deaths,
        Kind::DeathsInRecovery,
        Kind::FailsOnce,
        Kind::FailsForever,
        Kind::FailsLate,
        Kind::LostSyncs,
        Kind::FailsInRecovery,
        Kind::ShortWrites,
        Kind::DiskFull,
        Kind::DirSyncs,
        Kind::Misreads,
        Kind::Panics,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Deaths => "deaths",
            Kind::DeathsInRecovery => "deaths-in-recovery",
            Kind::FailsOnce => "fails-once",
            Kind::FailsForever => "fails-forever",
            Kind::FailsLate => "fails-late",
            Kind::LostSyncs => "lost-syncs",
            Kind::FailsInRecovery => "fails-in-recovery",
            Kind::ShortWrites => "short-writes",
            Kind::DiskFull => "disk-full",
            Kind::DirSyncs => "dir-syncs",
            Kind::Misreads => "misreads",
            Kind::Panics => "panics",
        }
    }

    fn kinds(self) -> &'static [OpKind] {
        match self {
            Kind::Deaths | Kind::DeathsInRecovery | Kind::FailsInRecovery | Kind::FailsLate => {
                &OpKind::CHANGES
            }
            Kind::FailsOnce | Kind::FailsForever | Kind::Panics => &OpKind::ALL,
            Kind::LostSyncs => &[OpKind::SyncData],
            Kind::ShortWrites => &[OpKind::Write],
            Kind::DiskFull => &GROWING,
            Kind::DirSyncs => &[OpKind::SyncDir],
            Kind::Misreads => &[OpKind::Read],
        }
    }

    /// How many calls there are from one position to the next.
    fn stride(self) -> u64 {
        if self == Kind::FailsInRecovery { DEATHS_STRIDE } else { 1 }
    }

    /// How many positions there are.
    ///
    /// # Errors
    /// The workload fails without anything wrong.
    pub fn positions(self) -> Result<u64, Failure> {
        Ok(self.positions_of_each()?.into_iter().sum())
    }

    /// The positions of each way.
    fn positions_of_each(self) -> Result<[u64; Way::ALL.len()], Failure> {
        let count = |calls: CallCounts| self.kinds().iter().map(|kind| calls[*kind as usize]).sum::<u64>();
        Ok(calls()?.map(count).map(|calls| calls.div_ceil(self.stride())))
    }

    /// Where a position is, counted from 1.
    fn place(self, at: u64) -> Result<Place, Failure> {
        let mut at = at;
        for (way, positions) in Way::ALL.into_iter().zip(self.positions_of_each()?) {
            if at <= positions {
                return Ok(Place { call: (at - 1) * self.stride() + 1, opening: opening(way) });
            }
            at -= positions;
        }
        panic!("there is no such position");
    }

    /// Runs the workload with something wrong at this position, counted from 1.
    ///
    /// # Errors
    /// Anything disagreed with the model.
    pub fn run(self, at: u64, sabotage: Sabotage) -> Result<Tally, Failure> {
        let name = format!("{0} at {at} (esker-sim sweep {0} --at {at})", self.name());
        let at = self.place(at)?;
        alone(&name, move |done| {
            if let Some(engine) = sabotage.engine {
                engine();
            }
            match self {
                Kind::Deaths => deaths(at, sabotage.disk, done),
                Kind::DeathsInRecovery => deaths_in_recovery(at, sabotage.disk, done),
                Kind::FailsOnce => fails(at, self, FaultAction::Fail(std::io::ErrorKind::Other), 1, done),
                Kind::DirSyncs => dir_syncs(at, done),
                Kind::FailsForever => {
                    fails(at, self, FaultAction::Fail(std::io::ErrorKind::Other), u64::MAX, done)
                }
                Kind::FailsLate => {
                    fails(at, self, FaultAction::DoneThenFail(std::io::ErrorKind::Other), 1, done)
                }
                Kind::LostSyncs => fails(at, self, FaultAction::LostSync, 1, done),
                Kind::FailsInRecovery => fails_in_recovery(at, sabotage.disk, done),
                Kind::ShortWrites => {
                    let keep = [0, 1, 23, 600][at.call as usize % 4];
                    fails(at, self, FaultAction::ShortWrite { keep }, 1, done)
                }
                Kind::DiskFull => disk_full(at, self, done),
                Kind::Misreads => fails(at, self, misread(at.call), 1, done),
                Kind::Panics => fails(at, self, FaultAction::Panic, 1, done),
            }
        })
    }
}

/// A place in the workload.
#[derive(Clone, Copy)]
struct Place {
    /// The so-manieth call of the sweep's kinds, from 1.
    call: u64,
    /// How the workload's database is opened.
    opening: Opening,
}

impl Place {
    /// The end of a process that had the database open like this, and of the next, which has, too.
    fn restart(self, end: End) -> Restart {
        Restart { end, mishaps: Vec::new(), opening: self.opening }
    }
}

/// How often the workload makes each kind of call.
type CallCounts = [u64; OpKind::ALL.len()];

/// The calls of the workload in each way: the same each time, and counted once.
fn calls() -> Result<[CallCounts; Way::ALL.len()], Failure> {
    static CALLS: OnceLock<Result<[CallCounts; Way::ALL.len()], Failure>> = OnceLock::new();
    let count = |way| undisturbed(way).map(|(calls, _)| calls);
    let all = || {
        let [plain, compressed, beyond, blobs] = Way::ALL.map(count);
        Ok([plain?, compressed?, beyond?, blobs?])
    };
    CALLS.get_or_init(all).clone()
}

/// The calls of the workload with nothing wrong, and what it meets.
fn undisturbed(way: Way) -> Result<(CallCounts, Tally), Failure> {
    alone("the workload of the sweeps", move |done| {
        let mut world = new_world(0, opening(way), None);
        world.start(opening(way));
        run_script(&mut world, opening(way), done);
        (OpKind::ALL.map(|kind| world.faults().count(kind)), world.tally())
    })
}

/// The positions to try of `n`: all of a few, or when no sample is asked for; else a sample that starts and ends
/// densely.
pub fn sample(n: u64, sample: Option<u64>) -> Vec<u64> {
    let Some(size) = sample.filter(|size| *size < n) else { return (1..=n).collect() };
    let edge = size / 4;
    let inner = size - 2 * edge;
    let middle = (0..inner).map(|i| edge + 1 + i * (n - 2 * edge) / inner.max(1));
    (1..=edge).chain(middle).chain(n - edge + 1..=n).collect()
}

/// Does the script until the process is dead; the number of operations that it has ended or died in.
fn run_script(world: &mut World, opening: Opening, done: &AtomicU64) -> usize {
    let script = script(opening);
    for (n, op) in script.iter().enumerate() {
        if world.is_dead() {
            return n;
        }
        done.fetch_add(1, Ordering::Relaxed);
        world.perform(op);
    }
    script.len()
}

/// What recovery left must carry further writes, and survive a power loss of its own.
fn go_on(world: &mut World, at: Place) {
    let put = |no| (KeyspaceNo(no), Write::Put(KeyNo(500 + u16::from(no)), ValueNo::new(9, 77)));
    world.perform(&Op::Batch(vec![put(0), put(1)], Durability::Sync));
    world.perform(&Op::Restart(at.restart(End::Power(Loss::All))));
    world.perform(&Op::Write(KeyspaceNo(0), Write::Remove(KeyNo(500))));
    world.perform(&Op::Flush);
    world.perform(&Op::Restart(at.restart(End::Close)));
    world.perform(&Op::Check);
}

fn is_compressed(opening: Opening) -> bool {
    opening.compression != TableCompression::None
}

/// A world to be swept, before its first process.
fn new_world(seed: u64, opening: Opening, broken: Option<BrokenSync>) -> World {
    let mut world = World::new(seed, broken);
    world.swept = true;
    if is_compressed(opening) {
        world.be_plain();
    }
    world
}

/// A world whose process has died at this change.
fn dead(at: Place, broken: Option<BrokenSync>, done: &AtomicU64) -> World {
    let mut world = new_world(at.call, at.opening, broken);
    let keep = [0, 7, 600, u32::MAX][at.call as usize % 4];
    world.faults().add(death(at.call as u32 - 1, keep));
    world.start(at.opening);
    run_script(&mut world, at.opening, done);
    assert!(world.is_dead(), "the workload ends before change {}", at.call);
    world
}

fn deaths(at: Place, broken: Option<BrokenSync>, done: &AtomicU64) -> Tally {
    let mut world = dead(at, broken, done);
    // What the tools that read files make of it is of interest after each.
    world.inspects_all = true;
    let mut tally = world.tally();
    let seeds = [Loss::Seed(2 * at.call), Loss::Seed(2 * at.call + 1)];
    let losses = [Loss::All, Loss::Nothing].into_iter().chain(seeds).map(End::Power);
    let unheard = End::KillUnheard { seed: at.call, evicted: false };
    for end in losses.chain([End::Kill, unheard]) {
        let mut fork = world.fork(&at.restart(end));
        fork.inspects_all = false;
        go_on(&mut fork, at);
        tally.add(&fork.tally());
    }
    tally
}

fn deaths_in_recovery(at: Place, broken: Option<BrokenSync>, done: &AtomicU64) -> Tally {
    let mut world = dead(at, broken, done);
    let mut tally = world.tally();
    for after in 0.. {
        let n = at.call + u64::from(after);
        let second = [End::Kill, End::Power(Loss::All)][n as usize % 2];
        let seeds = (End::Power(Loss::Seed(at.call)), End::Power(Loss::Seed(n)));
        let mut died = false;
        // What a killed process has left unsynced can still be lost while the next one relies on it.
        for (first, second) in [(End::Kill, seeds.1), (seeds.0, second)] {
            let mishap = Mishap::End { after, keep: [0, 7, u32::MAX][n as usize % 3], end: second };
            let mut fork = world.fork(&Restart { mishaps: vec![mishap], ..at.restart(first) });
            died |= fork.tally().while_opening > 0;
            go_on(&mut fork, at);
            tally.add(&fork.tally());
        }
        if !died {
            break;
        }
    }
    tally
}

fn fails_in_recovery(at: Place, broken: Option<BrokenSync>, done: &AtomicU64) -> Tally {
    let mut world = dead(at, broken, done);
    let mut tally = world.tally();
    let first = 1 + (at.call / DEATHS_STRIDE) as u32 % RECOVERY_STRIDE;
    for nth in (first..).step_by(RECOVERY_STRIDE as usize) {
        let mut failed = false;
        for end in [End::Kill, End::Power(Loss::Seed(at.call))] {
            let fault = Fault { calls: Calls::All, nth, times: 1, failure: op::Failure::Error };
            let mut fork = world.fork(&Restart { mishaps: vec![Mishap::Fault(fault)], ..at.restart(end) });
            failed |= fork.tally().faults > 0;
            go_on(&mut fork, at);
            tally.add(&fork.tally());
        }
        if !failed {
            break;
        }
    }
    tally
}

fn fails(at: Place, kind: Kind, action: FaultAction, times: u64, done: &AtomicU64) -> Tally {
    let mut world = new_world(at.call, at.opening, None);
    world.faults().add(FaultRule { times, ..FaultRule::new(kind.kinds(), action).nth(at.call) });
    world.start(at.opening);
    endure(world, at, None, done)
}

/// A directory cannot be synced; and the database's own cannot, for want of a right that only the one above it may lack.
fn dir_syncs(at: Place, done: &AtomicU64) -> Tally {
    let mut tally = fails(at, Kind::DirSyncs, FaultAction::Fail(std::io::ErrorKind::Other), 1, done);
    let denied = FaultAction::Fail(std::io::ErrorKind::PermissionDenied);
    let mut world = new_world(at.call, at.opening, None);
    world.faults().add(FaultRule::new(&[OpKind::SyncDir], denied).on_file(Path::new(DIR)).nth(at.call));
    world.start(at.opening);
    tally.add(&endure(world, at, None, done));
    tally
}

/// A disk that gets full.
struct Filling {
    /// Before this operation of the script; 0 is the opening before the first.
    before: usize,
    /// At so many bytes of all files.
    bytes: u64,
}

/// The disk is full from the call on, for calls of every kind that may take space: file systems that never write in place
/// take it for all of them. And full to the byte: then writes within a file go on, and one that passes its end writes what
/// fits.
fn disk_full(at: Place, kind: Kind, done: &AtomicU64) -> Tally {
    let mut tally = fails(at, kind, FaultAction::NoSpace, u64::MAX, done);
    let mut probe = new_world(at.call, at.opening, None);
    probe.faults().add(FaultRule::new(kind.kinds(), FaultAction::Freeze { keep: 0 }).nth(at.call));
    probe.start(at.opening);
    let before = if probe.is_dead() { 0 } else { run_script(&mut probe, at.opening, done) };
    let bytes = probe.used_bytes() + [0, 1, 23, 600][at.call as usize % 4];

    let mut world = new_world(at.call, at.opening, None);
    if before == 0 {
        world.limit_disk(bytes);
    }
    world.start(at.opening);
    tally.add(&endure(world, at, Some(Filling { before, bytes }), done));
    tally
}

/// What a process leaves that ends now, in each of three ways, must carry on.
fn end_here(world: &mut World, at: Place) -> Tally {
    let mut tally = Tally::default();
    for end in [End::Kill, End::Power(Loss::All), End::Power(Loss::Seed(at.call))] {
        let mut fork = world.fork(&at.restart(end));
        go_on(&mut fork, at);
        tally.add(&fork.tally());
    }
    tally
}

/// Does the script although something goes wrong in it; everything can be read all the while (sweep.2).
fn endure(mut world: World, at: Place, filling: Option<Filling>, done: &AtomicU64) -> Tally {
    let mut since = 0;
    let mut tally = Tally::default();
    for (n, op) in (1..).zip(script(at.opening)) {
        if let Some(filling) = filling.as_ref().filter(|filling| filling.before == n) {
            world.limit_disk(filling.bytes);
        }
        done.fetch_add(1, Ordering::Relaxed);
        world.perform(&op);
        let is_full = filling.as_ref().is_some_and(|filling| filling.before <= n);
        if world.faults().fired() == 0 && !is_full {
            continue;
        }
        if since == 0 {
            // Before anything else makes up for what the failed call did not do.
            tally.add(&end_here(&mut world, at));
        }
        world.read_everything();
        since += 1;
        if since == PATIENCE {
            world.mend();
            if world.is_poisoned() {
                world.perform(&Op::Restart(at.restart(End::Close)));
            }
        }
    }
    world.swept = false;
    world.perform(&Op::Mend(at.restart(End::Close)));
    world.perform(&Op::Check);
    go_on(&mut world, at);
    tally.add(&world.tally());
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(call: u64) -> Place {
        Place { call, opening: opening(Way::Plain) }
    }

    #[test]
    fn the_positions_are_of_each_way_in_turn() {
        let used_bytes = |way| {
            alone("a test", move |done| {
                let mut world = World::new(0, None);
                world.start(opening(way));
                run_script(&mut world, opening(way), done);
                world.perform(&Op::Compact);
                world.used_bytes()
            })
        };
        let (plain, compressed) = (used_bytes(Way::Plain).unwrap(), used_bytes(Way::Compressed).unwrap());
        assert!(compressed < plain / 2, "{compressed} bytes, {plain} without compression");

        let is_direct = |way| new_world(0, opening(way), None).gives_direct_files();
        assert_eq!(Way::ALL.map(is_direct), [true, false, true, true]);

        let kind = Kind::Deaths;
        let positions = kind.positions_of_each().unwrap();
        let mut before = 0;
        for (way, n) in Way::ALL.into_iter().zip(positions) {
            let place = |at| {
                let Place { call, opening } = kind.place(before + at).unwrap();
                (call, format!("{opening:?}"))
            };
            let expected = |call| (call, format!("{:?}", opening(way)));
            assert_eq!([place(1), place(n)], [expected(1), expected(n)], "{way:?}");
            before += n;
        }
    }

    #[test]
    fn what_a_process_left_is_opened_as_it_was_before() {
        for way in Way::ALL {
            let at = Place { call: 40, opening: opening(way) };
            let opened = alone("a test", move |done| {
                let mut fork = dead(at, None, done).fork(&at.restart(End::Kill));
                go_on(&mut fork, at);
                format!("{:?}", fork.opening())
            });
            assert_eq!(opened.unwrap(), format!("{:?}", Some(at.opening)));
        }
    }

    #[test]
    fn beyond_the_cache_the_workload_meets_what_small_databases_do_not() {
        let tally = undisturbed(Way::Beyond).unwrap().1;
        assert_eq!([tally.grown, tally.bulky, tally.rewritten], [1; 3], "{tally:?}");
        assert!(tally.adopted > 0, "{tally:?}");
        // Into tiers, and out of them.
        assert!(tally.tier_merges >= 2, "{tally:?}");
    }

    #[test]
    fn with_values_in_blob_files_the_workload_meets_their_collection() {
        let tally = undisturbed(Way::Blobs).unwrap().1;
        assert_eq!([tally.blobs, tally.collected], [1; 2], "{tally:?}");
    }

    #[test]
    fn sweep_3_disks_get_full_at_the_call() {
        // Where it takes space, it is refused.
        let refused = alone("a test", |done| disk_full(place(200), Kind::DiskFull, done).refused).unwrap();
        assert!(refused > 0);
    }
}
