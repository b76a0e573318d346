//! Random tables against a sorted list.

use super::*;
use crate::encoding::hash::key_hash;
use crate::types::cursor::SourceCursor;
use crate::types::key_range::{End, KeyRange};
use crate::types::range_tombstone::RangeTombstone;

/// What a reader at `at` sees: the newest version of each key.
fn visible(entries: &[Entry], at: u64) -> Vec<&Entry> {
    let mut seen: Vec<&Entry> = Vec::new();
    for entry in entries.iter().filter(|e| e.seq <= at) {
        if seen.last().is_none_or(|last| last.key != entry.key) {
            seen.push(entry);
        }
    }
    seen
}

fn random_options(rng: &mut fastrand::Rng) -> TableOptions {
    let mut codecs = vec![TableCompression::Auto, TableCompression::None, TableCompression::Lz4];
    #[cfg(feature = "zstd")]
    codecs.push(TableCompression::Zstd);
    TableOptions {
        block_bytes: [1, 128, 300, 1000, 8192][rng.usize(..5)],
        compression: codecs[rng.usize(..codecs.len())],
        filter_bits_per_key: [0, 10, 10][rng.usize(..3)],
        split_values_over: [0, 20, 256][rng.usize(..3)],
        direct_io: rng.bool(),
        page_blocks: [1, 2, 3, 64][rng.usize(..4)],
    }
}

fn random_entries(rng: &mut fastrand::Rng) -> Vec<Entry> {
    let shared: Vec<u8> = (0..[0, 1, 5, 30][rng.usize(..4)]).map(|_| rng.u8(..)).collect();
    let top = [1, 3, 255][rng.usize(..3)];
    let fixed_key = rng.bool().then(|| rng.usize(1..12));
    let fixed_value = rng.bool().then(|| rng.usize(..300));
    let versions = [1, 1, 4, 60][rng.usize(..4)];
    let all_zero = versions == 1 && rng.bool();
    let mut entries = Vec::new();
    for _ in 0..rng.usize(..250) {
        let mut key = shared.clone();
        let len =
            fixed_key.unwrap_or_else(|| if rng.u8(..) < 4 { rng.usize(..300) } else { rng.usize(..10) });
        key.extend((0..len).map(|_| rng.u8(..=top)));
        for _ in 0..rng.usize(1..=versions) {
            let seq = if all_zero { 0 } else { rng.u64(..100) };
            if !all_zero && rng.u8(..) < 40 {
                entries.push(Entry::tombstone(key.clone(), seq));
            } else {
                let len = fixed_value.unwrap_or_else(|| rng.usize(..300));
                let byte = rng.u8(..);
                entries.push(Entry::put(key.clone(), seq, vec![byte; len]));
            }
        }
    }
    sort(&mut entries);
    entries
}

fn random_probe(rng: &mut fastrand::Rng, entries: &[Entry]) -> Vec<u8> {
    let mut key = match entries.len() {
        0 => Vec::new(),
        n => entries[rng.usize(..n)].key.clone(),
    };
    match rng.u8(..6) {
        0 => key.push(rng.u8(..3)),
        1 => drop(key.pop()),
        2 => {
            if let Some(last) = key.last_mut() {
                *last = last.wrapping_add(rng.u8(..3)).wrapping_sub(1);
            }
        }
        3 if rng.u8(..) < 40 => key.clear(),
        _ => {}
    }
    key
}

fn check_at(cursor: &TableCursor, expected: Option<&&Entry>) {
    assert_eq!(cursor.valid(), expected.is_some(), "expected {expected:?}");
    if let Some(entry) = expected {
        assert_eq!(cursor.key(), entry.key);
        assert_eq!((cursor.seq().get(), cursor.kind()), (entry.seq, entry.kind));
        assert_eq!(cursor.stored().beside(), entry.value);
        assert_eq!(cursor.share().beside(), entry.value);
    }
}

