//! An observer of all writes to a file system in memory, and the other settings that crashes preserve.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use super::MemFs;
use super::pages::Pages;

/// Called before each write, with the file locked.
pub type Observer = Arc<dyn Fn(&Written<'_>) + Send + Sync>;

/// A write to a file.
pub struct Written<'w> {
    /// The name under which the file was opened.
    pub path: &'w Path,
    /// Offset in the file.
    pub offset: u64,
    /// The new bytes.
    pub bytes: &'w [u8],
    pub(super) current: &'w Pages,
}

impl Written<'_> {
    /// Returns up to `len` bytes that the file contains from `offset` before the write.
    pub fn before(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let n = self.current.read(&mut bytes, offset);
        bytes.truncate(n);
        bytes
    }
}

/// Settings that kills and crashes preserve.
pub(super) struct Settings {
    pub(super) capacity: u64,
    pub(super) broken: u8,
    pub(super) noisy: bool,
    pub(super) plain: bool,
    pub(super) observer: OnceLock<Observer>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { capacity: u64::MAX, broken: 0, noisy: false, plain: false, observer: OnceLock::new() }
    }
}

impl MemFs {
    /// Passes each write to `observer`, here and in copies made by kills and crashes. Only the first observer
    /// counts, and only files that are opened later.
    pub fn observe(&self, observer: Observer) {
        let _is_first = self.0.observer.set(observer);
    }

    pub(super) fn settings(&self) -> Settings {
        Settings {
            capacity: self.0.capacity.load(Ordering::Relaxed),
            broken: self.0.broken.load(Ordering::Relaxed),
            noisy: self.0.noisy.load(Ordering::Relaxed),
            plain: self.0.plain.load(Ordering::Relaxed),
            observer: self.0.observer.clone(),
        }
    }
}
