//! What compactions keep, as tables; and a random test that no reader can distinguish the database before and
//! after a compaction.

use super::*;
use crate::types::KeyspaceId;
use crate::types::range_tombstone::RangeTombstone;

/// Versions as `k7` (put) and `k7-` (tombstone), followed by `?` if they are unresolved; range tombstones as
/// `a..m@7`; in any order. Unresolved counts are shown as `k!1` from the beginning, `k!1@7` from a number on.
#[derive(Clone, Default)]
struct Set {
    versions: Vec<(Vec<u8>, SeqNo, Kind, u64)>,
    tombstones: Vec<RangeTombstone>,
    overcounts: Overcounts,
}

impl Dropped for Vec<(Vec<u8>, Why)> {
    fn dropped(&mut self, entry: &EntryRef<'_>, why: Why) {
        self.push((entry.key.to_vec(), why));
    }
}

impl Set {
    fn parse(text: &str) -> Self {
        let mut set = Set::default();
        for word in text.split_whitespace() {
            if let Some((range, seq)) = word.split_once('@') {
                let (start, end) = range.split_once("..").unwrap();
                let seq = SeqNo::new(seq.parse().unwrap());
                set.tombstones.push(RangeTombstone { start: start.into(), end: end.into(), seq });
            } else {
                let (word, is_unresolved) = word.strip_suffix('?').map_or((word, false), |word| (word, true));
                let kind = if word.ends_with('-') { Kind::REMOVE } else { Kind::PUT };
                let kind = if is_unresolved { kind.unresolved() } else { kind };
                let seq = word[1..].trim_end_matches('-').parse().unwrap();
                set.versions.push((word[..1].into(), SeqNo::new(seq), kind, seq));
            }
        }
        set
    }

    fn show(&self) -> String {
        let version = |(key, seq, kind, _): &(Vec<u8>, SeqNo, Kind, u64)| {
            let dash = if kind.is_live() { "" } else { "-" };
            let mark = if kind.is_unresolved() { "?" } else { "" };
            format!("{}{seq}{dash}{mark}", key.escape_ascii())
        };
        let overcount = |(keyspace, from, keys): (KeyspaceId, SeqNo, u64)| {
            let from = if from == SeqNo::ZERO { String::new() } else { format!("@{from}") };
            format!("{}!{keys}{from}", (keyspace.get() as u8).escape_ascii())
        };
        let tombstone =
            |t: &RangeTombstone| format!("{}..{}@{}", t.start.escape_ascii(), t.end.escape_ascii(), t.seq);
        let words = self.versions.iter().map(version).chain(self.tombstones.iter().map(tombstone));
        words.chain(self.overcounts.iter().map(overcount)).collect::<Vec<_>>().join(" ")
    }

    fn merge(self, horizons: &[u64], bottommost: bool) -> Self {
        self.merge_under(horizons, bottommost, &[]).0
    }

    /// Compacts under rules of keyspaces, whose ids are the bytes of their keys; returns the floors, too.
    fn merge_under(mut self, horizons: &[u64], bottommost: bool, rules: &[(u8, Rule)]) -> (Self, Floors) {
        self.versions.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        let horizons = Horizons::new(horizons.iter().map(|&n| SeqNo::new(n)).collect());
        let rules = Rules::new(rules.iter().map(|(id, rule)| (KeyspaceId::new((*id).into()), *rule)));
        let tombstones = RangeTombstones::new(self.tombstones);
        let mut judge = Judge::new(horizons, tombstones, bottommost).with_rules(rules);
        let (mut out, mut dropped) = (Set::default(), Vec::new());
        let came = self.versions.len();
        fn entry(version: &(Vec<u8>, SeqNo, Kind, u64)) -> EntryRef<'_> {
            EntryRef { key: &version.0, seq: version.1, kind: version.2, value: b"" }
        }
        for (n, version) in self.versions.iter().enumerate() {
            let (this, key) = (entry(version), &version.0);
            let next = self.versions.get(n + 1).map(entry);
            let verdict = match judge.judge(this, &mut dropped) {
                Verdict::Wait => judge.resolve(this, next.as_ref(), &mut dropped),
                verdict => verdict,
            };
            match verdict {
                Verdict::Drop => {}
                Verdict::Replace(other) => {
                    out.versions.push((key.clone(), other.seq, other.kind, version.3));
                }
                Verdict::Keep => out.versions.push(version.clone()),
                Verdict::Wait => panic!("compaction_judge.6: it has waited"),
            }
        }
        out.overcounts = self.overcounts;
        out.overcounts.extend(judge.overcounts());
        out.tombstones = judge.surviving_tombstones().iter().collect();
        assert_eq!(out.versions.len() + dropped.len(), came, "the listener hears of each version that goes");
        (out, judge.floors().clone())
    }

    /// Returns the numbers of versions of a key and of range tombstones over it, newest first.
    fn items(parts: &[&Set], key: &[u8]) -> Vec<SeqNo> {
        let versions = parts.iter().flat_map(|s| &s.versions).filter(|v| v.0 == key).map(|v| v.1);
        let covers = |t: &&RangeTombstone| t.start.as_slice() <= key && key < t.end.as_slice();
        let covers = parts.iter().flat_map(|s| &s.tombstones).filter(covers).map(|t| t.seq);
        let mut items: Vec<_> = versions.chain(covers).collect();
        items.sort_unstable_by(|a, b| b.cmp(a));
        items.dedup();
        items
    }

    /// Returns the version that a reader at `at` finds.
    fn read(parts: &[&Set], key: &[u8], at: SeqNo) -> Option<u64> {
        let versions = parts.iter().flat_map(|s| &s.versions).filter(|v| v.0 == key && v.1 <= at);
        let newest = versions.max_by_key(|v| v.1)?;
        let covers = |t: &&RangeTombstone| t.start.as_slice() <= key && key < t.end.as_slice() && t.seq <= at;
        let cover = parts.iter().flat_map(|s| &s.tombstones).filter(covers).map(|t| t.seq).max();
        (newest.2.is_live() && cover.is_none_or(|t| t <= newest.1)).then_some(newest.3)
    }
}

