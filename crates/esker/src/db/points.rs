//! The states of gathered writes at savepoints.

use std::sync::Arc;

use super::writes::Writes;
use crate::engine::writes::catalog_changes::Changes;
use crate::txn::commit::KeyspaceLife;
use crate::txn::layers::Layers;
use crate::txn::read_set::ReadSet;
use crate::txn::write_set::{Mark, WriteSet};
use crate::types::canary::{self, Canary};

/// The state of the writes at a savepoint.
#[derive(Clone)]
pub(super) struct Point {
    number: u64,
    pub(super) mark: Mark,
    /// The write set, if it has become a layer since.
    pub(super) set: Option<Arc<WriteSet>>,
    layers: Layers,
    keyspaces: Arc<Vec<KeyspaceLife>>,
    /// `None`: there were none.
    changes: Option<Changes>,
    large_bytes: usize,
}

impl Writes {
    /// Sets a savepoint with this number, which is larger than all earlier ones.
    pub(super) fn set_point(&mut self, number: u64) {
        self.points.push(Point {
            number,
            mark: self.set.mark(),
            set: None,
            layers: self.layers.clone(),
            keyspaces: self.keyspaces.clone(),
            changes: (!self.changes.is_empty()).then(|| self.changes.clone()),
            large_bytes: self.large_bytes,
        });
    }

    /// Releases a savepoint and later ones. Returns false if it does not exist.
    pub(super) fn forget_point(&mut self, number: u64) -> bool {
        let at = self.points.iter().position(|point| point.number == number);
        at.inspect(|at| self.points.truncate(*at)).is_some()
    }

    /// Undoes the writes since a savepoint and releases later savepoints. Returns false if it does not exist.
    /// `reads`: the read sets of the transaction.
    pub(super) fn go_back<'a>(
        &mut self,
        number: u64,
        reads: impl IntoIterator<Item = &'a Arc<ReadSet>>,
    ) -> bool {
        let Some(at) = self.points.iter().position(|point| point.number == number) else { return false };
        self.points.truncate(at + 1);
        for reads in reads.into_iter().filter(|_| !canary::is_set(Canary::UndoneReadForgotten)) {
            match &self.points[at] {
                Point { set: Some(_), .. } => reads.note_counted(),
                Point { mark, .. } => {
                    reads.note_undone(self.set.keys_since(mark), self.set.ranges_since(mark))
                }
            }
        }
        let point = &mut self.points[at];
        if let Some(set) = point.set.take() {
            self.set = set;
        }
        let point = self.points[at].clone();
        Arc::make_mut(&mut self.set).go_back(&point.mark);
        (self.layers, self.changes) = (point.layers, point.changes.unwrap_or_default());
        (self.keyspaces, self.large_bytes) = (point.keyspaces, point.large_bytes);
        self.ids.clear();
        self.last = None;
        true
    }
}
