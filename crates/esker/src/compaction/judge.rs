//! The judge: decides which versions and tombstones a compaction drops, keeps or replaces.
//!
//! ```text
//!   horizons (what readers may read at)   5         9            visible = 12
//!   stripes                          ...--5] (5-----9] (9-----------12] 13 14 ...
//!   versions of one key                 3     7,8        10,11,12       13 14
//!   kept                                3       8              12       13 14
//! ```
//!
//! A stripe is a range of sequence numbers that no reader can distinguish: no reader stands between two of
//! them. Above the visible number each number is a stripe of its own, because a future reader may stand on
//! any of them.
//!
//! compaction_judge.1. Of the versions of a key in one stripe the newest is kept. Older ones are kept only as
//!     far as the resolver asks for them.
//! - A range tombstone drops the versions of its own stripe that it covers. It does not drop versions of an
//!   earlier stripe, because a reader between them still sees those.
//!
//! compaction_judge.3. A tombstone is dropped only at the bottom, where nothing older can lie below it, and
//!     if it is not newer than the oldest horizon. Otherwise the data that it hides would reappear.
//! - A sequence number becomes zero under the same two conditions. So no reader and no kept tombstone stands
//!   between zero and the original number.
//! - Versions newer than the newest horizon stay unchanged.
//!
//! compaction_judge.6. An unresolved version is dropped only after it is resolved: by the next older version
//!     of its key, by a range tombstone over that, or by the bottom. Until then a version that would be
//!     dropped becomes an unresolved tombstone without a value. If the older version was live, the unresolved
//!     count increases by one (manifest/overcounts.rs).
//! compaction_judge.7. In a keyspace with a history rule (rules.rs) no version loses its number. Under
//!     `From(n)` readers may stand at any number from `n` on. Under `Versions(n)` the newest `n` versions are
//!     kept, range tombstones included.
//! - Each version dropped from such a keyspace raises the keyspace's floor above all numbers at which a
//!   reader would miss it (manifest/history.rs).
//! - If a rule keeps operands, the versions below them are kept down to their base. Those that the rule
//!   itself does not keep may be folded into the operands (operands.rs).
//! - The tombstone of a sweep above a version of its own stripe becomes a plain tombstone.
//!   That version may be a write that a transaction has not seen and conflicts with (conflict.3).

pub use super::horizons::Horizons;
use super::rules::{Rule, Rules};
use crate::manifest::history::Floors;
use crate::manifest::overcounts::Overcounts;
use crate::read::resolve::{Answer, Resolver};
use crate::types::SeqNo;
use crate::types::canary::{self, Canary};
use crate::types::entry::EntryRef;
use crate::types::key::decode_key;
use crate::types::op::Kind;
use crate::types::range_tombstone::{Fragment, RangeTombstones, Seqs, SharedKey};

/// The fate of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// It is dropped.
    Drop,
    /// It is kept unchanged.
    Keep,
    /// This version is written in its place.
    Replace(EntryRef<'a>),
    /// It is unresolved or a sweep's tombstone: call [`Judge::resolve`] with the next version.
    Wait,
}

/// Why a version is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A newer version of the same stripe replaces it (compaction_judge.1).
    Outdated,
    /// A range tombstone hides it.
    Covered,
    /// It is a tombstone that hides nothing any more (compaction_judge.3).
    Spent,
}

