//! Failures of commands, and their error replies.

use std::borrow::Cow;

use crate::resp::Request;
use crate::resp::numbers::shown;
use crate::store::Error;

/// Why a command did not complete.
#[derive(Debug)]
pub enum Fail {
    /// The error reply: a code, a space and a message.
    Reply(Cow<'static, str>),
    /// Like `Reply`, but also ends a command that has waited: what it waited for arrived, but cannot go to
    /// its destination.
    Final(Cow<'static, str>),
    /// The key holds another type.
    WrongType,
    /// The consumer group does not exist.
    NoGroup(String),
    /// Error of the store.
    Store(Error),
    /// There is no data yet. The command waits if it may.
    Blocks(Box<Wait>),
}

/// What a command waits for.
#[derive(Debug, Default)]
pub struct Wait {
    /// The keys, in the order in which they are checked.
    pub keys: Vec<Vec<u8>>,
    /// Milliseconds to wait; 0 is forever.
    pub ms: u64,
    /// Request to run once there is data, if it differs from the original one.
    pub instead: Option<Request>,
    /// Commands of one class take the same data from a key: if one of them finds none, neither do the others.
    pub class: Option<Vec<u8>>,
    /// Whether to run again after any change of the keys. The command fails if what it reads is gone.
    pub minds_changes: bool,
    /// When to run again even if no key has changed, in Unix milliseconds.
    pub again_at: Option<u64>,
}

/// Result of a command's function. On success the reply is already written.
pub type Done<T = ()> = Result<T, Fail>;

impl Fail {
    /// An error reply with a computed text.
    pub fn text(text: impl Into<String>) -> Self {
        Fail::Reply(Cow::Owned(text.into()))
    }

    /// Returns whether the failure is about the request or the data it found, not about the store or a wait.
    pub fn is_reply(&self) -> bool {
        matches!(self, Fail::Reply(_) | Fail::WrongType | Fail::NoGroup(_))
    }

    /// Converts the failure so that it also ends a command that has waited.
    pub fn ends_wait(self) -> Self {
        match self.is_reply() {
            true => Fail::Final(self.message().into_owned().into()),
            false => self,
        }
    }

    /// Makes the command wait for one of these keys, and then run again. `class`: see [`Wait`].
    pub fn blocks(keys: Vec<&[u8]>, ms: u64, class: &str) -> Self {
        let keys = keys.into_iter().map(<[u8]>::to_vec).collect();
        let class = Some(class.as_bytes().to_vec());
        Fail::Blocks(Box::new(Wait { keys, ms, class, ..Wait::default() }))
    }

    /// Makes the command wait for something other than keys, and then run again.
    pub fn waits(ms: u64) -> Self {
        Fail::Blocks(Box::new(Wait { ms, ..Wait::default() }))
    }

    /// The text of the error reply.
    pub fn message(&self) -> Cow<'_, str> {
        match self {
            Fail::Reply(text) | Fail::Final(text) => Cow::Borrowed(text),
            Fail::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value".into(),
            Fail::NoGroup(what) => format!("NOGROUP {what}").into(),
            Fail::Store(Error::Poisoned(_)) => {
                "MISCONF the log cannot be written: reads continue; restart the server to write again".into()
            }
            Fail::Store(Error::Unavailable(text)) => format!("UNAVAILABLE {text}").into(),
            Fail::Store(Error::NoSpace(text)) => format!("OOM {text}").into(),
            Fail::Store(Error::Conflict) => {
                "TRYAGAIN another transaction has written the same keys: run the command again".into()
            }
            Fail::Store(error) => format!("ERR {error}").into(),
            Fail::Blocks(_) => "ERR this command cannot wait here".into(),
        }
    }
}

impl From<&'static str> for Fail {
    fn from(text: &'static str) -> Self {
        Fail::Reply(Cow::Borrowed(text))
    }
}

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        Fail::Store(error)
    }
}

impl From<esker::Error> for Fail {
    fn from(error: esker::Error) -> Self {
        Fail::Store(error.into())
    }
}

/// The words of a request do not fit together.
pub const SYNTAX: &str = "ERR syntax error";
/// Not an integer, or too large.
pub const NO_INTEGER: &str = "ERR value is not an integer or out of range";
/// Not a number.
pub const NO_FLOAT: &str = "ERR value is not a valid float";
/// A required key does not exist.
pub const NO_KEY: &str = "ERR no such key";
/// Reply to a write while too few replicas are connected.
pub const NO_REPLICAS: &str = "NOREPLICAS Not enough good replicas to write.";
/// Reply to a write on a replica.
pub const READ_ONLY: &str = "READONLY You can't write against a read only replica.";
/// Reply to a client whose script was ended.
pub const ENDED_SCRIPT: &str =
    "ERR Script killed by user with SCRIPT KILL, or after 5 seconds: all of its changes were undone";
/// Reply to a waiting client that another client has unblocked.
pub const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
/// Reply to a client that waits while its server becomes a replica. Its connection is closed, so that it
/// looks for the primary.
pub const DEMOTED: &str =
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
/// Reply to a client whose command panicked.
pub const BROKEN: &str = "ERR internal error: the command had no effect; please report it";
/// Reply to a client whose wait for a lock has timed out.
pub const LOCK_TIMEOUT: &str = "LOCKTIMEOUT a lock was not released in time; locks that were free are held";

/// Error for a reply that exceeds the maximum size.
pub fn too_large(bytes_max: usize) -> Fail {
    Fail::text(format!("ERR the reply is larger than {}: ask for less at a time", shown(bytes_max)))
}
