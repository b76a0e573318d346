//! Writes streams: entries in listpacks, as `stream` reads them.
//!
//! - A node has at most 100 entries or about 4 KiB of values, as in Redis. Its master entry has the fields of
//!   the first.
//! - Numbers that belong to the format are encoded as numbers, fields and values as bytes.

use crate::encode::{put_length, put_string};
use crate::stream::{Entry, Group, SAME_FIELDS, Stream, StreamId};

const NODE_ENTRIES_MAX: usize = 100;
const NODE_BYTES: usize = 4096;

pub(crate) fn write(bytes: &mut Vec<u8>, stream: &Stream) {
    let nodes = nodes(&stream.entries);
    put_length(bytes, nodes.len() as u64);
    for node in nodes {
        put_string(bytes, &raw(node[0].id));
        put_string(bytes, &listpack(node));
    }
    put_length(bytes, stream.entries.len() as u64);
    let first = stream.entries.first().map_or(StreamId::default(), |entry| entry.id);
    for id in [stream.last_id, first, stream.max_deleted_id] {
        put_id(bytes, id);
    }
    put_length(bytes, stream.added);
    put_length(bytes, stream.groups.len() as u64);
    stream.groups.iter().for_each(|group| put_group(bytes, group));
}

/// Splits entries into those of each node.
fn nodes(mut rest: &[Entry]) -> Vec<&[Entry]> {
    let mut nodes = Vec::new();
    while !rest.is_empty() {
        let (mut len, mut size) = (0, 0);
        while len < rest.len().min(NODE_ENTRIES_MAX) && size < NODE_BYTES {
            size += rest[len].fields.iter().skip(1).step_by(2).map(Vec::len).sum::<usize>();
            len += 1;
        }
        let (node, behind) = rest.split_at(len);
        nodes.push(node);
        rest = behind;
    }
    nodes
}

fn listpack(node: &[Entry]) -> Vec<u8> {
    let mut pack = Listpack::new();
    let names = |entry: &Entry| entry.fields.iter().step_by(2).cloned().collect::<Vec<_>>();
    let (first, master) = (node[0].id, names(&node[0]));
    pack.number(node.len() as i64);
    pack.number(0);
    pack.number(master.len() as i64);
    master.iter().for_each(|name| pack.text(name));
    pack.number(0);
    for entry in node {
        let has_same = names(entry) == master;
        pack.number(if has_same { SAME_FIELDS } else { 0 });
        pack.number(entry.id.ms.wrapping_sub(first.ms) as i64);
        pack.number(entry.id.seq.wrapping_sub(first.seq) as i64);
        // The number of elements before this number, for walks from the end.
        let elements = if has_same {
            entry.fields.iter().skip(1).step_by(2).for_each(|value| pack.text(value));
            entry.fields.len() / 2 + 3
        } else {
            pack.number((entry.fields.len() / 2) as i64);
            entry.fields.iter().for_each(|piece| pack.text(piece));
            entry.fields.len() + 4
        };
        pack.number(elements as i64);
    }
    pack.finish()
}

fn put_group(bytes: &mut Vec<u8>, group: &Group) {
    put_string(bytes, &group.name);
    put_id(bytes, group.last_id);
    // A number that is not known is -1.
    put_length(bytes, group.read.unwrap_or(u64::MAX));
    let mut pending: Vec<_> = group.consumers.iter().flat_map(|consumer| &consumer.pending).collect();
    pending.sort_unstable_by_key(|pending| pending.id);
    put_length(bytes, pending.len() as u64);
    for one in pending {
        bytes.extend_from_slice(&raw(one.id));
        bytes.extend_from_slice(&one.delivered_ms.to_le_bytes());
        put_length(bytes, one.count);
    }
    put_length(bytes, group.consumers.len() as u64);
    for consumer in &group.consumers {
        put_string(bytes, &consumer.name);
        bytes.extend_from_slice(&consumer.seen_ms.to_le_bytes());
        put_length(bytes, consumer.pending.len() as u64);
        consumer.pending.iter().for_each(|pending| bytes.extend_from_slice(&raw(pending.id)));
    }
}

fn put_id(bytes: &mut Vec<u8>, id: StreamId) {
    put_length(bytes, id.ms);
    put_length(bytes, id.seq);
}

fn raw(id: StreamId) -> [u8; 16] {
    (u128::from(id.ms) << 64 | u128::from(id.seq)).to_be_bytes()
}

/// A listpack that is being written: `packed` reads it.
struct Listpack {
    bytes: Vec<u8>,
    len: usize,
}

impl Listpack {
    fn new() -> Self {
        Listpack { bytes: vec![0; 6], len: 0 }
    }

    fn element(&mut self, head: &[u8], text: &[u8]) {
        self.bytes.extend_from_slice(head);
        self.bytes.extend_from_slice(text);
        self.len += 1;
        // The length once more, in 7 bits a byte, the highest first; all but the first byte have a mark.
        let len = head.len() + text.len();
        let count = (1..5).find(|count| len >> (7 * count) == 0).unwrap_or(5);
        for at in (0..count).rev() {
            let mark = if at == count - 1 { 0 } else { 0x80 };
            self.bytes.push((len >> (7 * at) & 0x7f) as u8 | mark);
        }
    }

    fn number(&mut self, number: i64) {
        if let 0..=0x7f = number {
            self.element(&[number as u8], b"");
        } else if let Ok(number) = i16::try_from(number) {
            self.element(&[0xf1], &number.to_le_bytes());
        } else if let Ok(number) = i32::try_from(number) {
            self.element(&[0xf3], &number.to_le_bytes());
        } else {
            self.element(&[0xf4], &number.to_le_bytes());
        }
    }

    fn text(&mut self, text: &[u8]) {
        match text.len() {
            len @ 0..=63 => self.element(&[0x80 | len as u8], text),
            len @ 64..=4095 => self.element(&[0xe0 | (len >> 8) as u8, len as u8], text),
            len => {
                let len = (len as u32).to_le_bytes();
                self.element(&[0xf0, len[0], len[1], len[2], len[3]], text);
            }
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.bytes.push(0xff);
        let size = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&size.to_le_bytes());
        let len = u16::try_from(self.len).unwrap_or(u16::MAX);
        self.bytes[4..6].copy_from_slice(&len.to_le_bytes());
        self.bytes
    }
}
