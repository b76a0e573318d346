//! Injected faults, full disks, and which errors they excuse (W4 to W6).

use std::io::ErrorKind;

use esker::{Error, Result};
use esker_env::{FaultAction, FaultRule, OpKind};

use super::{Tally, World};
use crate::op::{Calls, Failure, Fault, Restart};

/// The rule of the file system.
pub(crate) fn rule(fault: Fault) -> FaultRule {
    let kinds: &[OpKind] = match fault.calls {
        Calls::All => &OpKind::ALL,
        Calls::Changes => &OpKind::CHANGES,
        Calls::Writes => &[OpKind::Write],
        Calls::Syncs => &[OpKind::SyncData, OpKind::SyncDir],
        Calls::Reads => &[OpKind::Read, OpKind::Map],
    };
    let action = match fault.failure {
        Failure::Error => FaultAction::Fail(ErrorKind::Other),
        Failure::NoSpace => FaultAction::NoSpace,
        Failure::LostSync => FaultAction::LostSync,
        Failure::Short(keep) => FaultAction::ShortWrite { keep: usize::from(keep) },
    };
    let times = if fault.times == 0 { u64::MAX } else { u64::from(fault.times) };
    FaultRule { times, ..FaultRule::new(kinds, action).nth(u64::from(fault.nth)) }
}

impl World {
    /// Whether the operation at hand has met a fault.
    pub(super) fn in_trouble(&self) -> bool {
        self.faults.fired() > self.fired_before || self.is_dead()
    }

    /// Whether each problem that a check has found is a call that failed on purpose.
    pub(super) fn are_explained(&self, problems: &[String]) -> bool {
        let is_told = |problem: &String| problem.contains(" fault (") || problem.contains("no space left");
        problems.iter().all(|problem| self.in_trouble() && is_told(problem))
    }

    /// The result, if there is one. An error must have a reason.
    pub(super) fn excused<T>(&mut self, result: Result<T>) -> Option<T> {
        match result {
            Ok(result) => Some(result),
            Err(error) => {
                self.excuse(&error);
                None
            }
        }
    }

    /// What was read, if it could be. A read fails only if a call of its own does: not because the log has failed, nor because
    /// the disk is full.
    pub(super) fn read<T>(&mut self, result: Result<T>) -> Option<T> {
        if let Err(error) = &result {
            let own = self.in_trouble() && !matches!(error, Error::Poisoned(_));
            assert!(own, "W6: reads do not go on: {error}");
        }
        self.excused(result)
    }

    /// Asserts that there is a reason for the error, and notes whether the log has failed.
    pub(super) fn excuse(&mut self, error: &Error) {
        // A full disk fails a commit before anything of it is written: no reason to refuse those that follow (W5).
        let full = self.limited && matches!(error, Error::NoSpace { .. });
        let poisoned = matches!(error, Error::Poisoned(_));
        let reason = self.in_trouble() || full || (poisoned && self.poisoned);
        assert!(reason, "W4: without a reason: {error}");
        assert!(is_typed(error), "W4: a fault must be told as what it is: {error:?}");
        self.poisoned |= poisoned;
        self.tally.refused += u64::from(full);
    }

    /// The process will end at the so-manieth change from now on.
    pub(super) fn arm(&mut self, after: u32, keep: u32, restart: &Restart) {
        if self.armed.is_none() {
            self.faults.add(death(after, keep));
            self.armed = Some(restart.clone());
        }
    }

    /// Leaves so much space.
    pub(super) fn fill_disk(&mut self, bytes: u32) {
        self.limit_disk(self.disk.used_bytes() + u64::from(bytes));
    }

    /// Limits what all files take together.
    pub(crate) fn limit_disk(&mut self, bytes: u64) {
        self.disk.set_capacity(Some(bytes));
        self.limited = true;
    }

    /// Ends all faults, and an end that is armed.
    pub(crate) fn mend(&mut self) {
        if !self.is_dead() {
            self.faults.clear();
            self.armed = None;
        }
        self.disk.set_capacity(None);
        self.limited = false;
    }

    /// Adds the calls of the present process.
    pub(super) fn count_calls(&self, tally: &mut Tally) {
        tally.fs_calls += OpKind::ALL.iter().map(|kind| self.faults.count(*kind)).sum::<u64>();
        tally.faults += self.faults.fired();
        tally.fingerprint = tally.fingerprint.rotate_left(7) ^ self.faults.fingerprint();
    }
}

/// The end of the process at the change after the first `after`.
pub(crate) fn death(after: u32, keep: u32) -> FaultRule {
    let end = FaultAction::Freeze { keep: keep as usize };
    FaultRule::new(&OpKind::CHANGES, end).nth(u64::from(after) + 1)
}

/// Whether an error says what an injected fault must be told as: what failed, where. A call that fails is no damage, and
/// nobody else has the database open.
fn is_typed(error: &Error) -> bool {
    matches!(error, Error::Io { .. } | Error::NoSpace { .. } | Error::Poisoned(_))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::runner::alone;

    /// Whether the error is taken for one that may be, in a world in this state.
    fn is_excused(prepare: fn(&mut World), error: fn() -> Error) -> bool {
        alone(move |_| {
            let mut world = World::new(0, None);
            prepare(&mut world);
            world.excuse(&error());
        })
        .is_ok()
    }

    fn no_space() -> Error {
        Error::NoSpace { op: "write", path: PathBuf::new() }
    }

    fn poisoned() -> Error {
        Error::Poisoned(std::sync::Arc::new(no_space()))
    }

    #[test]
    fn w5_a_full_disk_excuses_a_lack_of_space_and_no_more() {
        let full = |world: &mut World| world.fill_disk(0);
        assert!(is_excused(full, no_space));
        assert!(!is_excused(full, poisoned));
        let failed_before = |world: &mut World| world.poisoned = true;
        assert!(is_excused(failed_before, poisoned));
        assert!(!is_excused(failed_before, no_space));
    }

    #[test]
    fn w6_reads_go_on_when_the_log_has_failed_and_when_the_disk_is_full() {
        let fails = |prepare: fn(&mut World), error: fn() -> Error| {
            let read = move |_: &_| {
                let mut world = World::new(0, None);
                prepare(&mut world);
                world.read::<()>(Err(error()))
            };
            alone(read).is_err()
        };
        assert!(
            fails(|world| world.poisoned = true, poisoned) && fails(|world| world.fill_disk(0), no_space)
        );
        assert!(
            fails(|world| world.faults.freeze(), poisoned) && !fails(|world| world.faults.freeze(), no_space)
        );
    }

    #[test]
    fn w4_a_failed_call_is_not_told_as_damage() {
        let failed = |world: &mut World| world.faults.freeze();
        assert!(is_excused(failed, no_space) && is_excused(failed, poisoned));
        assert!(!is_excused(failed, || Error::corrupt("block", "a", 0, "damaged")));
        assert!(!is_excused(failed, || Error::Locked { path: PathBuf::new(), pid: None }));
        assert!(!is_excused(|_| {}, no_space));
    }
}
