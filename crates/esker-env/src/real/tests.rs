//! Files, names and locks of the system, and writes that it cuts short.

use super::*;

#[test]
fn r1_a_new_file_that_cannot_be_switched_is_not_left_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let fails = |_: &fs::File| Err(io::ErrorKind::Other.into());
    for _ in 0..2 {
        let error = open_with(&path, OpenOptions::create_new().direct(), fails).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Other, "R1");
        assert!(!path.exists(), "R1");
    }
    // What was there before stays.
    fs::write(&path, "mine").unwrap();
    for options in [OpenOptions::write(), OpenOptions::read()] {
        open_with(&path, options.direct(), fails).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"mine", "R1");
    }
    open_with(&path, OpenOptions::create_new().direct(), |_| Ok(false)).unwrap_err();
    assert!(path.exists(), "R1");
}

#[test]
fn r5_a_direct_file_whose_calls_are_refused_goes_on_buffered() {
    let dir = tempfile::tempdir().unwrap();
    for first in ["write", "read"] {
        let file = RealFs.open(&dir.path().join(first), OpenOptions::create_new().direct()).unwrap();
        let block = crate::AlignedBuf::zeroed(AlignedBuf::ALIGN);
        file.write_all_at(&block, 0).unwrap();
        // No file system does this directly.
        if first == "read" {
            assert_eq!(file.read_at(&mut [1; 3], 1).unwrap(), 3, "R5");
        }
        file.write_all_at(b"odd", 1).unwrap();
        let mut bytes = [1; 5];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"\0odd\0", "R5");
        file.sync_data().unwrap();
    }
}

/// Three blocks, no two of them alike.
fn three_blocks() -> Vec<u8> {
    (0..3 * AlignedBuf::ALIGN).map(|n| (n % 251) as u8).collect()
}

#[test]
fn r6_a_direct_write_that_is_cut_inside_a_block_is_repeated_from_its_start() {
    const OFFSET: usize = 5 * AlignedBuf::ALIGN;
    let bytes = three_blocks();
    for whole in [0, AlignedBuf::ALIGN, 2 * AlignedBuf::ALIGN] {
        let mut store = vec![0; OFFSET + bytes.len()];
        let mut calls = Vec::new();
        let written = write_all_by(&bytes, OFFSET as u64, true, |part, at| {
            let at = at as usize;
            calls.push(at - OFFSET);
            // The first call ends 1,024 bytes into a block, the second one is interrupted.
            let n = match calls.len() {
                1 => whole + 1024,
                2 => return Err(io::ErrorKind::Interrupted.into()),
                _ => part.len(),
            };
            store[at..at + n].copy_from_slice(&part[..n]);
            Ok(n)
        });
        written.unwrap();
        assert_eq!(calls, [0, whole, whole], "R6");
        assert!(store[OFFSET..] == bytes[..], "R6: cut behind {whole}");
        assert!(store[..OFFSET].iter().all(|byte| *byte == 0), "R6: cut behind {whole}");
    }
}

