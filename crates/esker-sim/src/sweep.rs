//! Sweeps: a fixed workload that uses all kinds of files and operations, with a fault at every single call.
//!
//! ```text
//!   workload --World--> runs up to a call: the process dies there, or the call fails, or the disk is full
//!      each death: every kind of loss, and a kill; then more writes, another power loss, a check
//!      each failed call, each full disk: the process ends after that operation, in three ways; and
//!      everything is read after every following operation
//! ```
//!
//! After a death at any change, the database opens with an allowed state and continues. A failed call, once,
//! permanently, or after it took effect, gives a typed error, and so does a misread byte that matters. Reads
//! continue, and nothing acknowledged is lost, even if power is lost immediately afterwards. A panic in the
//! file system ends only the current operation; later ones are refused or continue as after a failure. A disk
//! that is full at any write loses nothing, and the database continues once there is space, or after
//! reopening.
//!
//! The database is always opened with the workload's options. The positions of a sweep are those of the
//! default workload, then those with compression on a plain disk, then those with data larger than the cache
//! and small files, then those with blob files.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use esker::{Durability, TableCompression};
use esker_env::{BrokenSync, FaultAction, FaultRule, OpKind};

use esker_world::Failure;
use esker_world::model::keys::KeyNo;
use esker_world::model::values::ValueNo;
use esker_world::op::{self, Calls, End, Fault, KeyspaceNo, Loss, Mishap, Op, Opening, Restart, Write};
use esker_world::workload::{Variant, opening, script};

use crate::runner::{Sabotage, alone};
use esker_world::world::faults::{death, misread};
use esker_world::world::{DIR, Tally, World};

/// The kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The process dies at each change: writes, syncs, changes of names and lengths.
    Deaths,
    /// The same, and again at each change of the recovery.
    DeathsInRecovery,
    /// Each call fails once.
    FailsOnce,
    /// Each call fails, and all later ones.
    FailsForever,
    /// Each change fails once after it took effect.
    FailsLate,
    /// Each sync of a file fails once, and its data is never written although readers see it.
    LostSyncs,
    /// The process dies at some changes, and some calls of each recovery fail, one at a time.
    FailsInRecovery,
    /// Each write is cut short.
    ShortWrites,
    /// The disk is full from each write on.
    DiskFull,
    /// Each sync of a directory fails once.
    DirSyncs,
    /// Each read returns a wrong byte once.
    Misreads,
    /// Each call panics once.
    Panics,
}

/// Number of operations after a failed call, before it is repaired.
const OPS_AFTER_FAULT: u32 = 8;
/// One in this many changes is a death with faults in the recovery.
const DEATHS_STRIDE: u64 = 4;
/// One in this many calls of a recovery fails; the selection depends on the death.
const RECOVERY_STRIDE: u32 = 4;
/// Calls that allocate space.
const GROWING: [OpKind; 4] = [OpKind::Create, OpKind::Write, OpKind::SetLen, OpKind::Allocate];

impl Kind {
    /// All kinds.
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

    /// Returns the name on the command line.
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

    /// Returns the number of calls between positions.
    fn stride(self) -> u64 {
        if self == Kind::FailsInRecovery { DEATHS_STRIDE } else { 1 }
    }

    /// Returns the number of positions.
    ///
    /// # Errors
    /// The workload fails without a fault.
    pub fn positions(self) -> Result<u64, Failure> {
        Ok(self.positions_of_each()?.into_iter().sum())
    }

    /// Returns the number of positions of each variant.
    fn positions_of_each(self) -> Result<[u64; Variant::ALL.len()], Failure> {
        let count = |calls: CallCounts| self.kinds().iter().map(|kind| calls[*kind as usize]).sum::<u64>();
        Ok(calls()?.map(count).map(|calls| calls.div_ceil(self.stride())))
    }

    /// Returns the position with this number, counted from 1.
    fn place(self, at: u64) -> Result<Position, Failure> {
        let mut at = at;
        for (variant, positions) in Variant::ALL.into_iter().zip(self.positions_of_each()?) {
            if at <= positions {
                return Ok(Position { call: (at - 1) * self.stride() + 1, opening: opening(variant) });
            }
            at -= positions;
        }
        panic!("there is no such position");
    }

