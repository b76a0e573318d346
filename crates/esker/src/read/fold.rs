//! Applies operands to the value below them. Values are computed by merge operators only here.
//!
//! ```text
//!   versions of a key, newest first:  operands, operands, base      base: a value, or none
//!                                        |          |       |
//!   Operands <---------push--------------'----------'       |
//!      `--walk, oldest operand first: which operands apply, and when the key expires
//!           `--merge operator of the keyspace, over the operands that apply --> value
//! ```
//!
//! A key of kind `Merge` stores a list of operands, oldest first. Lists can be concatenated without the
//! operator: by a commit that merges into a key twice, by a compaction whose operator does not combine, or by
//! a repair.
//!
//! fold.1. A value is computed from all operands above its base, oldest first, independent of the lists and
//!     sources that hold them.
//!
//! An operator that fails, panics or is not registered causes an error that names the keyspace of the
//! key. Nothing is written then.
//!
//! fold.3. An operand of time `w` applies to a value that does not expire, or expires after `w`; the key
//!     keeps that expiry. Otherwise the operand creates a new value with the lifetime that it carries. The
//!     result therefore depends only on the operands and the base. Readers compare the resulting expiry with
//!     the engine's time.
//! fold.4. Two operands may be combined only if no base can distinguish them. That is so if both have the
//!     same time. It is also so if no expiring version can lie below and the first does not expire before the
//!     time of the second.
//!
//! Bytes of a list: docs/formats/sstable.md, "Operands"

use super::fetch;
use super::operators::{Operator, Operators};
use crate::blob::BlobSet;
use crate::encoding::operand::{Elements, LIST_BYTES_MAX, Operand};
use crate::types::canary::{self, Canary};
use crate::types::expiry::{EXPIRY_BYTES, Expiry};
use crate::types::key::decode_key;
use crate::types::limits::VALUE_BYTES_MAX;
use crate::types::op::Kind;
use crate::types::stored::Stored;
use crate::types::{Error, KeyspaceId, Result, Value};

/// What computing a value requires besides its versions.
#[derive(Clone, Copy, Debug)]
pub struct FoldContext<'a> {
    /// The blob files of values not stored with their keys.
    pub blobs: &'a BlobSet,
    /// The merge operators.
    pub operators: &'a Operators,
}

/// The value below the operands, and its expiry. It may have expired for the reader (fold.3).
#[derive(Clone, Debug)]
pub struct Base {
    /// The value.
    pub stored: Stored<Value>,
    /// When the value expires, if it does.
    pub expiry: Option<Expiry>,
}

impl Base {
    /// Creates the base from a version's kind and the bytes stored with its key.
    pub(crate) fn of(kind: Kind, beside: &[u8]) -> Self {
        Base { stored: Stored::of(kind, beside).to_value(), expiry: Expiry::of_version(kind, beside) }
    }
}

/// The operands of one key found so far.
#[derive(Clone, Debug, Default)]
pub struct Operands {
    /// Lists of operands, newest first.
    lists: Vec<Value>,
    byte_len: usize,
}

/// The operands that apply (fold.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Walk {
    /// Index of the first operand that applies. Earlier ones belong to expired values.
    first: usize,
    /// Whether the first operand applies to the base.
    keeps_base: bool,
    /// When the key expires.
    expiry: Option<Expiry>,
}

impl Operands {
    /// Returns whether there are no operands.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// Adds a list that is older than all others.
    #[cold]
    pub fn push(&mut self, list: Value) {
        if !canary::is_set(Canary::OperandDropped) || self.lists.is_empty() {
            self.byte_len += list.len();
            self.lists.push(list);
        }
    }

    /// Bytes of the lists.
    pub fn byte_len(&self) -> usize {
        self.byte_len
    }

    /// Computes the value of an encoded key with this base (`None` if it had no value), and its expiry.
    #[cold]
    pub fn fold(
        &self,
        key: &[u8],
        base: Option<Base>,
        fold_context: FoldContext<'_>,
    ) -> Result<(Value, Option<Expiry>)> {
        let folded = Folded::of(self.clone(), base);
        Ok((folded.value(key, fold_context)?, folded.expiry()))
    }

    /// Returns all operands as one list, with combinable operands combined. `may_expire_below` says whether
    /// an older source may hold a version that expires.
    pub fn joined(&self, key: &[u8], operators: &Operators, may_expire_below: bool) -> Vec<u8> {
        self.combined(key, operators, may_expire_below)
            .unwrap_or_else(|| self.lists.iter().rev().flat_map(|list| list.iter().copied()).collect())
    }

