//! Damaged tables give a typed error or the right answer.

use esker_env::{FaultAction, FaultFs, FaultRule, OpKind};

use super::*;
use crate::encoding::Compression;
use crate::encoding::hash::key_hash;
use crate::sstable::stored::{Salt, TRAILER_BYTES, trailer};
use crate::types::cursor::SourceCursor;
use crate::types::range_tombstone::RangeTombstone;

fn small_tables() -> Vec<(Env, Vec<Entry>)> {
    let mut rng = fastrand::Rng::with_seed(3);
    let codecs = [TableCompression::None, TableCompression::Lz4];
    let shapes = codecs.into_iter().flat_map(|c| [(c, 0, 64), (c, 256, 1), (c, 256, 2)]);
    shapes
        .map(|(compression, split_values_over, page_blocks)| {
            let env = memory();
            let mut entries: Vec<_> = (0..25)
                .map(|_| {
                    let value = b"abcd".repeat(rng.usize(..9));
                    Entry::put(format!("key{:02}", rng.u8(..20)), rng.u64(..9), value)
                })
                .collect();
            entries.push(Entry::tombstone("key05", 20));
            sort(&mut entries);
            let block_bytes = if page_blocks == 64 { 200 } else { 100 };
            let options = TableOptions {
                block_bytes,
                compression,
                split_values_over,
                page_blocks,
                ..TableOptions::default()
            };
            let mut writer = TableWriter::create(&env, Path::new(PATH), options).unwrap();
            entries.iter().for_each(|e| writer.add(e.borrowed()).unwrap());
            writer.add_range_tombstone(&RangeTombstone {
                start: b"key1".to_vec(),
                end: b"key2".to_vec(),
                seq: SeqNo::new(3),
            });
            writer.finish(None).unwrap();
            (env, entries)
        })
        .collect()
}

/// Reads everything readable: every answer is right, or an error names the file.
fn read_all(env: &Env, entries: &[Entry]) -> bool {
    let named = |e: crate::Error| {
        let typed = e.is_corrupt() || matches!(e, crate::Error::UnsupportedVersion { .. });
        assert!(typed && e.to_string().contains(PATH), "{e}");
    };
    let table = match open(env, &cache(1 << 20)) {
        Ok(table) => table,
        Err(e) => {
            named(e);
            return false;
        }
    };
    let mut sound = true;
    let pin = crate::cache::pin();
    for entry in entries {
        match table.get(&entry.key, key_hash(&entry.key), SeqNo::new(entry.seq), true, &pin) {
            Ok(found) => assert_eq!(found.unwrap().share().beside(), entry.value),
            Err(e) => {
                sound = false;
                named(e);
            }
        }
    }
    for error in walk(&mut table.cursor(SeqNo::MAX, false), entries) {
        sound = false;
        named(error);
    }
    table.verify().map_or_else(
        |e| {
            named(e);
            false
        },
        |_| sound,
    )
}

/// Walks in both directions from the ends and from each key. Every key is right, or the walk ends with an
/// error. Returns the errors.
fn walk(cursor: &mut TableCursor, entries: &[Entry]) -> Vec<crate::Error> {
    let mut keys: Vec<&[u8]> = entries.iter().map(|entry| &*entry.key).collect();
    keys.dedup();
    let mut errors = Vec::new();
    let mut stands_on = |cursor: &TableCursor, moved: crate::Result<()>, place: usize| match moved {
        Ok(()) => {
            let found = cursor.valid().then(|| cursor.key());
            assert_eq!(found, keys.get(place).copied(), "at {place}");
            found.is_some()
        }
        Err(error) => {
            assert!(!cursor.valid());
            errors.push(error);
            false
        }
    };
    let (mut moved, mut place) = (cursor.seek_first(), 0);
    while stands_on(cursor, moved, place) {
        (moved, place) = (cursor.next(), place + 1);
    }
    (moved, place) = (cursor.seek_last(), keys.len() - 1);
    while stands_on(cursor, moved, place) {
        (moved, place) = (cursor.prev(), place.wrapping_sub(1));
    }
    for (place, key) in keys.iter().enumerate() {
        moved = cursor.seek(key);
        stands_on(cursor, moved, place);
        moved = cursor.seek_before(key);
        stands_on(cursor, moved, place.wrapping_sub(1));
    }
    errors
}

