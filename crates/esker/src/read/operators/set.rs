//! Encoded sets: the values and operands of `set-union`.
//!
//! ```text
//!   [length (varint)][element][length][element]...      elements ascending, each once
//! ```

use std::collections::BTreeSet;

use crate::encoding::bytes::{ByteReader, Decoded, put_string};

/// Encodes a set, as a value or an operand of the merge operator `set-union`.
///
/// ```
/// # fn main() -> esker::Result<()> {
/// # let db = esker::Db::in_memory()?;
/// let tags = db.keyspace("tags")?;
/// tags.set_merge_operator("set-union")?;
/// tags.merge("post-1", esker::merge_set(["rust", "storage"]))?;
/// tags.merge("post-1", esker::merge_set(["database"]))?;
/// let value = tags.get("post-1")?.unwrap_or_default();
/// let elements = esker::merge_set_elements(&value);
/// assert_eq!(elements, Some(vec![&b"database"[..], b"rust", b"storage"]));
/// # Ok(())
/// # }
/// ```
pub fn merge_set<E: AsRef<[u8]>>(elements: impl IntoIterator<Item = E>) -> Vec<u8> {
    let elements: Vec<E> = elements.into_iter().collect();
    encode(elements.iter().map(AsRef::as_ref).collect())
}

/// Returns the elements of a set in ascending order. `None` if the bytes do not encode a set. See
/// [`merge_set`].
pub fn merge_set_elements(set: &[u8]) -> Option<Vec<&[u8]>> {
    decode(set).ok()
}

fn encode(elements: BTreeSet<&[u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    elements.into_iter().for_each(|element| put_string(&mut out, element));
    out
}

fn decode(set: &[u8]) -> Decoded<Vec<&[u8]>> {
    let mut reader = ByteReader::new(set);
    let mut elements = Vec::new();
    while !reader.is_empty() {
        elements.push(reader.string()?);
    }
    Ok(elements)
}

/// Returns the union of sets.
pub(super) fn union<'a>(sets: impl Iterator<Item = &'a [u8]>) -> Result<Vec<u8>, String> {
    let mut all = BTreeSet::new();
    for set in sets {
        all.extend(decode(set).map_err(|e| format!("the bytes do not encode a set: {}", e.detail))?);
    }
    Ok(encode(all))
}
