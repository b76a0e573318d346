//! What guest and host say to each other: greetings, frames, requests and replies.
//!
//! ```text
//!   guest --greeting: magic, version, lane--> host --magic, version--> guest
//!   guest --frame: length (u64), Request-------------------------> host
//!   guest <-frame: length (u64), Reply---------------------------- host     one at a time, in order
//! ```
//!
//! protocol.1. No bytes from a socket cause a panic. Their memory is at most twice what has arrived, and a
//!     decoded message adds at most 128 MiB and the bytes of its values.
//!
//! - A guest sends its next request after the reply to the last one.
//!
//! Bytes: docs/formats/shared.md

use std::fmt;
use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::ops::Bound;
use std::time::{Duration, SystemTime};

use esker::{KEY_BYTES_MAX, SeqNo, Ttl, VALUE_BYTES_MAX, Value};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::commit_id::{LaneId, Outcome};
use crate::error::{WireError, unexpected};

/// First bytes of both greetings.
const MAGIC: [u8; 8] = *b"ESKERSHR";
/// Version of the protocol.
pub(crate) const VERSION: u32 = 4;
/// Largest frame: a request with one value of the largest size.
pub(crate) const FRAME_BYTES_MAX: u64 = (VALUE_BYTES_MAX + 2 * KEY_BYTES_MAX + 4096) as u64;
/// Largest number of items in a list of a message.
pub(crate) const ITEMS_MAX: usize = 1 << 20;
/// Bytes of the length before a frame.
const LENGTH_BYTES: usize = 8;
/// Memory of a buffer that is kept for the next frame.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Bytes that are encoded as a whole, and borrowed when decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Bytes<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&[u8]>::deserialize(deserializer).map(Bytes)
    }
}

/// A value of the engine in a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owned(pub(crate) Value);

impl Serialize for Owned {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Owned {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&[u8]>::deserialize(deserializer).map(|bytes| Owned(Value::copy_of(bytes)))
    }
}

/// Decodes a list of at most [`ITEMS_MAX`] items (protocol.1).
fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    struct Items<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {ITEMS_MAX} items")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
            let mut items = Vec::new();
            while let Some(item) = seq.next_element()? {
                if items.len() == ITEMS_MAX {
                    return Err(serde::de::Error::invalid_length(ITEMS_MAX + 1, &self));
                }
                items.push(item);
            }
            Ok(items)
        }
    }

    deserializer.deserialize_seq(Items(PhantomData))
}

/// A sequence number as a plain number.
pub(crate) mod seqno {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(seqno: &SeqNo, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(seqno.get())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SeqNo, D::Error> {
        let number = u64::deserialize(deserializer)?;
        SeqNo::try_new(number).ok_or_else(|| serde::de::Error::custom("not a sequence number"))
    }
}

/// The state that a request reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum At {
    /// The newest.
    Now,
    /// That of the snapshot or transaction that the connection holds.
    Held,
}

/// How to open a keyspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Opening<'a> {
    Existing,
    CreateIfMissing,
    /// With these options, as [`KeyspaceOptions::to_bytes`](esker::KeyspaceOptions::to_bytes) returns them.
    Create(#[serde(borrow)] Bytes<'a>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WireDurability {
    /// That of the host's database.
    Default,
    Buffered,
    Sync,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WireIsolation {
    Serializable,
    Snapshot,
    Exclusive,
}

/// How long a value lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WireLifetime {
    /// As long as the keyspace says.
    Default,
    For(Duration),
    /// Until this time after the beginning of 1970. `None`: for ever.
    Until(Option<Duration>),
}

impl WireLifetime {
    /// Until this moment. One before 1970 is as good as its beginning: it has passed.
    pub(crate) fn until(end: Option<SystemTime>) -> Self {
        let since = |end: SystemTime| end.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        WireLifetime::Until(end.map(since))
    }
}

