//! Injected faults, full disks, and which errors they excuse (W4 to W6).

use std::io::ErrorKind;

use esker::{Error, Result};
use esker_env::{FaultAction, FaultRule, Fired, OpKind};

use super::{Tally, World};
use crate::op::{Calls, Failure, Fault, Restart};

/// Calls that fail without a reason for anything else to fail: hints, and removals of files that nothing needs any more.
const TRIFLES: &[OpKind] = &[OpKind::Hint, OpKind::Remove];
/// The same for those who answer for removals.
const HINTS: &[OpKind] = &[OpKind::Hint];

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
        Failure::Misread => misread(u64::from(fault.nth)),
        Failure::Short(keep) => FaultAction::ShortWrite { keep: usize::from(keep) },
    };
    let times = if fault.times == 0 { u64::MAX } else { u64::from(fault.times) };
    FaultRule { times, ..FaultRule::new(kinds, action).nth(u64::from(fault.nth)) }
}

/// A read gives one byte that is wrong; the number says which, and how.
pub(crate) fn misread(n: u64) -> FaultAction {
    FaultAction::CorruptRead { xor: 1 << (n % 8), at: n as usize * 7919 }
}

impl World {
    /// What fails from now on does so in another operation.
    pub(super) fn begin_operation(&mut self) {
        self.fired_before = self.faults.fired();
        self.refused_before = self.disk.refusals();
    }

    /// Whether the operation at hand has met a fault.
    pub(super) fn in_trouble(&self) -> bool {
        self.faults.fired() > self.fired_before || self.is_dead()
    }

    /// Whether a full disk has refused something in the operation at hand.
    pub(super) fn was_refused(&self) -> bool {
        self.disk.refusals() > self.refused_before
    }

    /// Whether each problem that a check has found is a call that failed on purpose, or may be what was read wrong.
    pub(super) fn are_explained(&self, problems: &[String]) -> bool {
        if self.faults.fired_after(self.fired_before).iter().any(is_misread) {
            return true;
        }
        let is_told = |problem: &String| problem.contains(" fault (") || problem.contains("no space left");
        problems.iter().all(|problem| self.in_trouble() && is_told(problem))
    }

    /// The result, if there is one. An error must have a reason.
    pub(super) fn excused<T>(&mut self, result: Result<T>) -> Option<T> {
        result.inspect_err(|error| self.excuse(error, TRIFLES)).ok()
    }

