//! Edits survive encoding and decoding, and damage is an error.

use super::*;
use crate::blob::BlobPointer;
use crate::manifest::feed::{FeedFrom, FeedLimits, KeptCommit, Released};

fn all(counts: Vec<(KeyspaceId, u64)>) -> LiveCounts {
    LiveCounts { all: Some(counts), changed: None }
}

fn sample() -> VersionEdit {
    let meta = TableMeta {
        file_bytes: 1000,
        range: KeyRange { start: b"\x01a".to_vec(), end: End::Excluded(b"\x01q".to_vec()) },
        counts: Counts {
            unresolved: 0,
            expiring: 0,
            min_expiry: 0,
            max_expiry: 0,
            entries: 10,
            keys: 8,
            tombstones: 2,
            range_tombstones: 1,
            key_bytes: 100,
            value_bytes: 800,
            min_seq: SeqNo::new(3),
            max_seq: SeqNo::new(9),
        },
        fingerprint: Fingerprint::new(5),
        base_seq: SeqNo::ZERO,
        blobs: BlobReferences::default(),
    };
    VersionEdit {
        next_file: Some(FileId::new(8)),
        next_run: Some(RunId(4)),
        wal_from: Some(6),
        wal_named: Some(300),
        flushed_seq: Some(SeqNo::new(301)),
        durable_seq: Some(SeqNo::new(302)),
        database_id: Some(u32::MAX),
        counts: all(vec![(KeyspaceId::DEFAULT, 42)]),
        removed: vec![FileId::new(2)],
        added: vec![
            AddedTable { file: FileId::new(7), level: Level::BASE, run: RunId(1), meta: meta.clone() },
            AddedTable {
                file: FileId::new(6),
                level: Level::L0,
                run: RunId(3),
                meta: meta.based(SeqNo::new(303)),
            },
        ],
        adopted: vec![Adopted { seq: SeqNo::new(303), deltas: vec![(KeyspaceId::DEFAULT, -2)] }],
        ..VersionEdit::default()
    }
}

#[test]
fn counts_of_other_keyspaces_stay() {
    let of = |counts: &[(u32, u64)]| counts.iter().map(|&(id, n)| (KeyspaceId::new(id), n)).collect();
    let counts = |counts| VersionEdit { counts: all(of(counts)), ..VersionEdit::default() };
    let changed = |counts| VersionEdit {
        counts: LiveCounts { changed: Some(of(counts)), all: None },
        ..VersionEdit::default()
    };
    let mut state = counts(&[(1, 10), (5, 50), (9, 90)]);
    state.merge(changed(&[(0, 1), (5, 51), (7, 70), (9, 0)]));
    assert_eq!(state, counts(&[(0, 1), (1, 10), (5, 51), (7, 70)]));
    state.merge(VersionEdit::default());
    state.merge(changed(&[]));
    assert_eq!(state, counts(&[(0, 1), (1, 10), (5, 51), (7, 70)]));
    let (disordered, more) = (counts(&[(5, 1), (1, 1)]).encode(), changed(&[(3, 0), (4, 4)]));
    assert_eq!(VersionEdit::decode(&more.encode()), Ok(more));
    assert!(VersionEdit::decode(&disordered).is_err() && VersionEdit::decode(&state.encode()) == Ok(state));
}

#[test]
fn golden_bytes() {
    let added = sample().added[..1].to_vec();
    let edit = VersionEdit { added, adopted: Vec::new(), ..sample() };
    let hex: String = edit.encode().iter().map(|b| format!("{b:02x}")).collect();
    let table = "0a 07 07 01 e807 0a08020164a0060309 020161 00 020171 05";
    let fields = "0108 0204 0306 04ac02 05ad02 06ae02 07ffffffff0f 0801012a 0902";
    assert_eq!(hex, [fields, table].concat().replace(' ', ""));
}

#[test]
fn golden_bytes_of_an_adopted_commit() {
    let VersionEdit { added, adopted, .. } = sample();
    let edit = VersionEdit { added: added[1..].to_vec(), adopted, ..VersionEdit::default() };
    let hex: String = edit.encode().iter().map(|b| format!("{b:02x}")).collect();
    let table = "0b af02 06 00 03 e807 0a08020164a006af02af02 020161 00 020171 05";
    assert_eq!(hex, [table, "0c af02 01 01 03"].concat().replace(' ', ""));
}

