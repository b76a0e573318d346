//! Fields of bytes, in place: for programs that look at stored keys without decoding them.

use std::borrow::Cow;

use crate::encoder::{END, ESCAPE, code};

/// Appends bytes to a key as its next field.
pub fn append_bytes(key: &mut Vec<u8>, bytes: &[u8]) {
    append_escaped(key, code::BYTES, bytes);
}

pub(crate) fn append_escaped(key: &mut Vec<u8>, code: u8, bytes: &[u8]) {
    key.reserve(bytes.len() + 2);
    key.push(code);
    let mut parts = bytes.split(|byte| *byte == END);
    key.extend_from_slice(parts.next().unwrap_or_default());
    for part in parts {
        key.extend_from_slice(&[END, ESCAPE]);
        key.extend_from_slice(part);
    }
    key.push(END);
}

/// Splits a key behind its first field, if that is bytes: the stored field, and the other fields.
pub fn split_bytes(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let stored = key.strip_prefix(&[code::BYTES])?;
    key.split_at_checked(1 + escaped_len(stored)?)
}

/// Length of escaped bytes at the beginning of a key, with their end. `None`: they have no end.
pub(crate) fn escaped_len(stored: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += stored.get(at..)?.iter().position(|byte| *byte == END)? + 1;
        if stored.get(at) != Some(&ESCAPE) {
            return Some(at);
        }
    }
}

/// The bytes of a stored field, as [`split_bytes`] returns it.
pub fn bytes_of(field: &[u8]) -> Cow<'_, [u8]> {
    let field = field.strip_prefix(&[code::BYTES]).unwrap_or(field);
    unescaped(field.strip_suffix(&[END]).unwrap_or(field))
}

/// Escaped bytes without their end, as they were.
pub(crate) fn unescaped(escaped: &[u8]) -> Cow<'_, [u8]> {
    if !escaped.contains(&END) {
        return Cow::Borrowed(escaped);
    }
    let mut bytes = escaped.iter();
    let mut out = Vec::with_capacity(escaped.len());
    while let Some(byte) = bytes.next() {
        out.push(*byte);
        if *byte == END {
            bytes.next();
        }
    }
    Cow::Owned(out)
}