impl Set {
    /// Returns the unresolved count of a key at `at`. The key is also the id of its keyspace.
    fn owed(parts: &[&Set], key: &[u8], at: SeqNo) -> u64 {
        let versions = parts.iter().flat_map(|s| &s.versions).filter(|v| v.0 == key && v.1 <= at);
        let unresolved = versions.filter(|v| v.2.is_unresolved());
        let above_live = unresolved.filter(|v| Set::read(parts, key, v.1.before().unwrap()).is_some());
        let settled: u64 = parts.iter().map(|s| s.overcounts.at(KeyspaceId::new(key[0].into()), at)).sum();
        settled + above_live.count() as u64
    }
}

fn kept(input: &str, horizons: &[u64], bottommost: bool) -> String {
    Set::parse(input).merge(horizons, bottommost).show()
}

#[test]
fn compaction_judge_1_the_newest_of_each_stripe_stays() {
    assert_eq!(kept("k3 k7 k8 k10 k11 k12 k13 k14", &[5, 9, 12], false), "k14 k13 k12 k8 k3");
    assert_eq!(kept("k3 k4- k5", &[9], false), "k5");
    assert_eq!(kept("j3 k3 l3", &[9], false), "j3 k3 l3");
}

#[test]
fn a_range_tombstone_takes_versions_of_its_own_stripe_only() {
    assert_eq!(kept("k3 k4 a..z@7", &[9], false), "a..z@7");
    assert_eq!(kept("k3 k6 a..z@7", &[5, 9], false), "k3 a..z@7");
    assert_eq!(kept("k8 a..z@7", &[9], false), "k8 a..z@7");
    assert_eq!(
        kept("k7 a..z@7", &[9], false),
        "k7 a..z@7",
        "a put of the same commit survives (range_tombstone.2)"
    );
    assert_eq!(kept("k3 a..z@7 a..z@4", &[2, 5, 9], false), "a..z@7 a..z@4");
    assert_eq!(kept("a3 k3 z3 b..k@7 k..z@6", &[9], false), "a3 z3 b..k@7 k..z@6");
}

#[test]
fn compaction_judge_3_a_tombstone_stays_while_a_lower_run_or_a_reader_needs_it() {
    assert_eq!(kept("k7-", &[9], false), "k7-", "an older version may live in a lower run");
    assert_eq!(kept("k7-", &[9], true), "");
    assert_eq!(
        kept("k3 k7-", &[5, 9], true),
        "k7- k0",
        "the reader at 9 must not see what the one at 5 sees"
    );
    assert_eq!(kept("a..z@7 a..z@8", &[9], false), "a..z@8");
    assert_eq!(kept("a..z@7", &[9], true), "");
    assert_eq!(kept("k3 a..z@7", &[5, 9], true), "k0 a..z@7");
}

