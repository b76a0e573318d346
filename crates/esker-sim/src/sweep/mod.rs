//! Sweeps: a fixed workload that touches every kind of file and operation, with something wrong at each single call.
//!
//! ```text
//!   script.rs --World--> runs to the so-manieth call: the process dies there, or the call fails, or the disk is full
//!      each death: every kind of loss of its own, and a kill; then more writes, another power loss, a check
//! ```
//!
//! SW1. After a death at any change the database opens with a state that the history allows, and carries on.
//! SW2. A call that fails, once or for ever, gives a typed error; reads go on; nothing acknowledged is lost.
//! SW3. A disk that is full at any write loses nothing; with space again the database goes on, or does after opening.

mod script;

use std::sync::atomic::{AtomicU64, Ordering};

use esker::Durability;
use esker_env::{BrokenSync, FaultAction, FaultRule, OpKind};

use self::script::{opening, script};
use crate::model::keys::KeyNo;
use crate::model::values::ValueNo;
use crate::op::{End, KeyspaceNo, Loss, Mishap, Op, Restart, Write};
use crate::runner::{Failure, Sabotage, alone};
use crate::world::{Tally, World, trouble::death};

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
    /// Each sync of a file fails once, and what it was to write is never written, although readers see it.
    LostSyncs,
    /// Each write is cut short.
    ShortWrites,
    /// The disk is full from each write on.
    DiskFull,
}

/// Operations with a failed call before it is mended.
const PATIENCE: u32 = 8;
/// The calls that take space.
const GROWING: [OpKind; 4] = [OpKind::Create, OpKind::Write, OpKind::SetLen, OpKind::Allocate];

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 7] = [
        Kind::Deaths,
        Kind::DeathsInRecovery,
        Kind::FailsOnce,
        Kind::FailsForever,
        Kind::LostSyncs,
        Kind::ShortWrites,
        Kind::DiskFull,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Deaths => "deaths",
            Kind::DeathsInRecovery => "deaths-in-recovery",
            Kind::FailsOnce => "fails-once",
            Kind::FailsForever => "fails-forever",
            Kind::LostSyncs => "lost-syncs",
            Kind::ShortWrites => "short-writes",
            Kind::DiskFull => "disk-full",
        }
    }

    fn kinds(self) -> &'static [OpKind] {
        match self {
            Kind::Deaths | Kind::DeathsInRecovery => &OpKind::CHANGES,
            Kind::FailsOnce | Kind::FailsForever => &OpKind::ALL,
            Kind::LostSyncs => &[OpKind::SyncData],
            Kind::ShortWrites => &[OpKind::Write],
            Kind::DiskFull => &GROWING,
        }
    }

    /// How many positions there are.
    ///
    /// # Errors
    /// The workload fails without anything wrong.
    pub fn positions(self) -> Result<u64, Failure> {
        alone(move |done| {
            let mut world = World::new(0, None);
            world.swept = true;
            world.start(opening());
            run_script(&mut world, done);
            self.kinds().iter().map(|kind| world.faults().count(*kind)).sum()
        })
    }

    /// Runs the workload with something wrong at this call, counted from 1.
    ///
    /// # Errors
    /// Anything disagreed with the model.
    pub fn run(self, at: u64, sabotage: Sabotage) -> Result<Tally, Failure> {
        alone(move |done| {
            if let Some(engine) = sabotage.engine {
                engine();
            }
            match self {
                Kind::Deaths => deaths(at, sabotage.disk, done),
                Kind::DeathsInRecovery => deaths_in_recovery(at, sabotage.disk, done),
                Kind::FailsOnce => fails(at, self, FaultAction::Fail(std::io::ErrorKind::Other), 1, done),
                Kind::FailsForever => {
                    fails(at, self, FaultAction::Fail(std::io::ErrorKind::Other), u64::MAX, done)
                }
                Kind::LostSyncs => fails(at, self, FaultAction::LostSync, 1, done),
                Kind::ShortWrites => {
                    let keep = [0, 1, 23, 600][at as usize % 4];
                    fails(at, self, FaultAction::ShortWrite { keep }, 1, done)
                }
                Kind::DiskFull => fails(at, self, FaultAction::NoSpace, u64::MAX, done),
            }
        })
    }
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

