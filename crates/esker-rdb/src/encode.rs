//! Makes values as `DUMP` returns them, for `RESTORE` of Redis or Valkey.
//!
//! ```text
//!   Dump::set(n), text, text ... --> finish: type value | version (2) | CRC-64 (8)
//! ```
//!
//! Collections are written in their plain encodings, which every version reads; `RESTORE` chooses its own.
//! The version is the first that has the type, so that old servers take what they can hold: 9 (Redis 5), 10
//! for streams (Redis 7.0), 12 for hashes with deadlines (Redis 7.4).

use crate::checksum;
use crate::dump::LIBRARY;
use crate::stream::Stream;
use crate::stream_nodes;

/// A value that is being written.
#[derive(Debug)]
pub struct Dump {
    bytes: Vec<u8>,
    version: u16,
    /// What deadlines of fields are relative to.
    first_deadline_ms: u64,
}

impl Dump {
    fn begin(number: u8, version: u16) -> Self {
        Dump { bytes: vec![number], version, first_deadline_ms: 0 }
    }

    fn collection(number: u8, len: u64) -> Self {
        let mut dump = Self::begin(number, 9);
        put_length(&mut dump.bytes, len);
        dump
    }

    /// A string. Its [`text`](Self::text) follows.
    pub fn string() -> Self {
        Self::begin(0, 9)
    }

    /// A list. The texts of `len` elements follow.
    pub fn list(len: u64) -> Self {
        Self::collection(1, len)
    }

    /// A set. The texts of `len` members follow.
    pub fn set(len: u64) -> Self {
        Self::collection(2, len)
    }

    /// A sorted set. The text and [`score`](Self::score) of `len` members follow.
    pub fn sorted_set(len: u64) -> Self {
        Self::collection(5, len)
    }

    /// A hash. The texts of `len` fields and their values follow.
    pub fn hash(len: u64) -> Self {
        Self::collection(4, len)
    }

    /// A hash some of whose fields expire. The [`deadline`](Self::deadline), name and value of `len` fields
    /// follow. `first_ms`: the first deadline, in Unix milliseconds.
    pub fn hash_with_deadlines(len: u64, first_ms: u64) -> Self {
        let mut dump = Self::begin(24, 12);
        dump.first_deadline_ms = first_ms;
        dump.bytes.extend_from_slice(&first_ms.to_le_bytes());
        put_length(&mut dump.bytes, len);
        dump
    }

    /// A whole stream. Redis 7.0 does not keep when consumers were last active, so it is left out.
    pub fn stream(stream: &Stream) -> Self {
        let mut dump = Self::begin(19, 10);
        stream_nodes::write(&mut dump.bytes, stream);
        dump
    }

    /// Libraries of functions, as `FUNCTION DUMP` returns them.
    pub fn libraries<'s>(sources: impl IntoIterator<Item = &'s [u8]>) -> Self {
        let mut dump = Dump { bytes: Vec::new(), version: 10, first_deadline_ms: 0 };
        for source in sources {
            dump.bytes.push(LIBRARY);
            dump.text(source);
        }
        dump
    }

    /// Number of bytes written.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a string, element, member, name or value.
    pub fn text(&mut self, text: &[u8]) {
        put_string(&mut self.bytes, text);
    }

    /// Adds the score of the member before.
    pub fn score(&mut self, score: f64) {
        self.bytes.extend_from_slice(&score.to_bits().to_le_bytes());
    }

    /// Adds the deadline of the field that follows, in Unix milliseconds and not before the first; 0: it does
    /// not expire.
    pub fn deadline(&mut self, at_ms: u64) {
        let after = if at_ms == 0 { 0 } else { at_ms.saturating_sub(self.first_deadline_ms) + 1 };
        put_length(&mut self.bytes, after);
    }

    /// Adds version and checksum. Returns the payload.
    pub fn finish(self) -> Vec<u8> {
        let mut bytes = self.bytes;
        bytes.extend_from_slice(&self.version.to_le_bytes());
        let sum = checksum::add(0, &bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }
}

pub(crate) fn put_length(bytes: &mut Vec<u8>, len: u64) {
    if len < 1 << 6 {
        bytes.push(len as u8);
    } else if len < 1 << 14 {
        bytes.extend_from_slice(&((1 << 14) | len as u16).to_be_bytes());
    } else if let Ok(len) = u32::try_from(len) {
        bytes.push(0x80);
        bytes.extend_from_slice(&len.to_be_bytes());
    } else {
        bytes.push(0x81);
        bytes.extend_from_slice(&len.to_be_bytes());
    }
}

