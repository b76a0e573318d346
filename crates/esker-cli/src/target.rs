//! The file that `export` writes.
//!
//! ```text
//!   FILE --look--> a file, or nothing yet --> NAME.partial --complete, synced--> renamed to FILE, directory synced
//!            |---> a link                 --> the same, where it leads
//!            |---> a pipe, a device       --> written as it is
//!            |---> a descriptor of ours   --> the same, after what is there
//!            `---> a directory            --> refused
//! ```
//!
//! TG1. A regular file appears under its name only when it is complete and durable; until then an older one stays.
//! TG2. Nothing else of the user's is replaced, cut or removed: no device, pipe or link, no file behind a descriptor, and no
//!      file called `.partial` that is not, or no longer, this export's.
//! TG3. What is written over a file can be read by no more people than that file (on Unix): it has its group and the rights of
//!      its mode, or, where the group cannot be given, nothing for any group. In place of a file with an access control list (on
//!      Linux) it is its owner's alone, and it takes none over from the directory.
//! TG4. It is run as nobody else: setuid and setgid are not kept, since the owner is not.

#[cfg(all(test, target_os = "linux"))]
mod tests;

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[cfg(target_os = "linux")]
use rustix::io::Errno;

use crate::failure::{Failure, FileError, Result};
use crate::formats;

/// So many names for a partial file are tried: as many unfinished exports of one file there may be.
const PARTIAL_NAMES: u32 = 100;
/// So many links are followed, as Linux does.
const LINKS_MAX: u32 = 40;
/// The attribute that holds a file's access control list.
#[cfg(target_os = "linux")]
const ACCESS_LIST: &str = "system.posix_acl_access";

/// What a name stands for, before anything is written.
#[derive(Debug)]
pub(crate) enum Target {
    /// Standard output, by whatever name.
    Standard,
    /// A pipe, a device, a terminal, or whatever a descriptor of the process stands for.
    Special(PathBuf),
    /// A regular file, with what is known of it if it is there.
    Regular(PathBuf, Option<Metadata>),
}

impl Target {
    /// Looks at `file` without changing anything.
    pub(crate) fn look(file: &Path) -> Result<Self> {
        if formats::is_standard(file) {
            return Ok(Target::Standard);
        }
        let failure = |e: &io::Error| Failure::file("look at", file, e);
        let end = follow(file).map_err(|e| failure(&e))?;
        if end == End::Descriptor(STANDARD_OUTPUT) {
            return Ok(Target::Standard);
        }
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
        Ok(match end {
            End::Descriptor(_) => Target::Special(file.to_owned()),
            End::File(path) => Target::Regular(path, meta),
        })
    }
}

const STANDARD_OUTPUT: u32 = 1;

/// Where links lead.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// A file, perhaps not there yet.
    File(PathBuf),
    /// A descriptor of this process. A file behind it is written where it stands, and not replaced (TG2).
    Descriptor(u32),
}

/// The descriptor of this process that has this name.
fn descriptor(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    match path.parent()?.to_str()? {
        "/dev" => {
            ["stdin", "stdout", "stderr"].into_iter().zip(0..).find(|(n, _)| *n == name).map(|(_, fd)| fd)
        }
        "/dev/fd" | "/proc/self/fd" | "/proc/thread-self/fd" => name.parse().ok(),
        _ => None,
    }
}

fn follow(file: &Path) -> io::Result<End> {
    let mut path = file.to_owned();
    for _ in 0..LINKS_MAX {
        if let Some(number) = descriptor(&path) {
            return Ok(End::Descriptor(number));
        }
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_symlink() => path = directory_of(&path).join(fs::read_link(&path)?),
            _ => return Ok(End::File(path)),
        }
    }
    Err(io::Error::other("too many links"))
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A pipe or a device, being written.
pub(crate) struct Special {
    path: PathBuf,
    output: File,
    bytes: u64,
}