    /// Runs the workload with a fault at this position, counted from 1.
    ///
    /// # Errors
    /// A disagreement with the model.
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

/// A position in the workload.
#[derive(Clone, Copy)]
struct Position {
    /// The number of the call, from 1, among the calls of the sweep's kinds.
    call: u64,
    /// The options of the workload's database.
    opening: Opening,
}

impl Position {
    /// Returns the restart of a process with these options.
    fn restart(self, end: End) -> Restart {
        Restart { end, mishaps: Vec::new(), opening: self.opening }
    }
}

/// Number of calls of each kind in the workload.
type CallCounts = [u64; OpKind::ALL.len()];

/// Returns the calls of each variant, which are deterministic and counted once.
fn calls() -> Result<[CallCounts; Variant::ALL.len()], Failure> {
    static CALLS: OnceLock<Result<[CallCounts; Variant::ALL.len()], Failure>> = OnceLock::new();
    let count = |variant| undisturbed(variant).map(|(calls, _)| calls);
    let all = || {
        let [plain, compressed, beyond, blobs] = Variant::ALL.map(count);
        Ok([plain?, compressed?, beyond?, blobs?])
    };
    CALLS.get_or_init(all).clone()
}

/// Runs a variant without faults. Returns its calls and counters.
fn undisturbed(variant: Variant) -> Result<(CallCounts, Tally), Failure> {
    alone("the workload of the sweeps", move |done| {
        let mut world = new_world(0, opening(variant), None);
        world.start(opening(variant));
        run_script(&mut world, opening(variant), done);
        (OpKind::ALL.map(|kind| world.faults().count(kind)), world.tally())
    })
}

/// Returns the positions to test of `n`: all, or a sample that is dense at both ends.
pub fn sample(n: u64, sample: Option<u64>) -> Vec<u64> {
    let Some(size) = sample.filter(|size| *size < n) else { return (1..=n).collect() };
    let edge = size / 4;
    let inner = size - 2 * edge;
    let middle = (0..inner).map(|i| edge + 1 + i * (n - 2 * edge) / inner.max(1));
    (1..=edge).chain(middle).chain(n - edge + 1..=n).collect()
}

/// Runs the script until the process is dead. Returns the number of operations that were started.
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

/// Checks that the database accepts further writes after recovery and survives another power loss.
fn go_on(world: &mut World, at: Position) {
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

/// Creates the world of a sweep, before its first process.
fn new_world(seed: u64, opening: Opening, broken: Option<BrokenSync>) -> World {
    let mut world = World::new(seed, broken);
    world.mode.swept = true;
    if is_compressed(opening) {
        world.be_plain();
    }
    world
}

/// Creates a world whose process died at this change. The number of log segments depends on the size of
/// compressed tables, and so on the seed: near its end a workload may lack the change. It was counted with
/// seed 0.
fn dead(at: Position, broken: Option<BrokenSync>, done: &AtomicU64) -> World {
    let keep = [0, 7, 600, u32::MAX][at.call as usize % 4];
    let run = |seed| {
        let mut world = new_world(seed, at.opening, broken);
        world.faults().add(death(at.call as u32 - 1, keep));
        world.start(at.opening);
        run_script(&mut world, at.opening, done);
        world
    };
    let dead = [at.call, 0].into_iter().map(run).find(World::is_dead);
    dead.unwrap_or_else(|| panic!("the workload ends before change {}", at.call))
}

fn deaths(at: Position, broken: Option<BrokenSync>, done: &AtomicU64) -> Tally {
    let mut world = dead(at, broken, done);
    // The offline tools are tested after each death.
    world.mode.inspects_all = true;
    let mut tally = world.tally();
    let seeds = [Loss::Seed(2 * at.call), Loss::Seed(2 * at.call + 1)];
    let losses = [Loss::All, Loss::Nothing].into_iter().chain(seeds).map(End::Power);
    let unheard = End::KillUnheard { seed: at.call, evicted: false };
    for end in losses.chain([End::Kill, unheard]) {
        let mut fork = world.fork(&at.restart(end));
        fork.mode.inspects_all = false;
        go_on(&mut fork, at);
        tally.add(&fork.tally());
    }
    tally
}

fn deaths_in_recovery(at: Position, broken: Option<BrokenSync>, done: &AtomicU64) -> Tally {
    let mut world = dead(at, broken, done);
    let mut tally = world.tally();
    for after in 0.. {
        let n = at.call + u64::from(after);
        let second = [End::Kill, End::Power(Loss::All)][n as usize % 2];
        let seeds = (End::Power(Loss::Seed(at.call)), End::Power(Loss::Seed(n)));
        let mut died = false;
        // Unsynced data of a killed process can still be lost while the next one relies on it.
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

fn fails_in_recovery(at: Position, broken: Option<BrokenSync>, done: &AtomicU64) -> Tally {
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

fn fails(at: Position, kind: Kind, action: FaultAction, times: u64, done: &AtomicU64) -> Tally {
    let mut world = new_world(at.call, at.opening, None);
    world.faults().add(FaultRule { times, ..FaultRule::new(kind.kinds(), action).nth(at.call) });
    world.start(at.opening);
    endure(world, at, None, done)
}

/// Fails the sync of a directory. Then denies that of the database's own directory, which only the parent may
/// lack the right for.
fn dir_syncs(at: Position, done: &AtomicU64) -> Tally {
    let mut tally = fails(at, Kind::DirSyncs, FaultAction::Fail(std::io::ErrorKind::Other), 1, done);
    let denied = FaultAction::Fail(std::io::ErrorKind::PermissionDenied);
    let mut world = new_world(at.call, at.opening, None);
    world.faults().add(FaultRule::new(&[OpKind::SyncDir], denied).on_file(Path::new(DIR)).nth(at.call));
    world.start(at.opening);
    tally.add(&endure(world, at, None, done));
    tally
}

/// A disk that fills up.
struct Filling {
    /// Before this operation of the script; 0 means the first opening.
    before: usize,
    /// At this total size of all files.
    bytes: u64,
}

/// Fills the disk at the call, in two ways: for all calls that may allocate space, as on file systems that
/// never write in place; and to the exact byte, so that writes within a file continue and one beyond its end
/// is shortened.
fn disk_full(at: Position, kind: Kind, done: &AtomicU64) -> Tally {
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

/// Ends the process now, in each of three ways, and checks that the database continues.
fn end_here(world: &mut World, at: Position) -> Tally {
    let mut tally = Tally::default();
    for end in [End::Kill, End::Power(Loss::All), End::Power(Loss::Seed(at.call))] {
        let mut fork = world.fork(&at.restart(end));
        go_on(&mut fork, at);
        tally.add(&fork.tally());
    }
    tally
}

/// Runs the script with a fault; everything must be readable all the time.
fn endure(mut world: World, at: Position, filling: Option<Filling>, done: &AtomicU64) -> Tally {
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
            // Before a later operation repairs the effect of the failed call.
            tally.add(&end_here(&mut world, at));
        }
        world.read_everything();
        since += 1;
        if since == OPS_AFTER_FAULT {
            world.mend();
            if world.is_poisoned() {
                world.perform(&Op::Restart(at.restart(End::Close)));
            }
        }
    }
    world.mode.swept = false;
    world.perform(&Op::Mend(at.restart(End::Close)));
    world.perform(&Op::Check);
    go_on(&mut world, at);
    tally.add(&world.tally());
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(call: u64) -> Position {
        Position { call, opening: opening(Variant::Plain) }
    }

    #[test]
    fn the_positions_are_of_each_way_in_turn() {
        let used_bytes = |variant| {
            alone("a test", move |done| {
                let mut world = World::new(0, None);
                world.start(opening(variant));
                run_script(&mut world, opening(variant), done);
                world.perform(&Op::Compact);
                world.used_bytes()
            })
        };
        let (plain, compressed) =
            (used_bytes(Variant::Plain).unwrap(), used_bytes(Variant::Compressed).unwrap());
        assert!(compressed < plain / 2, "{compressed} bytes, {plain} without compression");

        let is_direct = |variant| new_world(0, opening(variant), None).gives_direct_files();
        assert_eq!(Variant::ALL.map(is_direct), [true, false, true, true]);

        let kind = Kind::Deaths;
        let positions = kind.positions_of_each().unwrap();
        let mut before = 0;
        for (variant, n) in Variant::ALL.into_iter().zip(positions) {
            let place = |at| {
                let Position { call, opening } = kind.place(before + at).unwrap();
                (call, format!("{opening:?}"))
            };
            let expected = |call| (call, format!("{:?}", opening(variant)));
            assert_eq!([place(1), place(n)], [expected(1), expected(n)], "{variant:?}");
            before += n;
        }
    }

    #[test]
    fn what_a_process_left_is_opened_as_it_was_before() {
        for variant in Variant::ALL {
            let at = Position { call: 40, opening: opening(variant) };
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
        let tally = undisturbed(Variant::Beyond).unwrap().1;
        assert_eq!([tally.grown, tally.bulky, tally.rewritten], [1; 3], "{tally:?}");
        assert!(tally.adopted > 0, "{tally:?}");
        // Into tiers and out of them.
        assert!(tally.tier_merges >= 2, "{tally:?}");
    }

    #[test]
    fn with_values_in_blob_files_the_workload_meets_their_collection() {
        let tally = undisturbed(Variant::Blobs).unwrap().1;
        assert_eq!([tally.blobs, tally.collected], [1; 2], "{tally:?}");
    }

    #[test]
    fn disks_get_full_at_the_call() {
        // The disk refuses calls that allocate space.
        let refused = alone("a test", |done| disk_full(place(200), Kind::DiskFull, done).refused).unwrap();
        assert!(refused > 0);
    }
}
