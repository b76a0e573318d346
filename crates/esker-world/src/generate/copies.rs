//! Generates operations on copies: archives, unloaded files, a replica.
//!
//! Each kind occurs at a fixed stride in seeds that have it, so it does not change the other operations.

use super::Generator;
use crate::op::{Following, Loading, Op};

/// Strides of the kinds, and their positions within the stride.
const ARCHIVE_STRIDE: usize = 41;
const ARCHIVE_AT: usize = 17;
/// The wall clock is set before some archives.
const CLOCK_AT: usize = 5;
const UNLOAD_STRIDE: usize = 90;
const UNLOAD_AT: usize = 33;
const FOLLOW_STRIDE: usize = 29;
const FOLLOW_AT: usize = 12;
/// Keyspaces are dropped, created and renamed in one commit.
const NAMES_STRIDE: usize = 57;
const NAMES_AT: usize = 25;

/// Default lifetimes, in milliseconds, of keyspaces that exist before a load.
const LIFETIMES_MS: [u32; 3] = [1000, 60_000, 3_600_000];

impl Generator<'_> {
    /// Returns the operation due now, if any.
    pub(super) fn copy_that_is_due(&mut self) -> Option<Op> {
        let made = self.made;
        match () {
            () if self.features.archives && made % ARCHIVE_STRIDE == ARCHIVE_AT => {
                Some(Op::Archive(self.choices.u16(0..1000)))
            }
            () if self.features.archives && made % ARCHIVE_STRIDE == CLOCK_AT && self.choices.bool() => {
                Some(Op::SetClock([-3_600_000, -30_000, -2000, 5000][self.choices.usize(0..4)]))
            }
            () if self.features.unloads && made % UNLOAD_STRIDE == UNLOAD_AT => {
                Some(Op::Unload(self.loading()))
            }
            () if self.features.replica && made % FOLLOW_STRIDE == FOLLOW_AT => {
                Some(Op::Follow(self.following()))
            }
            () if (self.features.replica || self.features.archives) && made % NAMES_STRIDE == NAMES_AT => {
                Some(Op::Names(self.name_changes(), self.durability()))
            }
            () => None,
        }
    }

    fn loading(&mut self) -> Loading {
        let cut = |g: &mut Self| {
            let most = [4, 20, 60][g.choices.usize(0..3)];
            (g.choices.u32(0..most), g.keep())
        };
        let cuts = (0..self.choices.usize(0..6)).map(|_| cut(self)).collect();
        Loading {
            lifetime_ms: self.choices.bool().then(|| LIFETIMES_MS[self.choices.usize(0..3)]),
            cuts,
            loss: self.one_in(3).then(|| self.loss()),
        }
    }

    fn following(&mut self) -> Following {
        Following {
            commits: [0, 0, 1, 4][self.choices.usize(0..4)],
            durability: self.durability(),
            loss: self.one_in(6).then(|| self.loss()),
        }
    }
}
