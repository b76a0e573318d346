//! Dump: shows the contents of a file of a database, or of all its files, piece by piece.
//!
//! ```text
//!   FILE --by name, or by its first bytes--> current | manifest | log | table | record file | text
//!                                                `--> DumpItem, DumpItem, ... (offset, kind, fields)
//! ```
//!
//! Files are only read. A damaged file is shown as far as it can be read, with an item of the kind `damage`
//! for each unreadable place. In a directory, an unreadable file is damage, and the others are shown.

mod entry;
mod log;
mod manifest;
mod table;
mod text;

use std::io::ErrorKind;
use std::path::Path;

use esker_env::{Env, OpenOptions, read_range};

use crate::encryption::{self, KEYS, Unlock};
use crate::manifest::file_name::{
    CURRENT, CURRENT_TMP, FileKind, LOCK, OPTIONS, OPTIONS_TMP, REPAIRING, parse,
};
pub use crate::types::dump_value::DumpValue;
use crate::types::{Error, Result};
use crate::wal::file_name::{is_spare, parse_prepared, parse_segment};

/// A piece of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DumpItem {
    /// Its offset in the file.
    pub offset: u64,
    /// Its kind: `file`, `footer`, `block`, `entry`, `edit`, `record`, `damage`, ...
    pub kind: &'static str,
    /// Its parts, in a fixed order for each kind.
    pub fields: Vec<(&'static str, DumpValue)>,
}

/// Options of a dump.
#[derive(Clone, Debug)]
pub struct DumpOptions {
    env: Env,
    entries: bool,
}

impl Default for DumpOptions {
    fn default() -> Self {
        DumpOptions { env: Env::real(), entries: true }
    }
}

impl DumpOptions {
    /// The environment to read from. Default: the operating system's.
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// Whether to show the entries of tables and the ops of commits. Default yes.
    pub fn entries(mut self, yes: bool) -> Self {
        self.entries = yes;
        self
    }

    /// Shows a file, or all files of a directory; see [`dump`].
    ///
    /// # Errors
    /// See [`dump`].
    pub fn dump(&self, path: impl AsRef<Path>, mut each: impl FnMut(DumpItem)) -> Result<()> {
        let path = path.as_ref();
        if !self.env.fs.exists(path).map_err(|e| Error::io("look for", path, e))? {
            return Err(Error::io("open", path, ErrorKind::NotFound.into()));
        }
        let mut names = match self.env.fs.list_dir(path) {
            Ok(names) => names,
            Err(error) => {
                let env = unlocked(&self.env, path.parent().unwrap_or(Path::new("")))?;
                let mut out = Output { env: &env, entries: self.entries, each: &mut each };
                return dump_file(&mut out, path).map_err(|failed| match kind(&failed) {
                    Some(ErrorKind::IsADirectory) => Error::io("list", path, error),
                    _ => failed,
                });
            }
        };
        names.sort();
        let env = self.env.hold(path, None).map_err(|e| Error::io("open", path, e))?;
        let env = unlocked(&env, path)?;
        let mut out = Output { env: &env, entries: self.entries, each: &mut each };
        for name in names {
            let path = path.join(name);
            if let Err(error) = dump_file(&mut out, &path) {
                out.unreadable(&path, &error);
            }
        }
        Ok(())
    }
}

/// Returns the environment with the keys of a directory, if it has any.
fn unlocked(env: &Env, dir: &Path) -> Result<Env> {
    let path = dir.join(KEYS);
    match env.fs.exists(&path).map_err(|e| Error::io("look for", &path, e))? {
        true => encryption::unlock(env, dir, Unlock::Read),
        false => Ok(encryption::without_keys(env)),
    }
}

/// Shows a file of a database, or each file of its directory. Calls `each` for every piece, in order.
///
/// ```no_run
/// # fn main() -> esker::Result<()> {
/// esker::dump("data/000007.sst", |item| println!("{item:?}"))?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If the file or the directory cannot be read. Damage is an item, not an error, and so is an unreadable file
/// in a directory.
pub fn dump(path: impl AsRef<Path>, each: impl FnMut(DumpItem)) -> Result<()> {
    DumpOptions::default().dump(path, each)
}

/// Passes pieces to the caller.
struct Output<'a> {
    env: &'a Env,
    entries: bool,
    each: &'a mut dyn FnMut(DumpItem),
}

