//! Tests of files, names and locks of the system, and of short writes.

use std::os::unix::fs::PermissionsExt;

use super::file::write_all_by;
use super::lock::{Moment, RealLock};
use super::*;
use crate::AlignedBuf;

fn at(path: &Path) -> At<'_> {
    At { held: None, path }
}

#[test]
fn a_new_file_that_cannot_be_switched_is_not_left_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let fails = |_: &fs::File| Err(io::ErrorKind::Other.into());
    for _ in 0..2 {
        let error = open_with(at(&path), OpenOptions::create_new().direct(), fails).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Other);
        assert!(!path.exists());
    }
    // Existing files stay.
    fs::write(&path, "mine").unwrap();
    for options in [OpenOptions::write(), OpenOptions::read()] {
        open_with(at(&path), options.direct(), fails).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"mine");
    }
    open_with(at(&path), OpenOptions::create_new().direct(), |_| Ok(false)).unwrap_err();
    assert!(path.exists());
}

#[test]
fn a_direct_file_whose_calls_are_refused_goes_on_buffered() {
    let dir = tempfile::tempdir().unwrap();
    for first in ["write", "read"] {
        let file = RealFs::new().open(&dir.path().join(first), OpenOptions::create_new().direct()).unwrap();
        let block = AlignedBuf::zeroed(AlignedBuf::ALIGN);
        file.write_all_at(&block, 0).unwrap();
        // No file system accepts this as direct I/O.
        if first == "read" {
            assert_eq!(file.read_at(&mut [1; 3], 1).unwrap(), 3);
        }
        file.write_all_at(b"odd", 1).unwrap();
        let mut bytes = [1; 5];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"\0odd\0");
        file.sync_data().unwrap();
    }
}

/// Returns three different blocks.
fn three_blocks() -> Vec<u8> {
    (0..3 * AlignedBuf::ALIGN).map(|n| (n % 251) as u8).collect()
}

#[test]
fn a_direct_write_that_is_cut_inside_a_block_is_repeated_from_its_start() {
    const OFFSET: usize = 5 * AlignedBuf::ALIGN;
    let bytes = three_blocks();
    for whole in [0, AlignedBuf::ALIGN, 2 * AlignedBuf::ALIGN] {
        let mut store = vec![0; OFFSET + bytes.len()];
        let mut calls = Vec::new();
        let written = write_all_by(&bytes, OFFSET as u64, true, |part, at| {
            let at = at as usize;
            calls.push(at - OFFSET);
            // The first call ends 1,024 bytes into a block; the second one is interrupted.
            let n = match calls.len() {
                1 => whole + 1024,
                2 => return Err(io::ErrorKind::Interrupted.into()),
                _ => part.len(),
            };
            store[at..at + n].copy_from_slice(&part[..n]);
            Ok(n)
        });
        written.unwrap();
        assert_eq!(calls, [0, whole, whole]);
        assert!(store[OFFSET..] == bytes[..], "cut behind {whole}");
        assert!(store[..OFFSET].iter().all(|byte| *byte == 0), "cut behind {whole}");
    }
}

#[test]
fn a_direct_write_that_is_cut_inside_a_block_again_has_met_a_full_disk() {
    let bytes = three_blocks();
    for whole in [0, AlignedBuf::ALIGN, 2 * AlignedBuf::ALIGN] {
        // The disk has this much space. A retry reports that it is full, or writes as little as before.
        for error in [None, Some(io::ErrorKind::QuotaExceeded)] {
            let mut calls = 0;
            let written = write_all_by(&bytes, 0, true, |part, at| {
                calls += 1;
                assert!(calls < 10, "it goes round for ever");
                match error {
                    Some(error) if calls > 1 => Err(error.into()),
                    _ => Ok(part.len().min(whole + 1024 - at as usize)),
                }
            });
            let expected = error.unwrap_or(io::ErrorKind::StorageFull);
            assert_eq!(written.unwrap_err().kind(), expected, "{whole}");
        }
    }
}

#[test]
fn a_buffered_write_goes_on_where_it_was_cut_and_ends_where_nothing_is_written() {
    let bytes = three_blocks();
    let mut store = vec![0; bytes.len()];
    let mut calls = 0;
    let written = write_all_by(&bytes, 0, false, |part, at| {
        calls += 1;
        if calls % 3 == 0 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let (at, n) = (at as usize, part.len().min(1000));
        store[at..at + n].copy_from_slice(&part[..n]);
        Ok(n)
    });
    written.unwrap();
    assert!(store == bytes && calls > 13, "{calls} calls");
    for in_blocks in [false, true] {
        let nothing = write_all_by(&bytes, 0, in_blocks, |_, _| Ok(0));
        assert_eq!(nothing.unwrap_err().kind(), io::ErrorKind::WriteZero);
    }
}

