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
//! manifest_feed.2. The edit that adopts the tables of a commit also names them as kept.
//!
//! Bytes: docs/formats/manifest.md

use super::edit::seq;
use super::version::RunId;
use crate::encoding::bytes::{ByteReader, Decoded, put_varint};
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

pub(super) const TAG_FROM: u64 = 30;
pub(super) const TAG_RELEASED: u64 = 31;
pub(super) const TAG_KEPT: u64 = 32;
pub(super) const TAG_LIMITS: u64 = 33;

impl FeedEdit {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let mut numbers = |numbers: &[u64]| numbers.iter().for_each(|n| put_varint(out, *n));
        if let Some(FeedFrom { segment, oldest }) = self.from {
            numbers(&[TAG_FROM, segment, oldest.get()]);
        }
        if let Some(FeedLimits { bytes, age }) = self.limits {
            numbers(&[TAG_LIMITS, bytes, age]);
        }
        for Released { below, at, beside } in &self.released {
            numbers(&[TAG_RELEASED, *below, *at, *beside]);
        }
        for KeptCommit { seq, tables } in &self.kept {
            numbers(&[TAG_KEPT, seq.get(), tables.len() as u64]);
            tables.iter().for_each(|(file, run)| numbers(&[file.get(), run.0]));
        }
    }

    /// Decodes the field with this tag, which is one of the feed's.
    pub(super) fn decode_more(&mut self, tag: u64, reader: &mut ByteReader<'_>) -> Decoded<()> {
        match tag {
            TAG_FROM => {
                let (segment, oldest) = (reader.varint()?, seq(reader)?);
                self.from = Some(FeedFrom { segment, oldest });
            }
            TAG_LIMITS => {
                let (bytes, age) = (reader.varint()?, reader.varint()?);
                self.limits = Some(FeedLimits { bytes, age });
            }
            TAG_RELEASED => {
                let (below, at, beside) = (reader.varint()?, reader.varint()?, reader.varint()?);
                self.released.push(Released { below, at, beside });
            }
            _ => {
                let (seq, mut tables) = (seq(reader)?, Vec::new());
                for _ in 0..reader.varint()? {
                    tables.push((FileId::new(reader.varint()?), RunId(reader.varint()?)));
                }
                self.kept.push(KeptCommit { seq, tables });
            }
        }
        Ok(())
    }

    /// Applies a later edit, and drops what lies before `from` (manifest_feed.1).
    pub(super) fn merge(&mut self, later: FeedEdit) {
        self.from = later.from.or(self.from);
        self.limits = later.limits.or(self.limits);
        self.released.extend(later.released);
        self.kept.extend(later.kept);
        if let Some(FeedFrom { segment, oldest }) = later.from {
            self.released.retain(|part| part.below > segment);
            self.kept.retain(|commit| commit.seq >= oldest);
        }
    }

    /// The kept tables.
    pub(crate) fn tables(&self) -> impl Iterator<Item = FileId> + '_ {
        self.kept.iter().flat_map(|commit| &commit.tables).map(|(file, _)| *file)
    }
}
