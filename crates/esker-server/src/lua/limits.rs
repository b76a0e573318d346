//! Limits of a script: its time, `SCRIPT KILL`, the memory of the interpreter, and the bytes that library
//! functions allocate outside of it.
//!
//! The interpreter collects garbage in small steps, one per value that it allocates, however large the value
//! is. A few large texts could fill its memory before a collection is complete. So this module runs a full
//! collection when much garbage may exist.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mlua::{Lua, LuaString, Value};

use crate::base::SCRIPT_TIME_MAX;
use crate::base::clock;

/// Number of steps between two reads of the clock.
const STEPS: u32 = 8;
/// Maximum memory of the interpreter, in bytes.
pub(crate) const MEMORY_MAX: usize = 256 << 20;
/// Maximum bytes of a text made by a library function, of the words of a command, and of a reply.
const BYTES_MAX: usize = 128 << 20;
/// Maximum bytes of a script's source. The compiler's memory grows with the source and does not count as the
/// interpreter's.
pub(crate) const SOURCE_MAX: usize = 1 << 20;
/// Bytes in use below which only the interpreter collects garbage.
const COLLECT_MIN: usize = 32 << 20;
/// After a collection, the next one is due once `1 / COLLECT_PART` of the remaining memory is used.
const COLLECT_PART: usize = 8;
/// Bytes of a text that are converted between two steps.
pub(crate) const PIECE: usize = 1 << 16;
/// Maximum number of values that a library function returns. Equals the limit of the stack of Redis.
pub(crate) const VALUES_MAX: usize = 8000;

/// Limits of the script that an interpreter runs. The atomics are relaxed: only the thread of the script uses
/// them. Other threads set `kill`, and nothing else depends on it.
pub(crate) struct Limits {
    /// The flag of `Scripts`.
    kill: Arc<AtomicBool>,
    /// When the interpreter was created. The start of its script is in nanoseconds after that.
    made: Instant,
    start: AtomicU64,
    steps: AtomicU32,
    was_killed: AtomicBool,
    has_taken_too_long: AtomicBool,
    random: AtomicU64,
    /// Bytes in use above which garbage is collected.
    collect_at: AtomicUsize,
}

impl Limits {
    pub(crate) fn new(kill: Arc<AtomicBool>) -> Self {
        Limits {
            kill,
            made: clock::moment(),
            start: AtomicU64::new(0),
            steps: AtomicU32::new(0),
            was_killed: AtomicBool::new(false),
            has_taken_too_long: AtomicBool::new(false),
            random: AtomicU64::new(0),
            collect_at: AtomicUsize::new(COLLECT_MIN),
        }
    }

    /// Resets the limits for a new script.
    pub(crate) fn begin(&self) {
        self.start.store(self.age(), Ordering::Relaxed);
        self.steps.store(0, Ordering::Relaxed);
        self.seed(fastrand::u32(..));
    }

    fn age(&self) -> u64 {
        self.made.elapsed().as_nanos() as u64
    }

    /// Returns whether the script was ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.was_killed.load(Ordering::Relaxed) || self.has_taken_too_long.load(Ordering::Relaxed)
    }

    /// Counts a step: a loop, a call, a step of a match, or a converted value.
    ///
    /// # Errors
    /// Fails if the script was ended. Then each later call fails, too, so that a script cannot continue by
    /// catching the error.
    pub(crate) fn step(&self) -> mlua::Result<()> {
        let steps = self.steps.load(Ordering::Relaxed);
        self.steps.store(steps.wrapping_add(1), Ordering::Relaxed);
        if self.kill.load(Ordering::Relaxed) {
            self.was_killed.store(true, Ordering::Relaxed);
        } else if steps.is_multiple_of(STEPS) {
            self.look_at_clock();
        }
        self.failed()
    }

    /// Checks the time before an operation that may take long.
    ///
    /// # Errors
    /// Fails if the script was ended.
    pub(crate) fn long_step(&self) -> mlua::Result<()> {
        self.look_at_clock();
        self.step()
    }

    fn look_at_clock(&self) {
        let start = Duration::from_nanos(self.start.load(Ordering::Relaxed));
        if self.made.elapsed().saturating_sub(start) > SCRIPT_TIME_MAX {
            self.has_taken_too_long.store(true, Ordering::Relaxed);
        }
    }

    fn failed(&self) -> mlua::Result<()> {
        match (self.was_killed.load(Ordering::Relaxed), self.has_taken_too_long.load(Ordering::Relaxed)) {
            (true, _) => Err(mlua::Error::runtime("Script killed by user with SCRIPT KILL")),
            (false, true) => Err(mlua::Error::runtime("Script took too long")),
            (false, false) => Ok(()),
        }
    }

    /// Collects garbage if there may be much of it. Called in each loop and call, and before a text of this
    /// length is allocated.
    ///
    /// # Errors
    /// Fails if the interpreter has no memory left for the text.
    pub(crate) fn collect(&self, lua: &Lua, len: usize) -> mlua::Result<()> {
        if lua.used_memory().saturating_add(len) <= self.collect_at.load(Ordering::Relaxed) {
            return Ok(());
        }
        lua.gc_collect()?;
        let live = lua.used_memory();
        let next = live + MEMORY_MAX.saturating_sub(live) / COLLECT_PART;
        self.collect_at.store(next.max(COLLECT_MIN), Ordering::Relaxed);
        Ok(())
    }

    /// Creates a Lua string.
    ///
    /// # Errors
    /// Fails if the interpreter has no memory for it.
    pub(crate) fn text(&self, lua: &Lua, bytes: impl AsRef<[u8]>) -> mlua::Result<LuaString> {
        self.collect(lua, bytes.as_ref().len())?;
        lua.create_string(bytes)
    }

    /// Checks the limits before a value is added to a text of this length.
    ///
    /// # Errors
    /// Fails if the text is too long, or if the script was ended.
    pub(crate) fn add(&self, len: usize) -> mlua::Result<()> {
        self.step()?;
        if len > BYTES_MAX { Err(mlua::Error::runtime("not enough memory")) } else { Ok(()) }
    }

    /// Returns the next random number from 0 to 1, the same as Redis after the same seed. Each script starts
    /// with its own seed.
    pub(crate) fn random(&self) -> f64 {
        let next = self.random.load(Ordering::Relaxed).wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB);
        let next = next & 0xFFFF_FFFF_FFFF;
        self.random.store(next, Ordering::Relaxed);
        let max = f64::from(i32::MAX);
        ((next >> 17) as f64 % max) / max
    }

    pub(crate) fn seed(&self, seed: u32) {
        self.random.store(seeded(seed), Ordering::Relaxed);
    }
}

fn seeded(seed: u32) -> u64 {
    u64::from(seed) << 16 | 0x330E
}

/// Returns the limits of the script that runs.
pub(crate) fn of(lua: &Lua) -> mlua::Result<Arc<Limits>> {
    let limits = lua.app_data_ref::<Arc<Limits>>().map(|limits| Arc::clone(&limits));
    limits.ok_or_else(|| mlua::Error::runtime("no script runs"))
}

/// Returns the minimum number of bytes that a value takes in a text.
pub(crate) fn len_of(value: &Value) -> usize {
    match value {
        Value::String(text) => text.as_bytes().len(),
        _ => 1,
    }
}
