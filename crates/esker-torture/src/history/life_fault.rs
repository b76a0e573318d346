//! The faults of lives in memory.

use std::time::Duration;

use esker_env::{FaultAction, FaultFs, FaultRule, OpKind};
use fastrand::Rng;

use super::failing_disk;

/// In one of this many lives that end with a crash, the log fails first.
const FAILS_EVERY: u8 = 4;
/// The failure is within this many writes and syncs of the log.
const FAILS_WITHIN: u64 = 40;
/// Part of the names of log segments in use.
const LOG: &str = ".wal";
/// In one of this many of the other lives, the disk is sometimes full.
const FULL_EVERY: u8 = 4;
/// In one of this many of the remaining lives, the disk fails to write files other than the log.
const FAULTY_EVERY: u8 = 2;
/// Duration of syncs of a log that will fail, so that several commits wait and fail together.
const SLOW_SYNC: Duration = Duration::from_micros(100);

/// The fault of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LifeFault {
    Nothing,
    /// A write or a sync of the log fails.
    Log,
    /// The disk is sometimes full.
    FullDisk,
    /// Calls on tables, the manifest and names fail.
    FailingDisk,
}

/// The random numbers that choose faults. They are separate, so that the lives of a seed do not depend on
/// them.
pub(super) struct FaultRngs {
    log: Rng,
    full: Rng,
    failing: Rng,
}

impl FaultRngs {
    pub(super) fn of_seed(seed: u64) -> Self {
        FaultRngs {
            log: Rng::with_seed(!seed),
            full: Rng::with_seed(seed.rotate_left(32)),
            failing: Rng::with_seed(seed.rotate_left(16)),
        }
    }

    /// Chooses the fault of a life, and schedules it.
    pub(super) fn draw(&mut self, faults: &FaultFs, is_crash: bool) -> LifeFault {
        if self.log.u8(0..FAILS_EVERY) == 0 && is_crash {
            log_will_fail(faults, &mut self.log);
            LifeFault::Log
        } else if self.full.u8(0..FULL_EVERY) == 0 {
            LifeFault::FullDisk
        } else if self.failing.u8(0..FAULTY_EVERY) == 0 {
            failing_disk::will_fail(faults, &mut self.failing, is_crash);
            LifeFault::FailingDisk
        } else {
            LifeFault::Nothing
        }
    }
}

/// Makes syncs of the log slow, and schedules a failure of one of its writes or syncs.
fn log_will_fail(faults: &FaultFs, rng: &mut Rng) {
    let fault = match rng.u8(0..4) {
        0 => FaultRule::new(&[OpKind::Write], FaultAction::ShortWrite { keep: rng.usize(0..2000) }),
        1 => FaultRule::new(&[OpKind::SyncData], FaultAction::LostSync),
        _ => {
            let fail = FaultAction::Fail(std::io::ErrorKind::Other);
            FaultRule::new(&[OpKind::Write, OpKind::SyncData], fail)
        }
    };
    faults.add(fault.on_path(LOG).nth(rng.u64(1..=FAILS_WITHIN)));
    let slow = FaultRule::new(&[OpKind::SyncData], FaultAction::Delay(SLOW_SYNC));
    faults.add(slow.on_path(LOG).forever());
}
