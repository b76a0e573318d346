//! Errors that end a command with exit code 2, with messages that say what to do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use esker::Error;

use crate::text::shown;

/// Why a command ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line or the input is invalid.
    Message(String),
    /// An error of the engine, with the directory as the user gave it.
    Engine(PathBuf, Error),
    /// The reader of standard output is gone. Not an error.
    OutputClosed,
}

/// A result with a [`Failure`].
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn message(text: impl Into<String>) -> Self {
        Failure::Message(text.into())
    }

    /// Describes an I/O error on a file of the user.
    pub(crate) fn file(doing: &str, path: &Path, error: &io::Error) -> Self {
        Failure::Message(format!("{doing} {}: {}", shown(path.display()), shown(error)))
    }
}

/// An I/O error on a file of the user, passed through writers that do not know the file. It becomes a message
/// and never [`Failure::OutputClosed`]: the reader of a named pipe expects all of the output.
#[derive(Debug)]
pub(crate) struct FileError(String);

impl FileError {
    /// Adds `path` to an error of writing it.
    pub(crate) fn write(path: &Path, error: io::Error) -> io::Error {
        match error.kind() {
            // Writers retry after it.
            io::ErrorKind::Interrupted => error,
            _ => io::Error::other(FileError(Failure::file("write", path, &error).to_string())),
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FileError {}

/// Errors of standard output. Errors of the user's files go through [`Failure::file`] or [`FileError`].
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.downcast::<FileError>() {
            Ok(FileError(text)) => Failure::Message(text),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            Err(error) => Failure::Message(format!("write the output: {error}")),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Message(text) => f.write_str(text),
            Failure::Engine(directory, error) => engine_message(f, directory, error),
            Failure::OutputClosed => f.write_str("the output was closed"),
        }
    }
}

/// Writes the engine's message, or a better one where the command line knows the remedy.
fn engine_message(f: &mut fmt::Formatter<'_>, path: &Path, error: &Error) -> fmt::Result {
    let directory = shown(path.display());
    let text = shown(error);
    match error {
        Error::NotFound(_) => write!(
            f,
            "no database in {directory}\n  `esker put` and `esker import` create one; otherwise check --db or ESKER_DB"
        ),
        Error::Locked { pid: Some(pid), .. } => write!(
            f,
            "the database in {directory} is in use by process {pid}\n  wait until it is done, or end it: one process at \
             a time can change a database"
        ),
        Error::Locked { pid: None, .. } => write!(
            f,
            "the database in {directory} is in use by another process\n  wait until it is done: one process at a time \
             can change a database"
        ),
        Error::UnfinishedRepair(_) => f.write_str(&shown(Error::UnfinishedRepair(path.to_owned()))),
        Error::Corrupt { .. } => write!(
            f,
            "{text}\n  `esker check --offline` lists all damage; `esker repair {directory} NEW` salvages what can be \
             read into a new database"
        ),
        error if Refusal::of(error) == Some(Refusal::ReadOnly) => write!(
            f,
            "{text}
  `esker check` reads it as it is, and `esker repair {directory} NEW`, with NEW on another disk, copies what it holds"
        ),
        // The engine's text already names the remedy.
        error if Refusal::of(error).is_some() => f.write_str(&text),
        // A file of the database cannot be read.
        Error::Io { op: "open" | "read" | "measure", path: file, .. } if is_in(file, path) => {
            write!(
                f,
                "{text}\n  make it readable, or restore it from a backup; `esker check --offline` lists all that is \
                 wrong; `esker repair {directory} NEW` salvages what can be read into a new database"
            )
        }
        _ => f.write_str(&text),
    }
}

/// Reasons for which the system refuses access to undamaged files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The process or system may not open more files.
    Descriptors,
    /// The file belongs to another user.
    Permission,
    /// The file system is read-only.
    ReadOnly,
}

impl Refusal {
    /// Returns the reason if the engine's error is a refusal.
    pub(crate) fn of(error: &Error) -> Option<Self> {
        match error {
            Error::Io { source, .. } => Self::of_io(source),
            Error::Poisoned(first) => Self::of(first),
            _ => None,
        }
    }

    fn of_io(error: &io::Error) -> Option<Self> {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Some(Refusal::Permission),
            io::ErrorKind::ReadOnlyFilesystem => Some(Refusal::ReadOnly),
            // ENFILE and EMFILE, for which the standard library has no kind.
            _ if cfg!(unix) && matches!(error.raw_os_error(), Some(23 | 24)) => Some(Refusal::Descriptors),
            _ => None,
        }
    }
}

/// Returns whether `file` is in `directory`. The engine's paths are absolute, the user's need not be.
fn is_in(file: &Path, directory: &Path) -> bool {
    let absolute = std::path::absolute(directory);
    file.parent()
        .is_some_and(|parent| parent == directory || absolute.is_ok_and(|absolute| parent == absolute))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_what_to_do() {
        let engine = |error| Failure::Engine(PathBuf::from("data"), error).to_string();
        let locked =
            engine(Error::Locked { path: PathBuf::from("data/LOCK"), pid: Some(42), in_this_process: false });
        assert!(locked.contains("process 42") && locked.contains("wait"), "{locked}");
        let missing = engine(Error::NotFound(PathBuf::from("data")));
        assert!(missing.contains("no database in data") && missing.contains("esker put"), "{missing}");
        let unreadable = |file: &str| engine(Error::io("open", file, io::ErrorKind::IsADirectory.into()));
        assert!(unreadable("data/000003.sst").contains("`esker repair data NEW`"));
        let absolute = std::path::absolute("data/000003.sst").expect("there is a working directory");
        assert!(unreadable(absolute.to_str().expect("utf-8")).contains("`esker repair data NEW`"));
        for (code, advice) in
            [(23, "raise its limit"), (24, "ulimit -n"), (13, "the right to read"), (30, "on another disk")]
        {
            let refused = || Error::io("read", "data/CURRENT", io::Error::from_raw_os_error(code));
            let told_again = Error::Poisoned(std::sync::Arc::new(refused().clone()));
            for said in [engine(refused()), engine(told_again)] {
                assert!(said.contains(advice) || cfg!(not(unix)), "{said}");
                assert!(
                    !said.contains("salvages") && !said.contains("restore"),
                    "nothing is damaged: {said}"
                );
            }
        }
        assert!(!unreadable("elsewhere/000003.sst").contains("esker repair"));
        let forbidden = engine(Error::io("open", "data/CURRENT", io::ErrorKind::PermissionDenied.into()));
        assert!(forbidden.contains("the right to read") && !forbidden.contains("repair"), "{forbidden}");
    }

    #[test]
    fn a_closed_pipe_is_no_error() {
        assert!(matches!(io::Error::from(io::ErrorKind::BrokenPipe).into(), Failure::OutputClosed));
        assert!(matches!(io::Error::from(io::ErrorKind::StorageFull).into(), Failure::Message(_)));
        // On a file, it is an error.
        let error = FileError::write(Path::new("pipe"), io::ErrorKind::BrokenPipe.into());
        assert_eq!(Failure::from(error).to_string(), "write pipe: broken pipe");
    }
}
