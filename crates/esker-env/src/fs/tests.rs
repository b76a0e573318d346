//! Tests that run on both the real and the in-memory file system.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{
    AlignedBuf, FaultAction, FaultFs, FaultRule, Fs, LockError, MemFs, OpKind, OpenOptions, RealFs,
    read_range,
};

fn on_each(test: impl Fn(&dyn Fs, &Path)) {
    let dir = tempfile::tempdir().unwrap();
    test(&RealFs::new(), dir.path());
    let plain = MemFs::new();
    plain.be_plain();
    for fs in [
        Arc::new(MemFs::new()) as Arc<dyn Fs>,
        Arc::new(FaultFs::new(Arc::new(MemFs::new()))),
        Arc::new(plain),
    ] {
        fs.create_dir_all(Path::new("/db")).unwrap();
        test(&*fs, Path::new("/db"));
        fs.create_dir_all(Path::new("relative")).unwrap();
        test(&*fs, Path::new("./relative"));
    }
}

fn sorted(fs: &dyn Fs, dir: &Path) -> Vec<String> {
    let mut names = fs.list_dir(dir).unwrap();
    names.sort();
    names
}

fn write(fs: &dyn Fs, path: &Path, bytes: &[u8]) {
    fs.open(path, OpenOptions::create()).unwrap().write_all_at(bytes, 0).unwrap();
}

fn content(fs: &dyn Fs, path: &Path) -> Vec<u8> {
    let file = fs.open(path, OpenOptions::read()).unwrap();
    read_range(&*file, 0, file.len().unwrap() as usize).unwrap()
}

#[test]
fn bytes_are_read_back() {
    on_each(|fs, dir| {
        let file = fs.open(&dir.join("f"), OpenOptions::create_new()).unwrap();
        assert!(file.is_empty().unwrap());
        file.write_all_at(b"world", 9000).unwrap();
        file.write_all_at(b"hello", 0).unwrap();
        file.sync_data().unwrap();
        assert_eq!(file.len().unwrap(), 9005);
        let mut expected = vec![0; 9005];
        expected[..5].copy_from_slice(b"hello");
        expected[9000..].copy_from_slice(b"world");
        assert_eq!(read_range(&*file, 0, 9005).unwrap(), expected);

        let mut buf = [7; 10];
        assert_eq!(file.read_at(&mut buf, 9000).unwrap(), 5);
        assert_eq!(file.read_at(&mut buf, 9005).unwrap(), 0);
        assert_eq!(file.read_at(&mut buf, 1 << 30).unwrap(), 0);
        let error = file.read_exact_at(&mut buf, 9000).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(fs.file_size(&dir.join("f")).unwrap(), 9005);
        assert!(fs.free_bytes(dir).unwrap() > 0);
        file.start_writeback(0, 9005).unwrap();
        file.drop_cache(0, 9005).unwrap();
    });
}

#[test]
fn a_shorter_file_grows_with_zeros() {
    on_each(|fs, dir| {
        let file = fs.open(&dir.join("f"), OpenOptions::create()).unwrap();
        file.write_all_at(&[1; 6000], 0).unwrap();
        file.set_len(10).unwrap();
        file.set_len(5000).unwrap();
        let mut expected = vec![0; 5000];
        expected[..10].fill(1);
        assert_eq!(content(fs, &dir.join("f")), expected);
        match file.allocate(4096, 8192) {
            Ok(()) => {
                assert_eq!(file.len().unwrap(), 12288);
                assert_eq!(read_range(&*file, 10, 12278).unwrap(), vec![0; 12278]);
                file.allocate(0, 10).unwrap();
                assert_eq!(file.len().unwrap(), 12288);
            }
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::Unsupported),
        }
        file.set_len(0).unwrap();
        assert!(file.is_empty().unwrap());
    });
}

