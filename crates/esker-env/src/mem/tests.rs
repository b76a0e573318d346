//! Tests what crashes may lose, what they must keep, and that each possible loss occurs.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::{AlignedBuf, BrokenSync, File, Fs, MemFs, OpenOptions, read_range};

const SEEDS: u64 = 400;

fn open(fs: &MemFs, path: &str) -> Arc<dyn File> {
    fs.open(Path::new(path), OpenOptions { create: true, ..OpenOptions::write() }).unwrap()
}

fn content(fs: &MemFs, path: &str) -> Option<Vec<u8>> {
    let file = fs.open(Path::new(path), OpenOptions::read()).ok()?;
    Some(read_range(&*file, 0, file.len().unwrap() as usize).unwrap())
}

/// Creates a file system with the durable file `/f`.
fn durable(bytes: &[u8]) -> (MemFs, Arc<dyn File>) {
    let fs = MemFs::new();
    let file = open(&fs, "/f");
    file.write_all_at(bytes, 0).unwrap();
    file.sync_data().unwrap();
    fs.sync_dir(Path::new("/")).unwrap();
    (fs, file)
}

/// Returns all contents of `/f` after crashes with different seeds.
fn outcomes(fs: &MemFs) -> BTreeSet<Vec<u8>> {
    (0..SEEDS).map(|seed| content(&fs.crash(seed), "/f").expect("a durable name")).collect()
}

fn names(fs: &MemFs, dir: &str) -> String {
    let mut names = fs.list_dir(Path::new(dir)).unwrap();
    names.sort();
    names.join(" ")
}

fn name_outcomes(fs: &MemFs) -> BTreeSet<String> {
    (0..SEEDS).map(|seed| names(&fs.crash(seed), "/")).collect()
}

fn set(texts: &[&str]) -> BTreeSet<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn a_plain_file_system_has_no_direct_files_and_short_reads_whatever_happens_to_it() {
    let (fs, _) = durable(&[7; 3_000]);
    let look = |fs: &MemFs| {
        let file = fs.open(Path::new("/f"), OpenOptions::read().direct()).unwrap();
        (file.is_direct(), file.read_at(&mut AlignedBuf::zeroed(4096), 0).unwrap())
    };
    assert_eq!(look(&fs), (true, 3_000));
    fs.be_plain();
    for left in [fs.kill(), fs.kill_unheard(1, true), fs.crash(1), fs.crash_strict(), fs.kill().kill()] {
        assert_eq!(look(&left), (false, 1_000));
    }
    assert_eq!(look(&fs), (false, 1_000));
}

#[test]
fn a_plain_file_system_reserves_no_space_whatever_happens_to_it() {
    let (fs, _) = durable(b"abc");
    let reserve = |fs: &MemFs| {
        let file = fs.open(Path::new("/f"), OpenOptions::write()).unwrap();
        (file.allocate(0, 10).map_err(|e| e.kind()), file.len().unwrap())
    };
    assert_eq!(reserve(&fs.kill()), (Ok(()), 10));
    fs.be_plain();
    for left in [fs.kill(), fs.crash(1), fs] {
        assert_eq!(reserve(&left), (Err(io::ErrorKind::Unsupported), 3));
    }
}

#[test]
fn each_unsynced_write_is_kept_or_lost_by_itself() {
    let (fs, file) = durable(b"....");
    file.write_all_at(b"a", 0).unwrap();
    file.write_all_at(b"b", 2).unwrap();
    let expected = ["....", "a...", "..b.", "a.b."].map(|text| text.as_bytes().to_vec());
    assert_eq!(outcomes(&fs), BTreeSet::from(expected));
    assert_eq!(content(&fs.crash_strict(), "/f").unwrap(), b"....");
    assert_eq!(content(&fs.crash_keep_all(), "/f").unwrap(), b"a.b.");
    assert_eq!(content(&fs, "/f").unwrap(), b"a.b.", "the original stays as it is");
}

