//! Each injected fault must be found within a few seeds; otherwise the harness would not find a real one.
//!
//! `ESKER_ALL_FAULTS=1 cargo test -p esker-sim --test it canaries:: -- --nocapture` prints the table of
//! docs/testing.md.

use std::ops::Range;

use crate::own_process;
use crate::simulate::seed_row;
use esker::canary::{Canary, set};
use esker_env::BrokenSync;
use esker_shared::canary as shared;
use esker_sim::runner::{Sabotage, run_seed};
use esker_sim::sweep::{Kind, sample};
use esker_world::Failure;

/// Number of seeds within which a fault must show, unless it shows in these numbers of positions of the
/// sweeps.
const SEEDS: u64 = 320;
/// Number of seeds before the sweeps, which quickly find what seeds rarely do; the other seeds follow.
const FIRST_SEEDS: u64 = 60;
const POSITIONS: u64 = 150;
const SWEEPS: [Kind; 4] = [Kind::DirSyncs, Kind::Misreads, Kind::FailsLate, Kind::DeathsInRecovery];
const OPS: usize = 400;
/// One in this many faults is tried for each row of seeds. With `ESKER_ALL_FAULTS` all are, as in
/// `.ci/run full`.
const PARTS: usize = 4;
/// The same for sweeps alone, which take longer.
const SWEPT_PARTS: usize = 16;
/// Number of positions of each sweep when only sweeps are used.
const SWEPT: u64 = 16;
/// The same for misreads, which are fast, and alone find ignored checksums.
const MISREADS_SWEPT: u64 = 24;
/// The same for directory syncs, since few of them concern tables that are used immediately.
const DIR_SYNCS_SWEPT: u64 = 32;
/// Number of calls that include the first commit.
const FIRST_PANICS: u64 = 150;

/// An injected fault of the engine.
struct Fault {
    canary: Canary,
    name: &'static str,
    breaks: &'static str,
    turn_on: fn(),
}

macro_rules! engine {
    ($($canary:ident: $breaks:literal),* $(,)?) => {
        &[$(Fault {
            canary: Canary::$canary,
            name: stringify!($canary),
            breaks: $breaks,
            turn_on: || set(Some(Canary::$canary)),
        }),*]
    };
}

