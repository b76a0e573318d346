//! The scripts known to a server, and the state of the running script.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::base::SCRIPT_TIME_MAX;
use crate::base::clock;
#[cfg(feature = "lua")]
use crate::run::functions::Libraries;

/// Maximum bytes of known scripts. Beyond it all are dropped, and clients send them again.
const KNOWN_BYTES_MAX: usize = 64 << 20;

/// A known script.
struct Known {
    source: Vec<u8>,
    /// Whether it names `SWAPDB`, which must be the first command of its commit.
    names_exchange: bool,
}

/// Returns whether the source of a script names `SWAPDB`.
pub fn names_exchange(source: &[u8]) -> bool {
    const NAME: &[u8] = b"swapdb";
    source.windows(NAME.len()).any(|word| word.eq_ignore_ascii_case(NAME))
}

/// Known scripts, and the machine that runs them.
#[derive(Default)]
pub struct Scripts {
    known: Mutex<HashMap<String, Known>>,
    /// Set when the running script must end. Relaxed: it is checked from time to time.
    pub kill: Arc<AtomicBool>,
    /// Set while a script runs. Relaxed: it is only shown.
    pub is_running: AtomicBool,
    /// Start time of the running script, in milliseconds since 1970, or 0. Relaxed: it only serves to find
    /// slow scripts.
    since: AtomicU64,
    /// The same time, of the monotonic clock.
    began: Mutex<Option<Instant>>,
    /// The function that runs, and its command.
    pub function: Mutex<Option<(String, Vec<Vec<u8>>)>>,
    /// The libraries of the last generation that was used.
    #[cfg(feature = "lua")]
    pub libraries: Mutex<Option<Arc<Libraries>>>,
    #[cfg(feature = "lua")]
    pub(crate) machine: Mutex<Option<crate::lua::machine::Machine>>,
}

impl Scripts {
    /// Stores the source of a script that compiles.
    pub fn add(&self, digest: &str, source: &[u8]) {
        let mut known = self.known.lock();
        if !known.contains_key(digest) {
            if known.values().map(|script| script.source.len()).sum::<usize>() + source.len()
                > KNOWN_BYTES_MAX
            {
                known.clear();
            }
            let script = Known { source: source.to_vec(), names_exchange: names_exchange(source) };
            known.insert(digest.to_owned(), script);
        }
    }

    /// Returns whether a script has run for longer than `limit` milliseconds. False if `limit` is 0.
    pub fn is_busy(&self, limit: u64) -> bool {
        let since = self.since.load(Ordering::Relaxed);
        since > 0 && limit > 0 && clock::now_ms().saturating_sub(since) > limit
    }

    /// Returns for how long the running script has run, in milliseconds.
    #[cfg(feature = "lua")]
    pub fn running_ms(&self) -> u64 {
        self.began.lock().map_or(0, |began| began.elapsed().as_millis() as u64)
    }

    /// Returns whether the running script must end.
    pub fn must_end(&self) -> bool {
        let has_taken_too_long = || self.began.lock().is_some_and(|began| began.elapsed() > SCRIPT_TIME_MAX);
        self.is_running.load(Ordering::Relaxed) && (self.kill.load(Ordering::Relaxed) || has_taken_too_long())
    }

    /// Returns the number of known scripts.
    pub fn len(&self) -> usize {
        self.known.lock().len()
    }

    pub fn get(&self, digest: &str) -> Option<Vec<u8>> {
        self.known.lock().get(digest).map(|script| script.source.clone())
    }

    /// Returns whether the script of a digest is known and names `SWAPDB`.
    pub fn names_exchange(&self, digest: &str) -> bool {
        self.known.lock().get(digest).is_some_and(|script| script.names_exchange)
    }

    /// Returns whether the source of a function names `SWAPDB`. True if it is not known, because the
    /// libraries of this generation have not been used.
    #[cfg(feature = "lua")]
    pub fn function_names_exchange(&self, generation: &[u8], function: &[u8]) -> bool {
        match &*self.libraries.lock() {
            Some(known) if known.generation == generation => {
                known.find(function).is_some_and(|function| function.names_exchange)
            }
            _ => !generation.is_empty(),
        }
    }

    /// Drops all known scripts.
    pub fn clear(&self) {
        self.known.lock().clear();
    }
}

/// Marks that a script runs, until it is dropped.
pub struct Running<'a>(&'a Scripts);

impl<'a> Running<'a> {
    /// Marks that a script began at time `since`, in milliseconds since 1970.
    pub fn new(scripts: &'a Scripts, since: u64) -> Self {
        scripts.kill.store(false, Ordering::Relaxed);
        scripts.is_running.store(true, Ordering::Relaxed);
        scripts.since.store(since, Ordering::Relaxed);
        *scripts.began.lock() = Some(clock::moment());
        Running(scripts)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.is_running.store(false, Ordering::Relaxed);
        self.0.since.store(0, Ordering::Relaxed);
        *self.0.began.lock() = None;
        *self.0.function.lock() = None;
    }
}

/// A script to run.
#[cfg_attr(not(feature = "lua"), expect(dead_code, reason = "no scripts are run"))]
#[derive(Clone, Copy)]
pub struct Script<'a> {
    pub digest: &'a str,
    /// Source as the client sent it.
    pub whole: &'a [u8],
    /// Part of the source that is compiled.
    pub source: &'a [u8],
    pub keys: &'a [&'a [u8]],
    pub arguments: &'a [&'a [u8]],
    pub only_reads: bool,
    /// The libraries, if it is a function of one of them. Its name is the digest.
    #[cfg(feature = "lua")]
    pub libraries: Option<&'a Libraries>,
}
