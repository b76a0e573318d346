//! Tests of merging in-memory sources against a map, with sources that fail occasionally.

use std::collections::BTreeMap;

use super::*;
use crate::types::Error;

/// An in-memory source of distinct keys.
pub(crate) struct VecCursor {
    entries: Vec<(Vec<u8>, SeqNo, Kind)>,
    at: Option<usize>,
    /// Decides which moves fail.
    faults: Option<fastrand::Rng>,
}

impl VecCursor {
    pub(crate) fn new(entries: Vec<(Vec<u8>, SeqNo, Kind)>) -> Self {
        VecCursor { entries, at: None, faults: None }
    }
    /// Like `new`, but some moves fail.
    pub(crate) fn failing(self, seed: u64) -> Self {
        VecCursor { faults: Some(fastrand::Rng::with_seed(seed)), ..self }
    }
    fn go(&mut self, at: Option<usize>) -> Result<()> {
        self.at = None;
        if self.faults.as_mut().is_some_and(|rng| rng.u8(0..10) == 0) {
            return Err(Error::corrupt("entry", "a test", 0, "on purpose"));
        }
        self.at = at.filter(|&i| i < self.entries.len());
        Ok(())
    }
    fn here(&self) -> &(Vec<u8>, SeqNo, Kind) {
        &self.entries[self.at.expect("a valid cursor")]
    }
}

impl SourceCursor for VecCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.go(Some(self.entries.partition_point(|e| e.0.as_slice() < key)))
    }
    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.go(self.entries.partition_point(|e| e.0.as_slice() < key).checked_sub(1))
    }
    fn seek_first(&mut self) -> Result<()> {
        self.go(Some(0))
    }
    fn seek_last(&mut self) -> Result<()> {
        self.go(self.entries.len().checked_sub(1))
    }
    fn next(&mut self) -> Result<()> {
        self.go(self.at.map(|i| i + 1))
    }
    fn prev(&mut self) -> Result<()> {
        self.go(self.at.and_then(|i| i.checked_sub(1)))
    }
    fn valid(&self) -> bool {
        self.at.is_some()
    }
    fn key(&self) -> &[u8] {
        &self.here().0
    }
    fn seq(&self) -> SeqNo {
        self.here().1
    }
    fn kind(&self) -> Kind {
        self.here().2
    }
    fn stored(&self) -> Stored<&[u8]> {
        Stored::Inline(&self.here().0)
    }
    fn expiry(&self) -> Option<Expiry> {
        None
    }
    fn share(&self) -> Stored<Value> {
        Stored::Inline(Value::copy_of(&self.here().0))
    }
    fn older(&mut self) -> Result<bool> {
        Ok(false)
    }
}

/// Returns sources from newest to oldest, and the expected result of a walk over them.
fn random_sources(rng: &mut fastrand::Rng) -> (Vec<VecCursor>, BTreeMap<Vec<u8>, SeqNo>) {
    let sources = rng.usize(0..4);
    let mut model: BTreeMap<Vec<u8>, SeqNo> = BTreeMap::new();
    let mut cursors = Vec::new();
    for source in 0..sources {
        let mut own = BTreeMap::new();
        for _ in 0..rng.usize(0..12) {
            let seq = SeqNo::new((10 - source as u64) * 10);
            own.insert(vec![rng.u8(0..20)], (seq, Kind::PUT));
        }
        for (key, (seq, _)) in &own {
            model.entry(key.clone()).or_insert(*seq);
        }
        cursors.push(VecCursor::new(own.into_iter().map(|(k, (s, kind))| (k, s, kind)).collect()));
    }
    (cursors, model)
}

#[test]
fn read_merge_1_read_merge_2_any_walk_agrees_with_a_map() {
    let mut rng = fastrand::Rng::with_seed(8);
    for round in 0..400 {
        let (cursors, model) = random_sources(&mut rng);
        let mut merged = MergeCursor::new(cursors);
        let keys: Vec<_> = model.iter().collect();
        let mut at: Option<usize> = None;
        for step in 0..60 {
            let key = [rng.u8(0..21)];
            let rank = keys.partition_point(|(k, _)| k.as_slice() < &key[..]);
            match rng.u8(0..8) {
                0 => (merged.seek(&key).unwrap(), at = Some(rank)).0,
                1 => (merged.seek_before(&key).unwrap(), at = rank.checked_sub(1)).0,
                2 => (merged.seek_first().unwrap(), at = Some(0)).0,
                3 => (merged.seek_last().unwrap(), at = keys.len().checked_sub(1)).0,
                4 | 5 if at.is_some() => (merged.next().unwrap(), at = at.map(|i| i + 1)).0,
                _ if at.is_some() => (merged.prev().unwrap(), at = at.and_then(|i| i.checked_sub(1))).0,
                _ => {}
            }
            at = at.filter(|&i| i < keys.len());
            let shown = merged.valid().then(|| (merged.key().to_vec(), merged.seq()));
            assert_eq!(shown, at.map(|i| (keys[i].0.clone(), *keys[i].1)), "round {round} step {step}");
        }
    }
}

#[test]
fn read_merge_3_a_failed_move_leaves_no_key_and_the_next_good_seek_the_right_one() {
    let mut rng = fastrand::Rng::with_seed(9);
    let mut failed = 0;
    for round in 0..2000 {
        let (cursors, model) = random_sources(&mut rng);
        let mut merged = MergeCursor::new(cursors.into_iter().map(|c| c.failing(rng.u64(..))));
        let keys: Vec<_> = model.into_iter().collect();
        let mut at: Option<usize> = None;
        for step in 0..60 {
            let key = [rng.u8(0..21)];
            let rank = keys.partition_point(|(k, _)| k.as_slice() < &key[..]);
            let (outcome, to) = match rng.u8(0..8) {
                0 => (merged.seek(&key), Some(rank)),
                1 => (merged.seek_before(&key), rank.checked_sub(1)),
                2 => (merged.seek_first(), Some(0)),
                3 => (merged.seek_last(), keys.len().checked_sub(1)),
                _ if !merged.valid() => continue,
                4 | 5 => (merged.next(), at.map(|i| i + 1)),
                _ => (merged.prev(), at.and_then(|i| i.checked_sub(1))),
            };
            failed += u32::from(outcome.is_err());
            at = to.filter(|&i| i < keys.len() && outcome.is_ok());
            let shown = merged.valid().then(|| (merged.key().to_vec(), merged.seq()));
            assert_eq!(shown, at.map(|i| keys[i].clone()), "round {round} step {step}");
        }
    }
    assert!(failed > 1000, "{failed}");
}