const ENGINE: &[Fault] = engine! {
    WalGenerationIgnored: "stale records of a recycled log segment are accepted",
    WalSyncSkipped: "a commit is acknowledged before its log record is synced",
    TimedSyncSkipped: "what was committed without waiting for the disk is never synced",
    WalEndNotSynced: "a log segment is followed by another before it is synced",
    WalNameNotSynced: "a log segment is put to use before its name is synced",
    WalTailNotSynced: "recovery takes records that it could read for durable",
    PoisonForgotten: "the log goes on after a failed write or sync",
    WalReleasedEarly: "flush deletes the log before the manifest names the tables",
    TombstoneDroppedEarly: "a merge drops tombstones that still hide something",
    RangeTombstoneForgotten: "a merge forgets range tombstones",
    SnapshotIgnored: "versions that a snapshot needs are collected",
    CoveredTableDroppedEarly: "tables under a range tombstone go although a snapshot sees them",
    CoverNotSynced: "tables go because of a range tombstone that is not synced",
    AdoptedUnderMemtable: "tables are adopted below older versions of their keys",
    SeqNoReused: "the last sequence number is given out again after opening",
    FilterForgets: "filters do not take every key",
    ConflictCheckSkipped: "transactions commit without a look at others",
    ReadCheckSkipped: "serializable transactions commit without a look at what they read",
    DropNotMarked: "keyspaces that are dropped take commits",
    CountNotUpdated: "removals do not change the count",
    RecentWritesForgotten: "commits do not note which keys they write",
    ManifestNotSynced: "a manifest edit counts before it is synced",
    CurrentNotSynced: "CURRENT is renamed into place before it is synced",
    TableRemovedEarly: "a merge removes tables that the manifest still names",
    TableNameFailureIgnored: "tables count although the sync of their names has failed",
    TableNotSynced: "tables count before their bytes are synced",
    TornBlobAccepted: "a commit is replayed although a value of it is torn",
    BlobDroppedEarly: "a blob file goes although commits of the log point into it",
    BlobReferenceForgotten: "tables do not count the values that they reference in blob files",
    UnresolvedForgotten: "merges drop versions that may still count",
    ExpiredReturned: "entries that have expired are returned",
    OperandDropped: "of several merges into a key the newest alone counts",
    AdoptedTableNotSynced: "tables of large transactions are adopted before their bytes are synced",
    FeedSkips: "the change feed leaves out a commit now and then",
    HistoryForgotten: "merges do not know what is kept for the history of keyspaces",
    SweptAboveAdopted: "a sweep does not stop a large transaction from going below what it has removed",
    CaptureMissesCovered: "a copy lacks what a later commit has removed",
    OperandOutlivesBase: "a merge applies to a value that had expired before it",
    MergeForgetsExpiry: "a merge makes a value last for ever that was to expire",
    MergeIgnoresDefault: "a merge that begins a value ignores the default lifetime of its keyspace",
    UpdateForgetsExpiry: "an update takes the lifetime of the value that it replaces away",
    SequenceExpires: "a sequence expires as the other entries of its keyspace do",
    UndoneReadForgotten: "a transaction forgets what it learnt from a length about undone writes",
    NameReadForgotten: "a transaction forgets that it has asked for the name of a keyspace",
    BareRemovalShown: "the versions of a key show a removal that never was",
    OperandPassesSweep: "a merge into what a sweep has removed meanwhile begins a value",
    CopyNameNotSynced: "a checkpoint is reported before its name is synced",
    ArchiveByClock: "an archive counts only if the wall clock was not set back",
    RecreatedNameRefused: "a name that a commit frees and gives to a new keyspace is not replayed",
    ReplayForgetsTime: "operands that are replayed apply to what is there at that time",
    LoadOptionsLate: "a load that is cut forgets options of keyspaces",
    LoadTakesDefault: "what is loaded takes the default lifetime of the keyspace that it finds",
    WaiterPassesExclusive: "a commit that has waited for the turn passes an exclusive transaction",
    OldestRemovedEarly: "keyspaces lose entries at a quarter of their maximum size",
};

/// Faults of `esker-shared`.
const SHARED: [(fn(), &str, &str); 2] = [
    (
        || shared::set(Some(shared::Canary::FenceForgotten)),
        "FenceForgotten",
        "a guest's commit that its host receives late is applied as well as its repetition",
    ),
    (
        || shared::set(Some(shared::Canary::RecordForgotten)),
        "RecordForgotten",
        "a host does not know which commits of guests it has applied",
    ),
];

const DISK: &[(BrokenSync, &str, &str)] = &[
    (BrokenSync::Data, "BrokenSync::Data", "sync of a file does nothing"),
    (BrokenSync::Dir, "BrokenSync::Dir", "sync of a directory does nothing"),
];

/// Returns the row of the table, or an error if the fault was not found.
fn hunt(name: &str, breaks: &str, sabotage: Sabotage, by_sweeps: bool) -> Result<String, String> {
    // The last name tells which fault a seed hangs with.
    eprintln!("{name}");
    let mut ops = 0;
    let find = |ops: &mut u64, seeds: Range<u64>| {
        for seed in seeds {
            match run_seed(seed, OPS, sabotage) {
                Ok(_) => *ops += OPS as u64,
                Err(failure) => return Some(row(name, breaks, &format!("seed {seed}"), *ops, &failure)),
            }
        }
        None
    };
    if let Some(found) = find(&mut ops, 0..FIRST_SEEDS) {
        return Ok(found);
    }
    let sweeps = SWEEPS.map(|kind| (kind, positions(kind)));
    for at in 1..=if by_sweeps { POSITIONS } else { 0 } {
        for (kind, _) in sweeps.iter().filter(|(_, n)| at <= *n) {
            match kind.run(at, sabotage) {
                Ok(tally) => ops += tally.ops,
                Err(failure) if is_beyond_the_end(&failure) => {}
                Err(failure) => {
                    let found = format!("`{}` {at}", kind.name());
                    return Ok(row(name, breaks, &found, ops, &failure));
                }
            }
        }
    }
    find(&mut ops, FIRST_SEEDS..SEEDS).ok_or_else(|| {
        format!("{name} ({breaks}) is not found in {SEEDS} seeds and {POSITIONS} positions of the sweeps")
    })
}

