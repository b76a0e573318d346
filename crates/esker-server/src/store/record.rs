//! The main record of a key: its kind, its expiry, and a whole string or the head of a collection.

use crate::store::{Error, Value};

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Bytes.
    String,
    /// A list of elements.
    List,
    /// Fields with values.
    Hash,
    /// Members.
    Set,
    /// Members with scores.
    SortedSet,
    /// Entries with ids, and groups of readers.
    Stream,
}

const KINDS: [Kind; 6] = [Kind::String, Kind::List, Kind::Hash, Kind::Set, Kind::SortedSet, Kind::Stream];
const KIND_MASK: u8 = 0x0F;
const HAS_DEADLINES: u8 = 0x20;
const IS_SMALL: u8 = 0x40;
const EXPIRES: u8 = 0x80;

/// Maximum number of numbers in the head of a collection.
const HEAD_MAX: usize = 6;

/// Bytes of the version and the length of a collection.
const SHAPE_BYTES: usize = 16;
/// Bytes of [`Deadlines`].
const DEADLINES_BYTES: usize = 24;
/// A prefix of a main record that has everything but the string, or the parts of a small collection. Longer
/// than that of any kind.
pub const HEAD_BYTES_MAX: usize = 9 + SHAPE_BYTES + 8 * HEAD_MAX + DEADLINES_BYTES;

impl Kind {
    /// Its name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::List => "list",
            Kind::Hash => "hash",
            Kind::Set => "set",
            Kind::SortedSet => "zset",
            Kind::Stream => "stream",
        }
    }

    /// Number of numbers in the head of such a collection.
    fn head_len(self) -> usize {
        match self {
            Kind::List => 2,
            Kind::Stream => HEAD_MAX,
            _ => 0,
        }
    }
}

/// A stored main record.
#[derive(Clone, Debug)]
pub struct Main {
    /// What the key holds.
    pub kind: Kind,
    /// When it expires, in Unix milliseconds; 0: never.
    pub expires: u64,
    is_small: bool,
    has_deadlines: bool,
    body: usize,
    raw: Value,
}

/// A main record's data about a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Identifies its parts.
    pub version: u64,
    /// Number of elements.
    pub len: u64,
    /// Numbers for its type.
    pub head: [u64; HEAD_MAX],
    /// The deadlines of its fields, if some fields of a hash have one.
    pub deadlines: Option<Deadlines>,
}

/// A main record's data about the deadlines of fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deadlines {
    /// Identifies the records of the deadlines.
    pub version: u64,
    /// The earliest deadline, in Unix milliseconds.
    pub first: u64,
    /// Number of fields that have a deadline.
    pub count: u64,
}

/// When a key expires, and when the first of its fields does. 0: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// When the key expires.
    pub key: u64,
    /// The earliest deadline of its fields.
    pub fields: u64,
}

impl Due {
    /// Only the key expires.
    pub fn key(expires: u64) -> Self {
        Due { key: expires, fields: 0 }
    }
}

fn damaged(what: &str) -> Error {
    Error::Invalid(format!("the stored record of a key is damaged: {what}"))
}

fn number(bytes: &[u8], at: usize) -> Result<u64, Error> {
    let bytes = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u64::from_le_bytes).ok_or_else(|| damaged("it is cut off"))
}

impl Main {
    /// Decodes a main record.
    ///
    /// # Errors
    /// If the bytes are not a main record.
    pub fn decode(raw: Value) -> Result<Self, Error> {
        let tag = *raw.first().ok_or_else(|| damaged("it is empty"))?;
        let kind = *KINDS.get(usize::from(tag & KIND_MASK)).ok_or_else(|| damaged("its kind is unknown"))?;
        let (expires, body) = if tag & EXPIRES != 0 { (number(&raw, 1)?, 9) } else { (0, 1) };
        let has_deadlines = tag & HAS_DEADLINES != 0;
        if has_deadlines && kind != Kind::Hash {
            return Err(damaged("only fields of hashes have deadlines"));
        }
        Ok(Main { kind, expires, is_small: tag & IS_SMALL != 0, has_deadlines, body, raw })
    }