#[test]
fn numbers_become_zero_only_below_every_reader_and_at_the_bottom() {
    assert_eq!(kept("k7", &[9], true), "k0");
    assert_eq!(kept("k7", &[9], false), "k7");
    assert_eq!(kept("k7", &[5, 9], true), "k7", "the reader at 5 must not see it");
    assert_eq!(kept("k3 k7 k11", &[5, 9], true), "k11 k7 k0");
    assert_eq!(kept("k7 a..z@6", &[9], true), "k0", "the tombstone below it goes with its number");
}

#[test]
fn what_is_not_visible_yet_stays() {
    assert_eq!(kept("k10 k11- k12 a..z@11 a..z@13", &[9], true), "k12 k11- k10 a..z@13 a..z@11");
    assert_eq!(kept("k1 k2 k3-", &[], true), "k3- k2 k1");
}

#[test]
fn compaction_judge_6_an_unresolved_version_goes_once_it_is_resolved() {
    assert_eq!(kept("k7?", &[9], false), "k7?", "what it stands on lies in a lower run");
    assert_eq!(kept("k7?", &[9], true), "k0", "there is nothing below");
    assert_eq!(kept("k3 k7?", &[9], false), "k7 k!1");
    assert_eq!(kept("k3- k7?", &[9], false), "k7");
    assert_eq!(kept("k3 k7?", &[5, 9], false), "k7 k3 k!1@9", "the reader at 5 owes nothing");
    assert_eq!(kept("k3 k7? a..z@5", &[9], false), "k7 a..z@5", "it was not live any more");
    assert_eq!(kept("k7? k8", &[9], false), "k8 k7-?", "its value goes, what it owes does not");
    assert_eq!(kept("k7? k8?", &[9], false), "k8 k7-? k!1");
    assert_eq!(kept("k7? a..z@8", &[9], false), "k7-? a..z@8");
    assert_eq!(kept("k3 k7? k8 a..z@9", &[9], true), "k!1");
    assert_eq!(kept("k10 k11?", &[9], false), "k11? k10", "it is not visible yet");
}

fn kept_under(rule: Rule, input: &str, horizons: &[u64], bottommost: bool) -> String {
    let (kept, floors) = Set::parse(input).merge_under(horizons, bottommost, &[(b'k', rule), (b'x', rule)]);
    format!("{} | {}", kept.show(), floors.of(KeyspaceId::new(b'k'.into())))
}

#[test]
fn compaction_judge_7_compaction_judge_8_a_rule_of_history_keeps_versions_with_their_numbers() {
    let from = |n| Rule::From(SeqNo::new(n));
    assert_eq!(kept_under(from(5), "j3 k3 k4 k7 k9", &[9], true), "j0 k9 k7 k4 | 4");
    assert_eq!(kept_under(from(5), "k3 k7- k9", &[9], true), "k9 k7- k3 | 0");
    assert_eq!(kept_under(from(8), "k3 k7- k9", &[9], true), "k9 | 7", "the removal is in no dump since 6");
    assert_eq!(kept_under(from(5), "k3 k7 k8", &[4, 9], true), "k8 k7 k3 | 0");
    assert_eq!(kept_under(from(99), "k3 k7 k11", &[9], true), "k11 k7 | 7", "no later than readers do");
    assert_eq!(kept_under(from(5), "k3 a..z@7", &[9], true), "k3 k..l@7 x..y@7 | 0");
    assert_eq!(kept_under(from(8), "k3 l3 a..z@7", &[9], true), " | 7");
    let versions = |n| Rule::Versions(n);
    assert_eq!(kept_under(versions(2), "j3 j4 k3 k4 k7", &[9], true), "j0 k7 k4 | 4");
    assert_eq!(kept_under(versions(1), "k3 k4 k7-", &[9], true), "k7- | 7");
    assert_eq!(kept_under(versions(2), "k3 k7", &[9], false), "k7 k3 | 0");
    assert_eq!(kept_under(versions(2), "k3 k4 a..z@7", &[9], true), "k4 k..l@7 x..y@7 | 4");
    assert_eq!(kept_under(versions(1), "k8 k..l@7 k..l@6", &[9], true), "k8 k..l@7 | 7");
    assert_eq!(kept_under(versions(1), "k3 k5 k7", &[4, 9], true), "k7 k3 | 7");
    assert_eq!(kept_under(versions(1), "k7? k8", &[9], false), "k8 k7-? | 8", "what it owes stays");
    assert_eq!(
        kept_under(versions(3), "k5 k7 k7 k8", &[9], false),
        "k8 k7 k5 | 0",
        "one commit, one version"
    );
    assert_eq!(kept_under(from(5), "k7 k7 k8", &[9], false), "k8 k7 | 0", "one commit, one version");
}

