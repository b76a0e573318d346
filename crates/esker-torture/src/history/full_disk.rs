//! A disk that is full again and again while clients work.
//!
//! ```text
//!   in some lives in memory: fill, make room, fill -----------.
//!   in some processes that are killed: refuse, grant, refuse --`--commits that fail for want of space--> Client: not made
//! ```
//!
//! full_disk.1. A commit that fails for want of space has not been made and never will be, over crashes too: it counts as aborted.
//! full_disk.2. When there is space, a flush succeeds, and commits behind it; nothing else has failed meanwhile. Before that flush a writer
//!      who waits for one may still be told of the last, which found no space.

use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_env::{FaultAction, FaultFs, FaultRule, MemFs, OpKind};
use fastrand::Rng;

use super::clients::World;

/// Bytes that are left at most when the disk fills up.
const LEFT: u64 = 2000;
/// For how long, at most, there is space, or none.
const MICROS: u64 = 2000;
/// The same on real files, which are slower.
const FILE_MICROS: u64 = 20_000;
/// In the names of files that are written anew, never over.
const TABLE: &str = ".sst";

/// Fills the disk and makes room until the clients are to end; then there is room.
pub(super) fn fill(fs: &MemFs, world: &World, mut rng: Rng) {
    while !world.stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_micros(rng.u64(0..MICROS)));
        fs.set_capacity(Some(fs.used_bytes() + rng.u64(0..LEFT)));
        std::thread::sleep(Duration::from_micros(rng.u64(0..MICROS)));
        fs.set_capacity(None);
    }
}

/// The same on real files: nothing new can be taken, what is there can be written over. At first there is none.
pub(super) fn refuse(faults: &FaultFs, world: &World, mut rng: Rng) {
    while !world.stop.load(Ordering::Relaxed) {
        let refused = |kinds: &[OpKind]| FaultRule::new(kinds, FaultAction::NoSpace).forever();
        faults.add(refused(&[OpKind::Create, OpKind::SetLen, OpKind::Allocate]));
        faults.add(refused(&[OpKind::Write]).on_path(TABLE));
        std::thread::sleep(Duration::from_micros(rng.u64(0..FILE_MICROS)));
        faults.clear();
        std::thread::sleep(Duration::from_micros(rng.u64(0..FILE_MICROS)));
    }
}