#[test]
fn lengths_and_bytes_survive_apart() {
    let (fs, file) = durable(b"ab");
    file.write_all_at(b"cd", 2).unwrap();
    let expected = [b"ab".to_vec(), b"ab\0\0".to_vec(), b"abcd".to_vec()];
    assert_eq!(outcomes(&fs), BTreeSet::from(expected));

    let (fs, file) = durable(b"abcd");
    file.set_len(1).unwrap();
    file.set_len(3).unwrap();
    let expected = [b"abcd".to_vec(), b"a".to_vec(), b"a\0\0".to_vec()];
    assert_eq!(outcomes(&fs), BTreeSet::from(expected));
    file.sync_data().unwrap();
    assert_eq!(outcomes(&fs), BTreeSet::from([b"a\0\0".to_vec()]));
}

#[test]
fn lost_bytes_of_a_kept_length_may_be_noise() {
    let (fs, file) = durable(b"ab");
    fs.leave_noise();
    file.write_all_at(b"cd", 4).unwrap();
    for fs in [fs.kill(), fs] {
        let left = outcomes(&fs);
        for expected in [&b"ab"[..], b"ab\0\0\0\0", b"ab\0\0cd"] {
            assert!(left.contains(expected));
        }
        assert!(left.len() > 5);
        let is_legal = |left: &Vec<u8>| left == b"ab" || left.len() == 6 && left.starts_with(b"ab\0\0");
        assert!(left.iter().all(is_legal));
    }
}

#[test]
fn lost_bytes_of_a_kept_length_may_be_those_of_another_file() {
    let (fs, file) = durable(b"ab");
    let other = open(&fs, "/g");
    other.write_all_at(b"ghijk", 0).unwrap();
    file.write_all_at(b"cdef", 2).unwrap();
    let is_mixed = |fs: &MemFs| outcomes(fs).iter().any(|left| left.len() == 6 && left.starts_with(b"abijk"));
    assert!(!is_mixed(&fs));
    fs.leave_noise();
    for fs in [fs.kill(), fs] {
        assert!(is_mixed(&fs));
    }
}

#[test]
fn writes_tear_at_sectors() {
    let (fs, file) = durable(&[0; 16_384]);
    file.write_all_at(&[1; 8192], 100).unwrap();
    let mut units = BTreeSet::new();
    for left in outcomes(&fs) {
        assert!(left.len() == 16_384 && left[..100].iter().chain(&left[8292..]).all(|byte| *byte == 0));
        let mut edges = (101..8292).filter(|&i| left[i] != left[i - 1]).peekable();
        if edges.peek().is_some() {
            units.insert(if edges.all(|i| i % 4096 == 0) { 4096 } else { 512 });
        }
        assert!((101..8292).all(|i| left[i] == left[i - 1] || i % 512 == 0), "torn inside a sector");
    }
    assert_eq!(units, BTreeSet::from([512, 4096]));
}

/// Checks by brute force: synced bytes that no later write touches are never lost.
#[test]
fn synced_bytes_stay() {
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (fs, file) = durable(&[]);
        let (mut model, mut synced) = (Vec::<u8>::new(), Vec::<u8>::new());
        let mut dirty: Vec<bool> = Vec::new();
        let mut shortest = 0;
        for _ in 0..40 {
            match rng.u8(0..8) {
                0 => {
                    let len = rng.usize(0..20_000);
                    file.set_len(len as u64).unwrap();
                    model.resize(len, 0);
                    shortest = shortest.min(len);
                }
                1 => {
                    file.sync_data().unwrap();
                    (synced, shortest) = (model.clone(), model.len());
                    dirty = vec![false; 40_000];
                }
                _ => {
                    let (offset, len) = (rng.usize(0..20_000), rng.usize(1..9000));
                    let bytes = vec![rng.u8(1..); len];
                    file.write_all_at(&bytes, offset as u64).unwrap();
                    model.resize(model.len().max(offset + len), 0);
                    model[offset..offset + len].copy_from_slice(&bytes);
                    dirty.resize(40_000, false);
                    dirty[offset..offset + len].fill(true);
                }
            }
            assert_eq!(content(&fs, "/f").unwrap(), model);
            assert_eq!(content(&fs.crash_strict(), "/f").unwrap(), synced);
            let left = content(&fs.crash(rng.u64(..)), "/f").unwrap();
            assert!(left.len() >= shortest);
            let kept = (0..shortest).all(|i| dirty[i] || left[i] == synced[i]);
            assert!(kept, "seed {seed}");
        }
    }
}