fn row(name: &str, breaks: &str, found: &str, ops: u64, failure: &Failure) -> String {
    // The location in the harness is irrelevant.
    let what = failure.cause.split_once(": ").map_or(&*failure.cause, |(_, what)| what);
    let what: String = what.lines().next().unwrap_or("").chars().filter(char::is_ascii).take(48).collect();
    format!("| `{name}` | {breaks} | {found} | {} | {what} ... |", ops + failure.ops)
}

/// Returns one in `parts` faults, other ones for each row of seeds.
fn of_this_row<F>(faults: impl Iterator<Item = F>, parts: usize) -> impl Iterator<Item = F> {
    let parts = if std::env::var_os("ESKER_ALL_FAULTS").is_some() { 1 } else { parts };
    faults.skip(seed_row() as usize % parts).step_by(parts)
}

/// Hunts every fourth of this row's faults, from number `quarter` on.
fn hunt_quarter(quarter: usize) {
    own_process::run(|| {
        let is_unlisted = |canary: &Canary| ENGINE.iter().all(|fault| fault.canary != *canary);
        let unlisted = Canary::ALL.into_iter().find(is_unlisted);
        assert_eq!(unlisted, None, "a fault without a row would not be tried");
        let engine = ENGINE.iter().map(|fault| {
            let sabotage = Sabotage { engine: Some(fault.turn_on), ..Sabotage::default() };
            (fault.name, fault.breaks, sabotage, !NOT_BY_SWEEPS.contains(&fault.canary))
        });
        let shared = SHARED.iter().map(|&(fault, name, breaks)| {
            (name, breaks, Sabotage { engine: Some(fault), ..Sabotage::default() }, false)
        });
        let disk = DISK.iter().map(|&(disk, name, breaks)| {
            (name, breaks, Sabotage { disk: Some(disk), ..Sabotage::default() }, true)
        });
        let faults = of_this_row(engine.chain(shared).chain(disk), PARTS).skip(quarter).step_by(4);
        let rows: Vec<_> = faults.map(|(name, breaks, how, swept)| hunt(name, breaks, how, swept)).collect();
        println!(
            "| canary | what it breaks | found by | operations until then | as |\n|---|---|---|---|---|"
        );
        rows.iter().flatten().for_each(|row| println!("{row}"));
        let missed: Vec<_> = rows.iter().filter_map(|row| row.as_ref().err()).collect();
        assert!(missed.is_empty(), "{missed:#?}");
    });
}

// Four tests, since a process runs one simulation at a time.

#[test]
fn every_deliberate_fault_is_found_first_quarter() {
    hunt_quarter(0);
}

#[test]
fn every_deliberate_fault_is_found_second_quarter() {
    hunt_quarter(1);
}

#[test]
fn every_deliberate_fault_is_found_third_quarter() {
    hunt_quarter(2);
}

#[test]
fn every_deliberate_fault_is_found_fourth_quarter() {
    hunt_quarter(3);
}