    /// Combines operands where fold.4 allows it. `None` if the operator is not registered or a list is
    /// damaged.
    fn combined(&self, key: &[u8], operators: &Operators, may_expire_below: bool) -> Option<Vec<u8>> {
        let (id, user_key) = decode_key(key)?;
        let operator = operators.of(id).ok()?;
        let all: Vec<_> = self.elements().collect::<Result<_, _>>().ok()?;
        let mut out = Vec::new();
        let mut left = &all[..];
        while let Some(first) = left.first() {
            let belongs = |next: &&Operand<'_>| {
                next.at_ms == first.at_ms || !may_expire_below && next.applies_to(first.expiry())
            };
            let (group, rest) = left.split_at(1 + left[1..].iter().take_while(belongs).count());
            match combine(&operator, user_key, group) {
                Some(combined) => Operand { bytes: &combined, ..*first }.append_to(&mut out),
                None => group.iter().for_each(|operand| operand.append_to(&mut out)),
            }
            left = rest;
        }
        Some(out)
    }

    /// Iterates over the operands, oldest first (fold.1).
    fn elements(&self) -> impl Iterator<Item = Result<Operand<'_>, String>> {
        let all = self.lists.iter().rev().flat_map(|list| Elements::of(list));
        all.map(|element| element.map_err(|e| format!("a list of operands: {}", e.detail)))
    }

    /// Determines the operands that apply (fold.3).
    fn walk(&self, base: Option<Option<Expiry>>) -> Result<Walk, String> {
        let mut walk = Walk { first: 0, keeps_base: base.is_some(), expiry: None };
        let mut state = base;
        for (i, operand) in self.elements().enumerate() {
            let operand = operand?;
            if !state.is_some_and(|expiry| operand.applies_to(expiry)) {
                walk = Walk { first: i, keeps_base: false, expiry: None };
                state = Some(operand.expiry());
            }
        }
        let expiry = state.flatten().filter(|_| !canary::is_set(Canary::MergeForgetsExpiry));
        Ok(Walk { expiry, ..walk })
    }
}