pub(super) fn check_cursor(rng: &mut fastrand::Rng, table: &Arc<Table>, entries: &[Entry], at: u64) {
    let seen = visible(entries, at);
    let mut cursor = table.cursor(SeqNo::new(at), rng.bool());
    assert!(!cursor.valid());
    for _ in 0..30 {
        let probe = random_probe(rng, entries);
        let after = seen.partition_point(|e| e.key < probe);
        let mut place = match rng.u8(..8) {
            0 => {
                cursor.seek_first().unwrap();
                Some(0)
            }
            1 => {
                cursor.seek_last().unwrap();
                seen.len().checked_sub(1)
            }
            2..5 => {
                cursor.seek(&probe).unwrap();
                Some(after)
            }
            _ => {
                cursor.seek_before(&probe).unwrap();
                after.checked_sub(1)
            }
        };
        check_at(&cursor, place.and_then(|p| seen.get(p)));
        for _ in 0..rng.usize(..20) {
            if !cursor.valid() {
                break;
            }
            place = if rng.bool() {
                cursor.next().unwrap();
                place.map(|p| p + 1)
            } else {
                cursor.prev().unwrap();
                place.and_then(|p| p.checked_sub(1))
            };
            check_at(&cursor, place.and_then(|p| seen.get(p)));
        }
    }
    // From end to end in both directions.
    cursor.seek_first().unwrap();
    for entry in &seen {
        check_at(&cursor, Some(entry));
        cursor.next().unwrap();
    }
    assert!(!cursor.valid());
    cursor.seek_last().unwrap();
    for entry in seen.iter().rev() {
        check_at(&cursor, Some(entry));
        cursor.prev().unwrap();
    }
    assert!(!cursor.valid());
}

pub(super) fn check_gets(rng: &mut fastrand::Rng, table: &Table, entries: &[Entry], at: u64) {
    let pin = crate::cache::pin();
    for _ in 0..60 {
        let probe = random_probe(rng, entries);
        let hash = key_hash(&probe);
        let expected = entries.iter().find(|e| e.key == probe && e.seq <= at);
        let found = table.get(&probe, hash, SeqNo::new(at), rng.bool(), &pin).unwrap();
        let plain = found.map(|f| (f.seq().get(), f.kind(), f.share().beside().to_vec()));
        assert_eq!(plain, expected.map(|e| (e.seq, e.kind, e.value.clone())), "{probe:?}@{at}");
        let newest = table.newest_seq(&probe, hash, &pin).unwrap();
        assert_eq!(newest.map(SeqNo::get), entries.iter().find(|e| e.key == probe).map(|e| e.seq));
    }
}

pub(super) fn check_scan(rng: &mut fastrand::Rng, table: &Arc<Table>, entries: &[Entry]) {
    let mut scan = table.scan();
    for start in [None, Some(random_probe(rng, entries)), Some(random_probe(rng, entries))] {
        let mut expected = entries;
        if let Some(key) = &start {
            scan.seek(key).unwrap();
            expected = &entries[entries.partition_point(|e| e.key < *key)..];
        }
        for entry in expected {
            assert_eq!(scan.next().unwrap(), Some(entry.borrowed()));
        }
        assert_eq!(scan.next().unwrap(), None);
    }
}

#[test]
fn random_tables_agree_with_a_sorted_list() {
    for seed in 0..160 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let env = memory();
        let mut options = random_options(&mut rng);
        let entries = random_entries(&mut rng);
        // A cursor reads a root that has no room in memory again for each page.
        options.page_blocks = options.page_blocks.max(entries.len() / 8);
        let meta = write(&env, &options, &entries);
        let table = open(&env, &cache([0, 3000, 1 << 30][rng.usize(..3)])).unwrap();
        let check = table.verify().unwrap();
        assert_eq!(
            (check.entries, meta.counts.entries),
            (entries.len() as u64, entries.len() as u64),
            "seed {seed}"
        );
        assert_eq!(meta.file_bytes, file_bytes(&env).len() as u64);
        assert_eq!(meta.counts.tombstones, entries.iter().filter(|e| e.kind == Kind::REMOVE).count() as u64);
        for at in [0, rng.u64(..100), 50, 100, SeqNo::MAX.get()] {
            check_gets(&mut rng, &table, &entries, at);
            check_cursor(&mut rng, &table, &entries, at);
        }
        check_scan(&mut rng, &table, &entries);
    }
}

