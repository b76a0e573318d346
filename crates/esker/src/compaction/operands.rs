//! Operands in a compaction: what the judge keeps of them becomes one version a stripe, a put where the search for older versions ends.
//!
//! ```text
//!   judge's verdicts on one key, one stripe, newest first:
//!     operands 9, operands 8            --> operands 9, of both
//!     operands 9, operands 8, put 5     --> put 9
//!     operands 9, removal 5             --> put 9
//!     operands 9, and nothing below     --> put 9           (at the bottom, or 9's base has just been dropped)
//! ```
//!
//! compaction_operands.1. Operands are merged with what lies below them in their own stripe alone: readers between two stripes see the older one
//!      without them.
//! compaction_operands.2. Where an operator fails or is not registered, or a base cannot be read, all versions stay, and readers are told.
//! compaction_operands.3. A base in a blob file stays there, below its operands, until these have a part of its size: then the value, which would
//!      be read again and again, moves into the table.
//!      What is made expires as fold.3 says, whatever the time of the compaction is.
//! compaction_operands.4. What is made has the number of its newest operand, and is unresolved if its oldest version is.
//! compaction_operands.5. A version that a rule of history keeps (compaction_judge.7) is not merged into a newer one. The oldest that it keeps
//!      takes up its base, so that it can be read by itself.

use super::judge::{Judge, Verdict};
use crate::blob::BlobPointer;
use crate::read::fold::{Base, FoldContext, Operands};
use crate::types::entry::EntryRef;
use crate::types::expiry::value_of;
use crate::types::op::Kind;
use crate::types::{Result, SeqNo, Value};

/// Operands move a base out of its blob file that is so many times as large (compaction_operands.3).
const BLOB_FACTOR: u64 = 4;
/// Lists that would be longer stay apart.
const LIST_BYTES_MAX: usize = 1 << 30;

/// Takes what the judge has said of versions, in their order, and gives what is to be written.
pub(super) struct Gather<'a> {
    fold_context: FoldContext<'a>,
    /// Whether a source below may hold a version of an encoded key that expires (fold.4).
    may_expire_below: &'a dyn Fn(&[u8]) -> bool,
    /// Versions cannot stay beside each other: a failure is an error.
    is_strict: bool,
    key: Vec<u8>,
    pending: Option<Pending>,
}

/// The operands of a stripe.
struct Pending {
    /// Of the newest.
    seq: SeqNo,
    /// The number of a put in their place that is resolved.
    put_seq: SeqNo,
    stripe_end: SeqNo,
    /// Of the oldest.
    is_unresolved: bool,
    operands: Operands,
}

/// A version in the place of operands and of what was below them.
struct Made {
    seq: SeqNo,
    /// Of the newest operand.
    source_seq: SeqNo,
    kind: Kind,
    value: Value,
}

impl<'a> Gather<'a> {
    pub(super) fn new(fold_context: FoldContext<'a>, may_expire_below: &'a dyn Fn(&[u8]) -> bool) -> Self {
        Gather { fold_context, may_expire_below, is_strict: false, key: Vec::new(), pending: None }
    }

    /// The same for an output that holds one version of a key.
    pub(super) fn strict(fold_context: FoldContext<'a>) -> Self {
        Gather { is_strict: true, ..Self::new(fold_context, &|_| true) }
    }

    /// Takes a version and its fate; `write` gets what is to be written, and the number that its source has
    /// for it. How many versions have gone into others.
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
                // Nothing is left of what was below.
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
                    // One that is unresolved stays for its debt (compaction_judge.6), and one of an older stripe for its readers.
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

    /// The versions of the key at hand, or all, have come.
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

    /// Whether to merge operands into a value (compaction_operands.3).
    fn pays(&self, pending: &Pending, base: EntryRef<'_>) -> bool {
        // Of one commit: they cannot stay beside each other.
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

    /// The put that operands make; none: they have to stay.
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