/// Receives every version that is dropped.
pub trait Dropped {
    /// Called for each dropped version.
    fn dropped(&mut self, entry: &EntryRef<'_>, why: Why);
}

/// Position among the history rules, which come in key order like versions (compaction_judge.7).
#[derive(Debug, Default)]
struct AtRule {
    /// Index of the first rule whose keyspace may contain the current key.
    next: usize,
    /// Whether that keyspace contains it.
    is_in: bool,
    /// Number of commits after this version that wrote the current key. Commits that only removed a range do
    /// not count.
    versions: u32,
    /// Number of those commits that also removed a range over it.
    twice: u32,
    /// Sequence number of the previous version.
    newer: SeqNo,
    /// Sequence number and stripe of the previous version, if it is a kept operand.
    operand: Option<(SeqNo, SeqNo)>,
    /// Whether the rule keeps the current version by count.
    is_apart: bool,
}

/// Judges versions as they come by in order: key ascending, sequence number descending.
#[derive(Debug)]
pub struct Judge {
    /// Horizons of all readers.
    all: Horizons,
    /// Horizons for the current keyspace.
    horizons: Horizons,
    rules: Rules,
    at_rule: AtRule,
    floors: Floors,
    /// In key order.
    fragments: Vec<Fragment>,
    bottommost: bool,
    /// Index of the first fragment that may cover the current key or a later one.
    fragment: usize,
    /// Key of the last judged version.
    key: Vec<u8>,
    /// End of its stripe; `None` before the first version.
    stripe_end: Option<SeqNo>,
    /// Resolves the versions of that key in that stripe.
    resolver: Resolver,
    /// Whether the resolver has its answer.
    is_answered: bool,
    /// The unresolved counts found.
    overcounts: Overcounts,
}

impl Judge {
    /// Returns a judge for the versions and range tombstones of one compaction. `bottommost` states that no
    /// run below the inputs holds a key of their range.
    pub fn new(horizons: Horizons, tombstones: RangeTombstones, bottommost: bool) -> Self {
        let fragments = tombstones.fragments().cloned().collect();
        Judge {
            all: horizons.clone(),
            horizons,
            rules: Rules::default(),
            at_rule: AtRule::default(),
            floors: Floors::default(),
            fragments,
            bottommost,
            fragment: 0,
            key: Vec::new(),
            stripe_end: None,
            resolver: Resolver::default(),
            is_answered: false,
            overcounts: Overcounts::default(),
        }
    }

    /// Returns whether nothing lies below the inputs.
    pub(super) fn is_bottommost(&self) -> bool {
        self.bottommost
    }

    /// Returns the last number of the stripe that contains `seq`.
    pub(super) fn stripe_end(&self, seq: SeqNo) -> SeqNo {
        self.horizons.stripe_end(seq)
    }

    /// Returns the sequence number for a resolved put that replaces the last judged version `seq`.
    pub(super) fn seq_of_put(&self, seq: SeqNo) -> SeqNo {
        if self.settled(seq) && !self.at_rule.is_in { SeqNo::ZERO } else { seq }
    }

    /// Returns whether a rule keeps the last judged version as a version of its own.
    #[inline(always)]
    pub(super) fn is_apart(&self) -> bool {
        self.at_rule.is_apart
    }

    /// Applies history rules (compaction_judge.7).
    pub(crate) fn with_rules(mut self, rules: Rules) -> Self {
        let borders = rules.all().iter().flat_map(|ruled| [&ruled.keys.start, &ruled.keys.end]);
        for border in borders {
            self.fragments = split_at(std::mem::take(&mut self.fragments), border);
        }
        self.rules = rules;
        self
    }

    /// Returns the numbers from which on histories are complete, for keyspaces that lost versions.
    pub fn floors(&self) -> &Floors {
        &self.floors
    }

    /// Returns the unresolved counts found (compaction_judge.6).
    pub fn overcounts(&self) -> &Overcounts {
        &self.overcounts
    }