/// Sequence numbers of a long-lived database do not fit in four bytes.
#[test]
fn versions_at_large_numbers_are_found_at_theirs() {
    const NUMBERS: [u64; 6] = [7, 1 << 32, (1 << 32) + 7, 1 << 40, (1 << 40) + 7, SeqNo::MAX.get()];
    for block_bytes in [1, 128, 8192] {
        let mut rng = fastrand::Rng::with_seed(block_bytes as u64);
        let env = memory();
        let mut entries = Vec::new();
        for (key, seq) in (0..40_u8).flat_map(|key| NUMBERS.map(|seq| (key, seq))) {
            match rng.u8(..4) {
                0 => {}
                1 => entries.push(Entry::tombstone([key], seq)),
                _ => entries.push(Entry::put([key], seq, seq.to_le_bytes())),
            }
        }
        sort(&mut entries);
        let options = TableOptions { block_bytes, ..TableOptions::default() };
        let meta = write(&env, &options, &entries);
        assert_eq!((meta.counts.min_seq, meta.counts.max_seq), (SeqNo::new(7), SeqNo::MAX));
        let table = open(&env, &cache(1 << 20)).unwrap();
        table.verify().unwrap();
        assert_eq!(table.newest_commit().unwrap(), SeqNo::MAX);
        for at in NUMBERS.into_iter().flat_map(|n| [n - 1, n]) {
            check_gets(&mut rng, &table, &entries, at);
            check_cursor(&mut rng, &table, &entries, at);
        }
        check_scan(&mut rng, &table, &entries);
    }
}

#[test]
fn index_3_versions_of_one_key_span_blocks() {
    let mut entries: Vec<Entry> = (0..200).map(|seq| Entry::put("k", seq, vec![seq as u8; 40])).collect();
    entries.extend([Entry::put("a", 3, "x"), Entry::put("kk", 0, "y"), Entry::tombstone("z", 9)]);
    sort(&mut entries);
    let env = memory();
    let mut rng = fastrand::Rng::with_seed(1);
    for (page_blocks, at) in [1, 2, 3, 64].into_iter().flat_map(|n| [0, 1, 8, 57, 199, 200].map(|at| (n, at)))
    {
        let options = TableOptions { block_bytes: 128, page_blocks, ..TableOptions::default() };
        env.fs.remove_file(Path::new(PATH)).ok();
        write(&env, &options, &entries);
        let table = open(&env, &cache(1 << 20)).unwrap();
        assert!(table.properties().blocks > 50);
        table.verify().unwrap();
        let pin = crate::cache::pin();
        let found = table.get(b"k", key_hash(b"k"), SeqNo::new(at), true, &pin).unwrap().unwrap();
        assert_eq!(found.seq().get(), at.min(199));
        check_cursor(&mut rng, &table, &entries, at);
    }
}

#[test]
fn long_keys_and_large_values() {
    let env = memory();
    let mut entries = vec![
        Entry::put("", 0, ""),
        Entry::put(vec![7; 65_540], 3, "long"),
        Entry::put([vec![7; 65_539], vec![8]].concat(), 2, vec![1; 100_000]),
        Entry::put("b", 1, vec![2; 3_000_000]),
        Entry::tombstone("c", 1),
    ];
    sort(&mut entries);
    let mut rng = fastrand::Rng::with_seed(1);
    for options in [TableOptions::default(), TableOptions { block_bytes: 1 << 20, ..TableOptions::default() }]
    {
        env.fs.remove_file(Path::new(PATH)).ok();
        write(&env, &options, &entries);
        let table = open(&env, &cache(1 << 20)).unwrap();
        table.verify().unwrap();
        for at in [0, 1, 3] {
            check_gets(&mut rng, &table, &entries, at);
            check_cursor(&mut rng, &table, &entries, at);
        }
        check_scan(&mut rng, &table, &entries);
    }
}

