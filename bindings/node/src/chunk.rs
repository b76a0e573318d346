//! Many keys and values in one buffer: `for await` steps through it without further calls.
//!
//! Content: for each entry its key and its value; then for each entry the length of the key and that of the
//! value, as numbers of four bytes (little-endian). [`MISSING`] stands for the length of a missing value.

use esker::Value;
use napi::bindgen_prelude::{BufferSlice, Env, JsValue, Object, Unknown};

/// The length of a value that does not exist. Values are shorter.
pub(crate) const MISSING: u32 = u32::MAX;
/// Buffers from this size on are handed over rather than copied.
const COPIED_MAX: usize = 4096;

/// Bytes before the entries of a chunk in a room.
const HEADER: usize = 12;

#[derive(Default)]
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    lengths: Vec<u32>,
    /// Whether there are no more entries.
    pub(crate) is_last: bool,
}

impl Chunk {
    pub(crate) fn of_values(values: &[Option<Value>]) -> Chunk {
        let mut chunk = Chunk { is_last: true, ..Chunk::default() };
        for value in values {
            match value {
                Some(value) => chunk.push(&[], value),
                None => chunk.lengths.extend([0, MISSING]),
            }
        }
        chunk
    }

    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        // A key has at most 65,535 bytes, and a value at most 4 GiB - 2 in JavaScript's buffers.
        self.lengths.extend([key.len() as u32, value.len() as u32]);
    }

    pub(crate) fn len(&self) -> usize {
        self.lengths.len() / 2
    }

    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Notes in a buffer that it has no chunk.
    pub(crate) fn note_none(room: &mut [u8]) {
        room.iter_mut().take(HEADER).for_each(|byte| *byte = u8::MAX);
    }

    /// Copies the chunk into a buffer, behind its count, its end and whether it is the last one (numbers of
    /// four bytes). Returns false if it does not fit.
    pub(crate) fn copy_into(&self, room: &mut [u8]) -> bool {
        let end = HEADER + self.bytes.len();
        let Some(room) = room.get_mut(..end + 4 * self.lengths.len()) else { return false };
        let header = [self.len() as u32, end as u32, u32::from(self.is_last)];
        room[HEADER..end].copy_from_slice(&self.bytes);
        let (header_room, lengths_room) = (0..HEADER, end..room.len());
        for (numbers, place) in [(&header[..], header_room), (&self.lengths[..], lengths_room)] {
            for (number, place) in numbers.iter().zip(room[place].chunks_exact_mut(4)) {
                place.copy_from_slice(&number.to_le_bytes());
            }
        }
        true
    }

    pub(crate) fn into_js(self, env: &Env) -> napi::Result<Unknown<'_>> {
        let (count, end) = (self.len(), self.bytes.len());
        let mut bytes = self.bytes;
        bytes.extend(self.lengths.iter().flat_map(|length| length.to_le_bytes()));
        let buffer = match bytes.len() {
            ..COPIED_MAX => BufferSlice::copy_from(env, &bytes)?,
            _ => BufferSlice::from_data(env, bytes)?,
        };
        let mut chunk = Object::new(env)?;
        chunk.set("bytes", buffer)?;
        chunk.set("count", count as u32)?;
        chunk.set("end", end as f64)?;
        chunk.set("isLast", self.is_last)?;
        Ok(chunk.to_unknown())
    }
}

/// Splits keys that JavaScript has put one after the other.
pub(crate) fn split(bytes: &[u8], lengths: &[u32]) -> Vec<Vec<u8>> {
    let mut rest = bytes;
    let next = |length: &u32| {
        let (key, behind) = rest.split_at((*length as usize).min(rest.len()));
        rest = behind;
        key.to_vec()
    };
    lengths.iter().map(next).collect()
}
