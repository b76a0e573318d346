//! The judge: which versions and tombstones a compaction drops, keeps, or keeps in another form.
//!
//! ```text
//!   horizons (what readers may read at)   5         9            visible = 12
//!   stripes                          ...--5] (5-----9] (9-----------12] 13 14 ...
//!   versions of one key                 3     7,8        10,11,12       13 14
//!   kept                                3       8              12       13 14
//! ```
//!
//! A stripe is the sequence numbers that nobody can tell apart: no reader stands between two of them. Above the
//! visible number each number is a stripe of its own, because a reader may come to stand on any of them.
//!
//! compaction_judge.1. Of the versions of a key in one stripe, the newest stays, and older ones only as far as the resolver asks for them.
//! compaction_judge.2. A version goes if a range tombstone of its own stripe covers it; a tombstone of a later stripe does not touch
//!      it, because a reader between them still sees it.
//! compaction_judge.3. A tombstone goes only where nothing older can lie under it (at the bottom) and every reader stands above it
//!      (not newer than the oldest horizon): elsewhere it would uncover what it hides.
//! compaction_judge.4. A sequence number becomes zero under the same two conditions, so no reader and no tombstone that is kept
//!      stands between zero and the true number.
//! compaction_judge.5. What is newer than the newest horizon stays as it is.
//! compaction_judge.6. An unresolved version goes only once it is resolved: by the next older version of its key, by a range tombstone over
//!      that, or by the bottom. Until then one that would go stays as a bare removal. If the older version was live, it owes one (manifest/debts.rs).

use crate::manifest::debts::Debts;
use crate::read::resolve::{Answer, Resolver};
use crate::types::SeqNo;
use crate::types::canary::{self, Canary};
use crate::types::entry::EntryRef;
use crate::types::key::decode_key;
use crate::types::op::Kind;
use crate::types::range_tombstone::{Fragment, RangeTombstones, Seqs};

/// The sequence numbers that readers may read at: the registered snapshots, the visible number, and from there on any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Horizons {
    ascending: Vec<SeqNo>,
}

impl Horizons {
    /// Of all registered snapshots and the visible number, in any order. None at all keeps every version.
    pub fn new(mut snapshots: Vec<SeqNo>) -> Self {
        snapshots.sort_unstable();
        snapshots.dedup();
        Horizons { ascending: snapshots }
    }

    /// No reader stands above it but those to come.
    fn newest(&self) -> SeqNo {
        self.ascending.last().copied().unwrap_or(SeqNo::ZERO)
    }

    /// No reader stands below it.
    #[inline]
    fn oldest(&self) -> SeqNo {
        self.ascending.first().copied().unwrap_or(SeqNo::ZERO)
    }

    /// The last number of the stripe that `seq` lies in.
    #[inline]
    pub(crate) fn stripe_end(&self, seq: SeqNo) -> SeqNo {
        if seq <= self.oldest() {
            return self.oldest();
        }
        let at = self.ascending.partition_point(|&horizon| horizon < seq);
        self.ascending.get(at).copied().unwrap_or(seq)
    }
}

/// What becomes of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// It goes.
    Drop,
    /// It stays as it is.
    Keep,
    /// This stays in its place.
    Replace(EntryRef<'a>),
    /// It is unresolved: ask again ([`Judge::resolve`]) with the next version.
    Wait,
}

/// Why a version goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A newer version of the same stripe answers for it (compaction_judge.1).
    Outdated,
    /// A range tombstone hides it (compaction_judge.2).
    Covered,
    /// It is a removal with nothing left to remove (compaction_judge.3).
    Spent,
}

/// Hears of every version that goes.
pub trait Dropped {
    /// This one goes.
    fn dropped(&mut self, entry: &EntryRef<'_>, why: Why);
}

/// Judges versions as they come by in order: key ascending, sequence number descending.
#[derive(Debug)]
pub struct Judge {
    horizons: Horizons,
    /// In key order.
    fragments: Vec<Fragment>,
    bottommost: bool,
    /// The first fragment that may cover the key at hand or a later one.
    fragment: usize,
    /// The key of the version judged last.
    key: Vec<u8>,
    /// Its stripe's end; none before the first version.
    stripe_end: Option<SeqNo>,
    /// Resolves the versions of that key in that stripe.
    resolver: Resolver,
    /// Whether it has its answer.
    is_answered: bool,
    /// What was found to be owed.
    debts: Debts,
}

impl Judge {
    /// A judge for versions and range tombstones of one compaction. `bottommost`: no run below the inputs holds a key of
    /// their range.
    pub fn new(horizons: Horizons, tombstones: RangeTombstones, bottommost: bool) -> Self {
        let fragments = tombstones.fragments().cloned().collect();
        Judge {
            horizons,
            fragments,
            bottommost,
            fragment: 0,
            key: Vec::new(),
            stripe_end: None,
            resolver: Resolver::default(),
            is_answered: false,
            debts: Debts::default(),
        }
    }

    /// Whether nothing lies below the inputs.
    pub(super) fn is_bottommost(&self) -> bool {
        self.bottommost
    }

    /// The last number of the stripe that `seq` lies in.
    pub(super) fn stripe_end(&self, seq: SeqNo) -> SeqNo {
        self.horizons.stripe_end(seq)
    }

    /// The number for a put that stands in place of a version of this number (compaction_judge.4).
    pub(super) fn seq_of_put(&self, seq: SeqNo, is_unresolved: bool) -> SeqNo {
        if self.settled(seq) && !is_unresolved { SeqNo::ZERO } else { seq }
    }

    /// What was found to be owed (compaction_judge.6).
    pub fn debts(&self) -> &Debts {
        &self.debts
    }

