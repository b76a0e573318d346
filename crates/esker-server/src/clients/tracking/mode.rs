//! How one client tracks keys.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const ON: u32 = 1;
const BCAST: u32 = 1 << 1;
const OPT_IN: u32 = 1 << 2;
const OPT_OUT: u32 = 1 << 3;
const NO_LOOP: u32 = 1 << 4;
/// `CLIENT CACHING` was given for the next command.
const CACHING: u32 = 1 << 5;
/// The connection that it redirects to has ended.
const BROKEN: u32 = 1 << 6;

/// The options of `CLIENT TRACKING ON`.
#[derive(Debug, Default)]
pub struct Setting {
    /// The connection that gets the invalidations, or 0.
    pub redirect: u64,
    /// All keys with a prefix, instead of keys that were read.
    pub is_bcast: bool,
    /// Only keys read after `CLIENT CACHING YES`.
    pub is_opt_in: bool,
    /// Not the keys read after `CLIENT CACHING NO`.
    pub is_opt_out: bool,
    /// No invalidations of own changes.
    pub is_no_loop: bool,
    /// Prefixes to add.
    pub prefixes: Vec<Vec<u8>>,
}

/// How a client tracks keys. Atomics are relaxed: the client sets them itself, and the table of tracked keys
/// has a lock.
#[derive(Default)]
pub struct Mode {
    flags: AtomicU32,
    redirect: AtomicU64,
}

impl Mode {
    fn has(&self, flags: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & flags != 0
    }

    pub(super) fn set(&self, setting: &Setting) {
        let Setting { redirect, is_bcast, is_opt_in, is_opt_out, is_no_loop, .. } = setting;
        let chosen = [(is_bcast, BCAST), (is_opt_in, OPT_IN), (is_opt_out, OPT_OUT), (is_no_loop, NO_LOOP)];
        let kept = self.flags.load(Ordering::Relaxed) & CACHING;
        let flags =
            chosen.iter().filter(|(is_so, _)| **is_so).fold(ON | kept, |flags, (_, flag)| flags | flag);
        self.redirect.store(*redirect, Ordering::Relaxed);
        self.flags.store(flags, Ordering::Relaxed);
    }

    pub(super) fn clear(&self) {
        self.flags.store(0, Ordering::Relaxed);
        self.redirect.store(0, Ordering::Relaxed);
    }

    pub(super) fn note_broken(&self) {
        self.flags.fetch_or(BROKEN, Ordering::Relaxed);
    }

    /// Returns whether the client tracks keys.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.has(ON)
    }

    /// Returns whether it tracks prefixes.
    pub fn is_bcast(&self) -> bool {
        self.has(BCAST)
    }

    /// Returns whether it tracks only what it asks for.
    pub fn is_opt_in(&self) -> bool {
        self.has(OPT_IN)
    }

    /// Returns whether it tracks all but what it excepts.
    pub fn is_opt_out(&self) -> bool {
        self.has(OPT_OUT)
    }

    /// Returns whether it gets no invalidations of own changes.
    pub fn is_no_loop(&self) -> bool {
        self.has(NO_LOOP)
    }

    /// Returns whether `CLIENT CACHING` was given for the next command.
    #[inline]
    pub fn has_caching(&self) -> bool {
        self.has(CACHING)
    }

    /// Records that `CLIENT CACHING` was given, or that the command it was given for has run.
    pub fn set_caching(&self, is_given: bool) {
        if is_given {
            self.flags.fetch_or(CACHING, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!CACHING, Ordering::Relaxed);
        }
    }

    /// Returns whether the keys that the next command reads are tracked.
    #[inline]
    pub fn remembers(&self) -> bool {
        let flags = self.flags.load(Ordering::Relaxed);
        flags & (ON | BCAST) == ON
            && match flags & (OPT_IN | OPT_OUT) {
                OPT_IN => flags & CACHING != 0,
                OPT_OUT => flags & CACHING == 0,
                _ => true,
            }
    }

    /// Returns the connection that gets the invalidations, or 0.
    pub fn redirect(&self) -> u64 {
        self.redirect.load(Ordering::Relaxed)
    }

    /// Returns the same as `CLIENT GETREDIR` has it: -1 without tracking.
    pub fn shown_redirect(&self) -> i64 {
        if self.is_on() { self.redirect() as i64 } else { -1 }
    }

    /// Returns the letters of `CLIENT LIST`.
    pub fn letters(&self) -> impl Iterator<Item = char> {
        let flags = self.flags.load(Ordering::Relaxed);
        let letters = [(ON, 't'), (BROKEN, 'R'), (BCAST, 'B')];
        letters.into_iter().filter(move |(flag, _)| flags & flag != 0).map(|(_, letter)| letter)
    }

    /// Returns the words of `CLIENT TRACKINGINFO`.
    pub fn words(&self) -> Vec<&'static str> {
        let flags = self.flags.load(Ordering::Relaxed);
        if flags & ON == 0 {
            return vec!["off"];
        }
        let names = [
            (ON, "on"),
            (BCAST, "bcast"),
            (OPT_IN, "optin"),
            (OPT_IN | CACHING, "caching-yes"),
            (OPT_OUT, "optout"),
            (OPT_OUT | CACHING, "caching-no"),
            (NO_LOOP, "noloop"),
            (BROKEN, "broken_redirect"),
        ];
        names.into_iter().filter(|(wanted, _)| flags & wanted == *wanted).map(|(_, name)| name).collect()
    }
}
