//! Injected faults, full disks, and which errors they excuse (world.4 to world.6).

#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use esker::{Error, Result};
use esker_env::{FaultAction, FaultRule, Fired, OpKind, panic_text};

use super::{DIR, Tally, World};
use crate::failure::forget_panic;
use crate::op::{Calls, Failure, Fault, Restart};

/// Calls that fail without a reason for anything else to fail: hints, and removals of files that nothing needs any more.
const TRIFLES: &[OpKind] = &[OpKind::Hint, OpKind::Remove];
/// The same for those who answer for removals.
const HINTS: &[OpKind] = &[OpKind::Hint];

/// The rule of the file system.
pub fn rule(fault: Fault) -> FaultRule {
    let kinds: &[OpKind] = match fault.calls {
        Calls::All => &OpKind::ALL,
        Calls::Changes => &OpKind::CHANGES,
        Calls::Writes => &[OpKind::Write],
        Calls::Syncs => &[OpKind::SyncData, OpKind::SyncDir],
        Calls::Reads => &[OpKind::Read],
    };
    let action = match fault.failure {
        Failure::Error => error(fault.nth),
        Failure::NoSpace => FaultAction::NoSpace,
        Failure::LostSync => FaultAction::LostSync,
        Failure::Misread => misread(u64::from(fault.nth)),
        Failure::Short(keep) => FaultAction::ShortWrite { keep: usize::from(keep) },
    };
    let times = if fault.times == 0 { u64::MAX } else { u64::from(fault.times) };
    FaultRule { times, ..FaultRule::new(kinds, action).nth(u64::from(fault.nth)) }
}

/// Errors differ, and of every third one only the answer is lost: the call has had its effect. The number says which.
fn error(n: u32) -> FaultAction {
    // None of which the engine, or the system below, makes anything special.
    let kind = [ErrorKind::Other, ErrorKind::TimedOut, ErrorKind::WouldBlock, ErrorKind::InvalidInput]
        [n as usize / 3 % 4];
    if n.is_multiple_of(3) { FaultAction::DoneThenFail(kind) } else { FaultAction::Fail(kind) }
}

/// A read gives one byte that is wrong; the number says which, and how.
pub fn misread(n: u64) -> FaultAction {
    FaultAction::CorruptRead { xor: 1 << (n % 8), at: n as usize * 7919 }
}

/// What an operation that ends in a panic of the file system's is told as (world.8).
const PANIC: &str = "end in a panic";

/// Calls the database. A panic of the file system's, which a rule has asked for, becomes an error: the user may catch it, too. Any other goes on.
pub(super) fn attempt<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic_text(&*panic);
        if !text.starts_with("injected panic") {
            resume_unwind(panic);
        }
        forget_panic();
        Err(Error::Io { op: PANIC, path: DIR.into(), source: std::io::Error::other(text) })
    })
}

/// Whether this is what [`attempt`] makes of a panic.
pub(super) fn is_panic(error: &Error) -> bool {
    matches!(error, Error::Io { op: PANIC, .. })
}

