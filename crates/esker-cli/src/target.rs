//! The file that `export` writes.
//!
//! ```text
//!   FILE --look--> a file, or nothing yet --> NAME.partial --complete, synced--> renamed to FILE, directory synced
//!            |---> a link                 --> the same, where it leads
//!            |---> a pipe, a device       --> written as it is
//!            `---> a directory            --> refused
//! ```
//!
//! TG1. A regular file appears under its name only when it is complete and durable; until then an older one stays.
//! TG2. Nothing else of the user's is replaced, cut or removed: no device, pipe or link, and no file called `.partial`.
//! TG3. What is written over a file can be read by no more people than that file (on Unix).

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};
use crate::formats;

/// So many names for a partial file are tried: as many unfinished exports of one file there may be.
const PARTIAL_NAMES: u32 = 100;
/// So many links are followed, as Linux does.
const LINKS_MAX: u32 = 40;

/// What a name stands for, before anything is written.
#[derive(Debug)]
pub(crate) enum Target {
    /// Standard output, by whatever name.
    Standard,
    /// A pipe, a device, a terminal.
    Special(PathBuf),
    /// A regular file, with what is known of it if it is there.
    Regular(PathBuf, Option<Metadata>),
}

impl Target {
    /// Looks at `file` without changing anything.
    pub(crate) fn look(file: &Path) -> Result<Self> {
        if formats::is_standard(file) || is_own_output(file) {
            return Ok(Target::Standard);
        }
        let failure = |e: &io::Error| Failure::file("look at", file, e);
        let meta = match fs::metadata(file) {
            Ok(meta) if meta.is_dir() => {
                return Err(Failure::message(format!(
                    "{} is a directory: export writes a file",
                    file.display()
                )));
            }
            Ok(meta) if !meta.is_file() => return Ok(Target::Special(file.to_owned())),
            Ok(meta) => Some(meta),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(failure(&e)),
        };
        Ok(Target::Regular(follow(file).map_err(|e| failure(&e))?, meta))
    }
}

/// Whether this is another name of standard output. A file behind it is written where it stands, and not replaced.
fn is_own_output(file: &Path) -> bool {
    ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| file == Path::new(name))
}

/// Where links lead, the last of them perhaps to nothing yet.
fn follow(file: &Path) -> io::Result<PathBuf> {
    let mut path = file.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_symlink() => path = directory_of(&path).join(fs::read_link(&path)?),
            _ => return Ok(path),
        }
    }
    Err(io::Error::other("too many links"))
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A pipe or a device, being written.
pub(crate) struct Special {
    output: File,
    bytes: u64,
}

impl Special {
    /// Opens it; a pipe waits for its reader.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let output =
            OpenOptions::new().write(true).open(path).map_err(|e| Failure::file("open", path, &e))?;
        Ok(Special { output, bytes: 0 })
    }

    /// The bytes written so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Write for Special {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.output.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// A file that is not complete yet; removed if it never is.
pub(crate) struct Partial {
    path: PathBuf,
    output: File,
    target: PathBuf,
}

impl Partial {
    /// Creates a file beside `target`, with the mode of the file that is there (TG3).
    pub(crate) fn create(target: &Path, existing: Option<&Metadata>) -> Result<Self> {
        for number in 1..=PARTIAL_NAMES {
            let mut name = OsString::from(target);
            name.push(if number == 1 { ".partial".to_owned() } else { format!(".partial-{number}") });
            let path = PathBuf::from(name);
            match create_new(&path, existing) {
                Ok(output) => {
                    let partial = Partial { path, output, target: target.to_owned() };
                    if let Some(meta) = existing {
                        set_mode(&partial.output, meta)
                            .map_err(|e| Failure::file("set the mode of", &partial.path, &e))?;
                    }
                    return Ok(partial);
                }
                // TG2: somebody's own, or what is left of an export that was killed.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(Failure::file("create", &path, &e)),
            }
        }
        Err(Failure::message(format!(
            "{0}.partial and {PARTIAL_NAMES} names like it are taken: remove what is left of earlier exports",
            target.display()
        )))
    }

    pub(crate) fn output(&self) -> &File {
        &self.output
    }

    /// Gives the file its name (TG1); its size in bytes.
    pub(crate) fn complete(self) -> Result<u64> {
        self.output.sync_all().map_err(|e| Failure::file("sync", &self.path, &e))?;
        let bytes = self.output.metadata().map_err(|e| Failure::file("read", &self.path, &e))?.len();
        fs::rename(&self.path, &self.target).map_err(|e| Failure::file("rename to", &self.target, &e))?;
        let dir = directory_of(&self.target);
        sync_dir(dir).map_err(|e| Failure::file("sync the directory", dir, &e))?;
        Ok(bytes)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After `complete` there is nothing of this name; after a failure the name of the failure matters more.
        let _leftover = fs::remove_file(&self.path);
    }
}

#[cfg(unix)]
fn create_new(path: &Path, existing: Option<&Metadata>) -> io::Result<File> {
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    let mut options = OpenOptions::new();
    if let Some(meta) = existing {
        // From the start: whoever opens the file now could read what is written later.
        options.mode(meta.mode() & 0o777);
    }
    options.write(true).create_new(true).open(path)
}

#[cfg(not(unix))]
fn create_new(path: &Path, _: Option<&Metadata>) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// What the process's mask took away comes back.
#[cfg(unix)]
fn set_mode(file: &File, existing: &Metadata) -> io::Result<()> {
    file.set_permissions(existing.permissions())
}

#[cfg(not(unix))]
fn set_mode(_: &File, _: &Metadata) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn sync_dir(dir: &Path) -> io::Result<()> {
    match File::open(dir) {
        Ok(dir) => dir.sync_all(),
        // A directory to put files into, and not to be listed: it cannot be synced, and the file is there.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(e) => Err(e),
    }
}

/// There is no such call.
#[cfg(not(unix))]
fn sync_dir(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn tg2_devices_are_told_from_files() {
        // Only looked at: what is made of it is tested where nothing of the system's can be harmed.
        let look = |name: &str| Target::look(Path::new(name));
        assert!(matches!(look("-"), Ok(Target::Standard)));
        assert!(matches!(look("/dev/stdout"), Ok(Target::Standard)));
        assert!(matches!(look("/dev/null"), Ok(Target::Special(_))));
        assert!(matches!(look("/dev"), Err(Failure::Message(_))));
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        assert!(matches!(Target::look(&link), Ok(Target::Special(path)) if path == link));
        let missing = dir.path().join("missing");
        assert!(matches!(Target::look(&missing), Ok(Target::Regular(path, None)) if path == missing));
    }
}
