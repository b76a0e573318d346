//! State of a group while its work runs on an engine in this process.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use esker_bench_api::generate::items::{KEY_BYTES, VALUE_BYTES};
use esker_bench_api::generate::rng::Rng;

use crate::suites::content::Content;
use crate::suites::items::{Items, Kind, Source};

const SMALL_ITEM_BYTES: u64 = (KEY_BYTES + VALUE_BYTES) as u64;

/// Items, content and draws of a group.
pub(super) struct State {
    pub(super) dir: PathBuf,
    pub(super) items: Items,
    pub(super) content: Content,
    pub(super) rng: Rng,
    /// Number of pairs written to hotspots, overwrites included.
    pub(super) hotspot_pairs: u64,
    /// Number of changes of all accounts.
    pub(super) changes: u64,
    /// Number of keyspaces that were dropped, counted from the first.
    pub(super) dropped: u32,
    pub(super) moments: Moments,
    /// The expected sum of the last kind of scan: its limit, whether it is of keys only, the sum. `None`
    /// after writes.
    pub(super) scan_sum: Option<(u64, bool, u64)>,
}

/// Times at which entries expire.
#[derive(Default)]
pub(super) struct Moments {
    /// Time of the first put.
    pub(super) begin: Option<Instant>,
    /// No entry that was put late expires after this time.
    pub(super) last_due: Option<Instant>,
    pub(super) longest_put: Duration,
    /// Milliseconds from the first put to the first expiry, and from there to the last.
    pub(super) hold_spread_ms: (u64, u64),
}

impl State {
    pub(super) fn new(source: Source, dir: PathBuf) -> Self {
        Self {
            dir,
            items: Items::new(source),
            content: Content::default(),
            rng: Rng::new(source.seed),
            hotspot_pairs: 0,
            changes: 0,
            dropped: 0,
            moments: Moments::default(),
            scan_sum: None,
        }
    }

    /// Returns the bytes of all live keys and values.
    pub(super) fn live_bytes(&self) -> u64 {
        let Source { kind, number, .. } = self.items.source;
        let large = if kind == Kind::Large { number } else { self.content.len() };
        // Large values come first, then the small items of `items::Items`.
        large * self.items.source.item_bytes() + (self.content.len() - large) * SMALL_ITEM_BYTES
    }
}