impl Special {
    /// Opens it; a pipe waits for its reader.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        // A file behind a descriptor: what is in it stays. To append to a device is not the same.
        let append = fs::metadata(path).is_ok_and(|meta| meta.is_file());
        let output = OpenOptions::new()
            .write(true)
            .append(append)
            .open(path)
            .map_err(|e| Failure::file("open", path, &e))?;
        Ok(Special { path: path.to_owned(), output, bytes: 0 })
    }

    /// Makes what was written durable, where the device or the file can; the bytes written.
    pub(crate) fn complete(self) -> Result<u64> {
        match self.output.sync_all() {
            Ok(()) => Ok(self.bytes),
            // A pipe, a terminal, /dev/null.
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

/// A file that is not complete yet; removed if it never is.
pub(crate) struct Partial {
    path: PathBuf,
    /// Whether there is such a file, and it is ours (TG2).
    is_there: bool,
    output: File,
    target: PathBuf,
}

impl Partial {
    /// Creates a file beside `target`, with the group and the rights of the file that is there (TG3).
    pub(crate) fn create(target: &Path, existing: Option<&Metadata>) -> Result<Self> {
        for number in 1..=PARTIAL_NAMES {
            let mut name = OsString::from(target);
            name.push(if number == 1 { ".partial".to_owned() } else { format!(".partial-{number}") });
            let path = PathBuf::from(name);
            match create_new(&path, existing) {
                Ok(output) => {
                    let partial = Partial { path, is_there: true, output, target: target.to_owned() };
                    if let Some(meta) = existing {
                        set_group_and_mode(&partial.output, meta, has_access_list(target))
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

    /// Makes the file durable under its name (TG1); its size in bytes.
    pub(crate) fn complete(mut self) -> Result<u64> {
        self.output.sync_all().map_err(|e| Failure::file("sync", &self.path, &e))?;
        let bytes = self.output.metadata().map_err(|e| Failure::file("read", &self.path, &e))?.len();
        self.rename()?;
        let dir = directory_of(&self.target);
        sync_dir(dir).map_err(|e| Failure::file("sync the directory", dir, &e))?;
        Ok(bytes)
    }

    /// From here on, a file of the old name is another export's.
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
            // Why the export failed matters more than this.
            let _leftover = fs::remove_file(&self.path);
        }
    }
}

#[cfg(unix)]
fn create_new(path: &Path, existing: Option<&Metadata>) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = OpenOptions::new();
    if existing.is_some() {
        // Whoever opens the file before it has its group and mode could read what is written later.
        options.mode(0o600);
    }
    options.write(true).create_new(true).open(path)
}

#[cfg(not(unix))]
fn create_new(path: &Path, _: Option<&Metadata>) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// The group first: the mode is meant for it. And before that what the directory gives its files: it would be opened by the mode.
#[cfg(unix)]
fn set_group_and_mode(file: &File, existing: &Metadata, has_list: bool) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
    remove_access_list(file)?;
    let group = existing.gid();
    let has_group = file.metadata()?.gid() == group || fchown(file, None, Some(group)).is_ok();
    let mode = rights(existing.mode(), has_group, has_list);
    file.set_permissions(fs::Permissions::from_mode(mode))
}

/// Who may do what with a file in the place of one with this mode (TG3, TG4).
#[cfg(unix)]
fn rights(mode: u32, has_group: bool, has_list: bool) -> u32 {
    match (has_list, has_group) {
        // What stands where the group's rights do is the limit of all who are listed; and others may be listed, with less.
        (true, _) => mode & 0o700,
        (false, true) => mode & 0o777,
        // Nothing for the file's group, and for others, who include the old group now, what both might do.
        (false, false) => mode & 0o700 | mode & (mode >> 3) & 0o007,
    }
}

/// Whether the file has an access control list beyond its mode. If that cannot be found out, it may have.
#[cfg(target_os = "linux")]
fn has_access_list(path: &Path) -> bool {
    let mut too_short = [0; 1];
    !matches!(rustix::fs::getxattr(path, ACCESS_LIST, &mut too_short[..]), Err(Errno::NODATA | Errno::NOTSUP))
}

#[cfg(not(target_os = "linux"))]
fn has_access_list(_: &Path) -> bool {
    false
}

/// Takes away what the file has from its directory's default list.
#[cfg(target_os = "linux")]
fn remove_access_list(file: &File) -> io::Result<()> {
    match rustix::fs::fremovexattr(file, ACCESS_LIST) {
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(()),
        removed => Ok(removed?),
    }
}

#[cfg(all(unix, not(target_os = "linux")))]
fn remove_access_list(_: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(not(unix))]
fn set_group_and_mode(_: &File, _: &Metadata, _: bool) -> io::Result<()> {
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