#[test]
fn every_flipped_byte_is_noticed() {
    for (env, entries) in small_tables() {
        let good = file_bytes(&env);
        assert!(read_all(&env, &entries));
        for at in 0..good.len() {
            for flip in [1, 0x80] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                put_file(&env, &bad);
                assert!(!read_all(&env, &entries), "byte {at} of {}", good.len());
            }
        }
    }
}

#[test]
fn every_other_length_is_noticed() {
    for (env, entries) in small_tables() {
        let good = file_bytes(&env);
        for len in 0..good.len() {
            put_file(&env, &good[..len]);
            assert!(!read_all(&env, &entries), "{len} of {} bytes", good.len());
        }
        put_file(&env, &[&good[..], b"x"].concat());
        assert!(!read_all(&env, &entries));
    }
}

#[test]
fn what_is_wrong_in_a_packed_block_is_reported_at_its_start() {
    let entries: Vec<_> = (0..40).map(|n| Entry::put(format!("key{n:02}"), 7, b"abcd".repeat(9))).collect();
    for (compression, inside) in [(TableCompression::None, 16), (TableCompression::Lz4, 0)] {
        let env = memory();
        let options = TableOptions { block_bytes: 400, compression, ..TableOptions::default() };
        write(&env, &options, &entries);
        let extent = extents(&open(&env, &cache(0)).unwrap())[1].clone();
        let mut bytes = file_bytes(&env);
        let (start, end) = (extent.start as usize, extent.end as usize);
        let codec = Compression::from_id(bytes[end - TRAILER_BYTES]).unwrap();
        assert_eq!(codec != Compression::None, inside == 0);
        // The number of entries starts the block. In a compressed block it is the first literal of LZ4,
        // after 4 bytes of length and the token.
        let count = match codec {
            Compression::None => start,
            _ if bytes[start + 4] < 0xF0 => start + 5,
            _ => start + 6,
        };
        assert!(bytes[count] < 40);
        bytes[count] = 0xFF;
        let salt = Salt::of_file(Path::new(PATH));
        let sealed = trailer(&bytes[start..end - TRAILER_BYTES], codec, salt, extent.start);
        bytes[end - TRAILER_BYTES..end].copy_from_slice(&sealed);
        put_file(&env, &bytes);
        let table = open(&env, &cache(0)).unwrap();
        let pin = crate::cache::pin();
        let loaded = table
            .block_of_walk(&index(&table), 1, &mut WalkWindow::new(false), &pin)
            .err()
            .expect("there are no 255 entries");
        let decoded = table.decode_block(&bytes[start..end], extent.start).expect_err("the same");
        let mut scan = SalvageTable::open(&env, Path::new(PATH)).unwrap().scan();
        while scan.advance() {}
        for error in [loaded, decoded, scan.damage.remove(0).error] {
            let crate::Error::Corrupt { what, offset, detail, .. } = &error else { panic!("{error}") };
            assert_eq!((*what, *offset), ("block", extent.start + inside), "{detail}");
            assert!(detail.contains("expected"), "{detail}");
        }
    }
}

