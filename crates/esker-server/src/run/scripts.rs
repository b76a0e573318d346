//! The scripts that a server knows, and the one that runs.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::base::clock;
use crate::run::memory::SCRIPT_TIME_MAX;

/// So many bytes of scripts are known; then all are forgotten. Clients send them again.
const KNOWN_BYTES_MAX: usize = 64 << 20;

/// The scripts that are known, and what runs them.
#[derive(Default)]
pub struct Scripts {
    known: Mutex<HashMap<String, Vec<u8>>>,
    /// The one that runs is to end. Relaxed: it is looked at now and then.
    pub kill: Arc<AtomicBool>,
    /// One runs. Relaxed: it is told to people.
    pub is_running: AtomicBool,
    /// Since when, in milliseconds since 1970; 0: none does. Relaxed: others ask whether it takes long.
    since: AtomicU64,
    /// The same, by a clock that is never set.
    began: Mutex<Option<Instant>>,
    #[cfg(feature = "lua")]
    pub(crate) machine: Mutex<Option<crate::lua::machine::Machine>>,
}

impl Scripts {
    /// Keeps one that can be read.
    pub fn add(&self, digest: &str, source: &[u8]) {
        let mut known = self.known.lock();
        if !known.contains_key(digest) {
            if known.values().map(Vec::len).sum::<usize>() + source.len() > KNOWN_BYTES_MAX {
                known.clear();
            }
            known.insert(digest.to_owned(), source.to_vec());
        }
    }

    /// Whether one runs for longer than this, in milliseconds; 0: none runs for too long.
    pub fn is_busy(&self, limit: u64) -> bool {
        let since = self.since.load(Ordering::Relaxed);
        since > 0 && limit > 0 && clock::now_ms().saturating_sub(since) > limit
    }

    /// Whether the one that runs has to end.
    pub fn must_end(&self) -> bool {
        let has_taken_too_long = || self.began.lock().is_some_and(|began| began.elapsed() > SCRIPT_TIME_MAX);
        self.is_running.load(Ordering::Relaxed) && (self.kill.load(Ordering::Relaxed) || has_taken_too_long())
    }

    /// How many are known.
    pub fn len(&self) -> usize {
        self.known.lock().len()
    }

    pub fn get(&self, digest: &str) -> Option<Vec<u8>> {
        self.known.lock().get(digest).cloned()
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.known.lock().clear();
    }
}

/// Marks that a script runs, until it is dropped.
pub struct Running<'a>(&'a Scripts);

impl<'a> Running<'a> {
    /// A script begins, at this time.
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
    }
}

/// A script to run.
#[cfg_attr(not(feature = "lua"), expect(dead_code, reason = "no scripts are run"))]
#[derive(Clone, Copy)]
pub struct Script<'a> {
    pub digest: &'a str,
    /// As the client sent it.
    pub whole: &'a [u8],
    /// What is compiled of it.
    pub source: &'a [u8],
    pub keys: &'a [&'a [u8]],
    pub arguments: &'a [&'a [u8]],
    pub only_reads: bool,
}