/// Does the script until the process is dead.
fn run_script(world: &mut World, done: &AtomicU64) {
    for op in script() {
        if world.is_dead() {
            return;
        }
        done.fetch_add(1, Ordering::Relaxed);
        world.perform(&op);
    }
}

fn restart(end: End) -> Restart {
    Restart { end, mishaps: Vec::new(), opening: opening() }
}

/// What recovery left must carry further writes, and survive a power loss of its own.
fn go_on(world: &mut World) {
    let put = |no| (KeyspaceNo(no), Write::Put(KeyNo(500 + u16::from(no)), ValueNo::new(9, 77)));
    world.perform(&Op::Batch(vec![put(0), put(1)], Durability::Sync));
    world.perform(&Op::Restart(restart(End::Power(Loss::All))));
    world.perform(&Op::Write(KeyspaceNo(0), Write::Remove(KeyNo(500))));
    world.perform(&Op::Flush);
    world.perform(&Op::Restart(restart(End::Close)));
    world.perform(&Op::Check);
}

/// A world whose process has died at the `at`-th change.
fn dead(at: u64, broken: Option<BrokenSync>, done: &AtomicU64) -> World {
    let mut world = World::new(at, broken);
    world.swept = true;
    let keep = [0, 7, 600, u32::MAX][at as usize % 4];
    world.faults().add(death(at as u32 - 1, keep));
    world.start(opening());
    run_script(&mut world, done);
    assert!(world.is_dead(), "the workload ends before change {at}");
    world
}

fn deaths(at: u64, broken: Option<BrokenSync>, done: &AtomicU64) -> Tally {
    let world = dead(at, broken, done);
    let mut tally = world.tally();
    let seeds = [Loss::Seed(2 * at), Loss::Seed(2 * at + 1)];
    let losses = [Loss::All, Loss::Nothing].into_iter().chain(seeds).map(End::Power);
    for end in losses.chain([End::Kill]) {
        let mut fork = world.fork(&restart(end));
        go_on(&mut fork);
        tally.add(&fork.tally());
    }
    tally
}

fn deaths_in_recovery(at: u64, broken: Option<BrokenSync>, done: &AtomicU64) -> Tally {
    let world = dead(at, broken, done);
    let mut tally = world.tally();
    for after in 0.. {
        let n = at + u64::from(after);
        let second = [End::Kill, End::Power(Loss::All)][n as usize % 2];
        let seeds = (End::Power(Loss::Seed(at)), End::Power(Loss::Seed(n)));
        let mut died = false;
        // What a killed process has left unsynced can still be lost while the next one relies on it.
        for (first, second) in [(End::Kill, seeds.1), (seeds.0, second)] {
            let mishap = Mishap::End { after, keep: [0, 7, u32::MAX][n as usize % 3], end: second };
            let mut fork = world.fork(&Restart { mishaps: vec![mishap], ..restart(first) });
            died |= fork.tally().while_opening > 0;
            go_on(&mut fork);
            tally.add(&fork.tally());
        }
        if !died {
            break;
        }
    }
    tally
}

fn fails(at: u64, kind: Kind, action: FaultAction, times: u64, done: &AtomicU64) -> Tally {
    let mut world = World::new(at, None);
    world.swept = true;
    world.faults().add(FaultRule { times, ..FaultRule::new(kind.kinds(), action).nth(at) });
    world.start(opening());
    let mut since = 0;
    for op in script() {
        done.fetch_add(1, Ordering::Relaxed);
        world.perform(&op);
        since += u32::from(world.faults().fired() > 0);
        if since == PATIENCE {
            world.mend();
            if world.is_poisoned() {
                world.perform(&Op::Restart(restart(End::Close)));
            }
        }
    }
    world.swept = false;
    world.perform(&Op::Mend(restart(End::Close)));
    world.perform(&Op::Check);
    go_on(&mut world);
    world.tally()
}