#[test]
fn a_sector_that_cannot_be_read_hides_no_other_block() {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let env = Env::simulated(Arc::new(faults.clone()), 1);
    let options =
        TableOptions { block_bytes: 4096, compression: TableCompression::None, ..TableOptions::default() };
    let entries: Vec<_> = (0..60).map(|n| Entry::put(vec![b'k', n], 7, vec![n; 4000])).collect();
    write(&env, &options, &entries);
    let table = open(&env, &cache(0)).unwrap();
    let extents = extents(&table);
    assert!(extents.len() > 50 && extents[0].end < 8000, "{extents:?}");
    let mut bad = file_bytes(&env);
    bad[extents[35].start as usize + 50] ^= 1;
    put_file(&env, &bad);
    let sector = extents[40].start + 100..extents[40].start + 200;
    let fails = FaultRule::new(&[OpKind::Read], FaultAction::Fail(std::io::ErrorKind::Other));
    faults.add(fails.on_bytes(sector).forever());
    let mut problems = Vec::new();
    let checked = table.verify_all(&mut |error| problems.push(error.to_string()));
    assert_eq!((problems.len(), checked.blocks), (2, extents.len() as u64 - 2), "{problems:#?}");
    assert!(problems[0].contains("checksum"), "{problems:#?}");
    assert_eq!(faults.fired(), 2, "once with others, once alone");
}

#[test]
fn a_sound_block_in_the_place_of_another_ends_a_scan() {
    // Blocks of many keys, and blocks of many versions of one key.
    let mut entries: Vec<_> = (0..60).map(|n| Entry::put(vec![b'k', n, 0, 0], 7, b"value")).collect();
    entries.extend((100..160).map(|seq| Entry::put("same", seq, b"value")));
    sort(&mut entries);
    let env = memory();
    let options =
        TableOptions { block_bytes: 200, compression: TableCompression::None, ..TableOptions::default() };
    write(&env, &options, &entries);
    let good = file_bytes(&env);
    let table = open(&env, &cache(0)).unwrap();
    let extents = extents(&table);
    let (mut misplaced, mut continued, mut refused) = (0, 0, 0);
    for (number, here) in extents.iter().enumerate() {
        let as_long = |there: &&std::ops::Range<u64>| there.end - there.start == here.end - here.start;
        for there in extents.iter().filter(as_long).filter(|there| *there != here) {
            // Recomputes the checksum for the new offset, so that only the order of keys can reveal the wrong
            // block.
            let stored = &good[there.start as usize..there.end as usize - TRAILER_BYTES];
            let trailer = trailer(stored, Compression::None, Salt::of_file(Path::new(PATH)), here.start);
            let mut bad = good.clone();
            bad[here.start as usize..here.end as usize].copy_from_slice(&[stored, &trailer].concat());
            put_file(&env, &bad);
            let mut scan = open(&env, &cache(1 << 20)).unwrap().scan();
            let mut given: Vec<(Vec<u8>, SeqNo)> = Vec::new();
            let error = loop {
                match scan.next() {
                    Ok(Some(entry)) => {
                        let in_order = given.last().is_none_or(|(key, seq)| {
                            entry.key > key.as_slice() || (entry.key == key.as_slice() && entry.seq < *seq)
                        });
                        assert!(in_order, "{:?} after {:?}", entry.key, given.last());
                        given.push((entry.key.to_vec(), entry.seq));
                    }
                    Ok(None) => panic!("block {number} goes unnoticed"),
                    Err(error) => break error,
                }
            };
            // If both blocks hold versions of one key, the scan may notice the disorder only in the next
            // block.
            let crate::Error::Corrupt { path, offset, .. } = &error else { panic!("{error}") };
            let at = extents.iter().position(|extent| extent.start == *offset).unwrap();
            assert!(at == number || (at == number + 1 && index(&table).continues(at)), "{number}: {error}");
            assert_eq!(path, Path::new(PATH));
            // A point read detects the wrong block unless both blocks hold versions of one key.
            let (table, pin) = (open(&env, &cache(1 << 20)).unwrap(), crate::cache::pin());
            for entry in entries.iter().filter(|entry| entry.key != b"same") {
                match table.get(&entry.key, key_hash(&entry.key), SeqNo::new(entry.seq), true, &pin) {
                    Ok(found) => {
                        assert!(found.is_some_and(|found| found.share().beside() == entry.value), "{number}")
                    }
                    Err(error) => {
                        assert!(error.is_corrupt(), "{error}");
                        refused += 1;
                    }
                }
            }
            misplaced += 1;
            continued += u32::from(index(&table).continues(number));
        }
    }
    assert!(misplaced > 10 && continued > 3 && refused > 50, "{misplaced} {continued} {refused}");
}