#[test]
fn what_fails_to_be_written_unheard_is_read_or_not_and_never_synced() {
    let (fs, file) = durable(&[1; 2000]);
    file.write_all_at(&[2; 3000], 0).unwrap();
    let (mut cached, mut evicted) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..SEEDS {
        for (is_evicted, found) in [(false, &mut cached), (true, &mut evicted)] {
            let killed = fs.kill_unheard(seed, is_evicted);
            let read = content(&killed, "/f").unwrap();
            assert!(read.len() == 3000 && (is_evicted || read == [2; 3000]), "seed {seed}");
            open(&killed, "/f").sync_data().unwrap();
            let synced = content(&killed.crash_strict(), "/f").unwrap();
            // After eviction, readers see the state on disk.
            assert!(synced.len() == 3000 && (!is_evicted || synced == read), "seed {seed}");
            // Rewritten bytes become durable.
            open(&killed, "/f").write_all_at(&read, 0).unwrap();
            open(&killed, "/f").sync_data().unwrap();
            assert_eq!(content(&killed.crash_strict(), "/f").unwrap(), read, "seed {seed}");
            found.insert(synced);
        }
    }
    let lost = [vec![1; 2000], vec![0; 1000]].concat();
    for found in [&cached, &evicted] {
        assert!(
            found.contains(&lost) && found.contains(&vec![2; 3000]) && found.len() > 10,
            "{}",
            found.len()
        );
    }
    assert_eq!(content(&fs, "/f").unwrap(), [2; 3000], "the first stays as it is");
}

