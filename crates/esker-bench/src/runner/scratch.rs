//! The scratch directory: empty before each child, gone after the run.

use std::fs;
use std::path::{Path, PathBuf};

use esker_bench_api::{Failure, Result};

const SCRATCH: &str = "esker-bench-data";

/// The directory in which children work.
pub(super) struct Scratch {
    pub(super) path: PathBuf,
}

impl Scratch {
    pub(super) fn new(dir: &Path) -> Result<Self> {
        let scratch = Self { path: dir.join(SCRATCH) };
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
