//! The writes of a transaction, as its own reads see them above all other data.
//!
//! ```text
//!   write set, layers (newest first) --cursors--> read/visible.rs, above the sources of the view
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
    /// The newest writes.
    pub(crate) set: Arc<WriteSet>,
    /// The older writes.
    pub(crate) layers: Layers,
}

impl OwnWrites {
    /// Returns cursors over the writes, newest first.
    pub(crate) fn cursors(&self, bounds: &Bounds) -> Vec<OwnCursor> {
        let set = (!self.set.is_empty()).then(|| OwnCursor::Set(WriteSetCursor::new(self.set.clone())));
        set.into_iter().chain(self.layers.cursors(bounds).into_iter().map(OwnCursor::Layer)).collect()
    }

    /// Returns the range removals, with sequence numbers above any commit, so that they hide everything
    /// below.
    pub(crate) fn removals(&self) -> Vec<RangeTombstone> {
        let own = |(start, end): &(Vec<u8>, Vec<u8>)| RangeTombstone {
            start: start.clone(),
            end: end.clone(),
            seq: SeqNo::MAX,
        };
        self.set.ranges().iter().map(own).chain(self.layers.removals()).collect()
    }
}

/// A cursor over the writes of a transaction.
pub(crate) enum OwnCursor {
    /// A cursor over the write set.
    Set(WriteSetCursor),
    /// A cursor over a layer.
    Layer(LayerCursor),
}

delegate_cursor!([] OwnCursor { OwnCursor::Set, OwnCursor::Layer });
