//! Folds merge operands in a compaction: the operands of a key in one stripe become one version, or a put
//! once their base is known.
//!
//! ```text
//!   judge's verdicts on one key, one stripe, newest first:
//!     operands 9, operands 8            --> operands 9, of both
//!     operands 9, operands 8, put 5     --> put 9
//!     operands 9, removal 5             --> put 9
//!     operands 9, and nothing below     --> put 9           (at the bottom, or 9's base was just dropped)
//! ```
//!
//! Operands are folded only with versions of their own stripe, because readers between two stripes see the
//! older one without them. The result has the number of the newest operand, and is unresolved if the oldest
//! version is. Its expiry follows fold.3, independent of the time of the compaction.
//!
//! If an operator fails or is not registered, or a base cannot be read, all versions are kept, and readers
//! get the error.
//!
//! A base in a blob file stays there below its operands until these have a fraction of its size. Then the
//! value moves into the table, because it would be read again and again.
//!
//! A version that a history rule keeps (compaction_judge.7) is not folded into a newer one. The oldest
//! version that the rule keeps absorbs its base, so that it can be read by itself.

use super::judge::{Judge, Verdict};
use crate::blob::BlobPointer;
use crate::read::fold::{Base, FoldContext, Operands};
use crate::types::entry::EntryRef;
use crate::types::expiry::value_of;
use crate::types::op::Kind;
use crate::types::{Result, SeqNo, Value};

/// Operands are folded with a base in a blob file that is at most this many times as large.
const BLOB_FACTOR: u64 = 4;
/// Longer operand lists are not joined.
const LIST_BYTES_MAX: usize = 1 << 30;

/// Takes the judge's verdicts in order, and passes on the versions to write.
pub(super) struct Gather<'a> {
    fold_context: FoldContext<'a>,
    /// Whether a source below may hold an expiring version of an encoded key (fold.4).
    may_expire_below: &'a dyn Fn(&[u8]) -> bool,
    /// Whether the output holds one version per key, so that a failure is an error.
    is_strict: bool,
    key: Vec<u8>,
    pending: Option<Pending>,
}

/// The operands of one stripe.
struct Pending {
    /// Sequence number of the newest operand.
    seq: SeqNo,
    /// Sequence number of a resolved put in their place.
    put_seq: SeqNo,
    stripe_end: SeqNo,
    /// Whether the oldest operand is unresolved.
    is_unresolved: bool,
    operands: Operands,
}

/// A version that replaces operands and the versions below them.
struct Made {
    seq: SeqNo,
    /// Sequence number of the newest operand.
    source_seq: SeqNo,
    kind: Kind,
    value: Value,
}

impl<'a> Gather<'a> {
    pub(super) fn new(fold_context: FoldContext<'a>, may_expire_below: &'a dyn Fn(&[u8]) -> bool) -> Self {
        Gather { fold_context, may_expire_below, is_strict: false, key: Vec::new(), pending: None }
    }

    /// Returns a gatherer for an output that holds one version per key.
    pub(super) fn strict(fold_context: FoldContext<'a>) -> Self {
        Gather { is_strict: true, ..Self::new(fold_context, &|_| true) }
    }