/// The kernel reports a sync of something that cannot be synced, so a missing sync is noticed.
#[cfg(target_os = "linux")]
#[test]
fn syncs_of_files_and_directories_reach_the_kernel() {
    let (_reader, writer) = io::pipe().unwrap();
    let pipe = RealFile { file: std::os::fd::OwnedFd::from(writer).into(), direct: false };
    // EINVAL.
    assert_eq!(pipe.sync_data().unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(RealFs::new().sync_dir(Path::new("/proc")).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    // Regular files and directories can be synced.
    let dir = tempfile::tempdir().unwrap();
    RealFs::new().sync_dir(dir.path()).unwrap();
    RealFs::new().open(&dir.path().join("f"), OpenOptions::create_new()).unwrap().sync_data().unwrap();
}

#[test]
fn a_lock_ends_with_its_handle_although_a_descriptor_of_it_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let file = file.unwrap();
    file.try_lock().unwrap();
    // Like a child process that was forked but has not called exec yet.
    let inherited = file.try_clone().unwrap();
    drop(RealLock { file, dir: None });
    let again = RealFs::new().lock(&path);
    assert!(again.is_ok(), "{:?}", again.err());
    drop(inherited);
}

#[test]
fn real_4_a_file_that_was_removed_before_it_is_locked_is_no_lock() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    // The holder releases the lock and removes the file between our opening and locking.
    let mut rounds = 0;
    let lock = lock_with(at(&path), |_| {
        rounds += 1;
        if rounds == 1 {
            fs::remove_file(&path).unwrap();
        }
    });
    assert!(lock.is_ok() && path.exists() && rounds == 2, "real.4: {rounds} rounds");
    drop(lock);
    // If another process takes the lock meanwhile, there is one holder, not two.
    let mut other = None;
    let mine = lock_with(at(&path), |_| {
        if other.is_none() {
            fs::remove_file(&path).unwrap();
            other = Some(RealFs::new().lock(&path).unwrap());
        }
    });
    assert!(matches!(mine, Err(LockError::Held { .. })), "real.4");
}

#[test]
fn real_4_a_shared_lock_of_a_removed_file_excludes_no_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    // The file is removed between opening and locking, so there is no lock.
    drop(RealFs::new().lock(&path).unwrap());
    let none = lock_to_read_with(at(&path), || fs::remove_file(&path).unwrap());
    assert!(matches!(none, Ok(None)), "real.4: {none:?}");
    // A new file takes its place: if it is locked, we are refused; otherwise we lock it.
    for is_held in [true, false] {
        drop(RealFs::new().lock(&path).unwrap());
        let (mut rounds, mut other) = (0, None);
        let mine = lock_to_read_with(at(&path), || {
            rounds += 1;
            if rounds == 1 {
                fs::remove_file(&path).unwrap();
                other = Some(RealFs::new().lock(&path).unwrap()).filter(|_| is_held);
            }
        });
        assert_eq!((rounds, other.is_some()), (2, is_held), "real.4");
        match mine {
            Err(LockError::Held { .. }) => assert!(is_held, "real.4"),
            Ok(Some(_)) => assert!(!is_held && RealFs::new().lock(&path).is_err(), "real.4"),
            mine => panic!("real.4: {mine:?}"),
        }
    }
}

#[test]
fn a_lock_released_while_its_holder_is_looked_up_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    let mut held = Some(RealFs::new().lock(&path).unwrap());
    let mine = lock_with(at(&path), |moment| {
        if moment == Moment::Refused {
            held = None;
        }
    });
    assert!(mine.is_ok(), "{:?}", mine.err());
    // Shared holders exclude others.
    drop(mine);
    let _reading = RealFs::new().lock_to_read(&path).unwrap().unwrap();
    assert!(matches!(RealFs::new().lock(&path), Err(LockError::Held { pid: None, .. })));
}

/// Creates a held directory in a temporary one. Returns its path.
fn held(mode: Option<u32>) -> (tempfile::TempDir, PathBuf, FsRef) {
    let root = tempfile::tempdir().expect("a temporary directory");
    let dir = root.path().join("db");
    RealFs::new().create_dir_all(&dir).expect("a new directory");
    let fs = RealFs::new().hold(&dir, mode).expect("it is there").expect("this system holds directories");
    (root, dir, fs)
}

#[test]
fn fs_5_a_held_directory_is_the_same_wherever_it_stands() {
    let (root, dir, fs) = held(None);
    let moved = root.path().join("moved");
    fs.open(&dir.join("a"), OpenOptions::create_new()).unwrap().write_all_at(b"mine", 0).unwrap();
    fs::rename(&dir, &moved).unwrap();
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("a"), "another's").unwrap();
    assert_eq!(fs.file_size(&dir.join("a")).unwrap(), 4, "fs.5");
    fs.rename(&dir.join("a"), &dir.join("b")).unwrap();
    let _lock = fs.lock(&dir.join("LOCK")).unwrap();
    fs.open(&dir.join("c"), OpenOptions::create()).unwrap();
    assert!(fs.exists(&dir.join("c")).unwrap());
    fs.sync_dir(&dir).unwrap();
    fs.sync_dir(&fs.dir_above(&dir).unwrap()).unwrap();
    assert!(fs.free_bytes(&dir).unwrap() > 0);
    let mut names = fs.list_dir(&dir).unwrap();
    names.sort();
    assert_eq!(names, ["LOCK", "b", "c"], "fs.5");
    fs.remove_file(&dir.join("b")).unwrap();
    assert_eq!((moved.join("b").exists(), moved.join("c").exists()), (false, true), "fs.5");
    let untouched: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(
        (untouched, fs::read(dir.join("a")).unwrap()),
        (vec!["a".into()], b"another's".to_vec()),
        "fs.5"
    );
}