/// Returns the number of blocks, and the numbers of those that can be replaced by the same block of a similar
/// table unnoticed.
fn blocks_of_another_table_believed() -> (usize, Vec<usize>) {
    let env = memory();
    let options =
        TableOptions { block_bytes: 400, compression: TableCompression::None, ..TableOptions::default() };
    let entries = |value: &[u8]| -> Vec<Entry> {
        (0..60).map(|n| Entry::put(format!("key{n:02}"), 7, value)).collect()
    };
    let other = Path::new("2.sst");
    let mut writer = TableWriter::create(&env, other, options.clone()).unwrap();
    entries(b"the value of another table").iter().for_each(|e| writer.add(e.borrowed()).unwrap());
    writer.finish(None).unwrap();
    let file = env.fs.open(other, esker_env::OpenOptions::read()).unwrap();
    let theirs = esker_env::read_range(&*file, 0, file.len().unwrap() as usize).unwrap();
    let entries = entries(b"a value of the table's own");
    write(&env, &options, &entries);
    let good = file_bytes(&env);
    assert!(good.len() == theirs.len() && good != theirs);

    let table = open(&env, &cache(0)).unwrap();
    let extents = extents(&table);
    let mut believed = Vec::new();
    for (number, extent) in extents.iter().enumerate() {
        let place = extent.start as usize..extent.end as usize;
        let mut bad = good.clone();
        bad[place.clone()].copy_from_slice(&theirs[place]);
        put_file(&env, &bad);
        let table = open(&env, &cache(0)).unwrap();
        let pin = crate::cache::pin();
        let mut wrong = 0;
        for entry in &entries {
            match table.get(&entry.key, key_hash(&entry.key), SeqNo::new(entry.seq), true, &pin) {
                Ok(found) => wrong += usize::from(found.unwrap().share().beside() != entry.value),
                Err(error) => assert!(error.is_corrupt(), "{error}"),
            }
        }
        if wrong > 0 {
            believed.push(number);
        }
    }
    (extents.len(), believed)
}

#[test]
fn stored_1_a_block_of_another_table_is_not_believed() {
    let (blocks, believed) = blocks_of_another_table_believed();
    assert!(blocks > 3 && believed.is_empty(), "stored.1: {believed:?} of {blocks}");
}

#[test]
fn sstable_block_1_any_bytes_as_a_block_are_an_error_or_a_block() {
    let mut rng = fastrand::Rng::with_seed(4);
    let mut good = Vec::new();
    for (env, _) in small_tables() {
        let table = open(&env, &cache(0)).unwrap();
        for number in 0..table.blocks() {
            let pin = crate::cache::pin();
            let index = table.index(caches::Wanted::Block(number), true).unwrap();
            good.push(
                table
                    .block_of_walk(&index, number, &mut WalkWindow::new(false), &pin)
                    .unwrap()
                    .bytes()
                    .to_vec(),
            );
        }
    }
    for round in 0..200_000 {
        let mut bad = good[round % good.len()].clone();
        for _ in 0..rng.usize(1..4) {
            let at = if rng.bool() { rng.usize(..20) } else { rng.usize(..bad.len()) };
            bad[at] = if rng.bool() { rng.u8(..) } else { rng.u8(..3) };
        }
        bad.truncate(rng.usize(bad.len() / 2..bad.len() * 2));
        fuzzing::block(&bad);
    }
}