/// Returns the numbers of up to `readers` - 1 readers, and last the visible number.
fn random_horizons(rng: &mut fastrand::Rng, readers: usize) -> Vec<u64> {
    let visible = rng.u64(1..=20);
    (0..rng.usize(0..readers)).map(|_| rng.u64(0..=visible)).chain([visible]).collect()
}

/// Splits a random set: what lies in runs below a compaction, its input, and what lies above. Returns also
/// whether nothing lies below.
fn random_layers(rng: &mut fastrand::Rng) -> (bool, [Set; 3]) {
    let (all, bottommost) = (random_set(rng), rng.bool());
    let older = if bottommost { 0 } else { rng.u64(0..8) };
    let newer = rng.u64(older..=20);
    let part = |from: u64, to: u64| Set {
        overcounts: Overcounts::default(),
        versions: all.versions.iter().filter(|v| (from..to).contains(&v.1.get())).cloned().collect(),
        tombstones: all.tombstones.iter().filter(|t| (from..to).contains(&t.seq.get())).cloned().collect(),
    };
    (bottommost, [part(0, older + 1), part(older + 1, newer + 1), part(newer + 1, 99)])
}

#[test]
fn readers_above_the_floor_cannot_notice_a_compaction() {
    for seed in 0..3000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (bottommost, [below, input, above]) = random_layers(&mut rng);
        let horizons = random_horizons(&mut rng, 3);
        let (from, versions) = (SeqNo::new(rng.u64(0..=20)), rng.u32(1..4));
        let rules = [(1, Rule::From(from)), (3, Rule::Versions(versions)), (4, Rule::From(from))];
        let (merged, floors) = input.clone().merge_under(&horizons, bottommost, &rules);
        for (key, rule) in rules {
            let floor = floors.of(KeyspaceId::new(key.into()));
            let (before, after) = ([&below, &input, &above], [&below, &merged, &above]);
            for at in horizons.iter().copied().chain(floor.get()..=21).map(SeqNo::new) {
                let [read, again] = [before, after].map(|parts| Set::read(&parts, &[key], at));
                assert_eq!(read, again, "seed {seed} key {key} at {at}, {rule:?}, floor {floor}");
            }
            let [items, left] = [before, after].map(|parts| Set::items(&parts, &[key]));
            match rule {
                Rule::From(from) => {
                    assert!(floor <= from, "seed {seed}: {floor} {from}");
                    let is_kept = |item: &&SeqNo| **item > floor;
                    assert!(items.iter().filter(is_kept).eq(left.iter().filter(is_kept)), "seed {seed}");
                }
                Rule::Versions(kept) => {
                    let first = |items: &[SeqNo]| items[..items.len().min(kept as usize)].to_vec();
                    assert_eq!(first(&items), first(&left), "seed {seed} key {key}");
                }
            }
        }
    }
}

#[test]
fn no_reader_can_tell_a_merge_from_no_merge() {
    for seed in 0..3000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (bottommost, [below, input, above]) = random_layers(&mut rng);
        let horizons = random_horizons(&mut rng, 4);
        let visible = horizons[horizons.len() - 1];
        let merged = input.clone().merge(&horizons, bottommost);
        for at in horizons.iter().copied().chain(visible..=21) {
            for key in 0..6 {
                let at = SeqNo::new(at);
                let before = Set::read(&[&below, &input, &above], &[key], at);
                let after = Set::read(&[&below, &merged, &above], &[key], at);
                assert_eq!(before, after, "seed {seed} key {key} at {at} horizons {horizons:?}");
                let before = Set::owed(&[&below, &input, &above], &[key], at);
                let after = Set::owed(&[&below, &merged, &above], &[key], at);
                assert_eq!(
                    before, after,
                    "seed {seed} key {key} at {at} horizons {horizons:?}: what is owed"
                );
            }
        }
        let again = merged.clone().merge(&horizons, bottommost);
        assert_eq!(merged.show(), again.show(), "seed {seed}: nothing is left to collect");
    }
}

fn random_set(rng: &mut fastrand::Rng) -> Set {
    let mut set = Set::default();
    for seq in 1..=20 {
        let at = SeqNo::new(seq);
        if rng.u8(0..4) == 0 {
            let (start, end) = (vec![rng.u8(0..6)], vec![rng.u8(0..7)]);
            set.tombstones.push(RangeTombstone { start, end, seq: at });
        }
        for key in 0..6 {
            if rng.u8(0..3) == 0 {
                let kind = if rng.u8(0..3) == 0 { Kind::REMOVE } else { Kind::PUT };
                let kind = if rng.bool() { kind.unresolved() } else { kind };
                set.versions.push((vec![key], at, kind, seq));
            }
        }
    }
    set
}
