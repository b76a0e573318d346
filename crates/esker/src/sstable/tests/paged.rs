//! Tables whose index has pages, in a memory that is too small for the index.

use std::time::Duration;

use super::model::{check_cursor, check_gets, check_scan};
use super::*;
use crate::encoding::hash::key_hash;
use crate::sstable::fuzzing;
use crate::types::cursor::SourceCursor;
use crate::types::key_range::{End, KeyRange};

const MEMORY: u64 = 64 << 10;

/// Entries with long separators, and keys with many versions.
fn entries() -> Vec<Entry> {
    let key = |n: u32| format!("{:02}{}{n:04}", n / 200, "k".repeat(200));
    let mut entries: Vec<_> = (0..1000).map(|n| Entry::put(key(n), 3, vec![n as u8; 20])).collect();
    let older = |n| (5..60).map(move |seq| Entry::put(key(n), seq, vec![seq as u8; 90]));
    entries.extend((0..1000).step_by(250).flat_map(older));
    sort(&mut entries);
    entries
}

fn options(page_blocks: usize) -> TableOptions {
    TableOptions { block_bytes: 500, page_blocks, ..TableOptions::default() }
}

/// Returns whether a get right after a get is answered from memory.
fn stays_in_memory(table: &Table, entry: &Entry) -> bool {
    let (hash, pin) = (key_hash(&entry.key), crate::cache::pin());
    let found = table.get(&entry.key, hash, SeqNo::new(entry.seq), false, &pin).unwrap();
    assert_eq!(found.unwrap().share().beside(), entry.value);
    match table.get_by::<MemoryOnly>(&entry.key, hash, SeqNo::new(entry.seq), false, &pin) {
        Ok(found) => found.is_some_and(|found| found.seq().get() == entry.seq),
        Err(NoAnswer::NotInMemory) => false,
        Err(NoAnswer::Failed(error)) => panic!("{error}"),
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test waits for threads of other tests")]
fn pages_stay_in_a_memory_that_the_index_exceeds() {
    let (env, entries) = (memory(), entries());
    let mut kept = Vec::new();
    for page_blocks in [8, usize::MAX] {
        env.fs.remove_file(Path::new(PATH)).ok();
        write(&env, &options(page_blocks), &entries);
        let cache = cache(MEMORY);
        let table = open(&env, &cache).unwrap();
        let mut rng = fastrand::Rng::with_seed(1);
        kept.push(entries.iter().filter(|entry| stays_in_memory(&table, entry)).count());
        for at in [3, 30, 100] {
            check_gets(&mut rng, &table, &entries, at);
            assert!(cache.finding_bytes() <= MEMORY / 2);
            check_cursor(&mut rng, &table, &entries, at);
            assert!(cache.finding_bytes() <= MEMORY / 2);
        }
        check_scan(&mut rng, &table, &entries);
        table.verify().unwrap();
        drop(table);
        // Evicted pages are freed with their blocks when no reader can see them any more. Readers in other
        // tests count, too.
        for _ in (0..20_000).take_while(|_| cache.used_bytes() > 0) {
            crate::cache::pin().flush();
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!((cache.finding_bytes(), cache.used_bytes()), (0, 0));
    }
    assert_eq!(kept, [entries.len(), 0], "an index larger than its memory is never kept");
}

#[test]
fn a_cursor_goes_on_when_its_page_is_evicted() {
    let (env, entries) = (memory(), entries());
    write(&env, &options(2), &entries);
    let cache = cache(1 << 20);
    let table = open(&env, &cache).unwrap();
    let visible: Vec<_> = entries.iter().filter(|entry| entry.seq == 3).collect();
    let mut cursor = table.cursor(SeqNo::new(4), true);
    let pin = crate::cache::pin();
    let evict = |position: usize| {
        let capacity = if position.is_multiple_of(3) { 0 } else { 1 << 20 };
        cache.budget().set_capacity(capacity);
        cache.shrink(&pin);
        assert!(capacity > 0 || cache.finding_bytes() == 0);
    };
    cursor.seek_first().unwrap();
    for (position, entry) in visible.iter().enumerate() {
        assert_eq!((cursor.key(), cursor.stored().beside()), (&*entry.key, &*entry.value));
        evict(position);
        cursor.next().unwrap();
    }
    cursor.seek_last().unwrap();
    for (position, entry) in visible.iter().rev().enumerate() {
        assert_eq!((cursor.key(), cursor.stored().beside()), (&*entry.key, &*entry.value));
        evict(position);
        cursor.prev().unwrap();
    }
    assert!(!cursor.valid());
}

#[test]
fn a_key_with_more_pages_than_a_stack_has_frames_is_found() {
    let env = memory();
    let versions: Vec<_> = (1..=5000).rev().map(|seq| Entry::put("k", seq, vec![seq as u8; 90])).collect();
    write(&env, &TableOptions { block_bytes: 64, ..options(1) }, &versions);
    let table = open(&env, &cache(1 << 20)).unwrap();
    let pin = crate::cache::pin();
    let find = |seq: u64| table.get(b"k", key_hash(b"k"), SeqNo::new(seq), false, &pin).unwrap();
    assert_eq!(table.blocks(), 5000);
    assert_eq!(find(1).map(|found| found.share().beside().to_vec()), Some(vec![1; 90]));
    assert!(find(0).is_none());
}

#[test]
fn the_size_of_an_index_includes_the_blocks_that_continue_a_key() {
    let env = memory();
    let size_of = |entries: &[Entry]| {
        env.fs.remove_file(Path::new(PATH)).ok();
        write(&env, &TableOptions { block_bytes: 64, ..options(usize::MAX) }, entries);
        index(&open(&env, &cache(1 << 20)).unwrap()).size_bytes()
    };
    let versions: Vec<_> = (1..=1000).rev().map(|seq| Entry::put("k", seq, [7; 90])).collect();
    let keys: Vec<_> = (0..1000).map(|n: u16| Entry::put(n.to_be_bytes(), 1, [7; 90])).collect();
    let bytes_of_separators = 2 * 1000;
    assert!(size_of(&versions) + bytes_of_separators >= size_of(&keys) + 4 * 999);
}

#[test]
fn sizes_and_pieces_do_not_depend_on_pages() {
    let (env, entries) = (memory(), entries());
    let mut rng = fastrand::Rng::with_seed(2);
    let mut pick = || entries[rng.usize(..entries.len())].key.clone();
    let pairs: Vec<_> = (0..40).map(|_| (pick(), pick())).filter(|(start, end)| start < end).collect();
    let mut all = Vec::new();
    for page_blocks in [1, 3, usize::MAX] {
        env.fs.remove_file(Path::new(PATH)).ok();
        write(&env, &options(page_blocks), &entries);
        let table = open(&env, &cache(MEMORY)).unwrap();
        let of_pair = |(start, end): &(Vec<u8>, Vec<u8>)| {
            let range = KeyRange { start: start.clone(), end: End::Excluded(end.clone()) };
            let pieces = table.pieces(&range, 7).unwrap();
            let parts: u64 = pieces.iter().map(|(_, bytes)| bytes).sum();
            assert!(parts >= table.bytes_between(start, end));
            (pieces, table.bytes_between(start, end))
        };
        all.push(pairs.iter().map(of_pair).collect::<Vec<_>>());
        let whole = KeyRange { start: Vec::new(), end: End::Excluded(vec![0xFF]) };
        let pieces = table.pieces(&whole, 7).unwrap();
        assert_eq!(pieces.iter().map(|(_, bytes)| bytes).sum::<u64>(), table.blocks_end());
    }
    assert!(all[0] == all[2] && all[1] == all[2]);
}

#[test]
fn a_damaged_page_loses_its_keys_only() {
    let (env, entries) = (memory(), entries());
    write(&env, &options(8), &entries);
    let sound = SalvageTable::open(&env, Path::new(PATH)).unwrap();
    let pages = sound.parts().into_iter().find(|(name, _)| *name == "index pages").unwrap().1;
    let mut bytes = file_bytes(&env);
    bytes[(pages.start + pages.end) as usize / 2] ^= 1;
    put_file(&env, &bytes);

    let table = open(&env, &cache(MEMORY)).unwrap();
    let mut problems = Vec::new();
    table.verify_all(&mut |error| problems.push(error.to_string()));
    assert!(matches!(&problems[..], [one] if one.contains("index page")), "{problems:?}");
    let salvaged = SalvageTable::open(&env, Path::new(PATH)).unwrap();
    assert_eq!(salvaged.fingerprint(), None);
    let [damage] = &salvaged.damage[..] else { panic!("{} parts are damaged", salvaged.damage.len()) };
    let LostContent::Keys(Some(start), Some(end)) = &damage.lost else { panic!("{:?}", damage.lost) };
    let is_lost = |entry: &&Entry| *start <= entry.key && entry.key <= *end;
    let pin = crate::cache::pin();
    let (lost, others): (Vec<_>, Vec<_>) = entries.iter().partition(is_lost);
    assert!(lost.len() > 3 && lost.len() < 200, "{} entries are lost", lost.len());
    for entry in &others {
        let found = table.get(&entry.key, key_hash(&entry.key), SeqNo::new(entry.seq), true, &pin);
        assert_eq!(found.unwrap().unwrap().share().beside(), entry.value);
    }
    let failed = |entry: &&&Entry| {
        table.get(&entry.key, key_hash(&entry.key), SeqNo::new(entry.seq), true, &pin).is_err()
    };
    let failures = lost.iter().filter(failed).count();
    assert!(2 * failures > lost.len(), "{failures} of {}: keys at the ends may lie elsewhere", lost.len());
    let mut scan = salvaged.scan();
    let found = std::iter::from_fn(|| scan.advance().then(|| scan.entry().key.to_vec())).count();
    assert!((others.len()..entries.len()).contains(&found), "{found} of {}", entries.len());
}

#[test]
fn any_bytes_as_pages_or_as_a_root_are_an_error_or_a_table() {
    let (env, entries) = (memory(), entries());
    write(&env, &options(2), &entries[..60]);
    let good = file_bytes(&env);
    let parts = SalvageTable::open(&env, Path::new(PATH)).unwrap().parts();
    let mut rng = fastrand::Rng::with_seed(3);
    for (name, part) in parts.into_iter().filter(|(name, _)| name.starts_with("index")) {
        assert!(part.end - part.start > 50, "{name}");
        for at in part.start as usize..part.end as usize {
            let mut bad = good.clone();
            bad[at] = if rng.bool() { rng.u8(..) } else { bad[at].wrapping_add(rng.u8(1..4)) };
            // With valid checksums too.
            fuzzing::table(&bad);
            fuzzing::salvage_table(&bad);
        }
    }
}