    /// Returns whether it has expired.
    pub fn has_expired(&self, now: u64) -> bool {
        self.expires != 0 && self.expires <= now
    }

    /// The bytes of a string.
    pub fn text(&self) -> &[u8] {
        &self.raw[self.body..]
    }

    /// Decodes the data about a collection.
    ///
    /// # Errors
    /// If the record is damaged.
    pub fn shape(&self) -> Result<Shape, Error> {
        let body = self.text();
        let mut shape = Shape { version: number(body, 0)?, len: number(body, 8)?, ..Shape::default() };
        for at in 0..self.kind.head_len() {
            shape.head[at] = number(body, SHAPE_BYTES + 8 * at)?;
        }
        shape.deadlines = self.deadlines()?;
        Ok(shape)
    }

    /// Decodes the data about the deadlines of fields.
    ///
    /// # Errors
    /// If the record is damaged.
    pub fn deadlines(&self) -> Result<Option<Deadlines>, Error> {
        if !self.has_deadlines {
            return Ok(None);
        }
        let at = |n: usize| number(self.text(), SHAPE_BYTES + 8 * (self.kind.head_len() + n));
        Ok(Some(Deadlines { version: at(0)?, first: at(1)?, count: at(2)? }))
    }

    /// Returns whether the deadline of a field has passed.
    ///
    /// # Errors
    /// If the record is damaged.
    pub fn has_due_fields(&self, now: u64) -> Result<bool, Error> {
        Ok(self.deadlines()?.is_some_and(|deadlines| deadlines.first <= now))
    }

    /// Returns when the key and the first of its fields expire.
    ///
    /// # Errors
    /// If the record is damaged.
    pub fn due(&self) -> Result<Due, Error> {
        Ok(Due { key: self.expires, fields: self.deadlines()?.map_or(0, |deadlines| deadlines.first) })
    }

    /// Bytes of the head of a collection.
    fn head_bytes(&self) -> usize {
        SHAPE_BYTES + 8 * self.kind.head_len() + if self.has_deadlines { DEADLINES_BYTES } else { 0 }
    }

    /// The parts of a small collection. `None` if they are separate records.
    pub fn small(&self) -> Option<&[u8]> {
        self.is_small.then(|| self.text().get(self.head_bytes()..)).flatten()
    }

    /// Returns whether it contains its parts.
    pub(crate) fn is_small(&self) -> bool {
        self.is_small
    }

    /// Returns whether nothing follows the head of a collection.
    pub(crate) fn has_no_rest(&self) -> bool {
        self.text().len() == self.head_bytes()
    }

    /// Returns whether its parts are separate records.
    pub fn has_parts(&self) -> bool {
        self.kind != Kind::String && !self.is_small
    }

    /// The stored bytes.
    pub fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// Number of stored bytes.
    pub fn stored_bytes(&self) -> usize {
        self.raw.len()
    }

    fn flags(&self) -> u8 {
        flags(self.is_small, self.has_deadlines)
    }

    /// The stored bytes with another expiry.
    pub fn with_expiry(&self, expires: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.raw.len() + 8);
        put_tag(&mut bytes, self.kind, self.flags(), expires);
        bytes.extend_from_slice(self.text());
        bytes
    }
}

fn flags(is_small: bool, has_deadlines: bool) -> u8 {
    (if is_small { IS_SMALL } else { 0 }) | if has_deadlines { HAS_DEADLINES } else { 0 }
}

fn put_tag(bytes: &mut Vec<u8>, kind: Kind, flags: u8, expires: u64) {
    let kind = KINDS.iter().position(|known| *known == kind).unwrap_or_default() as u8;
    let expiry = if expires != 0 { EXPIRES } else { 0 };
    bytes.push(kind | expiry | flags);
    if expires != 0 {
        bytes.extend_from_slice(&expires.to_le_bytes());
    }
}

/// Encodes the main record of a string.
pub(crate) fn encode_string(bytes: &mut Vec<u8>, expires: u64, text: &[u8]) {
    put_tag(bytes, Kind::String, 0, expires);
    bytes.extend_from_slice(text);
}