#[test]
fn options_decide_what_open_does() {
    on_each(|fs, dir| {
        let path = dir.join("f");
        let kind = |options| fs.open(&path, options).unwrap_err().kind();
        assert_eq!(kind(OpenOptions::read()), io::ErrorKind::NotFound);
        assert_eq!(kind(OpenOptions::write()), io::ErrorKind::NotFound);
        assert!(!fs.exists(&path).unwrap());
        write(fs, &path, b"abc");
        assert_eq!(kind(OpenOptions::create_new()), io::ErrorKind::AlreadyExists);
        assert_eq!(content(fs, &path), b"abc");
        fs.open(&path, OpenOptions::write()).unwrap().write_all_at(b"X", 1).unwrap();
        assert_eq!(content(fs, &path), b"aXc");
        assert!(fs.open(&path, OpenOptions::read()).unwrap().write_all_at(b"Y", 0).is_err());
        fs.open(&path, OpenOptions::create()).unwrap();
        assert_eq!(content(fs, &path), b"");
        assert_eq!(fs.open(dir, OpenOptions::read()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        let lost = fs.open(&dir.join("no/f"), OpenOptions::create()).unwrap_err();
        assert_eq!(lost.kind(), io::ErrorKind::NotFound);
    });
}

#[test]
fn names_move_and_go() {
    on_each(|fs, dir| {
        let [a, b, sub]: [PathBuf; 3] = ["a", "b", "sub/deep"].map(|name| dir.join(name));
        write(fs, &a, b"a");
        write(fs, &b, b"b");
        fs.create_dir_all(&sub).unwrap();
        fs.create_dir_all(&sub).unwrap();
        assert_eq!(sorted(fs, dir), ["a", "b", "sub"]);
        let open = fs.open(&b, OpenOptions::read()).unwrap();
        fs.rename(&a, &b).unwrap();
        fs.sync_dir(dir).unwrap();
        assert_eq!(sorted(fs, dir), ["b", "sub"]);
        assert_eq!(content(fs, &b), b"a");
        assert_eq!(read_range(&*open, 0, 1).unwrap(), b"b", "an open file outlives its name");
        fs.rename(&b, &sub.join("c")).unwrap();
        assert_eq!(sorted(fs, &sub), ["c"]);
        fs.remove_file(&sub.join("c")).unwrap();
        assert!(sorted(fs, &sub).is_empty());
        assert!(fs.exists(&sub).unwrap());
        assert_eq!(fs.remove_file(&a).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(fs.rename(&a, &b).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(fs.list_dir(&dir.join("no")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(fs.sync_dir(&dir.join("no")).unwrap_err().kind(), io::ErrorKind::NotFound);
    });
}

#[test]
fn a_directory_that_may_not_be_read_is_taken_as_it_is() {
    let fs = FaultFs::new(Arc::new(MemFs::new()));
    let root = Path::new("/");
    for (kind, is_done) in [(io::ErrorKind::PermissionDenied, true), (io::ErrorKind::Other, false)] {
        fs.add(FaultRule { times: 2, ..FaultRule::new(&[OpKind::SyncDir], FaultAction::Fail(kind)) });
        assert_eq!(fs.sync_dir_if_readable(root).is_ok(), is_done, "{kind}");
        assert_eq!(fs.sync_dir(root).unwrap_err().kind(), kind);
    }
    fs.sync_dir_if_readable(root).unwrap();
}

#[test]
fn a_held_lock_names_its_holder() {
    on_each(|fs, dir| {
        let path = dir.join("LOCK");
        let held = fs.lock(&path).unwrap();
        for _ in 0..2 {
            match fs.lock(&path) {
                Err(LockError::Held { pid, path }) => {
                    assert_eq!(pid, Some(std::process::id()));
                    assert!(path.ends_with("LOCK"));
                }
                other => panic!("expected Held, got {other:?}"),
            }
        }
        drop(held);
        drop(fs.lock(&path).unwrap());
        assert!(fs.exists(&path).unwrap());
        assert!(matches!(fs.lock(&dir.join("no/LOCK")), Err(LockError::Io(_))));
    });
}

#[test]
fn a_shared_lock_names_no_holder() {
    let dir = tempfile::tempdir().unwrap();
    let (fs, path) = (RealFs::new(), dir.path().join("LOCK"));
    assert!(fs.lock_to_read(&path).unwrap().is_none(), "there is no lock file");
    // The process id stays in the file.
    drop(fs.lock(&path).unwrap());
    let readers = [fs.lock_to_read(&path).unwrap(), fs.lock_to_read(&path).unwrap()];
    match fs.lock(&path) {
        Err(LockError::Held { pid, .. }) => assert_eq!(pid, None),
        other => panic!("expected Held, got {other:?}"),
    }
    drop(readers);
    let _held = fs.lock(&path).unwrap();
    match fs.lock_to_read(&path) {
        Err(LockError::Held { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
        other => panic!("expected Held, got {other:?}"),
    }
}

/// Runs `work` on another thread, because a pipe might block it forever.
#[cfg(target_os = "linux")]
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, outcome) = std::sync::mpsc::channel();
    std::thread::Builder::new().spawn(move || done.send(work())).unwrap();
    // Longer than any slow machine takes.
    outcome.recv_timeout(std::time::Duration::from_secs(300)).expect("it waits for the pipe's other end")
}

#[cfg(target_os = "linux")]
#[test]
fn a_pipe_is_refused_in_every_role() {
    use rustix::fs::{CWD, Mode, mkfifoat};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    mkfifoat(CWD, path.as_path(), Mode::RUSR | Mode::WUSR).unwrap();
    let existing = [OpenOptions::read(), OpenOptions::write(), OpenOptions::create()];
    for options in existing.into_iter().flat_map(|options| [options, options.direct()]) {
        let path = path.clone();
        let error = in_time(move || RealFs::new().open(&path, options).map(drop)).unwrap_err();
        assert!(error.to_string().contains("it is a pipe"), "{options:?}: {error}");
    }
    let new = path.clone();
    let error = in_time(move || RealFs::new().open(&new, OpenOptions::create_new()).map(drop)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    let lock = path.clone();
    let locked = in_time(move || {
        let fs = RealFs::new();
        [fs.lock(&lock).map(drop), fs.lock_to_read(&lock).map(drop)]
    });
    for outcome in locked {
        assert!(
            matches!(&outcome, Err(LockError::Io(e)) if e.to_string().contains("it is a pipe")),
            "{outcome:?}"
        );
    }
    let error = in_time(move || RealFs::new().sync_dir(&path)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
}

#[test]
fn direct_files_read_and_write_whole_blocks() {
    on_each(|fs, dir| {
        let path = dir.join("f");
        let file = fs.open(&path, OpenOptions::create_new().direct()).unwrap();
        let mut buf = AlignedBuf::zeroed(8192);
        for (i, byte) in buf.iter_mut().enumerate() {
            *byte = (i % 251) as u8;
        }
        file.write_all_at(&buf, 4096).unwrap();
        file.set_len(10_000).unwrap();
        let mut expected = vec![0; 4096];
        expected.extend_from_slice(&buf[..10_000 - 4096]);
        for options in [OpenOptions::read(), OpenOptions::read().direct()] {
            let file = fs.open(&path, options).unwrap();
            for (offset, len) in [(0, 10_000), (4095, 2), (9999, 1), (10_000, 0), (4096, 4096), (100, 9000)] {
                let bytes = read_range(&*file, offset, len).unwrap();
                assert_eq!(bytes, expected[offset as usize..offset as usize + len], "{offset} {len}");
            }
            for (offset, len) in [(0, 10_001), (9999, 2), (12_288, 1), (1 << 40, 1)] {
                let error = read_range(&*file, offset, len).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{offset} {len}");
            }
            let mut past = AlignedBuf::zeroed(16_384);
            let error = file.read_exact_at(&mut past, 0).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    });
}

#[test]
fn a_file_has_two_names_until_one_is_removed() {
    on_each(|fs, dir| {
        let [a, b] = ["a", "b"].map(|name| dir.join(name));
        write(fs, &a, b"one");
        match fs.hard_link(&a, &b) {
            // The plain file system has no links.
            Err(e) if e.kind() == io::ErrorKind::Unsupported => return,
            linked => linked.unwrap(),
        }
        assert_eq!(fs.hard_link(&a, &b).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs.hard_link(&dir.join("x"), &dir.join("y")).unwrap_err().kind(), io::ErrorKind::NotFound);
        let file = fs.open(&a, OpenOptions::write()).unwrap();
        file.write_all_at(b"two", 0).unwrap();
        assert_eq!((content(fs, &b), sorted(fs, dir)), (b"two".to_vec(), vec!["a".into(), "b".into()]));
        fs.remove_file(&a).unwrap();
        assert_eq!((content(fs, &b), sorted(fs, dir)), (b"two".to_vec(), vec!["b".into()]));
    });
}

#[test]
fn a_directory_is_renamed_with_what_is_in_it_and_removed_when_it_is_empty() {
    on_each(|fs, dir| {
        let [from, to, file] = ["from", "to", "file"].map(|name| dir.join(name));
        fs.create_dir_all(&from.join("sub")).unwrap();
        write(fs, &from.join("a"), b"a");
        write(fs, &from.join("sub/b"), b"b");
        write(fs, &file, b"");
        assert_eq!(fs.rename_dir(&from, &file).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs.rename_dir(&file, &to).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        assert_eq!(fs.rename_dir(&dir.join("none"), &to).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs.rename_dir(&from, &to).unwrap();
        assert!(!fs.exists(&from).unwrap());
        assert_eq!(
            (content(fs, &to.join("a")), content(fs, &to.join("sub/b"))),
            (b"a".to_vec(), b"b".to_vec())
        );
        assert_eq!(fs.remove_dir(&to).unwrap_err().kind(), io::ErrorKind::DirectoryNotEmpty);
        fs.remove_file(&to.join("sub/b")).unwrap();
        fs.remove_dir(&to.join("sub")).unwrap();
        assert_eq!(sorted(fs, &to), ["a"]);
    });
}
