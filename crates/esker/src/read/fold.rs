//! What operands make of the value below them: the only place that calls merge operators.
//!
//! ```text
//!   versions of a key, newest first:  operands, operands, base      base: a value, or nothing
//!                                        |          |       |
//!   Operands <---------push--------------'----------'       |
//!      `--fold, oldest operand first, with the operator of the key's keyspace --> value
//! ```
//!
//! Beside a key of kind `Merge` stands a list of operands, oldest first. So lists can be joined without their operator: in a commit that merges
//! into a key twice, in a compaction whose operator does not combine, in a repair.
//!
//! fold.1. A value is made of all operands that lie above its base, oldest first, whatever lists and sources they came in.
//! fold.2. An operator that fails, panics or is not registered gives an error that names the key's keyspace. Nothing is written then.
//!
//! Bytes of a list: docs/formats/sstable.md, "Operands"

use super::fetch;
use super::operators::{Operator, Operators};
use crate::blob::BlobSet;
use crate::encoding::bytes::{ByteReader, Decoded, put_string};
use crate::types::canary::{self, Canary};
use crate::types::key::decode_key;
use crate::types::limits::VALUE_BYTES_MAX;
use crate::types::stored::Stored;
use crate::types::{Error, KeyspaceId, Result, Value};

/// A list adds at most so many bytes to an operand.
pub const LIST_BYTES_MAX: usize = 5;

/// The list of one operand.
pub fn list_of(operand: &[u8]) -> Vec<u8> {
    let mut list = Vec::with_capacity(operand.len() + LIST_BYTES_MAX);
    put_string(&mut list, operand);
    list
}

/// The operands of a list, oldest first.
pub fn elements(list: &[u8]) -> Decoded<Vec<&[u8]>> {
    let mut reader = ByteReader::new(list);
    let mut elements = Vec::new();
    while !reader.is_empty() {
        elements.push(reader.string()?);
    }
    Ok(elements)
}

/// What values are made with.
#[derive(Clone, Copy)]
pub struct Means<'a> {
    /// Where values are that do not stand beside their keys.
    pub blobs: &'a BlobSet,
    /// What operands are merged with.
    pub operators: &'a Operators,
}

/// The operands of one key, as far as they have been met.
#[derive(Clone, Debug, Default)]
pub struct Operands {
    /// Lists, the newest first.
    lists: Vec<Value>,
}

impl Operands {
    /// Whether none has been met.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// Adds a list that is older than all others.
    #[cold]
    pub fn push(&mut self, list: Value) {
        if !canary::is_set(Canary::OperandDropped) || self.lists.is_empty() {
            self.lists.push(list);
        }
    }

    /// Bytes of the lists.
    pub fn byte_len(&self) -> usize {
        self.lists.iter().map(|list| list.len()).sum()
    }

    /// The value of an encoded key that had this before; none: it had none.
    #[cold]
    pub fn fold(&self, key: &[u8], base: Option<Stored<Value>>, means: Means<'_>) -> Result<Value> {
        let base = base.map(|base| fetch::value(base, means.blobs)).transpose()?;
        self.fold_bytes(key, base.as_deref(), means.operators)
    }

    /// The same, of a value that is at hand.
    pub fn fold_bytes(&self, key: &[u8], base: Option<&[u8]>, operators: &Operators) -> Result<Value> {
        let (id, user_key) = decode_key(key).unwrap_or((KeyspaceId::CATALOG, key));
        let operator = operators.of(id)?;
        let operands = self.elements().map_err(|detail| operator.failed(user_key, detail))?;
        let value = operator.merge(user_key, base, &operands)?;
        match value.len() {
            ..=VALUE_BYTES_MAX => Ok(value.into()),
            len => Err(Error::ValueTooLong { len }),
        }
    }

    /// All of them as one list: of one operand, if the operator combines them.
    pub fn joined(&self, key: &[u8], operators: &Operators) -> Vec<u8> {
        if let Some(combined) = self.combined(key, operators) {
            return list_of(&combined);
        }
        self.lists.iter().rev().flat_map(|list| list.iter().copied()).collect()
    }

