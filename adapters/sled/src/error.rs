//! sled's error, made of the engine's.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::IVec;

/// A result with sled's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of all calls.
#[derive(Debug)]
pub enum Error {
    /// The tree was dropped.
    CollectionNotFound(IVec),
    /// A mistake of the caller, or something that this engine cannot do.
    Unsupported(String),
    /// A bug of the engine.
    ReportableBug(String),
    /// The operating system refused something, or the engine did. In the latter case the source is an
    /// [`esker::Error`].
    Io(io::Error),
    /// Bytes on the disk are not what was written.
    Corruption {
        /// Where they are.
        at: Option<At>,
        /// Always `()`, as in sled without its feature `testing`.
        bt: (),
    },
}

/// Where bytes on the disk are damaged: the engine's error, with file and offset.
#[derive(Clone, Debug)]
pub struct At(Arc<esker::Error>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for At {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_string() == other.0.to_string()
    }
}

impl Error {
    /// Makes an error about a tree.
    pub(crate) fn of(error: esker::Error, tree: &IVec) -> Self {
        match error {
            esker::Error::KeyspaceNotFound(_) => Error::CollectionNotFound(tree.clone()),
            error => error.into(),
        }
    }
}

impl From<esker::Error> for Error {
    fn from(error: esker::Error) -> Self {
        use esker::Error as E;
        match error {
            E::Corrupt { .. } => Error::Corruption { at: Some(At(Arc::new(error))), bt: () },
            E::KeyTooLong { .. } | E::ValueTooLong { .. } | E::Invalid(_) => {
                Error::Unsupported(error.to_string())
            }
            E::Panicked(_) => Error::ReportableBug(error.to_string()),
            E::Io { ref source, .. } => Error::Io(io::Error::new(source.kind(), error)),
            E::NoSpace { .. } => Error::Io(io::Error::new(io::ErrorKind::StorageFull, error)),
            E::Locked { .. } => Error::Io(io::Error::new(io::ErrorKind::WouldBlock, error)),
            E::AlreadyExists(_) => Error::Io(io::Error::new(io::ErrorKind::AlreadyExists, error)),
            other => Error::Io(io::Error::other(other)),
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Error::Io(error)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error {
            Error::Io(error) => return error,
            Error::CollectionNotFound(_) => io::ErrorKind::NotFound,
            Error::Unsupported(_) => io::ErrorKind::InvalidInput,
            Error::ReportableBug(_) => io::ErrorKind::Other,
            Error::Corruption { .. } => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, error)
    }
}

/// `io::Error` has no clone, so a new one with the same kind and text is made.
impl Clone for Error {
    fn clone(&self) -> Self {
        match self {
            Error::CollectionNotFound(name) => Error::CollectionNotFound(name.clone()),
            Error::Unsupported(why) => Error::Unsupported(why.clone()),
            Error::ReportableBug(what) => Error::ReportableBug(what.clone()),
            Error::Io(error) => Error::Io(io::Error::new(error.kind(), error.to_string())),
            Error::Corruption { at, bt } => Error::Corruption { at: at.clone(), bt: *bt },
        }
    }
}

/// As in sled, no I/O error equals another.
impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Error::CollectionNotFound(a), Error::CollectionNotFound(b)) => a == b,
            (Error::Unsupported(a), Error::Unsupported(b)) => a == b,
            (Error::ReportableBug(a), Error::ReportableBug(b)) => a == b,
            (Error::Corruption { at: a, .. }, Error::Corruption { at: b, .. }) => a == b,
            _ => false,
        }
    }
}

impl Eq for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::CollectionNotFound(name) => {
                write!(f, "no tree named {:?}", name.escape_ascii().to_string())
            }
            Error::Unsupported(why) => write!(f, "not supported: {why}"),
            Error::ReportableBug(what) => write!(f, "a bug: {what}"),
            Error::Io(error) => error.fmt(f),
            Error::Corruption { at: Some(at), .. } => at.fmt(f),
            Error::Corruption { at: None, .. } => f.write_str("corrupt data"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(error) => Some(error),
            Error::Corruption { at: Some(at), .. } => Some(&*at.0),
            _ => None,
        }
    }
}