#[test]
fn real_7_no_file_of_a_held_directory_is_reached_through_a_link() {
    let (root, dir, fs) = held(None);
    let outside = root.path().join("outside");
    fs::write(&outside, "precious").unwrap();
    let (link, dangling) = (dir.join("link"), dir.join("dangling"));
    std::os::unix::fs::symlink(&outside, &link).unwrap();
    std::os::unix::fs::symlink(root.path().join("made"), &dangling).unwrap();
    let of_writing = OpenOptions { create: true, ..OpenOptions::write() };
    for path in [&link, &dangling] {
        for options in [OpenOptions::read(), OpenOptions::write(), OpenOptions::create(), of_writing] {
            let refused = fs.open(path, options).unwrap_err();
            assert!(refused.to_string().contains("symbolic link"), "real.7: {refused}");
        }
        assert!(fs.open(path, OpenOptions::create_new()).is_err(), "real.7");
        assert!(matches!(fs.lock(path), Err(LockError::Io(_))), "real.7");
        assert!(matches!(fs.lock_to_read(path), Err(LockError::Io(_))), "real.7");
        // The link is created after the check.
        let held = sys::Held::open(At { held: None, path: &dir }, None).unwrap();
        let refused = sys::open(At { held: Some(&held), path }, of_writing).unwrap_err();
        assert!(refused.to_string().contains("symbolic link"), "real.7: {refused}");
    }
    assert_eq!(fs::read(&outside).unwrap(), b"precious", "real.7");
    assert!(!root.path().join("made").exists(), "real.7");
    fs.open(&dir.join("new"), OpenOptions::create_new()).unwrap();
    fs.rename(&dir.join("new"), &link).unwrap();
    fs.remove_file(&dangling).unwrap();
    assert_eq!(fs.list_dir(&dir).unwrap(), ["link"]);
    assert_eq!(
        (fs.file_size(&link).unwrap(), fs::read(&outside).unwrap()),
        (0, b"precious".to_vec()),
        "real.7"
    );
}

#[test]
fn new_files_have_the_mode_of_a_held_directory_or_the_one_that_was_asked_for() {
    let of = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for (of_dir, asked, expected) in
        [(0o700, None, 0o600), (0o750, None, 0o640), (0o755, Some(0o770), 0o660), (0o700, Some(0o400), 0o600)]
    {
        let (_root, dir, _) = held(None);
        fs::set_permissions(&dir, fs::Permissions::from_mode(of_dir)).unwrap();
        let fs = RealFs::new().hold(&dir, asked).unwrap().unwrap();
        fs.open(&dir.join("a"), OpenOptions::create_new()).unwrap();
        fs.open(&dir.join("b"), OpenOptions::create()).unwrap();
        let _lock = fs.lock(&dir.join("c")).unwrap();
        for name in ["a", "b", "c"] {
            assert_eq!(of(&dir.join(name)), expected, "{of_dir:o} {asked:?} {name}");
        }
        assert_eq!(fs.mode(&dir).unwrap(), Some(of_dir));
        let sub = dir.join("x/y");
        fs.create_dir_all_as(&sub, 0o770).unwrap();
        assert_eq!(of(&sub), 0o770);
    }
}

#[test]
fn an_absolute_path_has_no_links_also_before_its_end_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    fs::create_dir(root.join("there")).unwrap();
    std::os::unix::fs::symlink(root.join("there"), root.join("link")).unwrap();
    for (path, expected) in
        [("link", "there"), ("link/a/b", "there/a/b"), ("there/../link", "there"), ("a", "a")]
    {
        assert_eq!(RealFs::new().absolute(&root.join(path)).unwrap(), root.join(expected), "{path}");
    }
    assert_eq!(
        RealFs::new().absolute(Path::new("")).unwrap(),
        std::env::current_dir().unwrap().canonicalize().unwrap()
    );
}

/// The kernel cannot sync directories of sysfs, in which cgroups are mounted.
#[cfg(target_os = "linux")]
#[test]
fn the_directory_above_a_mount_point_need_not_be_synced() {
    let (mounted, inside) = (Path::new("/sys/fs/cgroup/.."), Path::new("/proc/self/.."));
    let refused =
        |path: &Path| RealFs::new().sync_dir(path).is_err_and(|e| e.kind() == io::ErrorKind::InvalidInput);
    assert!(refused(inside) && RealFs::new().sync_dir_if_readable(inside).is_err(), "of one file system");
    if !refused(mounted) || !is_above_mount(at(mounted)) {
        // Written directly, because the output of a passing test is not shown.
        let _ = io::Write::write_all(
            &mut io::stderr(),
            b"SKIPPED: nothing is mounted in sysfs, nothing was tested\n",
        );
        return;
    }
    RealFs::new().sync_dir_if_readable(mounted).unwrap();
}