#[test]
fn range_tombstones_and_the_given_range_make_up_what_a_table_covers() {
    let env = memory();
    let mut writer = TableWriter::create(&env, Path::new(PATH), TableOptions::default()).unwrap();
    let tombstone = |start: &str, end: &str, seq| RangeTombstone {
        start: start.into(),
        end: end.into(),
        seq: SeqNo::new(seq),
    };
    writer.add_range_tombstone(&tombstone("m", "p", 12));
    writer.add(Entry::put("k", 5, "v").borrowed()).unwrap();
    writer.add_range_tombstone(&tombstone("b", "n", 2));
    let given = KeyRange { start: b"a".to_vec(), end: End::Excluded(b"o".to_vec()) };
    let meta = writer.finish(Some(given)).unwrap();
    assert_eq!(meta.range, KeyRange { start: b"a".to_vec(), end: End::Excluded(b"p".to_vec()) });
    assert_eq!(
        (meta.counts.min_seq.get(), meta.counts.max_seq.get(), meta.counts.range_tombstones),
        (2, 12, 3)
    );
    let table = open(&env, &cache(1 << 20)).unwrap();
    table.verify().unwrap();
    assert_eq!(table.range_tombstones().cover(b"m", SeqNo::MAX), SeqNo::new(12));
    assert_eq!(table.properties().range, meta.range);
}

#[test]
fn tables_of_nothing_or_of_range_tombstones_only() {
    let env = memory();
    let meta = write(&env, &TableOptions::default(), &[]);
    assert_eq!(
        (meta.counts.entries, meta.counts.min_seq, meta.counts.max_seq),
        (0, SeqNo::ZERO, SeqNo::ZERO)
    );
    let table = open(&env, &cache(1 << 20)).unwrap();
    assert_eq!(table.verify().unwrap(), super::super::check::TableCheck::default());
    let mut rng = fastrand::Rng::with_seed(1);
    check_cursor(&mut rng, &table, &[], 5);
    check_gets(&mut rng, &table, &[], 5);
    check_scan(&mut rng, &table, &[]);
    assert!(!table.properties().range.contains(b""));

    env.fs.remove_file(Path::new(PATH)).unwrap();
    let mut writer = TableWriter::create(&env, Path::new(PATH), TableOptions::default()).unwrap();
    let tombstone = RangeTombstone { start: b"a".to_vec(), end: b"c".to_vec(), seq: SeqNo::new(4) };
    writer.add_range_tombstone(&tombstone);
    assert_eq!(writer.finish(None).unwrap().counts.min_seq, SeqNo::new(4));
    open(&env, &cache(0)).unwrap().verify().unwrap();
}

#[test]
fn sstable_writer_1_disorder_is_refused() {
    let env = memory();
    let mut writer = TableWriter::create(&env, Path::new(PATH), TableOptions::default()).unwrap();
    writer.add(Entry::put("b", 5, "").borrowed()).unwrap();
    for bad in [Entry::put("a", 1, ""), Entry::put("b", 5, ""), Entry::put("b", 6, "")] {
        assert!(matches!(writer.add(bad.borrowed()), Err(crate::Error::OutOfOrder(_))), "{bad:?}");
    }
    writer.add(Entry::put("b", 4, "").borrowed()).unwrap();
    writer.abandon().unwrap();
    assert!(!env.fs.exists(Path::new(PATH)).unwrap());
}

#[test]
fn table_4_an_obsolete_file_goes_with_its_last_reader() {
    let env = memory();
    write(&env, &TableOptions::default(), &[Entry::put("a", 0, "1")]);
    let table = open(&env, &cache(1 << 20)).unwrap();
    let mut cursor = table.cursor(SeqNo::MAX, true);
    table.mark_obsolete(plain_remover(&env));
    drop(table);
    cursor.seek(b"a").unwrap();
    let value = cursor.share().beside();
    assert!(env.fs.exists(Path::new(PATH)).unwrap());
    drop(cursor);
    assert!(!env.fs.exists(Path::new(PATH)).unwrap());
    assert_eq!(value, b"1");
}