    fn combined(&self, key: &[u8], operators: &Operators) -> Option<Vec<u8>> {
        let (id, user_key) = decode_key(key)?;
        let operator = operators.of(id).ok()?;
        combine(&operator, user_key, &self.elements().ok()?)
    }

    /// Oldest first (fold.1).
    fn elements(&self) -> Result<Vec<&[u8]>, String> {
        let mut all = Vec::with_capacity(self.lists.len());
        for list in self.lists.iter().rev() {
            all.extend(elements(list).map_err(|e| format!("a list of operands: {}", e.detail))?);
        }
        Ok(all)
    }
}

/// One operand in place of several, if the operator makes one.
pub fn combine(operator: &Operator, user_key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
    match operands {
        [only] => Some(only.to_vec()),
        several => {
            operator.combine(user_key, several).filter(|c| c.len() <= VALUE_BYTES_MAX - LIST_BYTES_MAX)
        }
    }
}

/// Operands, and the value or nothing that the search for older versions ended at.
#[derive(Clone, Debug)]
pub struct Folded {
    operands: Operands,
    base: Option<Stored<Value>>,
}

impl Folded {
    /// What a reader has found; none if there are no operands.
    #[inline]
    pub fn new(operands: Operands, base: Option<Stored<Value>>) -> Option<Box<Self>> {
        if operands.is_empty() { None } else { Some(Box::new(Folded { operands, base })) }
    }

    /// Whether the value below is in a blob file.
    pub fn needs_fetch(&self) -> bool {
        matches!(self.base, Some(Stored::Blob(_)))
    }

    /// The value of an encoded key.
    #[cold]
    pub fn value(&self, key: &[u8], means: Means<'_>) -> Result<Value> {
        self.operands.fold(key, self.base.clone(), means)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::key::encode_key;

    #[test]
    fn fold_1_operands_come_oldest_first_whatever_lists_they_came_in() {
        let operators = Operators::default();
        operators.set(KeyspaceId::DEFAULT, "append", || "default".to_owned());
        let key = encode_key(KeyspaceId::DEFAULT, b"k");
        let mut operands = Operands::default();
        operands.push([list_of(b"c"), list_of(b"d")].concat().into());
        operands.push(list_of(b"b").into());
        assert_eq!(operands.fold_bytes(&key, Some(b"a"), &operators).unwrap(), b"abcd", "fold.1");
        assert_eq!(operands.fold_bytes(&key, None, &operators).unwrap(), b"bcd", "fold.1");
        let joined = operands.joined(&key, &operators);
        assert_eq!(elements(&joined).unwrap(), [b"bcd"]);
        let apart = operands.joined(&key, &Operators::default());
        assert_eq!(elements(&apart).unwrap(), [&b"b"[..], b"c", b"d"], "fold.1");
        assert!(elements(&apart[..5]).is_err());
    }

    #[test]
    fn fold_2_an_operator_that_fails_or_panics_gives_an_error_that_names_the_key() {
        let panics = |_: Option<&[u8]>, _: &[&[u8]]| -> Result<Vec<u8>, String> { panic!("seventeen") };
        let mut registered = super::super::operators::Registered::default();
        registered.add("panics", crate::read::operators::ByFunction(panics));
        let operators = Operators::new(registered);
        operators.set(KeyspaceId::DEFAULT, "panics", || "default".to_owned());
        operators.set(KeyspaceId::new(7), "add-i64", || "sums".to_owned());
        operators.set(KeyspaceId::new(8), "of another program", || "eight".to_owned());
        let mut operands = Operands::default();
        operands.push(list_of(&1_i64.to_le_bytes()).into());
        for (id, base, text) in [
            (
                1,
                None,
                "cannot merge into key \"k\" of keyspace \"default\" by \"panics\": it panicked: seventeen",
            ),
            (
                7,
                Some(&b"abc"[..]),
                "key \"k\" of keyspace \"sums\" by \"add-i64\": the value has 3 bytes in place of 8",
            ),
            (8, None, "keyspace \"eight\" needs merge operator \"of another program\""),
            (9, None, "keyspace \"9\" has no merge operator"),
        ] {
            let key = encode_key(KeyspaceId::new(id), b"k");
            let error = operands.fold_bytes(&key, base, &operators).unwrap_err().to_string();
            assert!(error.contains(text), "fold.2: {error}");
        }
    }
}