/// The main record of a string in a new buffer.
pub fn string_record(text: &[u8], expires: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() + 9);
    encode_string(&mut bytes, expires, text);
    bytes
}

/// Encodes the main record of a collection.
pub(crate) fn encode_collection(
    bytes: &mut Vec<u8>,
    kind: Kind,
    expires: u64,
    shape: &Shape,
    small: Option<&[u8]>,
) {
    put_tag(bytes, kind, flags(small.is_some(), shape.deadlines.is_some()), expires);
    bytes.extend_from_slice(&shape.version.to_le_bytes());
    bytes.extend_from_slice(&shape.len.to_le_bytes());
    for number in &shape.head[..kind.head_len()] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    if let Some(Deadlines { version, first, count }) = shape.deadlines {
        [version, first, count].iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
    }
    bytes.extend_from_slice(small.unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_main_records() {
        let mut bytes = Vec::new();
        encode_string(&mut bytes, 0x0102, b"text");
        assert_eq!(bytes, b"\x80\x02\x01\0\0\0\0\0\0text");
        let main = Main::decode(bytes.into()).unwrap();
        assert_eq!((main.kind, main.expires, main.text()), (Kind::String, 0x0102, &b"text"[..]));
        assert!(main.has_expired(0x0102) && !main.has_expired(0x0101));
        assert_eq!(main.with_expiry(0), b"\0text");

        let shape = Shape { version: 7, len: 1, head: [3, 4, 0, 0, 0, 0], deadlines: None };
        let mut bytes = Vec::new();
        encode_collection(&mut bytes, Kind::List, 0, &shape, Some(b"parts"));
        assert_eq!(bytes[0], 0x41);
        assert_eq!(bytes.len(), 1 + 4 * 8 + 5);
        let main = Main::decode(bytes.into()).unwrap();
        assert_eq!((main.shape().unwrap(), main.small()), (shape, Some(&b"parts"[..])));
    }

    #[test]
    fn golden_bytes_of_a_hash_with_deadlines() {
        let deadlines = Some(Deadlines { version: 9, first: 0x0304, count: 2 });
        let shape = Shape { version: 7, len: 5, deadlines, ..Shape::default() };
        for (small, tag) in [(Some(&b"parts"[..]), 0xE2), (None, 0xA2)] {
            let mut bytes = Vec::new();
            encode_collection(&mut bytes, Kind::Hash, 0x0102, &shape, small);
            assert_eq!((bytes[0], &bytes[25..33]), (tag, &b"\x09\0\0\0\0\0\0\0"[..]));
            assert_eq!(bytes[33..49], *b"\x04\x03\0\0\0\0\0\0\x02\0\0\0\0\0\0\0");
            let main = Main::decode(bytes.clone().into()).unwrap();
            assert_eq!((main.shape().unwrap(), main.small()), (shape, small));
            assert_eq!(main.due().unwrap(), Due { key: 0x0102, fields: 0x0304 });
            assert!(main.has_due_fields(0x0304).unwrap() && !main.has_due_fields(0x0303).unwrap());
            // A walk over keys decodes the head alone.
            bytes.truncate(HEAD_BYTES_MAX);
            assert_eq!(Main::decode(bytes.into()).unwrap().deadlines().unwrap(), deadlines);
            let never = Main::decode(main.with_expiry(0).into()).unwrap();
            assert_eq!((never.shape().unwrap(), never.small()), (shape, small));
        }
        assert!(Main::decode(Value::from(&b"\x20text"[..])).is_err());
    }

    #[test]
    fn records_of_strings_are_made_and_looked_at_without_more() {
        let raw = string_record(b"text", 0x0102);
        assert_eq!((Main::decode(raw.clone().into()).unwrap().text(), raw.len()), (&b"text"[..], 13));
    }

    #[test]
    fn damaged_records_are_reported() {
        for bytes in [&b""[..], b"\x0F", b"\x80\0\0", b"\x01\0\0\0"] {
            let main = Main::decode(Value::from(bytes));
            assert!(main.and_then(|main| main.shape()).is_err(), "{bytes:?}");
        }
    }
}