#[test]
fn r6_a_direct_write_that_is_cut_inside_a_block_again_has_met_a_full_disk() {
    let bytes = three_blocks();
    for whole in [0, AlignedBuf::ALIGN, 2 * AlignedBuf::ALIGN] {
        // The disk has so much room. Asked again it may say that it is full, or write as little as before.
        for error in [None, Some(io::ErrorKind::QuotaExceeded)] {
            let mut calls = 0;
            let written = write_all_by(&bytes, 0, true, |part, at| {
                calls += 1;
                assert!(calls < 10, "R6: it goes round for ever");
                match error {
                    Some(error) if calls > 1 => Err(error.into()),
                    _ => Ok(part.len().min(whole + 1024 - at as usize)),
                }
            });
            let expected = error.unwrap_or(io::ErrorKind::StorageFull);
            assert_eq!(written.unwrap_err().kind(), expected, "R6: {whole}");
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

/// Of what cannot be synced, the kernel says so if it is asked. Elsewhere nobody misses a sync that is not made.
#[cfg(target_os = "linux")]
#[test]
fn syncs_of_files_and_directories_reach_the_kernel() {
    let (_reader, writer) = io::pipe().unwrap();
    let pipe = RealFile { file: std::os::fd::OwnedFd::from(writer).into(), direct: false };
    // EINVAL.
    assert_eq!(pipe.sync_data().unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(RealFs.sync_dir(Path::new("/proc")).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    // And what can be synced is.
    let dir = tempfile::tempdir().unwrap();
    RealFs.sync_dir(dir.path()).unwrap();
    RealFs.open(&dir.path().join("f"), OpenOptions::create_new()).unwrap().sync_data().unwrap();
}

#[test]
fn r2_a_lock_ends_with_its_handle_although_a_descriptor_of_it_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let file = file.unwrap();
    file.try_lock().unwrap();
    // As a child process has it that was forked and has not executed its program yet.
    let inherited = file.try_clone().unwrap();
    drop(RealLock { file, path: path.clone() });
    let again = RealFs.lock(&path);
    assert!(again.is_ok(), "{:?}", again.err());
    drop(inherited);
}

#[test]
fn r4_a_file_that_was_removed_before_it_is_locked_is_no_lock() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    // The holder goes, and removes the file, while we are between its opening and its locking.
    let mut rounds = 0;
    let lock = lock_with(&path, |_| {
        rounds += 1;
        if rounds == 1 {
            fs::remove_file(&path).unwrap();
        }
    });
    assert!(lock.is_ok() && path.exists() && rounds == 2, "R4: {rounds} rounds");
    drop(lock);
    // And somebody else comes: there is one holder, not two.
    let mut other = None;
    let mine = lock_with(&path, |_| {
        if other.is_none() {
            fs::remove_file(&path).unwrap();
            other = Some(RealFs.lock(&path).unwrap());
        }
    });
    assert!(matches!(mine, Err(LockError::Held { .. })), "R4");
}

#[test]
fn r4_a_file_that_was_removed_before_it_is_locked_to_read_keeps_nobody_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    // It is removed while we are between its opening and its locking, and there is none any more.
    drop(RealFs.lock(&path).unwrap());
    let none = lock_to_read_with(&path, || fs::remove_file(&path).unwrap());
    assert!(matches!(none, Ok(None)), "R4: {none:?}");
    // Or somebody makes a new one: held, it keeps us out; else it is the one to hold.
    for is_held in [true, false] {
        drop(RealFs.lock(&path).unwrap());
        let (mut rounds, mut other) = (0, None);
        let mine = lock_to_read_with(&path, || {
            rounds += 1;
            if rounds == 1 {
                fs::remove_file(&path).unwrap();
                other = Some(RealFs.lock(&path).unwrap()).filter(|_| is_held);
            }
        });
        assert_eq!((rounds, other.is_some()), (2, is_held), "R4");
        match mine {
            Err(LockError::Held { .. }) => assert!(is_held, "R4"),
            Ok(Some(_)) => assert!(!is_held && RealFs.lock(&path).is_err(), "R4"),
            mine => panic!("R4: {mine:?}"),
        }
    }
}

#[test]
fn r2_a_lock_that_is_given_back_while_somebody_asks_who_has_it_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    let mut held = Some(RealFs.lock(&path).unwrap());
    let mine = lock_with(&path, |moment| {
        if moment == Moment::Refused {
            held = None;
        }
    });
    assert!(mine.is_ok(), "R2: {:?}", mine.err());
    // Those who only read keep it from others.
    drop(mine);
    let _reading = RealFs.lock_to_read(&path).unwrap().unwrap();
    assert!(matches!(RealFs.lock(&path), Err(LockError::Held { pid: None, .. })));
}

#[test]
fn a_lock_is_in_place_while_its_file_has_the_name() {
    let dir = tempfile::tempdir().unwrap();
    let (path, other) = (dir.path().join("LOCK"), dir.path().join("other"));
    let lock = RealFs.lock(&path).unwrap();
    assert!(lock.is_in_place().unwrap());
    fs::rename(&path, &other).unwrap();
    assert!(!lock.is_in_place().unwrap());
    fs::write(&path, "").unwrap();
    assert!(!lock.is_in_place().unwrap());
    fs::rename(&other, &path).unwrap();
    assert!(lock.is_in_place().unwrap());
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
        assert_eq!(RealFs.absolute(&root.join(path)).unwrap(), root.join(expected), "{path}");
    }
    assert_eq!(
        RealFs.absolute(Path::new("")).unwrap(),
        std::env::current_dir().unwrap().canonicalize().unwrap()
    );
}

/// The kernel cannot sync directories of sysfs, in which cgroups are mounted.
#[cfg(target_os = "linux")]
#[test]
fn f4_the_directory_above_a_mount_point_need_not_be_synced() {
    let (mounted, inside) = (Path::new("/sys/fs/cgroup/.."), Path::new("/proc/self/.."));
    let refused = |path: &Path| RealFs.sync_dir(path).is_err_and(|e| e.kind() == io::ErrorKind::InvalidInput);
    assert!(refused(inside) && RealFs.sync_dir_if_readable(inside).is_err(), "F4: of one file system");
    if !refused(mounted) || !sys::is_above_mount(mounted) {
        // Not as the output of a test that passes, which nobody would see.
        let _ = io::Write::write_all(
            &mut io::stderr(),
            b"SKIPPED: nothing is mounted in sysfs, nothing was tested\n",
        );
        return;
    }
    RealFs.sync_dir_if_readable(mounted).unwrap();
}