    /// The same of opening, closing, and compacting by hand, which tell of files that they cannot remove.
    pub(super) fn excused_tidying<T>(&mut self, result: Result<T>) -> Option<T> {
        result.inspect_err(|error| self.excuse(error, HINTS)).ok()
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

    /// Asserts that there is a reason for the error, other than a failed call of these kinds, and notes whether the log has
    /// failed.
    fn excuse(&mut self, error: &Error, trifles: &[OpKind]) {
        let mut fired = self.faults.fired_after(self.fired_before);
        fired.retain(|call| !trifles.contains(&call.kind));
        // A full disk fails a commit before anything of it is written: no reason to refuse those that follow (W5).
        let full = self.was_refused() && matches!(error, Error::NoSpace { .. });
        let poisoned = matches!(error, Error::Poisoned(_));
        // Nobody hears what a dead process says.
        let anyway = self.is_dead() || full || (poisoned && self.poisoned);
        assert!(anyway || !fired.is_empty(), "W4: without a reason: {error}");
        let told = (anyway && is_typed(error)) || fired.iter().any(|call| may_show_as(call, error));
        assert!(told, "W4: a fault must be told as what it is: {error:?}; {fired:?}");
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
    }

    /// Ends all faults, and an end that is armed.
    pub(crate) fn mend(&mut self) {
        if !self.is_dead() {
            self.faults.clear();
            self.armed = None;
        }
        self.disk.set_capacity(None);
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

/// Whether an error says what a failed call must be told as: what failed, where. It is no damage, and nobody else has the
/// database open.
fn is_typed(error: &Error) -> bool {
    matches!(error, Error::Io { .. } | Error::NoSpace { .. } | Error::Poisoned(_))
}

fn is_misread(call: &Fired) -> bool {
    matches!(call.action, FaultAction::CorruptRead { .. })
}

/// Whether a call that failed may show as this error: a lack of space as one, wrong bytes as damage, anything else as what the
/// system said, and as the end of the log only if the call was the log's.
fn may_show_as(call: &Fired, error: &Error) -> bool {
    let lacks_space = call.action == FaultAction::NoSpace;
    match error {
        Error::NoSpace { .. } => lacks_space,
        Error::Io { source, .. } => !lacks_space && !is_misread(call) && source.to_string().contains(" fault ("),
        Error::Poisoned(cause) => stops_log(call) && may_show_as(call, cause),
        Error::Corrupt { .. } | Error::UnsupportedVersion { .. } => is_misread(call),
        _ => false,
    }
}

/// Whether the call writes, syncs, cuts or names a segment that is in use: what of it has reached the disk is unknown then.
/// No failure of another file, nor of a read, stops the log.
fn stops_log(call: &Fired) -> bool {
    let kinds = [OpKind::Write, OpKind::SyncData, OpKind::SetLen, OpKind::Rename, OpKind::SyncDir];
    kinds.contains(&call.kind) && call.path.extension().is_some_and(|extension| extension == "wal")
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use esker_env::{Fs, OpenOptions};

    use super::*;
    use crate::runner::alone;

    /// Whether the error is taken for one that may be, in a world in this state.
    fn is_excused(prepare: impl FnOnce(&mut World) + Send + 'static, error: fn() -> Error) -> bool {
        alone(move |_| {
            let mut world = World::new(0, None);
            prepare(&mut world);
            world.excused::<()>(Err(error()));
        })
        .is_ok()
    }

    /// A call of this kind fails.
    fn fails(
        kind: OpKind,
        path: &'static str,
        action: FaultAction,
    ) -> impl FnOnce(&mut World) + Send + 'static {
        move |world| {
            world.faults.add(FaultRule::new(&[kind], action));
            let path = Path::new(path);
            let file = world.faults.open(path, OpenOptions::create()).unwrap();
            let failed = match kind {
                OpKind::Write => file.write_all_at(b"x", 0),
                OpKind::Read => file.read_at(&mut [0], 0).map(drop),
                OpKind::Hint => file.drop_cache(0, 1),
                OpKind::SyncDir => world.faults.sync_dir(Path::new("")),
                OpKind::Remove => world.faults.remove_file(path),
                _ => Ok(()),
            };
            assert!(failed.is_err());
        }
    }

    const IO: FaultAction = FaultAction::Fail(ErrorKind::Other);
    const FULL: FaultAction = FaultAction::NoSpace;

    fn injected() -> Error {
        let source = std::io::Error::other("injected fault (other error): Write a");
        Error::Io { op: "write", path: PathBuf::new(), source }
    }

    fn stopped() -> Error {
        Error::Poisoned(std::sync::Arc::new(injected()))
    }

    fn no_space() -> Error {
        Error::NoSpace { op: "write", path: PathBuf::new() }
    }

    fn poisoned() -> Error {
        Error::Poisoned(std::sync::Arc::new(no_space()))
    }

    #[test]
    fn w5_a_full_disk_excuses_a_lack_of_space_and_no_more() {
        let refused = |world: &mut World| {
            world.fill_disk(0);
            let file = world.disk.open(Path::new("a"), OpenOptions::create()).unwrap();
            assert!(file.write_all_at(b"x", 0).is_err());
        };
        assert!(is_excused(refused, no_space));
        assert!(!is_excused(refused, poisoned));
        let earlier = move |world: &mut World| {
            refused(world);
            world.begin_operation();
        };
        assert!(!is_excused(earlier, no_space));
        assert!(!is_excused(|world| world.fill_disk(0), no_space), "nothing was refused");
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

    #[test]
    fn w4_the_log_stops_for_a_call_of_its_own_alone() {
        for kind in [OpKind::Write, OpKind::SyncDir] {
            assert!(is_excused(fails(kind, "000001.wal", IO), stopped));
            assert!(is_excused(fails(kind, "000001.wal", FULL), poisoned));
            for other in ["000002.wal-next", "wal-spare-1.tmp", "000007.sst", "MANIFEST-000003"] {
                assert!(is_excused(fails(kind, other, IO), injected));
                assert!(!is_excused(fails(kind, other, IO), stopped));
                assert!(!is_excused(fails(kind, other, FULL), poisoned));
            }
        }
        assert!(!is_excused(fails(OpKind::Read, "000001.wal", IO), stopped));
    }

    #[test]
    fn w4_a_failed_call_is_told_as_what_it_is() {
        let write = |action| fails(OpKind::Write, "000001.wal", action);
        assert!(is_excused(write(FULL), no_space) && !is_excused(write(IO), no_space));
        assert!(is_excused(write(IO), injected) && !is_excused(write(FULL), injected));
        assert!(!is_excused(write(IO), poisoned) && !is_excused(write(FULL), stopped));
        let other = || Error::Io { op: "open", path: PathBuf::new(), source: ErrorKind::NotFound.into() };
        assert!(!is_excused(write(IO), other));
    }

    #[test]
    fn w4_wrong_bytes_are_damage_for_one_operation() {
        let misreads = |world: &mut World| {
            world.faults.add(FaultRule::new(&[OpKind::Read], misread(1)));
            let file = world.faults.open(Path::new("a"), OpenOptions::create()).unwrap();
            assert_eq!(file.read_at(&mut [0], 0).unwrap(), 0);
        };
        let damaged = || Error::corrupt("block", "a", 0, "damaged");
        assert!(is_excused(misreads, damaged));
        assert!(!is_excused(misreads, injected) && !is_excused(misreads, stopped));
        let earlier = move |world: &mut World| {
            misreads(world);
            world.begin_operation();
        };
        assert!(!is_excused(earlier, damaged));
    }

    #[test]
    fn w4_hints_and_removals_that_fail_are_no_reason() {
        assert!(!is_excused(fails(OpKind::Hint, "a", IO), injected));
        assert!(!is_excused(fails(OpKind::Remove, "a", IO), injected));
        let tidying = |kind| {
            alone(move |_| {
                let mut world = World::new(0, None);
                fails(kind, "a", IO)(&mut world);
                world.excused_tidying::<()>(Err(injected()));
            })
        };
        assert!(tidying(OpKind::Remove).is_ok() && tidying(OpKind::Hint).is_err());
    }
}
