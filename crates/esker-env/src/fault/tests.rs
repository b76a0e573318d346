//! Tests each fault, the counting of calls, and the freeze.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::{
    AlignedBuf, Clock, FaultAction, FaultFs, FaultRule, File, Fired, Fs, MemFs, OpKind, OpenOptions,
    SystemClock, read_range,
};

fn setup() -> (FaultFs, Arc<dyn File>) {
    let fs = FaultFs::new(Arc::new(MemFs::new()));
    let file = fs.open(Path::new("/f"), OpenOptions::create()).unwrap();
    file.write_all_at(b"0123456789", 0).unwrap();
    (fs, file)
}

fn rule(kind: OpKind, action: FaultAction) -> FaultRule {
    FaultRule::new(&[kind], action)
}

#[test]
fn the_nth_matching_call_fails_as_often_as_asked() {
    let (fs, file) = setup();
    fs.add(FaultRule { times: 2, ..rule(OpKind::Write, FaultAction::Fail(io::ErrorKind::TimedOut)).nth(3) });
    let failed: Vec<bool> = (0..6).map(|_| file.write_all_at(b"x", 0).is_err()).collect();
    assert_eq!(failed, [false, false, true, true, false, false]);
    assert_eq!((fs.count(OpKind::Write), fs.count(OpKind::Create), fs.fired()), (7, 1, 2));

    fs.add(rule(OpKind::SyncData, FaultAction::Fail(io::ErrorKind::TimedOut)).forever());
    assert!((0..5).all(|_| file.sync_data().unwrap_err().kind() == io::ErrorKind::TimedOut));
    fs.clear();
    file.sync_data().unwrap();
}

#[test]
fn rules_look_at_the_path() {
    let (fs, file) = setup();
    fs.add(FaultRule::new(&OpKind::ALL, FaultAction::NoSpace).on_path("wal").forever());
    file.write_all_at(b"x", 0).unwrap();
    let full = |result: io::Result<()>| assert_eq!(result.unwrap_err().kind(), io::ErrorKind::StorageFull);
    full(fs.rename(Path::new("/f"), Path::new("/1.wal")));
    full(fs.open(Path::new("/1.wal"), OpenOptions::create()).map(drop));
    full(fs.remove_file(Path::new("/1.wal")));
    assert!(fs.lock(Path::new("/wal.lock")).is_err());
    assert!(fs.exists(Path::new("/f")).unwrap(), "the failed rename had no effect");
}

#[test]
fn rules_look_at_the_file() {
    let (fs, file) = setup();
    fs.add(FaultRule::new(&OpKind::ALL, FaultAction::NoSpace).on_file(Path::new("/1.wal")).forever());
    let is_full = |result: io::Result<()>| result.is_err_and(|e| e.kind() == io::ErrorKind::StorageFull);
    let create = |path: &str| fs.open(Path::new(path), OpenOptions::create()).map(drop);
    create("/1.wal-next").unwrap();
    create("/11.wal").unwrap();
    assert!(is_full(create("/1.wal")));
    assert!(is_full(fs.rename(Path::new("/f"), Path::new("/1.wal"))));
    file.write_all_at(b"x", 0).unwrap();
}

#[test]
fn rules_look_at_the_bytes() {
    let (fs, file) = setup();
    fs.add(rule(OpKind::Read, FaultAction::Fail(io::ErrorKind::Other)).on_bytes(4..6).forever());
    let fails = |at, len| read_range(&*file, at, len).is_err();
    assert!(fails(0, 10) && fails(4, 1) && fails(5, 1) && fails(5, 5) && fails(3, 2));
    assert!(!fails(0, 4) && !fails(6, 4) && !fails(9, 1));
    assert_eq!((fs.fired(), fs.read_bytes()), (5, 9));
    file.write_all_at(b"x", 4).unwrap();
    assert!(file.len().is_ok() && fs.exists(Path::new("/f")).is_ok());
}

#[test]
fn an_open_file_is_known_by_its_new_name() {
    let (fs, file) = setup();
    let other = fs.open(Path::new("/other"), OpenOptions::create()).unwrap();
    fs.rename(Path::new("/f"), Path::new("/1.wal")).unwrap();
    fs.add(FaultRule::new(&[OpKind::Write, OpKind::SyncDir], FaultAction::NoSpace).forever());
    fs.add(FaultRule::new(&[OpKind::SyncData], FaultAction::NoSpace).on_path("/f").forever());
    assert!(fs.sync_dir(Path::new("/")).is_err() && file.write_all_at(b"x", 0).is_err());
    file.sync_data().unwrap();
    fs.remove_file(Path::new("/other")).unwrap();
    assert!(fs.sync_dir(Path::new("/")).is_err() && other.write_all_at(b"x", 0).is_err());
    let fired = |kind, path: &str| Fired { kind, path: path.into(), action: FaultAction::NoSpace };
    let all = [
        fired(OpKind::SyncDir, "/1.wal"),
        fired(OpKind::Write, "/1.wal"),
        fired(OpKind::SyncDir, "/other"),
        fired(OpKind::Write, "/other"),
    ];
    assert_eq!((fs.fired_after(0), fs.fired_after(3)), (all.to_vec(), all[3..].to_vec()));
}

