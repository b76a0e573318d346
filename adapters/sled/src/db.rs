//! `Db`: the trees of a database.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::IVec;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::names;
use crate::shared::Shared;
use crate::tree::{Crc32, Tree};

/// An open database. It derefs to its default tree. Clones share it.
#[derive(Clone)]
pub struct Db {
    shared: Arc<Shared>,
    default: Tree,
    trees: Arc<RwLock<BTreeMap<IVec, Tree>>>,
    was_recovered: bool,
}

type CollectionType = Vec<u8>;
type CollectionName = Vec<u8>;

/// Opens the database in a directory with the default options.
///
/// # Errors
/// Those of [`Config::open`].
pub fn open<P: AsRef<Path>>(path: P) -> Result<Db> {
    Config::new().path(path).open()
}

impl Config {
    /// Opens the database.
    ///
    /// # Errors
    /// Those of [`esker::Builder::open`], as [`Error`].
    pub fn open(&self) -> Result<Db> {
        Db::start(self.clone(), self.builder().open(self.get_path())?)
    }
}

impl Deref for Db {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        &self.default
    }
}

impl Db {
    fn start(config: Config, db: esker::Db) -> Result<Self> {
        let names = db.keyspaces()?;
        let was_recovered = names.iter().any(|name| name == names::IDS);
        let ids = db.keyspace(names::IDS)?.sequence("next", config.id_lease())?;
        let shared = Arc::new(Shared::new(db, ids, config));
        let mut trees = BTreeMap::new();
        for name in names.iter().filter_map(|name| names::decode(name)) {
            trees.insert(IVec::from(&name[..]), Tree::open(&shared, &name)?);
        }
        let default = match trees.get(names::DEFAULT) {
            Some(tree) => tree.clone(),
            None => Tree::open(&shared, names::DEFAULT)?,
        };
        trees.insert(IVec::from(names::DEFAULT), default.clone());
        Ok(Db { shared, default, trees: Arc::new(RwLock::new(trees)), was_recovered })
    }

    /// Opens a tree, or creates it.
    ///
    /// # Errors
    /// Those of [`esker::Db::keyspace`], as [`Error`].
    pub fn open_tree<V: AsRef<[u8]>>(&self, name: V) -> Result<Tree> {
        let name = name.as_ref();
        if let Some(tree) = self.trees.read().get(name) {
            return Ok(tree.clone());
        }
        let mut trees = self.trees.write();
        if let Some(tree) = trees.get(name) {
            return Ok(tree.clone());
        }
        let tree = Tree::open(&self.shared, name)?;
        trees.insert(IVec::from(name), tree.clone());
        Ok(tree)
    }

    /// Drops a tree and its content. Returns whether it existed. Calls with handles of it fail from now on.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for the default tree; those of [`esker::Db::drop_keyspace`].
    pub fn drop_tree<V: AsRef<[u8]>>(&self, name: V) -> Result<bool> {
        let name = name.as_ref();
        if name == names::DEFAULT {
            return Err(Error::Unsupported("the default tree cannot be dropped".to_owned()));
        }
        let mut trees = self.trees.write();
        if !trees.contains_key(name) {
            return Ok(false);
        }
        self.shared.db.drop_keyspace(&names::encode(name))?;
        trees.remove(name);
        Ok(true)
    }

    /// Returns the names of all trees.
    pub fn tree_names(&self) -> Vec<IVec> {
        self.trees.read().keys().cloned().collect()
    }

    /// Returns whether the database existed when it was opened.
    pub fn was_recovered(&self) -> bool {
        self.was_recovered
    }

    /// Returns a number that no other call returns, even after a crash.
    ///
    /// # Errors
    /// Those of [`esker::Sequence::next`].
    pub fn generate_id(&self) -> Result<u64> {
        self.shared.generate_id()
    }

    /// Returns all trees with their entries, for [`import`](Self::import).
    ///
    /// # Panics
    /// If an entry cannot be read.
    pub fn export(
        &self,
    ) -> Vec<(CollectionType, CollectionName, impl Iterator<Item = Vec<Vec<u8>>> + use<>)> {
        let entry = |entry: Result<(IVec, IVec)>| {
            let (key, value) = entry.expect("the entry can be read");
            vec![key.to_vec(), value.to_vec()]
        };
        let trees = self.trees.read();
        trees.iter().map(|(name, tree)| (b"tree".to_vec(), name.to_vec(), tree.iter().map(entry))).collect()
    }

    /// Imports what [`export`](Self::export) or sled's `export` returns.
    ///
    /// # Panics
    /// If a key exists, if something other than trees is imported, or if the database fails.
    pub fn import(&self, export: Vec<(CollectionType, CollectionName, impl Iterator<Item = Vec<Vec<u8>>>)>) {
        for (kind, name, entries) in export {
            assert_eq!(kind, b"tree", "only trees are imported");
            let tree = self.open_tree(name).expect("the tree can be opened");
            for entry in entries {
                let [key, value] = <[Vec<u8>; 2]>::try_from(entry).expect("an entry has a key and a value");
                let old = tree.insert(key, value).expect("the entry can be written");
                assert!(old.is_none(), "an import overwrites nothing");
            }
        }
    }

    /// Returns the CRC-32 of the names, keys and values of all trees, as of one commit for each tree.
    ///
    /// # Errors
    /// Those of reading.
    pub fn checksum(&self) -> Result<u32> {
        let mut sum = Crc32::default();
        for (name, tree) in self.trees.read().iter() {
            sum.update(name);
            tree.add_to(&mut sum)?;
        }
        Ok(sum.finish())
    }

    /// Returns the bytes of the files.
    ///
    /// # Errors
    /// If a file cannot be looked at.
    pub fn size_on_disk(&self) -> Result<u64> {
        fn size(dir: &Path) -> std::io::Result<u64> {
            let mut sum = 0;
            for entry in std::fs::read_dir(dir)? {
                let entry = entry?;
                let about = match entry.metadata() {
                    Ok(about) => about,
                    // The engine removes files meanwhile.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                };
                sum += if about.is_dir() { size(&entry.path())? } else { about.len() };
            }
            Ok(sum)
        }
        Ok(size(self.shared.db.path())?)
    }

    /// Returns the engine under it.
    pub fn esker(&self) -> &esker::Db {
        &self.shared.db
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.trees.read().iter()).finish()
    }
}
