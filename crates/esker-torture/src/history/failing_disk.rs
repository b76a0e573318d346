//! A disk that fails to write tables, the manifest and names while clients work: once, a few times, or
//! permanently.
//!
//! ```text
//!   a table | the manifest | CURRENT ---------------------------------.-- single commits fail --> no effect
//!   before a crash also: a rename | syncs of the directory --faults --`-- or the log stops --> Client: ends
//! ```
//!
//! - A commit that fails without reporting stopped writes has no effect, even after crashes. It
//!   counts as aborted.
//! - After the faults, a flush succeeds and then commits do, because a flush or compaction
//!   repairs the manifest. Only if a sync of the directory failed, or a log segment could not be renamed,
//!   writes may be stopped until the database is reopened; then both report this. A life that ends with a
//!   close has neither of these faults.

use std::io::ErrorKind;

use esker_env::{FaultAction, FaultFs, FaultRule, Fired, OpKind};
use fastrand::Rng;

/// Maximum number of faults per life.
const FAULTS: u64 = 3;
/// A fault starts within this many calls.
const WITHIN: u64 = 30;
/// The same for rarer calls.
const FEW_WITHIN: u64 = 10;
/// Maximum number of calls that a temporary fault affects.
const TIMES: u64 = 4;
/// Calls that create and fill a file.
const FILLING: &[OpKind] =
    &[OpKind::Create, OpKind::Write, OpKind::SyncData, OpKind::SetLen, OpKind::Allocate];
/// Calls that replace `CURRENT`.
const REPLACING: &[OpKind] = &[OpKind::Create, OpKind::Write, OpKind::SyncData, OpKind::Rename];
/// Parts of file names.
const TABLE: &str = ".sst";
const MANIFEST: &str = "MANIFEST";
const CURRENT: &str = "CURRENT";
/// Extension of a log segment in use.
const SEGMENT: &str = "wal";

/// Schedules faults. With `may_stop_log`, also faults that may stop the log.
pub(super) fn will_fail(faults: &FaultFs, rng: &mut Rng, may_stop_log: bool) {
    for _ in 0..rng.u64(1..=FAULTS) {
        match rng.u8(0..if may_stop_log { 7 } else { 4 }) {
            0 | 1 => faults.add(fault(FILLING, WITHIN, rng).on_path(TABLE)),
            2 => faults.add(fault(FILLING, WITHIN, rng).on_path(MANIFEST)),
            3 => {
                // `CURRENT` is replaced after a failure of the manifest.
                faults.add(fault(FILLING, WITHIN, rng).on_path(MANIFEST));
                faults.add(fault(REPLACING, FEW_WITHIN, rng).on_path(CURRENT));
            }
            4 => faults.add(fault(&[OpKind::Rename], FEW_WITHIN, rng)),
            5 => faults.add(fault(&[OpKind::SyncDir], FEW_WITHIN, rng)),
            _ => {
                let fail = FaultRule::new(&[OpKind::SyncDir], FaultAction::Fail(ErrorKind::Other));
                faults.add(fail.nth(rng.u64(1..=FEW_WITHIN)).forever());
            }
        }
    }
}

/// Returns a rule that fails a few of these calls in one way, starting within the first `within`.
fn fault(calls: &[OpKind], within: u64, rng: &mut Rng) -> FaultRule {
    let action = match rng.u8(0..3) {
        0 => FaultAction::DoneThenFail(ErrorKind::Other),
        // Calls other than file syncs only fail.
        1 => FaultAction::LostSync,
        _ => FaultAction::Fail(ErrorKind::Other),
    };
    let times = rng.u64(1..=TIMES);
    FaultRule { times, ..FaultRule::new(calls, action).nth(rng.u64(1..=within)) }
}

/// Returns whether these faults may have stopped the log. It is unknown which names a
/// directory sync was for.
pub(super) fn may_have_stopped_log(fired: &[Fired]) -> bool {
    fired.iter().any(|call| match call.kind {
        OpKind::SyncDir => true,
        OpKind::Rename => call.path.extension().is_some_and(|end| end == SEGMENT),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use esker_env::{Fs, MemFs, OpenOptions};

    use super::*;

    #[test]
    fn only_names_of_segments_and_syncs_of_the_directory_stop_the_log() {
        let may_stop = |kind, path: &str| {
            let action = FaultAction::Fail(ErrorKind::Other);
            may_have_stopped_log(&[Fired { kind, path: PathBuf::from(path), action }])
        };
        assert!(may_stop(OpKind::SyncDir, "db/000003.sst"));
        assert!(may_stop(OpKind::Rename, "db/000003.wal"));
        assert!(!may_stop(OpKind::Rename, "db/000003.wal-next"), "it is not in use");
        assert!(!may_stop(OpKind::Rename, "db/CURRENT"));
        assert!(!may_stop(OpKind::SyncData, "db/MANIFEST-000001"));
    }

    #[test]
    fn before_a_close_nothing_fails_that_stops_the_log_and_else_everything_does() {
        let all_fail = |may_stop_log| {
            let faults = FaultFs::new(Arc::new(MemFs::new()));
            faults.create_dir_all(Path::new("db")).unwrap();
            for seed in 0..100 {
                will_fail(&faults, &mut Rng::with_seed(seed), may_stop_log);
            }
            for n in 0..WITHIN {
                let path = |name: &str| PathBuf::from(format!("db/{name}-{n}"));
                for name in ["log", MANIFEST, "CURRENT.tmp", "table.sst"] {
                    let Ok(file) = faults.open(&path(name), OpenOptions::create()) else { continue };
                    let _ = file.write_all_at(b"bytes", 0).and_then(|()| file.sync_data());
                }
                let _ = faults.rename(&path("log"), Path::new("db/000001.wal"));
                let _ = faults.rename(&path("CURRENT.tmp"), Path::new("db/CURRENT"));
                let _ = faults.sync_dir(Path::new("db"));
            }
            faults.fired_after(0)
        };
        let harmless = all_fail(false);
        assert!(!may_have_stopped_log(&harmless), "{harmless:?}");
        let failed = |fired: &[Fired], kind: OpKind, name: &str| {
            fired.iter().any(|call| call.kind == kind && call.path.to_string_lossy().contains(name))
        };
        for name in [TABLE, MANIFEST, CURRENT] {
            assert!(failed(&harmless, OpKind::Create, name), "{name}: {harmless:?}");
        }
        let all = all_fail(true);
        assert!(failed(&all, OpKind::Rename, ".wal") && failed(&all, OpKind::SyncDir, ""), "{all:?}");
    }
}