#[test]
fn a_short_write_stores_a_prefix() {
    let (fs, file) = setup();
    fs.add(rule(OpKind::Write, FaultAction::ShortWrite { keep: 2 }));
    assert!(file.write_all_at(b"abcd", 4).is_err());
    assert_eq!(read_range(&*file, 0, 10).unwrap(), b"0123ab6789");

    let direct = fs.open(Path::new("/d"), OpenOptions::create().direct()).unwrap();
    fs.add(rule(OpKind::Write, FaultAction::ShortWrite { keep: 5000 }));
    assert!(direct.write_all_at(&AlignedBuf::zeroed(8192), 0).is_err());
    assert_eq!(direct.len().unwrap(), 4096);
}

#[test]
fn a_corrupt_read_changes_one_byte() {
    let (fs, file) = setup();
    fs.add(FaultRule::new(&[OpKind::Read], FaultAction::CorruptRead { xor: 1, at: 13 }).forever());
    assert_eq!(read_range(&*file, 0, 10).unwrap(), b"0122456789");
    assert_eq!(file.read_at(&mut [0; 4], 10).unwrap(), 0);
    fs.clear();
    assert_eq!(read_range(&*file, 0, 10).unwrap(), b"0123456789");
}

/// Readers continue after short and interrupted reads.
#[test]
fn short_and_interrupted_reads_change_nothing() {
    let bytes: Vec<u8> = (0..20_000).map(|n| (n % 251) as u8).collect();
    let fs = FaultFs::new(Arc::new(MemFs::new()));
    fs.open(Path::new("/f"), OpenOptions::create()).unwrap().write_all_at(&bytes, 0).unwrap();
    for (direct, keep, first) in [(false, 3, 3), (true, 3, 4096), (true, 9_000, 8192), (false, 0, 1)] {
        let options = OpenOptions { direct, ..OpenOptions::read() };
        let file = fs.open(Path::new("/f"), options).unwrap();
        let reads = |n: u64| fs.count(OpKind::Read) - n;
        fs.add(rule(OpKind::Read, FaultAction::ShortRead { keep }));
        let mut once = AlignedBuf::zeroed(12_288);
        assert_eq!(file.read_at(&mut once, 4096).unwrap(), first, "{direct} {keep}");
        assert_eq!(once[..first], bytes[4096..4096 + first]);
        for action in [FaultAction::ShortRead { keep }, FaultAction::Fail(io::ErrorKind::Interrupted)] {
            // The first read, and many in a row; an interrupted read must succeed eventually.
            for times in [1, 30] {
                for (offset, len) in [(0, 20_000), (4096, 8192), (4095, 4098), (19_999, 1), (100, 19_900)] {
                    fs.clear();
                    fs.add(FaultRule { times, ..rule(OpKind::Read, action) });
                    let before = fs.count(OpKind::Read);
                    let read = read_range(&*file, offset, len).unwrap();
                    let expected = &bytes[offset as usize..offset as usize + len];
                    assert!(read == expected, "{action:?} {offset} {len}");
                    assert!(reads(before) > 1 || len < 4096 || keep > len, "{action:?}: in parts");
                }
                fs.clear();
                fs.add(FaultRule { times, ..rule(OpKind::Read, action) });
                file.read_exact_at(&mut once, 4096).unwrap();
                assert!(once[..] == bytes[4096..4096 + 12_288], "{action:?}");
                for (offset, len) in [(19_999, 2), (20_000, 1), (0, 20_001)] {
                    let error = read_range(&*file, offset, len).unwrap_err();
                    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{action:?} {offset} {len}");
                }
            }
        }
        fs.clear();
    }
}

#[test]
fn nothing_passes_a_freeze() {
    let (fs, file) = setup();
    fs.freeze();
    fs.clear();
    assert!(fs.is_frozen());
    assert!(file.write_all_at(b"x", 0).is_err() && file.sync_data().is_err() && file.len().is_err());
    assert!(file.read_at(&mut [0], 0).is_err());
    assert!(fs.open(Path::new("/f"), OpenOptions::read()).is_err() && fs.sync_dir(Path::new("/")).is_err());
}

#[test]
fn a_process_may_die_inside_a_write() {
    let (fs, file) = setup();
    fs.add(rule(OpKind::Write, FaultAction::Freeze { keep: 2 }));
    assert!(file.write_all_at(b"abcd", 0).is_err() && fs.is_frozen() && fs.fired() == 1);
    assert!(file.write_all_at(b"x", 0).is_err() && file.sync_data().is_err());
    let fs = FaultFs::new(fs.inner.clone());
    assert_eq!(
        read_range(&*fs.open(Path::new("/f"), OpenOptions::read()).unwrap(), 0, 10).unwrap(),
        b"ab23456789"
    );
}

