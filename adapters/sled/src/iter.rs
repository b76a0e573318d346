//! `Iter`: the entries of a tree as of the moment when it was made, from both ends.

use std::sync::Arc;

use crate::IVec;
use crate::error::{Error, Result};
use crate::shared::Shared;

/// The entries of a range of a tree as of one commit, from either end.
pub struct Iter {
    range: esker::Range,
    tree: IVec,
    /// Last, because a temporary directory goes with it.
    shared: Arc<Shared>,
}

impl Iter {
    pub(crate) fn new(range: esker::Range, tree: &IVec, shared: &Arc<Shared>) -> Self {
        Iter { range, tree: tree.clone(), shared: shared.clone() }
    }

    /// Returns the keys only.
    pub fn keys(self) -> impl DoubleEndedIterator<Item = Result<IVec>> + Send {
        let (tree, shared) = (self.tree, self.shared);
        self.range.keys().map(move |key| {
            let _keeps = &shared;
            key.map(IVec::from).map_err(|error| Error::of(error, &tree))
        })
    }

    /// Returns the values only.
    pub fn values(self) -> impl DoubleEndedIterator<Item = Result<IVec>> + Send {
        self.map(|entry| entry.map(|(_, value)| value))
    }

    fn entry(&self, entry: esker::Result<(esker::Key, esker::Value)>) -> Result<(IVec, IVec)> {
        let (key, value) = entry.map_err(|error| Error::of(error, &self.tree))?;
        Ok((key.into(), value.into()))
    }
}

impl Iterator for Iter {
    type Item = Result<(IVec, IVec)>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.range.next()?;
        Some(self.entry(entry))
    }

    fn last(mut self) -> Option<Self::Item> {
        self.next_back()
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        let entry = self.range.next_back()?;
        Some(self.entry(entry))
    }
}