/// Faults that the sweeps cannot find, because their workload has no conflicting transactions, merge
/// operators, history, feed, copies, maximum sizes or exclusive transactions, leaves little unresolved, has
/// no expiry, and has few positions between the removal of tables and the next sync of the log. Seeds find
/// all of them.
const NOT_BY_SWEEPS: [Canary; 28] = [
    Canary::WaiterPassesExclusive,
    Canary::OldestRemovedEarly,
    Canary::MergeIgnoresDefault,
    Canary::UpdateForgetsExpiry,
    Canary::SequenceExpires,
    Canary::UndoneReadForgotten,
    Canary::NameReadForgotten,
    Canary::BareRemovalShown,
    Canary::OperandPassesSweep,
    Canary::ArchiveByClock,
    Canary::RecreatedNameRefused,
    Canary::ReplayForgetsTime,
    Canary::LoadOptionsLate,
    Canary::LoadTakesDefault,
    Canary::OperandOutlivesBase,
    Canary::MergeForgetsExpiry,
    Canary::SweptAboveAdopted,
    Canary::CaptureMissesCovered,
    Canary::ConflictCheckSkipped,
    Canary::ReadCheckSkipped,
    Canary::RecentWritesForgotten,
    Canary::UnresolvedForgotten,
    Canary::CoverNotSynced,
    Canary::ExpiredReturned,
    Canary::OperandDropped,
    Canary::HistoryForgotten,
    Canary::FeedSkips,
    Canary::CopyNameNotSynced,
];

/// The positions to test, in this order: those that find most faults, those that alone find some, and all
/// others, which take minutes.
fn swept() -> Vec<(Kind, Vec<u64>)> {
    let some = |kind: Kind, size| (kind, sample(positions(kind), Some(size)));
    let mut swept = vec![
        some(Kind::Deaths, SWEPT),
        some(Kind::DirSyncs, DIR_SYNCS_SWEPT),
        some(Kind::Misreads, MISREADS_SWEPT),
        // Missing syncs show only at some calls.
        (Kind::Deaths, (1..=1000).step_by(7).collect()),
        some(Kind::FailsOnce, SWEPT),
    ];
    swept.extend(Kind::ALL.map(|kind| some(kind, SWEPT)));
    swept
}

/// Returns the number of positions of a sweep.
fn positions(kind: Kind) -> u64 {
    kind.positions().unwrap_or_else(|failure| panic!("{}", failure.cause))
}

/// A fault that skips calls has fewer positions, so a missing last position is no detection.
fn is_beyond_the_end(failure: &Failure) -> bool {
    failure.cause.contains("the workload ends before change")
}

/// Returns the row of the table, or an error if a sample of all sweeps finds nothing.
fn sweep(name: &str, sabotage: Sabotage) -> Result<String, String> {
    for (kind, positions) in swept() {
        for at in positions {
            if kind.run(at, sabotage).is_err_and(|failure| !is_beyond_the_end(&failure)) {
                return Ok(format!("| `{name}` | `{}` {at} |", kind.name()));
            }
        }
    }
    Err(name.to_owned())
}

#[test]
fn sweeps_find_deliberate_faults_by_themselves() {
    own_process::run(|| {
        let asked_for = ENGINE.iter().filter(|fault| !NOT_BY_SWEEPS.contains(&fault.canary));
        let engine = asked_for
            .map(|fault| (fault.name, Sabotage { engine: Some(fault.turn_on), ..Sabotage::default() }));
        let disk =
            DISK.iter().map(|&(disk, name, _)| (name, Sabotage { disk: Some(disk), ..Sabotage::default() }));
        let faults = of_this_row(engine.chain(disk), SWEPT_PARTS);
        let rows: Vec<_> = faults.map(|(name, sabotage)| sweep(name, sabotage)).collect();
        rows.iter().flatten().for_each(|row| println!("{row}"));
        let missed: Vec<_> = rows.iter().filter_map(|row| row.as_ref().err()).collect();
        assert!(missed.is_empty(), "{missed:#?}");
    });
}

#[test]
fn what_is_written_behind_a_panic_is_found() {
    own_process::run(|| {
        let engine: fn() = || set(Some(Canary::PoisonForgotten));
        let sabotage = Sabotage { engine: Some(engine), ..Sabotage::default() };
        let at = (1..=FIRST_PANICS).find(|at| Kind::Panics.run(*at, sabotage).is_err());
        println!("`PoisonForgotten`: `panics` {at:?}");
        assert!(at.is_some());
    });
}
