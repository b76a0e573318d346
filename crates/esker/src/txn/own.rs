//! A transaction's own writes, as its reads see them on top of everything else.
//!
//! ```text
//!   write set, layers (newest first) --cursors--> read/visible.rs, above the view's sources
//! ```

use std::sync::Arc;

use super::layers::{LayerCursor, Layers};
use super::write_set::WriteSet;
use super::write_set_cursor::WriteSetCursor;
use crate::types::SeqNo;
use crate::types::bounds::Bounds;
use crate::types::cursor::delegate_cursor;
use crate::types::range_tombstone::RangeTombstone;

/// The writes at one moment.
#[derive(Clone)]
pub(crate) struct OwnWrites {
    /// The newest.
    pub(crate) set: Arc<WriteSet>,
    /// Those before it.
    pub(crate) layers: Layers,
}

impl OwnWrites {
    /// Cursors over them, newest first.
    pub(crate) fn cursors(&self, bounds: &Bounds) -> Vec<OwnCursor> {
        let set = (!self.set.is_empty()).then(|| OwnCursor::Set(WriteSetCursor::new(self.set.clone())));
        set.into_iter().chain(self.layers.cursors(bounds).into_iter().map(OwnCursor::Layer)).collect()
    }

    /// Their range removals, under numbers larger than any commit's: they hide everything below them.
    pub(crate) fn removals(&self) -> Vec<RangeTombstone> {
        let own = |(start, end): &(Vec<u8>, Vec<u8>)| RangeTombstone {
            start: start.clone(),
            end: end.clone(),
            seq: SeqNo::MAX,
        };
        self.set.ranges().iter().map(own).chain(self.layers.removals()).collect()
    }
}

/// A position in a transaction's writes.
pub(crate) enum OwnCursor {
    /// In the write set.
    Set(WriteSetCursor),
    /// In a layer.
    Layer(LayerCursor),
}

delegate_cursor!([] OwnCursor { OwnCursor::Set, OwnCursor::Layer });