impl World {
    /// What fails from now on does so in another operation.
    pub(super) fn begin_operation(&mut self) {
        // One that went no further than the engine.
        forget_panic();
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

    /// Whether the disk has an end and the error says that a put would have left too little of it to removals (reserve.1).
    fn is_held_back(&self, error: &Error) -> bool {
        let Error::NoSpace { op, path, .. } = error else { return false };
        let is_value = *op == "write" && path.extension().is_some_and(|extension| extension == "blob");
        let is_told = is_value || *op == "make a WAL segment in";
        is_told && esker_env::Fs::free_bytes(&self.disk, DIR.as_ref()).is_ok_and(|free| free < u64::MAX)
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

    /// The same of opening and compacting by hand, which tell of files that they cannot remove, and of checkpoints, in whose way what an earlier try has
    /// left may stand.
    pub(super) fn excused_tidying<T>(&mut self, result: Result<T>) -> Option<T> {
        result.inspect_err(|error| self.excuse(error, HINTS)).ok()
    }

    /// What was read, if it could be. A read fails only if a call of its own does: not because the log has failed, nor because
    /// the disk is full.
    pub(super) fn read<T>(&mut self, result: Result<T>) -> Option<T> {
        if let Err(error) = &result {
            let own = self.in_trouble() && !matches!(error, Error::Poisoned(_));
            assert!(own, "world.6: reads do not go on: {error}");
        }
        self.excused(result)
    }

    /// Asserts that there is a reason for the error, other than a failed call of these kinds, and notes whether the log has
    /// failed.
    fn excuse(&mut self, error: &Error, trifles: &[OpKind]) {
        let mut fired = self.faults.fired_after(self.fired_before);
        if is_panic(error) {
            assert!(
                fired.iter().any(|call| call.action == FaultAction::Panic),
                "world.4: without a reason: {error}"
            );
            self.panicked = true;
            return;
        }
        fired.retain(|call| !trifles.contains(&call.kind));
        // A full disk fails a commit before anything of it is written: no reason to refuse those that follow (world.5).
        let full = self.was_refused() && matches!(error, Error::NoSpace { .. }) || self.is_held_back(error);
        let poisoned = matches!(error, Error::Poisoned(_));
        // Nobody hears what a dead process says.
        // But for the manifest's tables of a large commit: whether it names them is unknown where it can be neither written nor replaced.
        let unknown =
            self.was_refused() && matches!(error, Error::Poisoned(cause) if is_full_manifest(cause));
        let anyway = self.is_dead() || full || unknown || (poisoned && (self.poisoned || self.panicked));
        assert!(anyway || !fired.is_empty(), "world.4: without a reason: {error}");
        let told = (anyway && is_typed(error)) || fired.iter().any(|call| may_show_as(call, error));
        assert!(told, "world.4: a fault must be told as what it is: {error:?}; {fired:?}");
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
    pub fn limit_disk(&mut self, bytes: u64) {
        self.disk.set_capacity(Some(bytes));
    }

    /// Ends all faults, and an end that is armed.
    pub fn mend(&mut self) {
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
pub fn death(after: u32, keep: u32) -> FaultRule {
    let end = FaultAction::Freeze { keep: keep as usize };
    FaultRule::new(&OpKind::CHANGES, end).nth(u64::from(after) + 1)
}

/// Whether an error says what a failed call must be told as: what failed, where. It is no damage, and nobody else has the
/// database open.
fn is_typed(error: &Error) -> bool {
    matches!(error, Error::Io { .. } | Error::NoSpace { .. } | Error::Poisoned(_))
}

/// Whether there was no space for a manifest.
fn is_full_manifest(error: &Error) -> bool {
    let Error::NoSpace { path, .. } = error else { return false };
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("MANIFEST") || name.starts_with("CURRENT")
}

fn is_job_file(call: &Fired) -> bool {
    let name = call.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("ESKER-JOB-")
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
        Error::Io { source, .. } => {
            !lacks_space && !is_misread(call) && source.to_string().contains(" fault (")
        }
        Error::Poisoned(cause) => stops_log(call) && may_show_as(call, cause),
        Error::Corrupt { .. } | Error::UnsupportedVersion { .. } => is_misread(call),
        // What is left of a copy is Esker's if its job file says so, and stays where it is otherwise.
        Error::Invalid(_) => is_misread(call) && is_job_file(call),
        _ => false,
    }
}

/// Whether the call writes, syncs, cuts or names a segment that is in use: what of it has reached the disk is unknown then. Or looks whether the
/// directory is still the database's, as is done before each change of a name. Or it is of the manifest, as it names the tables of a large
/// commit: whether that is there is unknown then. Or it is the sync of a blob file, which the log's syncs wait for. No failure of another file, nor of a read, stops the log.
fn stops_log(call: &Fired) -> bool {
    let kinds = [OpKind::Write, OpKind::SyncData, OpKind::SetLen, OpKind::Rename, OpKind::SyncDir];
    let is_look = call.kind == OpKind::Stat && call.path.file_name().is_some_and(|name| name == "LOCK");
    let name = call.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_manifest = name.starts_with("MANIFEST") || name.starts_with("CURRENT");
    let names = [OpKind::Create, OpKind::Allocate, OpKind::Open, OpKind::Remove];
    let is_file = |kind: &str| call.path.extension().is_some_and(|extension| extension == kind);
    is_look
        || (call.kind == OpKind::SyncData && is_file("blob"))
        || (call.kind == OpKind::SyncDir && call.path.extension().is_none())
        || (is_manifest && (kinds.contains(&call.kind) || names.contains(&call.kind)))
        || (kinds.contains(&call.kind) && is_file("wal"))
}
