//! Reads and writes directories of real files.

use std::fs;
use std::path::Path;

use super::disk::Files;
use esker_world::failure::Result;

/// Makes `dir` contain exactly these files.
pub(crate) fn write(dir: &Path, files: &Files) -> Result<()> {
    remove(dir)?;
    fs::create_dir_all(dir)?;
    for (name, bytes) in files {
        fs::write(dir.join(name), bytes)?;
    }
    Ok(())
}

/// Returns all files of `dir`.
pub(crate) fn read(dir: &Path) -> Result<Files> {
    let mut files = Files::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        files.insert(entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?);
    }
    Ok(files)
}

/// Removes `dir` and its files if it exists.
pub(crate) fn remove(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir)?;
    }
    Ok(())
}
