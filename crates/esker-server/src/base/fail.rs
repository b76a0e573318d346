//! Why a command was not done: what its client is told.

use std::borrow::Cow;

use crate::base::numbers::shown;
use crate::resp::Request;
use crate::store::Error;

/// Why a command was not done.
#[derive(Debug)]
pub enum Fail {
    /// The reply: a code, a space, what is wrong.
    Told(Cow<'static, str>),
    /// The same, of a command that has waited, too: what it waits for is there, and cannot go where it
    /// should.
    Final(Cow<'static, str>),
    /// The key holds another type.
    WrongType,
    /// There is no such consumer group.
    NoGroup(String),
    /// The store refused.
    Store(Error),
    /// There is nothing yet: it waits, if it may.
    Blocks(Wait),
}

/// What a command waits for.
#[derive(Debug)]
pub struct Wait {
    /// The keys, in the order in which they are looked at.
    pub keys: Vec<Vec<u8>>,
    /// Milliseconds to wait; 0: for ever.
    pub ms: u64,
    /// What is run once there is something, if it is not the same again.
    pub instead: Option<Request>,
    /// Commands of one class get the same of a key: if it is nothing for one of them, it is for all.
    pub class: Option<Vec<u8>>,
    /// It is run again after any change of the keys: it fails if what it reads is gone.
    pub minds_changes: bool,
}

/// What a command's function returns. The reply of one that was done is written by then.
pub type Done<T = ()> = Result<T, Fail>;

impl Fail {
    /// A text made for the occasion.
    pub fn text(text: impl Into<String>) -> Self {
        Fail::Told(Cow::Owned(text.into()))
    }

    /// Whether it is about what the command found, not about the store or a wait.
    pub fn is_told(&self) -> bool {
        matches!(self, Fail::Told(_) | Fail::WrongType | Fail::NoGroup(_))
    }

    /// The same, for a command that has waited: it does not wait on.
    pub fn ends_wait(self) -> Self {
        match self.is_told() {
            true => Fail::Final(self.message().into_owned().into()),
            false => self,
        }
    }

    /// It waits for one of these keys, and is run again then. `class`: see [`Wait`].
    pub fn blocks(keys: Vec<&[u8]>, ms: u64, class: &str) -> Self {
        let keys = keys.into_iter().map(<[u8]>::to_vec).collect();
        let class = Some(class.as_bytes().to_vec());
        Fail::Blocks(Wait { keys, ms, instead: None, class, minds_changes: false })
    }

    /// What the client is told.
    pub fn message(&self) -> Cow<'_, str> {
        match self {
            Fail::Told(text) | Fail::Final(text) => Cow::Borrowed(text),
            Fail::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value".into(),
            Fail::NoGroup(what) => format!("NOGROUP {what}").into(),
            Fail::Store(Error::Poisoned(..)) => {
                "MISCONF the log cannot be written: reads go on, and writes after a restart".into()
            }
            Fail::Store(error @ Error::NoSpace { .. }) => format!("OOM {error}").into(),
            Fail::Store(Error::Conflict { .. }) => {
                "TRYAGAIN somebody else has written the same keys: run it again".into()
            }
            Fail::Store(error) => format!("ERR {error}").into(),
            Fail::Blocks(_) => "ERR this command cannot wait here".into(),
        }
    }
}

impl From<&'static str> for Fail {
    fn from(text: &'static str) -> Self {
        Fail::Told(Cow::Borrowed(text))
    }
}

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        Fail::Store(error)
    }
}

/// The words make no sense.
pub const SYNTAX: &str = "ERR syntax error";
/// No number without a fraction, or a number that is too large.
pub const NO_INTEGER: &str = "ERR value is not an integer or out of range";
/// No number.
pub const NO_FLOAT: &str = "ERR value is not a valid float";
/// There is no such key, and there must be.
pub const NO_KEY: &str = "ERR no such key";
/// The reply to a client that writes to a replica.
pub const READ_ONLY: &str = "READONLY You can't write against a read only replica.";
/// The reply to a client whose script was ended.
pub const ENDED_SCRIPT: &str =
    "ERR Script killed by user with SCRIPT KILL, or after 5 seconds: nothing of what it did stays";
/// The reply to a client that was woken by another one.
pub const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
/// The reply to a client that waits while its server becomes a replica. Its connection ends, so that it looks
/// for the primary.
pub const DEMOTED: &str =
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
/// The reply to a client whose command broke off.
pub const BROKEN: &str = "ERR internal error: the command was not done; please report it";
/// The reply to a client that has waited for a lock.
pub const LOCK_TIMEOUT: &str = "LOCKTIMEOUT a lock was not given back in time; those that were free are held";

/// The error of a reply that does not fit.
pub fn too_large(bytes_max: usize) -> Fail {
    Fail::text(format!("ERR the reply is larger than {}: ask for less at a time", shown(bytes_max)))
}