#[test]
fn golden_bytes_of_blob_files() {
    let mut edit = VersionEdit {
        blobs: BlobEdit { added: vec![(FileId::new(4), FileId::new(5))], removed: vec![FileId::new(3)] },
        added: sample().added,
        ..VersionEdit::default()
    };
    edit.added.truncate(1);
    edit.added[0].meta.blobs.add(&BlobPointer::new(FileId::new(4), 32, b"abc"));
    let bytes = edit.encode();
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    let expected = "0a 07 07 01 e807 0a08020164a0060309 020161 00 020171 05 16 01 04 01 03 14 04 05 15 03";
    assert_eq!(hex, expected.replace(' ', ""));
    assert_eq!(VersionEdit::decode(&bytes), Ok(edit));
}

#[test]
fn golden_bytes_of_the_feed() {
    let feed = FeedEdit {
        from: Some(FeedFrom { segment: 3, oldest: SeqNo::new(300) }),
        limits: Some(FeedLimits { bytes: 1000, age: 60 }),
        released: vec![Released { below: 5, at: 7, beside: 8 }],
        kept: vec![KeptCommit { seq: SeqNo::new(301), tables: vec![(FileId::new(9), RunId(2))] }],
    };
    let edit = VersionEdit { feed, ..VersionEdit::default() };
    let hex: String = edit.encode().iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, "1e 03 ac02 21 e807 3c 1f 05 07 08 20 ad02 01 09 02".replace(' ', ""));
    assert_eq!(VersionEdit::decode(&edit.encode()), Ok(edit.clone()));
    let from = Some(FeedFrom { segment: 5, oldest: SeqNo::new(301) });
    let mut all = edit.clone();
    all.merge(VersionEdit { feed: FeedEdit { from, ..FeedEdit::default() }, ..VersionEdit::default() });
    assert_eq!((all.feed.from, all.feed.released.len(), all.feed.kept.len()), (from, 0, 1));
    let from = Some(FeedFrom { segment: 5, oldest: SeqNo::new(302) });
    all.merge(VersionEdit { feed: FeedEdit { from, ..FeedEdit::default() }, ..VersionEdit::default() });
    assert_eq!((all.feed.limits, all.feed.kept.len()), (edit.feed.limits, 0), "manifest_feed.1");
}

#[test]
fn golden_bytes_of_history() {
    let mut edit = VersionEdit {
        history: HistoryEdit { marks: Marks::one(300, SeqNo::new(7)), ..HistoryEdit::default() },
        ..VersionEdit::default()
    };
    edit.history.marks.extend(&Marks::one(301, SeqNo::new(9)));
    edit.history.floors.raise(KeyspaceId::new(2), SeqNo::new(5));
    let bytes = edit.encode();
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, "28 02 ac02 07 ad02 09 29 01 02 05".replace(' ', ""));
    assert_eq!(VersionEdit::decode(&bytes), Ok(edit));
}

#[test]
fn the_log_must_reach_what_was_durable_and_is_in_no_table() {
    let mut state = sample();
    let reach = |state: &VersionEdit| state.log_extent().durable_to.map(SeqNo::get);
    assert_eq!(reach(&state), Some(302));
    for (durable, expected) in [(300, None), (301, None), (302, Some(302))] {
        state.durable_seq = Some(SeqNo::new(durable));
        assert_eq!(reach(&state), expected);
    }
    state.merge(VersionEdit { durable_seq: Some(SeqNo::new(301)), ..VersionEdit::default() });
    assert_eq!(reach(&state), Some(302), "it only grows");
}

#[test]
fn edits_come_back_and_damage_is_refused() {
    let bytes = sample().encode();
    assert_eq!(VersionEdit::decode(&bytes), Ok(sample()));
    assert_eq!(VersionEdit::decode(&[]), Ok(VersionEdit::default()));
    let fields_end = [2, 4, 6, 9, 12, 15, 21, 25, 27, 50, 77];
    for len in 1..bytes.len() {
        assert_eq!(VersionEdit::decode(&bytes[..len]).is_ok(), fields_end.contains(&len), "{len}");
    }
    assert!(VersionEdit::decode(&[99]).is_err());
    assert!(VersionEdit::decode(&[8, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]).is_err());
}

#[test]
fn merging_is_applying_one_after_the_other() {
    let mut all = sample();
    let later = VersionEdit {
        wal_from: Some(9),
        removed: vec![FileId::new(7), FileId::new(3)],
        ..VersionEdit::default()
    };
    all.merge(later);
    assert_eq!(all.removed, [FileId::new(2), FileId::new(3)]);
    assert_eq!((all.added.len(), all.wal_from, all.next_run), (1, Some(9), Some(RunId(4))));
    for named in [12, 11] {
        all.merge(VersionEdit { wal_named: Some(named), ..VersionEdit::default() });
        all.merge(VersionEdit::default());
        let (from, named_to) = (9, Some(named));
        assert_eq!(all.log_extent(), LogExtent { from, named_to, ..sample().log_extent() });
    }
}