    /// Takes a version and its verdict. Passes each version to write, and its number in its source, to
    /// `write`. Returns how many versions were folded into others.
    #[inline(always)]
    pub(super) fn take(
        &mut self,
        entry: EntryRef<'_>,
        verdict: Verdict<'_>,
        judge: &Judge,
        write: &mut impl FnMut(EntryRef<'_>, SeqNo) -> Result<()>,
    ) -> Result<u64> {
        let kept = match verdict {
            Verdict::Drop => None,
            Verdict::Keep => Some(entry),
            Verdict::Replace(entry) => Some(entry),
            Verdict::Wait => unreachable!("an unresolved version is resolved or kept"),
        };
        match kept {
            Some(kept) if self.pending.is_none() && !kept.kind.is_operand() => {
                write(kept, entry.seq).map(|()| 0)
            }
            None if self.pending.is_none() => Ok(0),
            kept => self.take_with_operands(entry, kept, judge, write),
        }
    }

    #[cold]
    fn take_with_operands(
        &mut self,
        entry: EntryRef<'_>,
        kept: Option<EntryRef<'_>>,
        judge: &Judge,
        write: &mut impl FnMut(EntryRef<'_>, SeqNo) -> Result<()>,
    ) -> Result<u64> {
        if self.pending.is_some() && self.key != entry.key {
            self.finish(judge, write)?;
        }
        let stripe_end = judge.stripe_end(entry.seq);
        if let Some(pending) = self.pending.take() {
            let is_same_stripe = pending.stripe_end == stripe_end && !judge.is_apart();
            let made = match kept {
                // Nothing is left below.
                None => self.fold(&pending, None, false)?,
                Some(kept) if kept.kind.is_operand() => {
                    let len = pending.operands.byte_len() + kept.value.len();
                    if is_same_stripe && len <= LIST_BYTES_MAX {
                        let mut pending = pending;
                        pending.operands.push(Value::copy_of(kept.value));
                        pending.is_unresolved = kept.kind.is_unresolved();
                        self.pending = Some(pending);
                        return Ok(1);
                    }
                    None
                }
                Some(kept) if kept.kind.is_live() && is_same_stripe => {
                    let made = match self.pays(&pending, kept) {
                        true => self.fold(&pending, Some(kept), kept.kind.is_unresolved())?,
                        false => None,
                    };
                    if let Some(made) = made {
                        return self.write_made(made, write).map(|()| 1);
                    }
                    None
                }
                Some(kept) if kept.kind.is_live() => None,
                Some(kept) => {
                    let made = self.fold(&pending, None, false)?;
                    // An unresolved version is kept for its count (compaction_judge.6), and a version of an
                    // older stripe for its readers.
                    match made {
                        Some(made) if is_same_stripe && !kept.kind.is_unresolved() => {
                            return self.write_made(made, write).map(|()| 1);
                        }
                        made => made,
                    }
                }
            };
            match made {
                Some(made) => self.write_made(made, write)?,
                None => self.write_operands(pending, true, write)?,
            }
        }
        match kept {
            Some(kept) if kept.kind.is_operand() => {
                self.key.clear();
                self.key.extend_from_slice(kept.key);
                let mut operands = Operands::default();
                operands.push(Value::copy_of(kept.value));
                let (seq, is_unresolved) = (kept.seq, kept.kind.is_unresolved());
                let put_seq = judge.seq_of_put(seq);
                self.pending = Some(Pending { seq, put_seq, stripe_end, is_unresolved, operands });
            }
            Some(kept) => write(kept, entry.seq)?,
            None => {}
        }
        Ok(0)
    }

    /// Writes the pending operands, after the last version of the current key or of the input.
    pub(super) fn finish(
        &mut self,
        judge: &Judge,
        write: &mut impl FnMut(EntryRef<'_>, SeqNo) -> Result<()>,
    ) -> Result<()> {
        let Some(pending) = self.pending.take() else { return Ok(()) };
        let made = if judge.is_bottommost() { self.fold(&pending, None, false)? } else { None };
        match made {
            Some(made) => self.write_made(made, write),
            None => {
                let may_expire_below = (self.may_expire_below)(&self.key);
                self.write_operands(pending, may_expire_below, write)
            }
        }
    }

    /// Returns whether to fold operands into a value.
    fn pays(&self, pending: &Pending, base: EntryRef<'_>) -> bool {
        // Versions of one commit cannot be kept beside each other.
        if self.is_strict || base.seq == pending.seq {
            return true;
        }
        if !base.kind.needs_fetch() {
            return true;
        }
        let pointer = BlobPointer::decode(value_of(base.kind, base.value));
        let len = pointer.map_or(u64::MAX, |pointer| u64::from(pointer.len));
        pending.operands.byte_len() as u64 * BLOB_FACTOR >= len
    }

    /// Returns the put that the operands make; `None` if they have to stay.
    fn fold(
        &self,
        pending: &Pending,
        base: Option<EntryRef<'_>>,
        is_unresolved: bool,
    ) -> Result<Option<Made>> {
        let is_unresolved = is_unresolved || pending.is_unresolved;
        let base = base.map(|base| Base::of(base.kind, base.value));
        match pending.operands.fold(&self.key, base, self.fold_context) {
            Ok((value, expiry)) => {
                let kind = if expiry.is_some() { Kind::PUT.expiring() } else { Kind::PUT };
                let kind = if is_unresolved { kind.unresolved() } else { kind };
                let value = match expiry {
                    Some(expiry) => [&expiry.to_bytes(), &*value].concat().into(),
                    None => value,
                };
                let seq = if is_unresolved { pending.seq } else { pending.put_seq };
                Ok(Some(Made { seq, source_seq: pending.seq, kind, value }))
            }
            Err(error) if self.is_strict => Err(error),
            Err(_) => Ok(None),
        }
    }

    fn write_made(
        &self,
        made: Made,
        write: &mut impl FnMut(EntryRef<'_>, SeqNo) -> Result<()>,
    ) -> Result<()> {
        write(
            EntryRef { key: &self.key, seq: made.seq, kind: made.kind, value: &made.value },
            made.source_seq,
        )
    }

    fn write_operands(
        &self,
        pending: Pending,
        may_expire_below: bool,
        write: &mut impl FnMut(EntryRef<'_>, SeqNo) -> Result<()>,
    ) -> Result<()> {
        let list = pending.operands.joined(&self.key, self.fold_context.operators, may_expire_below);
        let kind = if pending.is_unresolved { Kind::MERGE.unresolved() } else { Kind::MERGE };
        write(EntryRef { key: &self.key, seq: pending.seq, kind, value: &list }, pending.seq)
    }
}
