//! The name of a commit of a guest.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use esker::{Durability, SeqNo};
use serde::{Deserialize, Serialize};

/// Longest time after a commit was sent in which its outcome can be asked for. Hosts keep records for longer.
pub(crate) const ASKING_MAX: Duration = Duration::from_secs(600);

/// The name of a lane: a connection of a guest, whose commits come one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct LaneId(pub(crate) [u8; 16]);

impl LaneId {
    /// A name that no other lane has.
    pub(crate) fn random() -> Self {
        // The keys of the hash are random bits of the operating system, drawn once by each thread.
        let half = |half: u32| RandomState::new().hash_one((half, std::process::id(), Instant::now()));
        let halves = (half(0), half(1));
        LaneId(((u128::from(halves.0) << 64) | u128::from(halves.1)).to_be_bytes())
    }
}

/// The name of a commit whose outcome is unknown: part of
/// [`Error::OutcomeUnknown`](crate::Error::OutcomeUnknown).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitId {
    pub(crate) lane: LaneId,
    pub(crate) number: u64,
    pub(crate) durability: Durability,
    pub(crate) sent: Instant,
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}-{}", u128::from_be_bytes(self.lane.0), self.number)
    }
}

/// What became of a commit whose reply was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It was applied, at this commit or before it, and is as durable as was asked for.
    Applied(#[serde(with = "crate::protocol::seqno")] SeqNo),
    /// It was not applied, and never will be.
    NotApplied,
}