/// Combines several operands into one, if the operator supports it.
pub fn combine(operator: &Operator, user_key: &[u8], operands: &[Operand<'_>]) -> Option<Vec<u8>> {
    match operands {
        [only] => Some(only.bytes.to_vec()),
        several => {
            let several: Vec<_> = several.iter().map(|operand| operand.bytes).collect();
            operator.combine(user_key, &several).filter(|c| c.len() <= VALUE_BYTES_MAX - LIST_BYTES_MAX)
        }
    }
}

/// Operands and the base at which the search for older versions ended.
#[derive(Clone, Debug)]
pub struct Folded {
    operands: Operands,
    base: Option<Stored<Value>>,
    /// The operands that apply, or an error in the lists.
    walk: Result<Walk, String>,
}

impl Folded {
    /// Creates the result of a search. `None` if there are no operands.
    #[inline]
    pub fn new(operands: Operands, base: Option<Base>) -> Option<Box<Self>> {
        if operands.is_empty() { None } else { Some(Box::new(Self::of(operands, base))) }
    }

    fn of(operands: Operands, base: Option<Base>) -> Self {
        let walk = operands.walk(base.as_ref().map(|base| base.expiry));
        let keeps_base = walk.as_ref().is_ok_and(|walk| walk.keeps_base);
        let base = base.filter(|_| keeps_base).map(|base| base.stored);
        Folded { operands, base, walk }
    }

    /// Returns when the key expires, if it does.
    pub fn expiry(&self) -> Option<Expiry> {
        self.walk.as_ref().map_or(None, |walk| walk.expiry)
    }

    /// Returns whether the base is in a blob file.
    pub fn needs_fetch(&self) -> bool {
        matches!(self.base, Some(Stored::Blob(_)))
    }

    /// Computes the value of an encoded key.
    #[cold]
    pub fn value(&self, key: &[u8], fold_context: FoldContext<'_>) -> Result<Value> {
        let base = self.base.clone().map(|base| fetch::value(base, fold_context.blobs)).transpose()?;
        self.value_on(key, base.as_deref(), fold_context.operators)
    }

    fn value_on(&self, key: &[u8], base: Option<&[u8]>, operators: &Operators) -> Result<Value> {
        let (id, user_key) = decode_key(key).unwrap_or((KeyspaceId::CATALOG, key));
        let operator = operators.of(id)?;
        let failed = |detail| operator.failed(user_key, detail);
        let first = self.walk.as_ref().map_err(|detail| failed(detail.clone()))?.first;
        let bytes = self.operands.elements().skip(first).map(|element| Ok(element?.bytes));
        let operands: Vec<_> = bytes.collect::<Result<_, _>>().map_err(failed)?;
        let value = operator.merge(user_key, base, &operands)?;
        let longest = VALUE_BYTES_MAX - if self.expiry().is_some() { EXPIRY_BYTES } else { 0 };
        match value.len() {
            len if len <= longest => Ok(value.into()),
            len => Err(Error::ValueTooLong { len }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::operand::elements;
    use crate::types::key::encode_key;

    fn operand(at_ms: u64, lifetime_ms: u64, bytes: &[u8]) -> Vec<u8> {
        Operand { at_ms, lifetime_ms, bytes }.to_list()
    }

    fn appending() -> Operators {
        let operators = Operators::default();
        operators.set(KeyspaceId::DEFAULT, "append", || "default".to_owned());
        operators
    }

    /// The value and its expiry, on a base that expires at a given time.
    fn folded(lists: &[Vec<u8>], base: Option<Option<u64>>, operators: &Operators) -> (Vec<u8>, Option<u64>) {
        let mut operands = Operands::default();
        lists.iter().rev().for_each(|list| operands.push(list.clone().into()));
        let base = base.map(|expiry| Base {
            stored: Stored::Inline(Value::copy_of(b"a")),
            expiry: expiry.map(Expiry::at_ms),
        });
        let key = encode_key(KeyspaceId::DEFAULT, b"k");
        let blobs = BlobSet::default();
        let (value, expiry) = operands.fold(&key, base, FoldContext { blobs: &blobs, operators }).unwrap();
        (value.to_vec(), expiry.map(Expiry::ms))
    }

    #[test]
    fn fold_1_operands_come_oldest_first_whatever_lists_they_came_in() {
        let operators = appending();
        let key = encode_key(KeyspaceId::DEFAULT, b"k");
        let (b, c, d) = (operand(1, 0, b"b"), operand(2, 0, b"c"), operand(2, 0, b"d"));
        let lists = [b, [c, d].concat()];
        assert_eq!(folded(&lists, Some(None), &operators), (b"abcd".to_vec(), None), "fold.1");
        assert_eq!(folded(&lists, None, &operators), (b"bcd".to_vec(), None), "fold.1");
        let mut operands = Operands::default();
        lists.iter().rev().for_each(|list| operands.push(list.clone().into()));
        let bytes =
            |list: &[u8]| elements(list).unwrap().iter().map(|o| o.bytes.to_vec()).collect::<Vec<_>>();
        assert_eq!(bytes(&operands.joined(&key, &operators, false)), [b"bcd"], "fold.4");
        assert_eq!(bytes(&operands.joined(&key, &operators, true)), [&b"b"[..], b"cd"], "fold.4");
        let apart = operands.joined(&key, &Operators::default(), false);
        assert_eq!(bytes(&apart), [&b"b"[..], b"c", b"d"], "fold.1");
    }

    #[test]
    fn fold_3_an_operand_applies_to_what_is_live_at_its_time_or_begins_a_value() {
        let operators = appending();
        let lists = [operand(5, 0, b"b"), operand(7, 3, b"c"), operand(9, 0, b"d"), operand(10, 4, b"e")];
        for (base, value, expiry) in [
            (Some(Some(11)), "abcde", Some(11)),
            (Some(Some(10)), "e", Some(14)),
            (Some(Some(9)), "de", None),
            (Some(Some(6)), "e", Some(14)),
            (Some(Some(5)), "bcde", None),
            (Some(Some(0)), "bcde", None),
            (Some(None), "abcde", None),
            (None, "bcde", None),
        ] {
            let expected = (value.as_bytes().to_vec(), expiry);
            assert_eq!(folded(&lists, base, &operators), expected, "fold.3: on {base:?}");
        }
    }

    /// Combined operands produce the same value as separate ones.
    #[test]
    fn fold_4_combined_operands_fold_as_they_did_apart() {
        let (operators, key) = (appending(), encode_key(KeyspaceId::DEFAULT, b"k"));
        let mut rng = fastrand::Rng::with_seed(4);
        for round in 0..20_000 {
            let one = |rng: &mut fastrand::Rng| {
                let lifetime = if rng.bool() { 0 } else { rng.u64(1..6) };
                operand(rng.u64(10..20), lifetime, &[rng.u8(b'a'..=b'z')])
            };
            let lists: Vec<_> = (0..rng.usize(1..6)).map(|_| one(&mut rng)).collect();
            let mut operands = Operands::default();
            lists.iter().rev().for_each(|list| operands.push(list.clone().into()));
            let may_expire = rng.bool();
            let joined = operands.joined(&key, &operators, may_expire);
            let base = match rng.u8(0..3) {
                0 => None,
                1 => Some(None),
                _ if may_expire => Some(Some(rng.u64(8..22))),
                _ => continue,
            };
            let apart = folded(&lists, base, &operators);
            assert_eq!(folded(&[joined], base, &operators), apart, "fold.4: round {round}, on {base:?}");
        }
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
        operands.push(operand(0, 0, &1_i64.to_le_bytes()).into());
        for (id, base, text) in [
            (
                1,
                None,
                "cannot merge into key \"k\" of keyspace \"default\" by \"panics\": the operator panicked: seventeen",
            ),
            (
                7,
                Some(&b"abc"[..]),
                "key \"k\" of keyspace \"sums\" by \"add-i64\": the value has 3 bytes instead of 8",
            ),
            (8, None, "keyspace \"eight\" needs merge operator \"of another program\""),
            (9, None, "keyspace \"9\" has no merge operator"),
        ] {
            let key = encode_key(KeyspaceId::new(id), b"k");
            let base = base.map(|base| Base { stored: Stored::Inline(Value::copy_of(base)), expiry: None });
            let blobs = BlobSet::default();
            let fold_context = FoldContext { blobs: &blobs, operators: &operators };
            let error = operands.fold(&key, base, fold_context).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