    /// Decides about a version for which `judge` returned `Wait`; `next` is the version after it, if there is
    /// one.
    pub fn resolve<'e>(
        &mut self,
        entry: EntryRef<'e>,
        next: Option<&EntryRef<'_>>,
        listener: &mut impl Dropped,
    ) -> Verdict<'e> {
        let fate = self.fate(&entry);
        let kind = self.kind_above(&entry, next);
        if !entry.kind.is_unresolved() {
            return match fate {
                Ok(seq) => Verdict::Replace(EntryRef { seq, kind, ..entry }),
                Err(why) => {
                    listener.dropped(&entry, why);
                    Verdict::Drop
                }
            };
        }
        let cover = entry.seq.before().map_or(SeqNo::ZERO, |before| self.cover(before));
        let was_live = match next.filter(|next| next.key == entry.key) {
            _ if entry.seq > self.all.newest() => None,
            Some(next) => Some(next.kind.is_live() && next.seq >= cover),
            None if self.bottommost || cover > SeqNo::ZERO => Some(false),
            None => None,
        };
        let Some(was_live) = was_live else {
            let bare = EntryRef { kind: Kind::REMOVE.unresolved(), value: &[], ..entry };
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
            let is_old = entry.seq <= self.all.oldest();
            let from = if is_old { SeqNo::ZERO } else { self.all.stripe_end(entry.seq) };
            self.overcounts.add(keyspace, from, 1);
        }
        match fate {
            Ok(seq) => Verdict::Replace(EntryRef { seq, kind, ..entry }),
            Err(why) => {
                listener.dropped(&entry, why);
                Verdict::Drop
            }
        }
    }

    /// Returns the resolved kind of a version above the next one.
    fn kind_above(&self, entry: &EntryRef<'_>, next: Option<&EntryRef<'_>>) -> Kind {
        let is_above = |next: &EntryRef<'_>| {
            next.key == entry.key && self.horizons.stripe_end(next.seq) == self.horizons.stripe_end(entry.seq)
        };
        match entry.kind.is_sweep() && next.is_some_and(is_above) {
            true => Kind::REMOVE,
            false => entry.kind.resolved(),
        }
    }

    /// Decides about the next version. `listener` receives it if it is dropped.
    #[inline(always)]
    pub fn judge<'e>(&mut self, entry: EntryRef<'e>, listener: &mut impl Dropped) -> Verdict<'e> {
        if entry.kind.is_unresolved() || entry.kind.is_sweep() {
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

    /// Returns the sequence number under which a version is kept, or why it is dropped.
    #[inline(always)]
    fn fate(&mut self, entry: &EntryRef<'_>) -> Result<SeqNo, Why> {
        if self.rules.all().is_empty() { self.fate_for_readers(entry) } else { self.fate_by_rule(entry) }
    }

    /// Returns the fate under the rule of the version's keyspace (compaction_judge.7).
    fn fate_by_rule(&mut self, entry: &EntryRef<'_>) -> Result<SeqNo, Why> {
        if self.stripe_end.is_none() || self.key != entry.key {
            self.enter(entry.key);
            let (next, is_in) = (self.at_rule.next, self.at_rule.is_in);
            self.at_rule = AtRule { next, is_in, ..AtRule::default() };
        }
        let fate = self.fate_for_readers(entry);
        self.at_rule.is_apart = false;
        if !self.at_rule.is_in {
            return fate;
        }
        let operand = self.at_rule.operand;
        let is_base = operand.is_some_and(|(seq, _)| self.cover(seq) <= entry.seq);
        let fate = self.fate_in_history(entry, fate, is_base);
        let stripe_end = self.horizons.stripe_end(entry.seq);
        self.at_rule.operand = (fate.is_ok() && entry.kind.is_operand()).then_some((entry.seq, stripe_end));
        if let Some((newer, end)) = operand
            && fate.is_ok()
            && end == stripe_end
            && newer > entry.seq
            && !self.at_rule.is_apart
        {
            // It may be folded into the newer version.
            self.floors.raise(self.rules.all()[self.at_rule.next].id, newer);
        }
        fate
    }

    /// Returns the fate in a keyspace with a rule. `is_base`: the newer version is a kept operand, and no
    /// tombstone hides this version from its readers.
    fn fate_in_history(
        &mut self,
        entry: &EntryRef<'_>,
        fate: Result<SeqNo, Why>,
        is_base: bool,
    ) -> Result<SeqNo, Why> {
        let (id, rule) = (self.rules.all()[self.at_rule.next].id, self.rules.all()[self.at_rule.next].rule);
        let newer = std::mem::replace(&mut self.at_rule.newer, entry.seq);
        if newer > SeqNo::ZERO && newer == entry.seq {
            // A large transaction wrote the key again: no reader has ever seen this version.
            return if is_base { Ok(entry.seq) } else { fate.map(|_| entry.seq) };
        }
        let is_kept = match rule {
            Rule::From(_) => false,
            Rule::Versions(kept) => self.newer_commits(entry.seq) < kept,
        };
        self.at_rule.is_apart = is_kept && !canary::is_set(Canary::HistoryForgotten);
        match fate {
            Ok(_) => Ok(entry.seq),
            Err(_) if self.at_rule.is_apart => Ok(entry.seq),
            Err(Why::Outdated | Why::Covered) if is_base => Ok(entry.seq),
            Err(why) => {
                let missed_below = match why {
                    Why::Outdated => newer,
                    Why::Covered => self.cover(self.horizons.stripe_end(entry.seq)),
                    Why::Spent => entry.seq,
                };
                self.floors.raise(id, missed_below);
                Err(why)
            }
        }
    }

    /// Finds the rule for a key. Keys come in ascending order.
    fn enter(&mut self, key: &[u8]) {
        let all = self.rules.all();
        let is_behind = |ruled: &super::rules::Ruled| ruled.keys.end.as_slice() <= key;
        if self.at_rule.is_in && !is_behind(&all[self.at_rule.next]) {
            return;
        }
        while all.get(self.at_rule.next).is_some_and(is_behind) {
            self.at_rule.next += 1;
        }
        let ruled = all.get(self.at_rule.next).filter(|ruled| ruled.keys.start.as_slice() <= key);
        self.at_rule.is_in = ruled.is_some();
        self.horizons = horizons_under(ruled.map(|ruled| ruled.rule), &self.all);
    }

    /// Returns how many commits after this version wrote the current key or removed a range over it, and
    /// counts this version.
    fn newer_commits(&mut self, seq: SeqNo) -> u32 {
        let fragment = self.fragments.get(self.fragment).filter(|f| *f.start <= *self.key);
        let covers = fragment.map_or(0, |f| f.seqs.iter().take_while(|cover| *cover > seq).count() as u32);
        let newer = (self.at_rule.versions + covers).saturating_sub(self.at_rule.twice);
        self.at_rule.versions = self.at_rule.versions.saturating_add(1);
        self.at_rule.twice += u32::from(fragment.is_some_and(|f| f.newest_at(seq) == seq));
        newer
    }

    /// Returns the sequence number under which readers need a version, or why it is dropped.
    #[inline(always)]
    fn fate_for_readers(&mut self, entry: &EntryRef<'_>) -> Result<SeqNo, Why> {
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
            Answer::Live => Ok(SeqNo::ZERO),
            Answer::Operand | Answer::Older => Ok(entry.seq),
        }
    }

    /// Returns the range tombstones to keep (compaction_judge.1, compaction_judge.3, compaction_judge.7).
    pub fn surviving_tombstones(&mut self) -> RangeTombstones {
        let mut kept: Vec<Fragment> = Vec::new();
        if canary::is_set(Canary::RangeTombstoneForgotten) {
            return RangeTombstones::default();
        }
        let (bottommost, rules, floors) = (self.bottommost, &self.rules, &mut self.floors);
        let mut horizons = self.all.clone();
        let mut at = None;
        for fragment in &self.fragments {
            let ruled = rules
                .all()
                .iter()
                .find(|r| *r.keys.start <= *fragment.start && *fragment.start < *r.keys.end);
            if at.map(|at: &super::rules::Ruled| at.id) != ruled.map(|ruled| ruled.id) {
                (at, horizons) = (ruled, horizons_under(ruled.map(|ruled| ruled.rule), &self.all));
            }
            let versions = match ruled.map(|ruled| ruled.rule) {
                Some(Rule::Versions(kept)) if !canary::is_set(Canary::HistoryForgotten) => kept,
                _ => 0,
            };
            let (mut last_end, mut newer, mut place) = (None, SeqNo::ZERO, 0);
            let mut seqs: Vec<_> = fragment.seqs.iter().collect();
            seqs.retain(|&seq| {
                let stripe_end = horizons.stripe_end(seq);
                let is_outdated = last_end.replace(stripe_end) == Some(stripe_end);
                let is_settled = bottommost && seq <= horizons.oldest();
                place += 1;
                let stays = !is_outdated && !is_settled || place <= versions;
                if let Some(ruled) = ruled.filter(|_| !stays) {
                    floors.raise(ruled.id, if is_outdated { newer } else { seq });
                }
                newer = seq;
                stays
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

    /// Returns whether nothing older lies below and no reader stands below `seq`.
    #[inline]
    fn settled(&self, seq: SeqNo) -> bool {
        self.bottommost && seq <= self.horizons.oldest()
    }

    /// Returns the newest range tombstone over the current key, up to `at`. Keys come in order, so each
    /// fragment is skipped once.
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

/// Returns the horizons for a keyspace with this rule.
fn horizons_under(rule: Option<Rule>, all: &Horizons) -> Horizons {
    match rule {
        Some(Rule::From(from)) if !canary::is_set(Canary::HistoryForgotten) => all.with_all_from(from),
        _ => all.clone(),
    }
}

/// Splits the fragments so that none crosses the border.
fn split_at(fragments: Vec<Fragment>, border: &[u8]) -> Vec<Fragment> {
    let Some(over) = fragments.iter().position(|f| *f.start < *border && *border < *f.end) else {
        return fragments;
    };
    let mut out = fragments;
    let border = SharedKey::from(border);
    let behind = Fragment { start: border.clone(), ..out[over].clone() };
    out[over].end = border;
    out.insert(over + 1, behind);
    out
}

#[cfg(test)]
mod tests;
