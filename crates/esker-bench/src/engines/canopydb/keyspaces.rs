//! Keyspaces as canopydb's trees.
//!
//!   write     -> one transaction, which opens each tree that it needs, once
//!   get, range-> one read transaction, one tree
//!   remove    -> delete_tree of each in one synced transaction

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::ops::Range;
use std::time::Instant;

use canopydb::{Tree, WriteTransaction};

use super::{CanopyStore, get, walk};
use esker_bench_api::{
    Failure, Handles, KeyspaceWriter, Keyspaces, KeyspacesWork, Result, Store as _, VisitItem,
};

pub(super) fn open(store: CanopyStore, count: u32) -> Result<Box<dyn Keyspaces>> {
    let mut names = there(&store, count)?;
    if names.are_none() {
        let txn = store.db.begin_write()?;
        names = Handles::open(count, |name| {
            txn.get_or_create_tree(name.as_bytes()).map(|_| Some(name.to_owned())).map_err(Failure::engine)
        })?;
        txn.commit_with(true)?;
    }
    Ok(Box::new(CanopyKeyspaces { store, names }))
}

/// Returns the names of the existing keyspaces.
fn there(store: &CanopyStore, count: u32) -> Result<Handles<String>> {
    let txn = store.db.begin_read()?;
    let trees = txn.list_trees()?;
    let there: BTreeSet<&[u8]> = trees.iter().map(|name| &name[..]).collect();
    Handles::open(count, |name| Ok(there.contains(name.as_bytes()).then(|| name.to_owned())))
}

struct CanopyKeyspaces {
    store: CanopyStore,
    names: Handles<String>,
}

impl CanopyKeyspaces {
    /// Returns the result of `read` on the tree of a keyspace, if that exists.
    fn read<T>(&self, keyspace: u32, read: impl FnOnce(&Tree<'_>) -> Result<T>) -> Result<Option<T>> {
        let Some(name) = self.names.get(keyspace) else { return Ok(None) };
        let txn = self.store.db.begin_read()?;
        let tree = txn.get_tree(name.as_bytes())?;
        tree.as_ref().map(read).transpose()
    }
}

impl Keyspaces for CanopyKeyspaces {
    fn write(&self, work: KeyspacesWork<'_>) -> Result<()> {
        let txn = self.store.db.begin_write()?;
        let mut writer = CanopyKeyspaceWriter { txn: &txn, names: &self.names, trees: BTreeMap::new() };
        work(&mut writer)?;
        drop(writer);
        txn.commit_with(self.store.sync).map(|_| ()).map_err(Failure::engine)
    }

    fn get(&self, keyspace: u32, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.read(keyspace, |tree| get(tree, key, visit))?.unwrap_or(false))
    }

    fn range(&self, keyspace: u32, from: &[u8], limit: u64, visit: VisitItem<'_>) -> Result<u64> {
        Ok(self.read(keyspace, |tree| walk(tree, from, limit, visit))?.unwrap_or(0))
    }

    fn remove_keyspaces(&mut self, keyspaces: Range<u32>) -> Result<()> {
        let txn = self.store.db.begin_write()?;
        for name in self.names.take(keyspaces) {
            txn.delete_tree(name.as_bytes())?;
        }
        txn.commit_with(true).map(|_| ()).map_err(Failure::engine)
    }

    fn drain(&self, deadline: Instant) -> Result<()> {
        self.store.drain(deadline)
    }
}

struct CanopyKeyspaceWriter<'txn> {
    txn: &'txn WriteTransaction,
    names: &'txn Handles<String>,
    /// Trees that the transaction has opened. canopydb opens none twice.
    trees: BTreeMap<u32, Tree<'txn>>,
}

impl KeyspaceWriter for CanopyKeyspaceWriter<'_> {
    fn put(&mut self, keyspace: u32, key: &[u8], value: &[u8]) -> Result<()> {
        let tree = match self.trees.entry(keyspace) {
            btree_map::Entry::Occupied(opened) => opened.into_mut(),
            btree_map::Entry::Vacant(place) => {
                let name = self.names.of(keyspace)?.as_bytes();
                place.insert(self.txn.get_or_create_tree(name)?)
            }
        };
        tree.insert(key, value).map_err(Failure::engine)
    }
}
