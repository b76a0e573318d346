//! Why a command was not done: what its client is told.

use std::borrow::Cow;

use crate::resp::Request;
use crate::store::Error;

/// Why a command was not done.
#[derive(Debug)]
pub enum Fail {
    /// The reply: a code, a space, what is wrong.
    Told(Cow<'static, str>),
    /// The same, of a command that has waited, too: what it waits for is there, and cannot go where it should.
    Final(Cow<'static, str>),
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

    /// It waits for one of these keys, and is run again then.
    pub fn blocks(keys: Vec<&[u8]>, ms: u64) -> Self {
        let keys = keys.into_iter().map(<[u8]>::to_vec).collect();
        Fail::Blocks(Wait { keys, ms, instead: None, minds_changes: false })
    }

    /// What the client is told.
    pub fn message(&self) -> Cow<'_, str> {
        match self {
            Fail::Told(text) | Fail::Final(text) => Cow::Borrowed(text),
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

/// The key holds another type.
pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
/// The words make no sense.
pub const SYNTAX: &str = "ERR syntax error";
/// No number without a fraction, or a number that is too large.
pub const NO_INTEGER: &str = "ERR value is not an integer or out of range";
/// No number.
pub const NO_FLOAT: &str = "ERR value is not a valid float";
/// There is no such key, and there must be.
pub const NO_KEY: &str = "ERR no such key";
