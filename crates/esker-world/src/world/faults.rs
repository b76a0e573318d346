//! Injected faults and full disks, and which errors they excuse.

#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use esker::{Error, Result};
use esker_env::{FaultAction, FaultRule, Fired, OpKind, panic_text};

use super::{DIR, Tally, World};
use crate::failure::forget_panic;
use crate::op::{Calls, Failure, Fault, Restart};

/// Failures of these calls excuse no error: hints, and removals of unneeded files.
const TRIFLES: &[OpKind] = &[OpKind::Hint, OpKind::Remove];
/// The same for calls that report failed removals.
const HINTS: &[OpKind] = &[OpKind::Hint];

/// Returns the rule for the file system.
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

/// Returns an error chosen by a number. For every third one, the call takes effect and only its result is
/// lost.
fn error(n: u32) -> FaultAction {
    // Kinds that neither the engine nor the file system treats specially.
    let kind = [ErrorKind::Other, ErrorKind::TimedOut, ErrorKind::WouldBlock, ErrorKind::InvalidInput]
        [n as usize / 3 % 4];
    if n.is_multiple_of(3) { FaultAction::DoneThenFail(kind) } else { FaultAction::Fail(kind) }
}

/// Returns a fault that changes one byte of a read.
pub fn misread(n: u64) -> FaultAction {
    FaultAction::CorruptRead { xor: 1 << (n % 8), at: n as usize * 7919 }
}

/// The operation name of an error that stands for a panic in the file system.
const PANIC: &str = "end in a panic";

/// Calls the database. An injected panic of the file system becomes an error, because users may catch it,
/// too. Other panics continue.
pub(super) fn attempt<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic_text(&*panic);
        if !text.starts_with("injected panic") {
            resume_unwind(panic);
        }
        forget_panic();
        Err(Error::Io { op: PANIC, path: DIR.into(), source: std::io::Error::other(text).into() })
    })
}

/// The operation names of errors that stand for what a guest learns when its host does not answer.
const GONE: &str = "have nothing written by";
const UNKNOWN: &str = "learn the outcome from";

/// Returns the error of a guest's call of which nothing was written.
pub(super) fn gone() -> Error {
    Error::Io { op: GONE, path: DIR.into(), source: std::io::Error::other("the host has gone").into() }
}

/// Returns the error of a guest's call that may have been made.
pub(super) fn unknown() -> Error {
    Error::Io { op: UNKNOWN, path: DIR.into(), source: std::io::Error::other("the host has gone").into() }
}

/// Returns whether nothing was written, because the host does not answer.
pub(super) fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Io { op: GONE, .. })
}

/// Returns whether the outcome is unknown, because the host does not answer.
pub(super) fn is_unknown(error: &Error) -> bool {
    matches!(error, Error::Io { op: UNKNOWN, .. })
}

/// Returns whether [`attempt`] made the error of a panic.
pub(super) fn is_panic(error: &Error) -> bool {
    matches!(error, Error::Io { op: PANIC, .. })
}

/// How a run differs from usual ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mode {
    /// Whether faults survive restarts, and the caller handles an end inside a call.
    pub swept: bool,
    /// Whether all openings are inspected.
    pub inspects_all: bool,
    /// Whether there are no guests.
    pub unshared: bool,
}

impl World {
    /// Starts a new operation for the attribution of faults.
    pub(super) fn begin_operation(&mut self) {
        // The engine may have caught a panic.
        forget_panic();
        self.process.fired_before = self.machine.faults.fired();
        self.process.refused_before = self.machine.disk.refusals();
    }

    /// Returns whether the current operation has met a fault.
    pub(super) fn met_fault(&self) -> bool {
        self.machine.faults.fired() > self.process.fired_before || self.is_dead()
    }

    /// Returns whether a full disk has refused a call of the current operation.
    pub(super) fn was_refused(&self) -> bool {
        self.machine.disk.refusals() > self.process.refused_before
    }

    /// Returns whether the error says that a limited disk has only the reserve for removals left (reserve.1).
    fn is_held_back(&self, error: &Error) -> bool {
        let Error::NoSpace { op, path, .. } = error else { return false };
        let is_value = *op == "write" && path.extension().is_some_and(|extension| extension == "blob");
        let is_large = *op == "write a large transaction in";
        let is_requested = is_value || is_large || *op == "make a WAL segment in";
        is_requested
            && esker_env::Fs::free_bytes(&self.machine.disk, DIR.as_ref()).is_ok_and(|free| free < u64::MAX)
    }

    /// Returns whether injected faults explain all problems that a check found.
    pub(super) fn are_explained(&self, problems: &[String]) -> bool {
        if self.machine.faults.fired_after(self.process.fired_before).iter().any(is_misread) {
            return true;
        }
        let is_requested =
            |problem: &String| problem.contains(" fault (") || problem.contains("no space left");
        problems.iter().all(|problem| self.met_fault() && is_requested(problem))
    }

    /// Returns the result of a call. An error must have a reason.
    pub(super) fn excused<T>(&mut self, result: Result<T>) -> Option<T> {
        result.inspect_err(|error| self.excuse(error, TRIFLES)).ok()
    }

    /// Does the same for openings, manual compactions and checkpoints, which report files that they cannot
    /// remove.
    pub(super) fn excused_tidying<T>(&mut self, result: Result<T>) -> Option<T> {
        result.inspect_err(|error| self.excuse(error, HINTS)).ok()
    }

