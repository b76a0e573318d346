//! Esker's interface to the operating system.
//!
//! ```text
//!   engine --Env--> Fs       real files | MemFs (crashes) | FaultFs (injected errors)
//!               |-> Clock    monotonic and wall time, sleeping
//!               |-> Random   seeds
//!               `-> Threads  background work
//! ```
//!
//! The engine uses files, threads, time and random numbers only through an [`Env`]. Errors are always
//! reported, and no implementation retries a failed sync.

mod aligned;
mod clock;
mod fault;
mod fs;
mod job;
mod mem;
mod overlay;
mod pages;
mod process;
mod random;
mod read;
#[cfg(any(unix, windows))]
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this module is the real file system"
)]
mod real;
mod threads;
mod time_slice;
mod window;
mod writer;

pub use aligned::AlignedBuf;
pub use clock::{Clock, CountingClock, ManualClock, SystemClock};
pub use fault::{FaultAction, FaultFs, FaultRule, Fired, OpKind};
pub use fs::{Entry, File, FileLock, Fs, FsRef, LockError, OpenOptions};
pub use job::JobFile;
pub use mem::{BrokenSync, MemFs, Observer, Written};
pub use overlay::OverlayFs;
pub use pages::{PageBuf, age_page_bufs, observe_page_bufs, settle_page_bufs};
pub use random::{Random, SeededRandom, SystemRandom};
pub use read::{read_range, read_range_into};
#[cfg(any(unix, windows))]
pub use real::RealFs;
pub use threads::{SystemThreads, ThreadHandle, Threads, panic_text};
pub use window::FileWindow;
pub use writer::AppendWriter;

use std::any::Any;
use std::sync::Arc;

/// Returns the limit of open descriptors of this process, if there is one.
pub fn descriptors_max() -> Option<u64> {
    process::descriptors_max()
}

/// The environment of an engine. Clones share their parts.
#[derive(Clone, Debug)]
pub struct Env {
    /// Files and directories.
    pub fs: FsRef,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Random numbers.
    pub random: Arc<dyn Random>,
    /// Background threads.
    pub threads: Arc<dyn Threads>,
    /// The keys of encrypted files, if there are any. Their type belongs to the user of this crate.
    pub keys: Option<Arc<dyn Any + Send + Sync>>,
}

impl Env {
    /// Returns the operating system's files, clock, randomness and threads.
    ///
    /// wasm32-unknown-unknown has no operating system. There the environment consists of one [`MemFs`] per
    /// process, a clock that counts its calls, random numbers with a fixed seed, and threads that fail to
    /// start. Databases exist only in the memory of the process. The engine starts no threads, because
    /// `Builder::background` is off by default there. For real time or persistent files, pass your own parts
    /// to [`Env::with_fs`] or build an `Env` literal.
    pub fn real() -> Self {
        Self::with_fs(system_fs())
    }

    /// Returns the given file system with the operating system's clock, randomness and threads.
    pub fn with_fs(fs: FsRef) -> Self {
        Env {
            fs,
            clock: Arc::new(SystemClock::new()),
            random: Arc::new(SystemRandom::new()),
            threads: Arc::new(SystemThreads),
            keys: None,
        }
    }

    /// Returns this environment with `dir` held open: see [`Fs::hold`].
    pub fn hold(&self, dir: &std::path::Path, mode: Option<u32>) -> std::io::Result<Self> {
        Ok(Env { fs: self.fs.hold(dir, mode)?.unwrap_or_else(|| self.fs.clone()), ..self.clone() })
    }

    /// Returns a deterministic environment: the given file system, a manual clock, and random numbers from
    /// `seed`.
    pub fn simulated(fs: FsRef, seed: u64) -> Self {
        Env {
            fs,
            clock: Arc::new(ManualClock::new()),
            random: Arc::new(SeededRandom::new(seed)),
            threads: Arc::new(SystemThreads),
            keys: None,
        }
    }
}

#[cfg(any(unix, windows))]
fn system_fs() -> FsRef {
    Arc::new(RealFs::new())
}

#[cfg(not(any(unix, windows)))]
fn system_fs() -> FsRef {
    static FILES: std::sync::LazyLock<MemFs> = std::sync::LazyLock::new(MemFs::new);
    Arc::new(FILES.clone())
}