#[test]
fn a_warm_table_needs_no_reads() {
    for options in [TableOptions::default(), TableOptions { direct_io: true, ..TableOptions::default() }] {
        let env = memory();
        let entries: Vec<_> =
            (0..2000u32).map(|n| Entry::put(n.to_be_bytes(), 0, vec![n as u8; 100])).collect();
        let cache = cache(1 << 20);
        let mut writer = TableWriter::create(&env, Path::new(PATH), options).unwrap();
        writer.keep_warm(&cache);
        entries.iter().for_each(|e| writer.add(e.borrowed()).unwrap());
        let (meta, table) = writer.finish_open(None, &cache).unwrap();
        assert_eq!(meta.counts.entries, 2000);
        let (index, pin) = (index(&table), crate::cache::pin());
        assert!(index.range().all(|number| index.peek(number, &pin).is_some()));
        drop((index, pin));
        check_gets(&mut fastrand::Rng::with_seed(1), &table, &entries, 0);
        drop(table);
        assert_eq!(cache.used_bytes(), 0);
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "this test is about threads, not about the engine's use of them"
)]
fn many_threads_read_under_a_tiny_cache() {
    let env = memory();
    let entries: Vec<_> = (0..3000u32)
        .map(|n| Entry::put(n.wrapping_mul(0x9E37_79B9).to_be_bytes(), 0, n.to_le_bytes().repeat(20)))
        .collect();
    let mut sorted = entries.clone();
    sort(&mut sorted);
    write(&env, &TableOptions { block_bytes: 1000, ..TableOptions::default() }, &sorted);
    let cache = cache(20_000);
    let table = open(&env, &cache).unwrap();
    let entries = Arc::new(entries);
    let threads: Vec<_> = (0..6)
        .map(|seed| {
            let (table, entries, cache) = (table.clone(), entries.clone(), cache.clone());
            std::thread::spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                let mut held = Vec::new();
                for round in 0..6000 {
                    let entry = &entries[rng.usize(..entries.len())];
                    let pin = crate::cache::pin();
                    let found = table.get(&entry.key, key_hash(&entry.key), SeqNo::ZERO, rng.bool(), &pin);
                    let value = found.unwrap().unwrap().share().beside();
                    drop(pin);
                    held.push((value, entry));
                    if held.len() > 50 {
                        held.drain(..).for_each(|(value, entry)| assert_eq!(value, entry.value));
                    }
                    if round % 100 == 0 {
                        let mut cursor = table.cursor(SeqNo::ZERO, rng.bool());
                        cursor.seek(&entry.key).unwrap();
                        assert_eq!(cursor.stored().beside(), entry.value);
                        cache.budget().set_capacity(rng.u64(5_000..40_000));
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    drop(table);
    assert_eq!(cache.used_bytes(), 0);
}

#[test]
fn real_files_written_past_the_page_cache() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(PATH);
    let env = Env::real();
    let entries: Vec<_> =
        (0..30_000u32).map(|n| Entry::put(n.to_be_bytes(), 0, n.to_le_bytes().repeat(30))).collect();
    for direct_io in [false, true] {
        let mut writer =
            TableWriter::create(&env, &path, TableOptions { direct_io, ..TableOptions::default() }).unwrap();
        entries.iter().for_each(|e| writer.add(e.borrowed()).unwrap());
        assert_eq!(writer.entries(), 30_000);
        let meta = writer.finish(None).unwrap();
        let table = Table::open(&env, &path, &cache(100_000)).unwrap();
        assert_eq!(table.file_bytes(), meta.file_bytes);
        assert_eq!(table.verify().unwrap().entries, 30_000);
        check_gets(&mut fastrand::Rng::with_seed(1), &table, &entries, 0);
        table.mark_obsolete(plain_remover(&env));
        drop(table);
        assert!(!env.fs.exists(&path).unwrap());
    }
}

#[test]
fn range_tombstones_of_open_tables_count_in_the_budget() {
    let env = memory();
    let mut writer = TableWriter::create(&env, Path::new(PATH), TableOptions::default()).unwrap();
    for n in 0..5000_u16 {
        let [start, end] = [2 * n, 2 * n + 1].map(|n| n.to_be_bytes().to_vec());
        writer.add_range_tombstone(&RangeTombstone { start, end, seq: SeqNo::new(4) });
    }
    writer.finish(None).unwrap();
    let cache = cache(1 << 20);
    let table = open(&env, &cache).unwrap();
    let counted = cache.budget().reserved_bytes(crate::cache::BudgetKind::Table) as usize;
    assert!(counted >= table.range_tombstones().size_bytes() && counted > 5000 * 16, "{counted}");
}