/// A write that reads nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Op<'a> {
    Put {
        #[serde(borrow)]
        key: Bytes<'a>,
        value: Bytes<'a>,
        lifetime: WireLifetime,
    },
    Delete(Bytes<'a>),
    DeleteRange(Bound<Bytes<'a>>, Bound<Bytes<'a>>),
    Merge(Bytes<'a>, Bytes<'a>),
}

/// A range of keys to read, in pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Page<'a> {
    #[serde(borrow)]
    pub(crate) lower: Bound<Bytes<'a>>,
    pub(crate) upper: Bound<Bytes<'a>>,
    /// From the upper end.
    pub(crate) is_reverse: bool,
    pub(crate) count_max: u32,
    /// Without values.
    pub(crate) keys_only: bool,
}

/// A request of a guest. `keyspace`: its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request<'a> {
    Keyspaces,
    Keyspace(&'a str, #[serde(borrow)] Opening<'a>),
    DropKeyspace(&'a str),
    RenameKeyspace(&'a str, &'a str),
    Get(At, u32, Bytes<'a>),
    Contains(At, u32, Bytes<'a>),
    Ttl(At, u32, Bytes<'a>),
    /// The values of the first of the keys. Holds a snapshot if not all values are in the reply.
    MultiGet(At, u32, #[serde(deserialize_with = "list")] Vec<Bytes<'a>>),
    /// One page. Holds a snapshot if there is more, and none is held.
    Page(At, u32, Page<'a>),
    Len(At, u32),
    /// Holds a snapshot.
    Hold,
    /// Holds a transaction.
    Begin(WireIsolation),
    /// Drops what is held.
    Release,
    /// Writes in the transaction.
    Write(u32, Op<'a>),
    /// Adds to a number in the transaction.
    FetchAdd(u32, Bytes<'a>, i64),
    /// Replaces or removes a value that the guest has found in the transaction. The new value keeps the
    /// expiry of the old one, also if that has passed since.
    Replace(u32, Bytes<'a>, Option<Bytes<'a>>),
    /// Lets a key expire after this time, or never, in the transaction.
    Expire(u32, Bytes<'a>, Option<Duration>),
    /// Locks a key for the transaction, alone or with others.
    Lock(u32, Bytes<'a>, bool),
    /// Locks a name for the transaction, alone or with others.
    LockName(&'a str, bool),
    /// Sets a savepoint of the transaction. The guest numbers it.
    Savepoint(u64),
    /// Undoes the transaction's writes since a savepoint.
    RollbackTo(u64),
    /// Releases a savepoint and later ones.
    ReleaseSavepoint(u64),
    /// Collects writes for the next `Commit`.
    Gather(#[serde(deserialize_with = "list")] Vec<(u32, Op<'a>)>),
    /// Commits what was collected, and these.
    Commit(u64, WireDurability, #[serde(deserialize_with = "list")] Vec<(u32, Op<'a>)>),
    /// Commits the transaction.
    CommitTransaction(u64, WireDurability),
    /// Asks for the outcome of a commit, which is never applied from then on unless it was.
    Resolve(LaneId, u64, WireDurability),
    /// Removes the record of a lane that has no connection.
    Forget(LaneId),
    /// Makes all earlier commits durable.
    Sync,
    /// The last request of a connection. It has no reply.
    Goodbye,
}

/// The reply to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    Done,
    Names(#[serde(deserialize_with = "list")] Vec<String>),
    Keyspace(u32),
    Value(Option<Owned>),
    Bool(bool),
    /// The inner `None`: unlimited.
    Ttl(Option<Option<Duration>>),
    Values(#[serde(deserialize_with = "list")] Vec<Option<Owned>>),
    Page {
        #[serde(deserialize_with = "list")]
        entries: Vec<(Owned, Owned)>,
        /// Whether the range has no further entries.
        is_last: bool,
    },
    Count(u64),
    Number(i64),
    Seqno(#[serde(with = "seqno")] SeqNo),
    Outcome(Outcome),
    /// The commit is still running.
    Running,
    /// The outcome cannot be known: writes of this host have stopped.
    Unknowable,
    Refused(WireError),
}

/// Takes replies apart. Any other reply does not belong to its request.
macro_rules! replies {
    ($($method:ident -> $type:ty: $pattern:pat => $value:expr;)*) => {
        impl Reply {
            $(pub(crate) fn $method(self) -> crate::error::Result<$type> {
                match self {
                    $pattern => Ok($value),
                    _ => Err(unexpected()),
                }
            })*
        }
    };
}

replies! {
    into_names -> Vec<String>: Reply::Names(names) => names;
    into_keyspace -> u32: Reply::Keyspace(id) => id;
    into_value -> Option<Value>: Reply::Value(value) => value.map(|value| value.0);
    into_bool -> bool: Reply::Bool(yes) => yes;
    into_ttl -> Option<Ttl>: Reply::Ttl(ttl) => ttl.map(|ttl| ttl.map_or(Ttl::Unlimited, Ttl::Left));
    into_count -> u64: Reply::Count(count) => count;
    into_number -> i64: Reply::Number(number) => number;
    into_seqno -> SeqNo: Reply::Seqno(seqno) => seqno;
}

/// Returns a frame with a message.
pub(crate) fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let bytes = postcard::to_extend(message, vec![0; LENGTH_BYTES]).map_err(invalid)?;
    let len = (bytes.len() - LENGTH_BYTES) as u64;
    if len > FRAME_BYTES_MAX {
        return Err(invalid(format!("a message of {len} bytes: the largest has {FRAME_BYTES_MAX}")));
    }
    let mut bytes = bytes;
    bytes[..LENGTH_BYTES].copy_from_slice(&len.to_le_bytes());
    Ok(bytes)
}

/// Reads the bytes of a frame into a buffer (protocol.1). Returns false at the end of the stream.
pub(crate) fn read_frame(reader: &mut impl Read, buffer: &mut Vec<u8>) -> io::Result<bool> {
    buffer.clear();
    buffer.shrink_to(KEPT_BYTES_MAX);
    let mut length = [0; LENGTH_BYTES];
    let first = loop {
        match reader.read(&mut length) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => break other?,
        }
    };
    if first == 0 {
        return Ok(false);
    }
    reader.read_exact(&mut length[first..])?;
    let len = u64::from_le_bytes(length);
    if len > FRAME_BYTES_MAX {
        return Err(invalid(format!("a frame of {len} bytes: the largest has {FRAME_BYTES_MAX}")));
    }
    let read = reader.take(len).read_to_end(buffer)?;
    match read as u64 == len {
        true => Ok(true),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Decodes a message. It must use all bytes.
pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> io::Result<T> {
    match postcard::take_from_bytes(bytes).map_err(invalid)? {
        (message, []) => Ok(message),
        (_, rest) => Err(invalid(format!("{} bytes after a message", rest.len()))),
    }
}

/// Writes the guest's greeting.
pub(crate) fn greet_host(stream: &mut impl Write, lane: LaneId) -> io::Result<()> {
    stream.write_all(&[&MAGIC[..], &VERSION.to_le_bytes(), &lane.0].concat())
}

/// Reads the guest's greeting: its version and its lane.
pub(crate) fn read_guest(stream: &mut impl Read) -> io::Result<(u32, LaneId)> {
    let version = read_version(stream)?;
    let mut lane = [0; 16];
    stream.read_exact(&mut lane)?;
    Ok((version, LaneId(lane)))
}

/// Writes the host's greeting.
pub(crate) fn greet_guest(stream: &mut impl Write) -> io::Result<()> {
    stream.write_all(&[&MAGIC[..], &VERSION.to_le_bytes()].concat())
}

/// Reads the version in a greeting.
pub(crate) fn read_version(stream: &mut impl Read) -> io::Result<u32> {
    let (mut magic, mut version) = ([0; 8], [0; 4]);
    stream.read_exact(&mut magic)?;
    if magic != MAGIC {
        return Err(invalid("the other side does not speak this protocol"));
    }
    stream.read_exact(&mut version)?;
    Ok(u32::from_le_bytes(version))
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests;