    /// Returns the result of a read. A read may fail only because of its own calls, not because the log has
    /// failed or the disk is full.
    pub(super) fn read<T>(&mut self, result: Result<T>) -> Option<T> {
        if let Err(error) = &result {
            let own = self.met_fault() && !matches!(error, Error::Poisoned(_));
            assert!(own, "reads do not go on: {error}");
        }
        self.excused(result)
    }

    /// Asserts that the error has a reason other than a failed call of these kinds. Notes whether the log has
    /// failed.
    fn excuse(&mut self, error: &Error, trifles: &[OpKind]) {
        let mut fired = self.machine.faults.fired_after(self.process.fired_before);
        if is_panic(error) {
            assert!(
                fired.iter().any(|call| call.action == FaultAction::Panic),
                "world.4: without a reason: {error}"
            );
            self.process.panicked = true;
            return;
        }
        if is_gone(error) || is_unknown(error) {
            // A host does not answer, cannot make a session, or has lost its log.
            let has_failed = self.met_fault() || self.process.poisoned || self.process.panicked;
            assert!(has_failed || is_gone(error) && self.has_lost(), "world.4: without a reason: {error}");
            return;
        }
        fired.retain(|call| !trifles.contains(&call.kind));
        // A full disk fails a commit before it writes anything, so it does not stop later ones.
        let full = self.was_refused() && matches!(error, Error::NoSpace { .. }) || self.is_held_back(error);
        let poisoned = matches!(error, Error::Poisoned(_));
        // A dead process needs no reason. Also, if the manifest can be neither written nor replaced, it is
        // unknown whether it names the tables of a large commit.
        let unknown =
            self.was_refused() && matches!(error, Error::Poisoned(cause) if is_full_manifest(cause));
        let anyway = self.is_dead()
            || full
            || unknown
            || (poisoned && (self.process.poisoned || self.process.panicked));
        assert!(anyway || !fired.is_empty(), "world.4: without a reason: {error}");
        let is_proper = (anyway && is_typed(error)) || fired.iter().any(|call| may_show_as(call, error));
        assert!(is_proper, "world.4: an unexpected error for a fault: {error:?}; {fired:?}");
        self.process.poisoned |= poisoned;
        self.tally.refused += u64::from(full);
    }

    /// Schedules the end of the process after this many changes.
    pub(super) fn arm(&mut self, after: u32, keep: u32, restart: &Restart) {
        if self.process.armed.is_none() {
            self.machine.faults.add(death(after, keep));
            self.process.armed = Some(restart.clone());
        }
    }

    /// Leaves this much free space.
    pub(super) fn fill_disk(&mut self, bytes: u32) {
        self.limit_disk(self.machine.disk.used_bytes() + u64::from(bytes));
    }

    /// Limits the total size of all files.
    pub fn limit_disk(&mut self, bytes: u64) {
        self.machine.disk.set_capacity(Some(bytes));
    }

    /// Removes all faults and a scheduled end.
    pub fn mend(&mut self) {
        if !self.is_dead() {
            self.machine.faults.clear();
            self.process.armed = None;
        }
        self.machine.disk.set_capacity(None);
    }

    /// Adds the calls of the current process to the counters.
    pub(super) fn count_calls(&self, tally: &mut Tally) {
        tally.fs_calls += OpKind::ALL.iter().map(|kind| self.machine.faults.count(*kind)).sum::<u64>();
        tally.faults += self.machine.faults.fired();
        tally.fingerprint = tally.fingerprint.rotate_left(7) ^ self.machine.faults.fingerprint();
    }
}

/// Returns a rule that ends the process at the change after the first `after`.
pub fn death(after: u32, keep: u32) -> FaultRule {
    let end = FaultAction::Freeze { keep: keep as usize };
    FaultRule::new(&OpKind::CHANGES, end).nth(u64::from(after) + 1)
}

/// Returns whether an error is a proper report of a failed call, with the operation and the path.
fn is_typed(error: &Error) -> bool {
    matches!(error, Error::Io { .. } | Error::NoSpace { .. } | Error::Poisoned(_))
}

/// Returns whether there was no space for a manifest.
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

/// Returns whether a failed call may cause this error: lack of space as such, wrong bytes as damage, others
/// as I/O errors, and the end of the log only for its own calls.
fn may_show_as(call: &Fired, error: &Error) -> bool {
    let lacks_space = call.action == FaultAction::NoSpace;
    match error {
        Error::NoSpace { .. } => lacks_space,
        Error::Io { source, .. } => {
            !lacks_space && !is_misread(call) && source.to_string().contains(" fault (")
        }
        Error::Poisoned(cause) => stops_log(call) && may_show_as(call, cause),
        Error::Corrupt { .. } | Error::UnsupportedVersion { .. } => is_misread(call),
        // A misread key header names a key that is not there.
        Error::Encryption { path, .. } => is_misread(call) && call.path == *path,
        // A misread job file makes leftovers of a copy look foreign.
        Error::Invalid(_) => is_misread(call) && is_job_file(call),
        _ => false,
    }
}

/// Returns whether the failed call stops the log, because it is unknown what reached the disk. These are
/// writes, syncs, truncations and renames of segments in use; the check before name changes that the
/// directory is still the same; the manifest edit of a large commit; and the sync of a blob file, for which
/// the log's syncs wait. No read and no other file stops the log.
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