#[test]
fn a_delayed_call_takes_its_time_and_holds_up_no_other() {
    let pause = Duration::from_millis(500);
    let is_written_meanwhile = || {
        let (fs, file) = setup();
        fs.add(rule(OpKind::SyncData, FaultAction::Delay(pause)));
        let clock = SystemClock::new();
        let is_in_time = std::thread::scope(|scope| {
            scope.spawn(|| file.sync_data().unwrap());
            while fs.fired() == 0 {
                std::thread::yield_now();
            }
            file.write_all_at(b"x", 0).unwrap();
            clock.monotonic() < pause
        });
        assert!(clock.monotonic() >= pause);
        is_in_time
    };
    // A slow machine may be late once, but not each time.
    assert!((0..20).any(|_| is_written_meanwhile()), "the write did not wait for the sync");
}

#[test]
fn the_fingerprint_tells_runs_apart() {
    let run = |offset| {
        let (fs, file) = setup();
        file.write_all_at(b"x", offset).unwrap();
        fs.fingerprint()
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn a_lost_sync_fails_and_no_later_sync_makes_up_for_it() {
    let disk = MemFs::new();
    let fs = FaultFs::new(Arc::new(disk.clone()));
    let path = Path::new("/f");
    let file = fs.open(path, OpenOptions::create()).unwrap();
    file.write_all_at(b"old bytes", 0).unwrap();
    file.sync_data().unwrap();
    fs.sync_dir(Path::new("/")).unwrap();
    let left = |crashed: MemFs| {
        let file = crashed.open(path, OpenOptions::read()).unwrap();
        read_range(&*file, 0, file.len().unwrap() as usize).unwrap()
    };

    fs.add(rule(OpKind::SyncData, FaultAction::LostSync));
    file.write_all_at(b"new bytes, and more", 0).unwrap();
    assert!(file.sync_data().is_err());
    assert_eq!(read_range(&*file, 0, 19).unwrap(), b"new bytes, and more", "readers see them");
    file.sync_data().unwrap();
    let lost = b"old bytes\0\0\0\0\0\0\0\0\0\0";
    assert_eq!(left(disk.crash_strict()), lost);
    assert_eq!(left(disk.crash_keep_all()), lost);
    assert_eq!(left(disk.kill().crash_keep_all()), lost);

    file.write_all_at(b"new", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(&left(disk.crash_strict())[..9], b"new bytes");
    file.write_all_at(b"all", 0).unwrap();
    assert_eq!(&left(disk.crash_strict())[..9], b"new bytes", "only what was written again");
    file.set_len(3).unwrap();
    file.sync_data().unwrap();
    assert_eq!(left(disk.crash_strict()), b"all");
}

#[test]
fn a_call_that_is_done_and_fails_has_had_its_effect() {
    let (fs, file) = setup();
    let path = Path::new;
    let late = |kind| fs.add(rule(kind, FaultAction::DoneThenFail(io::ErrorKind::TimedOut)));
    let fails = |result: io::Result<()>| assert_eq!(result.unwrap_err().kind(), io::ErrorKind::TimedOut);
    OpKind::CHANGES.into_iter().for_each(late);
    fails(fs.open(path("/new"), OpenOptions::create_new()).map(drop));
    assert!(fs.exists(path("/new")).unwrap());
    fails(file.write_all_at(b"x", 0));
    assert_eq!(read_range(&*file, 0, 2).unwrap(), b"x1");
    fails(file.set_len(5));
    assert_eq!(file.len().unwrap(), 5);
    fails(file.allocate(0, 7));
    assert_eq!(file.len().unwrap(), 7);
    fails(fs.rename(path("/f"), path("/g")));
    assert!(fs.exists(path("/g")).unwrap() && !fs.exists(path("/f")).unwrap());
    fails(fs.hard_link(path("/g"), path("/h")));
    assert!(fs.exists(path("/g")).unwrap() && fs.exists(path("/h")).unwrap());
    fails(fs.remove_file(path("/new")));
    assert!(!fs.exists(path("/new")).unwrap());
    fails(fs.create_dir_all(path("/dir")));
    assert!(fs.exists(path("/dir")).unwrap());
    fails(file.sync_data());
    fails(fs.sync_dir(path("/")));
    assert_eq!(fs.fired(), OpKind::CHANGES.len() as u64);
    // Calls without effect only fail.
    late(OpKind::Read);
    fails(file.read_at(&mut [0], 0).map(drop));
    file.write_all_at(b"y", 0).unwrap();
}

#[test]
fn a_sync_that_is_done_and_fails_is_durable() {
    let disk = MemFs::new();
    let fs = FaultFs::new(Arc::new(disk.clone()));
    let file = fs.open(Path::new("/f"), OpenOptions::create()).unwrap();
    file.write_all_at(b"x", 0).unwrap();
    fs.add(
        FaultRule::new(&[OpKind::SyncData, OpKind::SyncDir], FaultAction::DoneThenFail(io::ErrorKind::Other))
            .forever(),
    );
    assert!(file.sync_data().is_err() && fs.sync_dir(Path::new("/")).is_err());
    assert_eq!(disk.crash_strict().file_size(Path::new("/f")).unwrap(), 1);
}
