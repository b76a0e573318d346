//! The manifest's records of the change feed: how far back it goes, and what is kept for it.
//!
//! ```text
//!   flush     --released: recovery no longer needs the log below a segment--> age (engine/state)
//!   adoption  --kept: tables of a commit whose writes are not in the log--> removed with the commit
//!   retention --from: a segment, and the first commit in it--> older records are dropped here
//! ```
//!
//! manifest_feed.1. Nothing that the feed may need is removed before an edit that moves `from` past it is
//!     durable. So an older segment that a power loss brings back is not read.
//! - The edit that adopts the tables of a commit also names them as kept.
//!
//! Bytes: docs/formats/manifest.md

use super::field::{Item, Rows, parts};
use super::level::RunId;
use crate::encoding::bytes::{ByteReader, Decoded};
use crate::types::dump_value::DumpValue;
use crate::types::{FileId, SeqNo};

/// How far back the feed goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedFrom {
    /// The first kept segment of the log.
    pub segment: u64,
    /// The first commit that can be read.
    pub oldest: SeqNo,
}

/// How much is kept for the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedLimits {
    /// Bytes of the log, and of data that its commits have outside of it.
    pub bytes: u64,
    /// Seconds after recovery no longer needs it.
    pub age: u64,
}

/// A part of the log that recovery no longer needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// The first segment after it.
    pub below: u64,
    /// Since when, in Unix seconds.
    pub at: u64,
    /// Bytes that its commits have outside the log: values in blob files, and adopted tables.
    pub beside: u64,
}

/// An adopted commit whose tables are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptCommit {
    /// Its number.
    pub seq: SeqNo,
    /// Its tables with their runs. If several have a key, the one with the largest run id counts.
    pub tables: Vec<(FileId, RunId)>,
}

/// The feed's part of a version edit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedEdit {
    /// How far back the feed goes. `None`: unchanged.
    pub from: Option<FeedFrom>,
    /// How much is kept. `None`: unchanged.
    pub limits: Option<FeedLimits>,
    /// Sorted by segment.
    pub released: Vec<Released>,
    /// Sorted by commit.
    pub kept: Vec<KeptCommit>,
}

parts!(FeedFrom { segment segment, oldest oldest } FeedFrom { segment, oldest });
parts!(FeedLimits { bytes bytes, age age } FeedLimits { bytes, age });
parts!(Released { below below, at at, beside beside } Released { below, at, beside });
parts!(KeptCommit { seq seq, tables tables } KeptCommit { seq, tables });

impl FeedEdit {
    /// Forgets what lies before the oldest commit that is kept.
    pub(super) fn forget_before(&mut self, from: FeedFrom) {
        self.released.retain(|part| part.below > from.segment);
        self.kept.retain(|commit| commit.seq >= from.oldest);
    }

    /// The kept tables.
    pub(crate) fn tables(&self) -> impl Iterator<Item = FileId> + '_ {
        self.kept.iter().flat_map(|commit| &commit.tables).map(|(file, _)| *file)
    }
}