    /// What becomes of an unresolved version, before which all were judged, and behind which `next` comes.
    pub fn resolve<'e>(
        &mut self,
        entry: EntryRef<'e>,
        next: Option<&EntryRef<'_>>,
        listener: &mut impl Dropped,
    ) -> Verdict<'e> {
        let fate = self.fate(&entry);
        let cover = entry.seq.before().map_or(SeqNo::ZERO, |before| self.cover(before));
        let was_live = match next.filter(|next| next.key == entry.key) {
            _ if entry.seq > self.horizons.newest() => None,
            Some(next) => Some(next.kind.is_live() && next.seq >= cover),
            None if self.bottommost || cover > SeqNo::ZERO => Some(false),
            None => None,
        };
        let Some(was_live) = was_live else {
            let bare = EntryRef { kind: Kind::UnresolvedRemove, value: &[], ..entry };
            let is_forgotten = canary::is_set(Canary::UnresolvedForgotten);
            return match fate {
                Ok(_) => Verdict::Keep,
                Err(_) if !is_forgotten => Verdict::Replace(bare),
                Err(why) => {
                    listener.dropped(&entry, why);
                    Verdict::Drop
                }
            };
        };
        if was_live && let Some((keyspace, _)) = decode_key(entry.key) {
            let is_old = entry.seq <= self.horizons.oldest();
            let from = if is_old { SeqNo::ZERO } else { self.horizons.stripe_end(entry.seq) };
            self.debts.add(keyspace, from, 1);
        }
        match fate {
            Ok(seq) => Verdict::Replace(EntryRef { seq, kind: entry.kind.resolved(), ..entry }),
            Err(why) => {
                listener.dropped(&entry, why);
                Verdict::Drop
            }
        }
    }

    /// What becomes of the next version. `listener` hears of it if it goes.
    #[inline(always)]
    pub fn judge<'e>(&mut self, entry: EntryRef<'e>, listener: &mut impl Dropped) -> Verdict<'e> {
        if entry.kind.is_unresolved() {
            return Verdict::Wait;
        }
        match self.fate(&entry) {
            Err(why) => {
                listener.dropped(&entry, why);
                Verdict::Drop
            }
            Ok(seq) if seq == entry.seq => Verdict::Keep,
            Ok(seq) => Verdict::Replace(EntryRef { seq, ..entry }),
        }
    }

    /// The sequence number to keep a version under, or why it goes.
    #[inline(always)]
    fn fate(&mut self, entry: &EntryRef<'_>) -> Result<SeqNo, Why> {
        let stripe_end = self.horizons.stripe_end(entry.seq);
        let is_same_key = self.stripe_end.is_some() && self.key == entry.key;
        if !is_same_key {
            self.key.clear();
            self.key.extend_from_slice(entry.key);
        }
        if !is_same_key || self.stripe_end != Some(stripe_end) {
            self.stripe_end = Some(stripe_end);
            self.resolver = Resolver::default();
            self.is_answered = false;
            if !self.fragments.is_empty() {
                let cover = self.cover(stripe_end);
                self.resolver.cover(cover);
            }
        } else if self.is_answered {
            return Err(Why::Outdated);
        }
        if self.resolver.hides(entry.seq) {
            self.is_answered = true;
            return Err(Why::Covered);
        }
        let answer = self.resolver.feed(entry.seq, entry.kind);
        self.is_answered = matches!(answer, Answer::Live | Answer::Gone);
        if !self.settled(entry.seq) {
            let is_dropped = answer == Answer::Gone && canary::is_set(Canary::TombstoneDroppedEarly);
            return if is_dropped { Err(Why::Spent) } else { Ok(entry.seq) };
        }
        match answer {
            Answer::Gone => Err(Why::Spent), // compaction_judge.3
            Answer::Live => Ok(SeqNo::ZERO), // compaction_judge.4
            Answer::Operand | Answer::Older => Ok(entry.seq),
        }
    }

    /// The range tombstones to keep (compaction_judge.1, compaction_judge.3).
    pub fn surviving_tombstones(&self) -> RangeTombstones {
        let mut kept: Vec<Fragment> = Vec::new();
        if canary::is_set(Canary::RangeTombstoneForgotten) {
            return RangeTombstones::default();
        }
        for fragment in &self.fragments {
            let mut last_end = None;
            let mut seqs: Vec<_> = fragment.seqs.iter().collect();
            seqs.retain(|&seq| {
                let stripe_end = self.horizons.stripe_end(seq);
                last_end.replace(stripe_end) != Some(stripe_end) && !self.settled(seq)
            });
            if seqs.is_empty() {
                continue;
            }
            let seqs = Seqs::from_falling(&seqs);
            match kept.last_mut() {
                Some(last) if last.end == fragment.start && last.seqs == seqs => {
                    last.end = fragment.end.clone();
                }
                _ => kept.push(Fragment { seqs, ..fragment.clone() }),
            }
        }
        RangeTombstones::from_sorted(kept)
    }

    /// Nothing older lies below it and no reader stands below it.
    #[inline]
    fn settled(&self, seq: SeqNo) -> bool {
        self.bottommost && seq <= self.horizons.oldest()
    }

    /// The newest range tombstone over the key at hand, up to `at`. Keys come in order, so the fragments before it are
    /// passed once.
    fn cover(&mut self, at: SeqNo) -> SeqNo {
        let fragments = &self.fragments;
        while fragments.get(self.fragment).is_some_and(|f| *f.end <= *self.key) {
            self.fragment += 1;
        }
        match fragments.get(self.fragment) {
            Some(fragment) if *fragment.start <= *self.key => fragment.newest_at(at),
            _ => SeqNo::ZERO,
        }
    }
}

#[cfg(test)]
mod tests;
