//! A scratch directory: empty before each process that works in it, gone after the last.

use std::fs;
use std::path::{Path, PathBuf};

use esker_bench_api::{Failure, Result};

/// A directory in which other processes work.
pub(crate) struct Scratch {
    pub(crate) path: PathBuf,
}

impl Scratch {
    /// Makes the directory `name` in `dir`, without what is there.
    pub(crate) fn new(dir: &Path, name: &str) -> Result<Self> {
        let scratch = Self { path: dir.join(name) };
        scratch.clear()?;
        Ok(scratch)
    }

    pub(super) fn clear(&self) -> Result<()> {
        if self.path.exists() {
            fs::remove_dir_all(&self.path)?;
        }
        fs::create_dir_all(&self.path).map_err(Failure::engine)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("{} could not be removed: {error}", self.path.display());
        }
    }
}