/// A canary: a missing sync of the directory must be detected.
#[test]
fn a_file_vanishes_with_its_unsynced_name() {
    let fs = MemFs::new();
    let file = open(&fs, "/f");
    file.write_all_at(b"x", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(name_outcomes(&fs), set(&["", "f"]));
    assert_eq!(names(&fs.crash_strict(), "/"), "");
    assert_eq!(content(&fs.crash_keep_all(), "/f").unwrap(), b"x");
    fs.sync_dir(Path::new("/")).unwrap();
    assert_eq!(name_outcomes(&fs), set(&["f"]));
    assert_eq!(outcomes(&fs), BTreeSet::from([b"x".to_vec()]));
}

#[test]
fn a_rename_is_atomic() {
    let (fs, _) = durable(b"old");
    let new = open(&fs, "/t");
    new.write_all_at(b"new", 0).unwrap();
    new.sync_data().unwrap();
    fs.sync_dir(Path::new("/")).unwrap();
    fs.rename(Path::new("/t"), Path::new("/f")).unwrap();
    assert_eq!(name_outcomes(&fs), set(&["f t", "f"]));
    assert_eq!(outcomes(&fs), BTreeSet::from([b"old".to_vec(), b"new".to_vec()]));
    for seed in 0..SEEDS {
        let left = fs.crash(seed);
        assert_eq!(content(&left, "/f").unwrap() == b"old", content(&left, "/t").is_some());
    }
}

#[test]
fn operations_on_names_survive_in_legal_combinations() {
    let (fs, _) = durable(b"x");
    open(&fs, "/a");
    fs.rename(Path::new("/a"), Path::new("/b")).unwrap();
    fs.remove_file(Path::new("/f")).unwrap();
    // The rename needs the creation; the removal is independent.
    assert_eq!(name_outcomes(&fs), set(&["f", "a f", "b f", "", "a", "b"]));
    open(&fs, "/f");
    fs.sync_dir(Path::new("/")).unwrap();
    assert_eq!(name_outcomes(&fs), set(&["b f"]));
}

#[test]
fn a_directory_sync_covers_its_own_names_and_their_past() {
    let fs = MemFs::new();
    fs.create_dir_all(Path::new("/d/e")).unwrap();
    open(&fs, "/a");
    open(&fs, "/other");
    fs.rename(Path::new("/a"), Path::new("/d/a")).unwrap();
    fs.sync_dir(Path::new("/d")).unwrap();
    let left = fs.crash_strict();
    assert_eq!((names(&left, "/").as_str(), names(&left, "/d").as_str()), ("d", "a e"));
    assert_eq!(name_outcomes(&fs), set(&["d", "d other"]));
}

#[test]
fn a_directory_vanishes_with_its_unsynced_name_and_all_below_it() {
    let fs = MemFs::new();
    fs.make_dir(Path::new("/d")).unwrap();
    assert!(fs.make_dir(Path::new("/d")).is_err());
    fs.create_dir_all(Path::new("/d/e")).unwrap();
    open(&fs, "/d/e/f");
    fs.sync_dir(Path::new("/d")).unwrap();
    fs.sync_dir(Path::new("/d/e")).unwrap();
    let is_there = |fs: MemFs| fs.exists(Path::new("/d/e/f")).unwrap();
    assert!(!is_there(fs.crash_strict()) && is_there(fs.crash_keep_all()) && is_there(fs.kill()));
    assert!(!is_there(fs.kill().crash_strict()));
    assert_eq!(name_outcomes(&fs), set(&["", "d"]));
    fs.sync_dir(Path::new("/")).unwrap();
    assert!(is_there(fs.crash_strict()));
    assert_eq!(name_outcomes(&fs), set(&["d"]));
}

#[test]
fn crashes_repeat_by_seed() {
    let run = |seed| {
        let fs = MemFs::new();
        for i in 0..20_u8 {
            let file = open(&fs, &format!("/{i}"));
            file.write_all_at(&[i; 3000], u64::from(i)).unwrap();
        }
        let left = fs.crash(seed);
        (0..20).map(|i| content(&left, &format!("/{i}"))).collect::<Vec<_>>()
    };
    assert!((0..20).all(|seed| run(seed) == run(seed)));
    assert!((0..20).any(|seed| run(seed) != run(seed + 1)));
}

#[test]
fn a_full_disk_takes_what_fits() {
    let fs = MemFs::new();
    fs.set_capacity(Some(10_000));
    let file = open(&fs, "/f");
    file.write_all_at(&[1; 6000], 0).unwrap();
    let full = |result: io::Result<()>| assert_eq!(result.unwrap_err().kind(), io::ErrorKind::StorageFull);
    full(file.write_all_at(&[2; 6000], 6000));
    assert_eq!((file.len().unwrap(), fs.used_bytes()), (10_000, 10_000));
    full(file.set_len(10_001));
    full(file.allocate(0, 10_001));
    full(file.write_all_at(&[3], 10_000));
    assert_eq!(fs.refusals(), 4);
    file.write_all_at(&[3; 10_000], 0).unwrap();
    file.set_len(5000).unwrap();
    assert_eq!(fs.refusals(), 4);
    assert_eq!(fs.free_bytes(Path::new("/")).unwrap(), 5000);
    let direct = fs.open(Path::new("/d"), OpenOptions::create().direct()).unwrap();
    full(direct.write_all_at(&AlignedBuf::zeroed(8192), 0));
    assert_eq!((direct.len().unwrap(), fs.used_bytes()), (4096, 9096));

    fs.remove_file(Path::new("/f")).unwrap();
    assert_eq!(fs.used_bytes(), 9096, "an open file keeps its room");
    drop(file);
    assert_eq!(fs.used_bytes(), 4096);
    let other = open(&fs, "/o");
    other.write_all_at(&[1; 5000], 0).unwrap();
    drop((other, direct));
    fs.rename(Path::new("/o"), Path::new("/d")).unwrap();
    assert_eq!(fs.used_bytes(), 5000);
    fs.open(Path::new("/d"), OpenOptions::create()).unwrap();
    assert_eq!(fs.used_bytes(), 0);
    assert_eq!(fs.crash_keep_all().used_bytes(), 0);
}

#[test]
fn a_crash_ends_locks_and_resets_counts() {
    let fs = MemFs::new();
    let _held = fs.lock(Path::new("/LOCK")).unwrap();
    assert!(fs.ops() > 0);
    let left = fs.crash_keep_all();
    assert_eq!(left.ops(), 0);
    drop(left.lock(Path::new("/LOCK")).unwrap());
    assert!(fs.lock(Path::new("/LOCK")).is_err());
}

#[test]
fn after_a_kill_everything_is_there_and_the_unsynced_can_still_be_lost() {
    let (fs, file) = durable(b"....");
    file.write_all_at(b"a", 0).unwrap();
    let _held = fs.lock(Path::new("/LOCK")).unwrap();
    let renamed = open(&fs, "/g");
    renamed.write_all_at(b"g", 0).unwrap();
    fs.rename(Path::new("/g"), Path::new("/h")).unwrap();

    let next = fs.kill();
    assert_eq!((content(&next, "/f").unwrap(), names(&next, "/")), (b"a...".to_vec(), names(&fs, "/")));
    assert_eq!(next.used_bytes(), fs.used_bytes());
    drop(next.lock(Path::new("/LOCK")).unwrap());
    assert_eq!(content(&next.crash_strict(), "/f").unwrap(), b"....");
    assert_eq!(content(&next.crash_strict(), "/h"), None);
    assert_eq!(outcomes(&next), outcomes(&fs));

    // The file systems share nothing: what the next process syncs is durable only there.
    open(&next, "/f").sync_data().unwrap();
    next.sync_dir(Path::new("/")).unwrap();
    assert_eq!(content(&next.crash_strict(), "/f").unwrap(), b"a...");
    assert_eq!(content(&fs.crash_strict(), "/f").unwrap(), b"....");
    let used = next.used_bytes();
    drop((file, renamed));
    fs.remove_file(Path::new("/h")).unwrap();
    assert_eq!((content(&next, "/h").unwrap(), next.used_bytes()), (b"g".to_vec(), used));
}

#[test]
#[should_panic(expected = "direct I/O")]
fn unaligned_direct_io_is_caught() {
    let fs = MemFs::new();
    let file = fs.open(Path::new("/f"), OpenOptions::create().direct()).unwrap();
    let _ = file.write_all_at(&AlignedBuf::zeroed(4096)[1..], 0);
}

#[test]
fn broken_syncs_do_nothing() {
    for (which, survives) in [(None, true), (Some(BrokenSync::Data), false), (Some(BrokenSync::Dir), false)] {
        let fs = MemFs::new();
        which.into_iter().for_each(|which| fs.break_syncs(which));
        let file = fs.open(Path::new("/f"), OpenOptions::create()).unwrap();
        file.write_all_at(b"x", 0).unwrap();
        file.sync_data().unwrap();
        fs.sync_dir(Path::new("/")).unwrap();
        let left = fs.crash_strict();
        let durable = left.file_size(Path::new("/f")).is_ok_and(|len| len == 1);
        assert_eq!(durable, survives, "{which:?}");
    }
}

#[test]
fn files_that_fail_to_be_written_unheard_fare_differently() {
    let fs = MemFs::new();
    for path in ["/log", "/table"] {
        open(&fs, path).write_all_at(&[1; 3000], 0).unwrap();
    }
    let mut fates = BTreeSet::new();
    for seed in 0..SEEDS {
        let synced = |path| content(&fs.kill_unheard(seed, true), path).unwrap();
        let has = |path| (synced(path) == [0; 3000], synced(path) == [1; 3000]);
        assert_eq!(has("/log"), has("/log"), "seed {seed}");
        let torn = |path| has(path) == (false, false);
        if torn("/log") && torn("/table") {
            fates.insert(if synced("/log") == synced("/table") { "torn as one" } else { "torn apart" });
        } else if has("/log").0 {
            fates.insert(if has("/table").0 { "both lost" } else { "the log lost" });
        } else if has("/log").1 {
            fates.insert(if has("/table").0 { "the table lost" } else { "the log kept" });
        }
    }
    let all = ["torn apart", "both lost", "the log lost", "the table lost", "the log kept"];
    assert!(all.iter().all(|fate| fates.contains(fate)), "{fates:?}");
}

#[test]
fn what_a_sync_has_forgotten_can_be_evicted_unheard() {
    let (fs, file) = durable(b"abcd");
    file.write_all_at(b"xy", 1).unwrap();
    file.forget_unsynced();
    let reads = |evicted| {
        let read = |seed| content(&fs.kill_unheard(seed, evicted), "/f").unwrap();
        (0..SEEDS).map(read).collect::<BTreeSet<_>>()
    };
    assert_eq!(reads(false), BTreeSet::from([b"axyd".to_vec()]));
    assert_eq!(reads(true), BTreeSet::from([b"abcd".to_vec(), b"axyd".to_vec()]));
}

#[test]
fn a_link_comes_and_goes_by_itself_and_its_bytes_are_the_same() {
    let (fs, file) = durable(&[1; 9000]);
    let path = Path::new;
    fs.hard_link(path("/f"), path("/g")).unwrap();
    file.write_all_at(&[2; 9000], 0).unwrap();
    assert_eq!(name_outcomes(&fs), set(&["f", "f g"]));
    for seed in 0..SEEDS {
        let left = fs.crash(seed);
        let linked = content(&left, "/g");
        assert!(linked.is_none() || linked == content(&left, "/f"), "one file, torn once");
    }
    assert_eq!(fs.used_bytes(), 9000);
    fs.remove_file(path("/f")).unwrap();
    assert_eq!((fs.used_bytes(), fs.kill().used_bytes()), (9000, 9000));
    // Each of the two names may survive by itself.
    assert_eq!(name_outcomes(&fs), set(&["", "f", "f g", "g"]));
    fs.sync_dir(path("/")).unwrap();
    assert_eq!(names(&fs.crash_strict(), "/"), "g");
}

#[test]
fn a_renamed_directory_may_lose_what_was_not_synced_in_it() {
    let path = Path::new;
    let fs = MemFs::new();
    fs.create_dir_all(path("/tmp")).unwrap();
    for name in ["/tmp/a", "/tmp/b"] {
        open(&fs, name);
    }
    fs.remove_file(path("/tmp/b")).unwrap();
    open(&fs, "/tmp/c");
    fs.sync_dir(path("/tmp")).unwrap();
    fs.rename(path("/tmp/c"), path("/tmp/d")).unwrap();
    fs.rename_dir(path("/tmp"), path("/new")).unwrap();
    open(&fs, "/new/e");
    let look = |fs: &MemFs| {
        let files = |dir| fs.list_dir(path(dir)).map(|_| names(fs, dir)).unwrap_or_default();
        format!("{}: {}{}", names(fs, "/"), files("/tmp"), files("/new"))
    };
    let outcomes: BTreeSet<String> = (0..SEEDS).map(|seed| look(&fs.crash(seed))).collect();
    let expected = ["new: a c", "new: a c e", "new: a d", "new: a d e", "tmp: a c", "tmp: a d"];
    assert_eq!(outcomes, set(&expected));
    fs.sync_dir(path("/")).unwrap();
    assert_eq!(look(&fs.crash_strict()), "new: a c", "the file's other name is not durable");
    let left = fs.kill();
    left.sync_dir(path("/new")).unwrap();
    assert_eq!(look(&left.crash_strict()), "new: a d e");
}

#[test]
fn a_directory_that_is_removed_comes_back_empty_or_not_at_all() {
    let path = Path::new;
    let fs = MemFs::new();
    fs.create_dir_all(path("/d")).unwrap();
    open(&fs, "/d/a");
    fs.sync_dir(path("/d")).unwrap();
    fs.remove_file(path("/d/a")).unwrap();
    fs.remove_dir(path("/d")).unwrap();
    let look = |fs: &MemFs| fs.list_dir(path("/d")).map(|names| names.len()).ok();
    let outcomes: BTreeSet<_> = (0..SEEDS).map(|seed| look(&fs.crash(seed))).collect();
    assert_eq!(outcomes, BTreeSet::from([None, Some(0), Some(1)]));
    fs.create_dir_all(path("/d")).unwrap();
    assert_eq!(look(&fs.crash_strict()), Some(0), "the new one is durable, and so is the end of the old one");
}