pub(crate) fn put_string(bytes: &mut Vec<u8>, text: &[u8]) {
    put_length(bytes, text.len() as u64);
    bytes.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Consumer, Entry, Error, Field, Group, Pending, StreamId, Value, value_of_dump};

    /// A stream whose entries have equal and other fields, in several nodes.
    fn stream() -> Stream {
        let id = |ms, seq| StreamId { ms, seq };
        let text = |text: &str| text.as_bytes().to_vec();
        let entry = |n: u64| {
            let name = if n.is_multiple_of(7) { "other" } else { "name" };
            let fields = vec![text(name), text(&"v".repeat(n as usize)), text("-12"), text("")];
            Entry { id: id(5 + n / 2, if n.is_multiple_of(2) { 9 } else { u64::MAX }), fields }
        };
        let pending = Pending { id: id(6, 9), delivered_ms: 77, count: 3 };
        let consumer = |name, pending| Consumer { name: text(name), seen_ms: 70, active_ms: None, pending };
        let consumers = vec![consumer("c", vec![pending]), consumer("d", vec![])];
        let group = |name, read, consumers| Group { name: text(name), last_id: id(7, 9), read, consumers };
        Stream {
            entries: (0..300).map(entry).collect(),
            last_id: id(u64::MAX, 1),
            max_deleted_id: id(3, 0),
            added: 70_000,
            groups: vec![group("g", Some(3), consumers), group("h", None, vec![])],
        }
    }

    #[test]
    fn values_are_read_as_they_were_written() {
        let mut list = Dump::list(3);
        let texts = ["a".into(), Vec::new(), vec![b'x'; 70_000]];
        texts.iter().for_each(|text| list.text(text));
        let mut scores = Dump::sorted_set(2);
        for (member, score) in [("a", -1.5), ("b", f64::INFINITY)] {
            scores.text(member.as_bytes());
            scores.score(score);
        }
        let field = |name: &str, expires_ms| Field { name: name.into(), value: b"v".to_vec(), expires_ms };
        let fields = vec![field("a", 0), field("b", 90), field("c", 1 << 40)];
        let mut hash = Dump::hash_with_deadlines(3, 90);
        for field in &fields {
            hash.deadline(field.expires_ms);
            hash.text(&field.name);
            hash.text(&field.value);
        }
        let scored = vec![(b"a".to_vec(), -1.5), (b"b".to_vec(), f64::INFINITY)];
        for (dump, wanted) in [
            (list, Value::List(texts.to_vec())),
            (scores, Value::SortedSet(scored)),
            (hash, Value::Hash(fields)),
            (Dump::stream(&stream()), Value::Stream(Box::new(stream()))),
        ] {
            assert_eq!(value_of_dump(&dump.finish(), 1 << 20).unwrap(), wanted);
        }
    }

    #[test]
    fn few_bytes_that_stand_for_many_are_refused() {
        // LZF: 3 bytes for 264. Listpack: 2 bytes an element. Stream: names of fields once for all entries.
        let mut packed = Dump::string();
        packed.bytes.extend_from_slice(&[0xc3]);
        let body: Vec<u8> = [0, 0].into_iter().chain([0xe0, 0xff, 0].repeat(1000)).collect();
        put_length(&mut packed.bytes, body.len() as u64);
        put_length(&mut packed.bytes, 264_001);
        packed.bytes.extend_from_slice(&body);
        let mut elements = Dump::begin(20, 11);
        let pack = [&10_006_u32.to_le_bytes()[..], &[0xff, 0xff], &[5, 1].repeat(5_000)[..9_999], &[0xff]];
        elements.text(&pack.concat());
        let fields = vec![vec![b'n'; 10_000], Vec::new()];
        let entry = |ms| Entry { id: StreamId { ms, seq: 0 }, fields: fields.clone() };
        let names = Dump::stream(&Stream { entries: (1..100).map(entry).collect(), ..Stream::default() });
        for dump in [packed, elements, names] {
            let payload = dump.finish();
            assert!(payload.len() < 30_000, "{}", payload.len());
            let refused = value_of_dump(&payload, 200_000);
            assert!(matches!(refused, Err(Error::TooLarge { .. })), "{refused:?}");
        }
    }
}
