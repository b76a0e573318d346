//! A disk that is repeatedly full while clients work.
//!
//! ```text
//!   in some lives in memory: fill, free, fill ----------------.
//!   in some processes that are killed: refuse, grant, refuse --`--commits fail--> Client: no effect
//! ```
//!
//! - A commit that fails for lack of space has no effect, even after crashes. It counts as
//!   aborted.
//! - Once there is space, a flush succeeds and then commits do, and nothing else has failed meanwhile. A
//!   writer that waits for a flush may still get the error of an earlier one.

use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_env::{FaultAction, FaultFs, FaultRule, MemFs, OpKind};
use fastrand::Rng;

use super::shared::Shared;

/// Maximum number of bytes left when the disk fills up.
const LEFT: u64 = 2000;
/// Maximum time with or without space, in microseconds.
const MICROS: u64 = 2000;
/// The same on real files, which are slower.
const FILE_MICROS: u64 = 20_000;
/// Name part of files that are never overwritten.
const TABLE: &str = ".sst";

/// Fills the disk and frees space until the clients must end; then there is space.
pub(super) fn fill(fs: &MemFs, shared: &Shared, mut rng: Rng) {
    while !shared.stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_micros(rng.u64(0..MICROS)));
        fs.set_capacity(Some(fs.used_bytes() + rng.u64(0..LEFT)));
        std::thread::sleep(Duration::from_micros(rng.u64(0..MICROS)));
        fs.set_capacity(None);
    }
}

/// Does the same on real files, starting without space: no space can be allocated, but existing bytes can be
/// overwritten.
pub(super) fn refuse(faults: &FaultFs, shared: &Shared, mut rng: Rng) {
    while !shared.stop.load(Ordering::Relaxed) {
        let refused = |kinds: &[OpKind]| FaultRule::new(kinds, FaultAction::NoSpace).forever();
        faults.add(refused(&[OpKind::Create, OpKind::SetLen, OpKind::Allocate]));
        faults.add(refused(&[OpKind::Write]).on_path(TABLE));
        std::thread::sleep(Duration::from_micros(rng.u64(0..FILE_MICROS)));
        faults.clear();
        std::thread::sleep(Duration::from_micros(rng.u64(0..FILE_MICROS)));
    }
}
