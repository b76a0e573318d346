//! The file that `export` writes.
//!
//! ```text
//!   FILE --look--> a file, or nothing yet     --> FILE.partial --synced--> renamed to FILE, directory synced
//!            |---> a pipe, a device           --> written as it is
//!            `---> a directory, a link to one, or to a file --> refused
//! ```
//!
//! cli_target.1. A regular file appears under its name only when it is complete and durable. Until then an
//!     older file stays.
//! cli_target.2. Nothing else is replaced, truncated or removed: no device, pipe or link, no `.partial` file
//!     of another export, and no file in the directory of a database.
//! - An exported file is not readable by more users than the file it replaces, or, for a new file, than the
//!   database. This concerns Unix modes. Access control lists are not copied; the directory's defaults apply.

#[cfg(all(test, unix))]
mod tests;

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, FileError, Result};
use crate::formats;
use crate::text::shown;

/// What a name refers to before anything is written.
#[derive(Debug)]
pub(crate) enum Target {
    /// Standard output.
    Standard,
    /// A pipe, a device, a terminal.
    Special(PathBuf),
    /// A regular file, with its metadata if it exists.
    Regular(PathBuf, Option<Metadata>),
}

impl Target {
    /// Examines `file` without changing anything.
    pub(crate) fn look(file: &Path) -> Result<Self> {
        if formats::is_standard(file) || file == Path::new("/dev/stdout") {
            return Ok(Target::Standard);
        }
        let refused = |is: &str| Err(Failure::message(format!("{} is {is}", shown(file.display()))));
        let is_link = fs::symlink_metadata(file).is_ok_and(|meta| meta.is_symlink());
        match fs::metadata(file) {
            Ok(meta) if meta.is_dir() => refused("a directory: export writes a file"),
            Ok(meta) if !meta.is_file() => Ok(Target::Special(file.to_owned())),
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Failure::file("look at", file, &e)),
            _ if is_link => refused(
                "a link, and export replaces files: give the file that it leads to, or `-` for standard output",
            ),
            found => Ok(Target::Regular(file.to_owned(), found.ok())),
        }
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// An open pipe or device.
pub(crate) struct Special {
    path: PathBuf,
    output: File,
    bytes: u64,
}

impl Special {
    /// Opens it; opening a pipe waits for its reader.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let output =
            OpenOptions::new().write(true).open(path).map_err(|e| Failure::file("open", path, &e))?;
        Ok(Special { path: path.to_owned(), output, bytes: 0 })
    }

    /// Makes the output durable where the device supports it. Returns the bytes written.
    pub(crate) fn complete(self) -> Result<u64> {
        match self.output.sync_all() {
            Ok(()) => Ok(self.bytes),
            // Pipes, terminals and /dev/null do not support it.
            Err(e) if matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
                Ok(self.bytes)
            }
            Err(e) => Err(Failure::file("sync", &self.path, &e)),
        }
    }
}

impl Write for Special {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.output.write(bytes).map_err(|e| FileError::write(&self.path, e))?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// An incomplete file, removed unless it is completed.
pub(crate) struct Partial {
    path: PathBuf,
    /// Whether the file exists and belongs to this export (cli_target.2).
    is_there: bool,
    output: File,
    target: PathBuf,
}

impl Partial {
    /// Creates a file beside `target`, to replace `existing`. `database` is the directory that the rows come
    /// from.
    pub(crate) fn create(target: &Path, existing: Option<&Metadata>, database: &Path) -> Result<Self> {
        let mut name = OsString::from(target);
        name.push(".partial");
        let path = PathBuf::from(name);
        let output = match create_new(&path, existing, database) {
            // cli_target.2
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                return Err(Failure::message(format!(
                    "{} exists: wait for the export that writes it, or, if there is none, remove it and export again",
                    shown(path.display())
                )));
            }
            created => created.map_err(|e| Failure::file("create", &path, &e))?,
        };
        Ok(Partial { path, is_there: true, output, target: target.to_owned() })
    }

    /// Makes the file durable under its name (cli_target.1). Returns its size in bytes.
    pub(crate) fn complete(mut self) -> Result<u64> {
        self.output.sync_all().map_err(|e| Failure::file("sync", &self.path, &e))?;
        let bytes = self.output.metadata().map_err(|e| Failure::file("read", &self.path, &e))?.len();
        self.rename()?;
        sync_directory_of(&self.target)?;
        Ok(bytes)
    }

    /// Renames the file. Afterwards a file of the old name belongs to another export.
    fn rename(&mut self) -> Result<()> {
        fs::rename(&self.path, &self.target).map_err(|e| Failure::file("rename to", &self.target, &e))?;
        self.is_there = false;
        Ok(())
    }
}

impl Write for Partial {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.write(bytes).map_err(|e| FileError::write(&self.path, e))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if self.is_there {
            // The reason for the failed export matters more.
            let _leftover = fs::remove_file(&self.path);
        }
    }
}

/// Creates the file with the required mode.
#[cfg(unix)]
fn create_new(path: &Path, existing: Option<&Metadata>, database: &Path) -> io::Result<File> {
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    let Some(existing) = existing else {
        return options.mode(fs::metadata(database)?.mode() & 0o666).open(path);
    };
    // A process that opened the file before it had its final mode could read what is written later.
    let file = options.mode(0o600).open(path)?;
    // Access for the old group must not become access for another group.
    let kept = if file.metadata()?.gid() == existing.gid() { 0o777 } else { 0o700 };
    file.set_permissions(fs::Permissions::from_mode(existing.mode() & kept))?;
    Ok(file)
}

#[cfg(not(unix))]
fn create_new(path: &Path, _: Option<&Metadata>, _: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Makes the name of a file durable.
pub(crate) fn sync_directory_of(path: &Path) -> Result<()> {
    let dir = directory_of(path);
    sync_dir(dir).map_err(|e| Failure::file("sync the directory", dir, &e))
}

#[cfg(unix)]
fn sync_dir(dir: &Path) -> io::Result<()> {
    match File::open(dir) {
        Ok(dir) => dir.sync_all(),
        // A directory that may not be read cannot be synced.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(e) => Err(e),
    }
}

/// Other systems cannot sync a directory.
#[cfg(not(unix))]
fn sync_dir(_: &Path) -> io::Result<()> {
    Ok(())
}