impl Output<'_> {
    fn item(&mut self, offset: u64, kind: &'static str, fields: Vec<(&'static str, DumpValue)>) {
        (self.each)(DumpItem { offset, kind, fields });
    }

    /// Shows an error as an item.
    fn damage(&mut self, error: &Error) {
        self.damage_of(0, error);
    }

    /// Shows damage of the piece at `start`, or at the offset in the error.
    fn damage_of(&mut self, start: u64, error: &Error) {
        let (offset, what, detail) = match error {
            Error::Corrupt { what, offset, detail, .. } => (*offset, *what, detail.clone()),
            other => (start, "file", other.to_string()),
        };
        self.item(offset, "damage", vec![("what", what.into()), ("detail", detail.into())]);
    }

    /// Shows an unreadable file of a directory.
    fn unreadable(&mut self, path: &Path, error: &Error) {
        let name = path.display().to_string();
        self.item(0, "file", vec![("path", name.into()), ("what", "not readable as a file".into())]);
        let harmless = match kind(error) {
            // Removed since the directory was listed.
            Some(ErrorKind::NotFound) => true,
            // A directory that the engine did not make.
            Some(ErrorKind::IsADirectory) => matches!(recognise(path, &[], &[]), Contents::Unknown),
            _ => false,
        };
        if !harmless {
            self.damage(error);
        }
    }
}

/// Returns the error kind of the operating system.
fn kind(error: &Error) -> Option<ErrorKind> {
    if let Error::Io { source, .. } = error { Some(source.kind()) } else { None }
}

/// The contents of a file.
enum Contents {
    Text(&'static str),
    Manifest,
    Segment(u64),
    Table,
    Records,
    /// A prepared or recycled log file that the current opening has not written to.
    Spare,
    Unknown,
}

impl Contents {
    fn name(&self) -> &'static str {
        match self {
            Contents::Text(name) => name,
            Contents::Manifest => "manifest",
            Contents::Segment(_) => "log segment",
            Contents::Table => "table",
            Contents::Records => "record file",
            Contents::Spare => "log file for later use",
            Contents::Unknown => "unknown",
        }
    }
}

fn dump_file(out: &mut Output<'_>, path: &Path) -> Result<()> {
    let file = out.env.fs.open(path, OpenOptions::read()).map_err(|e| Error::io("open", path, e))?;
    let bytes = file.len().map_err(|e| Error::io("measure", path, e))?;
    let ends = |from: u64, len: u64| {
        let len = len.min(bytes - from);
        read_range(&*file, from, len as usize).map_err(|e| Error::io("read", path, e))
    };
    let what = recognise(path, &ends(0, 64)?, &ends(bytes.saturating_sub(8), 8)?);
    let name = path.display().to_string();
    out.item(0, "file", vec![("path", name.into()), ("what", what.name().into()), ("bytes", bytes.into())]);
    let shown = match what {
        Contents::Text(_) => text::dump(out, path),
        Contents::Manifest => manifest::dump(out, path),
        Contents::Segment(number) => log::dump(out, path, number),
        Contents::Table => table::dump(out, path),
        Contents::Records => text::dump_records(out, path),
        Contents::Spare | Contents::Unknown => Ok(()),
    };
    if let Err(error) = shown {
        out.damage(&error);
    }
    Ok(())
}

/// Recognises a file by its name and by the bytes at its start and end.
fn recognise(path: &Path, start: &[u8], end: &[u8]) -> Contents {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match (&*name, parse(&name)) {
        (CURRENT | CURRENT_TMP, _) => return Contents::Text("current"),
        (OPTIONS | OPTIONS_TMP, _) => return Contents::Text("options"),
        (LOCK, _) => return Contents::Text("lock"),
        (REPAIRING, _) => return Contents::Text("marker of an unfinished repair"),
        (_, FileKind::Manifest(_)) => return Contents::Manifest,
        (_, FileKind::Table(_)) => return Contents::Table,
        _ => {}
    }
    if let Some(number) = parse_segment(&name) {
        return Contents::Segment(number);
    }
    // A file with another name: a copy, or a foreign file.
    match start.get(16..24).and_then(|bytes| bytes.first_chunk::<8>()) {
        Some(number) if start.starts_with(b"ESKERWAL") => Contents::Segment(u64::from_le_bytes(*number)),
        _ if end == b"eskerSST" => Contents::Table,
        _ if start.starts_with(b"\x89ESKREC\n") => match start.get(40..54) {
            Some(b"esker manifest") => Contents::Manifest,
            _ => Contents::Records,
        },
        _ if is_spare(&name) || parse_prepared(&name).is_some() => Contents::Spare,
        _ => Contents::Unknown,
    }
}
