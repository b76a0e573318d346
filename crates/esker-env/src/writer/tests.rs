//! Compares the writer with a vector, on real and simulated files, buffered and direct, with faults and
//! crashes.

use std::path::Path;
use std::sync::Arc;

use crate::{
    AppendWriter, FaultAction, FaultFs, FaultRule, Fs, MemFs, OpKind, OpenOptions, RealFs, read_range,
};

fn against_a_vector(fs: &dyn Fs, dir: &Path, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let path = dir.join(format!("{seed}"));
    let options = OpenOptions { direct: seed.is_multiple_of(2), ..OpenOptions::create_new() };
    let buffer_bytes = [0, 1, 4096, 10_000, 65_536][rng.usize(0..5)];
    let mut writer = AppendWriter::create(fs, &path, options, buffer_bytes).unwrap();
    if seed.is_multiple_of(3) {
        writer = writer.steady();
    }
    let mut model = Vec::new();
    for _ in 0..rng.usize(0..40) {
        match rng.u8(0..10) {
            0 => writer.flush().unwrap(),
            1 => writer.sync().unwrap(),
            _ => {
                let len_max = [10, 5000, 30_000][rng.usize(0..3)];
                let len = rng.usize(0..len_max);
                let bytes: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
                writer.write(&bytes).unwrap();
                model.extend_from_slice(&bytes);
            }
        }
        assert_eq!(writer.position(), model.len() as u64);
    }
    let (file, len) = writer.finish().unwrap();
    assert!(!file.is_direct());
    assert_eq!((len, file.len().unwrap()), (model.len() as u64, model.len() as u64));
    assert!(read_range(&*file, 0, model.len()).unwrap() == model, "seed {seed}");
}

#[test]
fn the_file_is_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let mem = MemFs::new();
    for seed in 0..60 {
        against_a_vector(&RealFs::new(), dir.path(), seed);
        against_a_vector(&mem, Path::new("/"), seed);
    }
}

/// Synced bytes survive every crash, even while their last block is rewritten.
#[test]
fn synced_bytes_survive() {
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let fs = MemFs::new();
        let options = OpenOptions { direct: seed % 2 == 0, ..OpenOptions::create_new() };
        let mut writer = AppendWriter::create(&fs, Path::new("/f"), options, 8192).unwrap();
        fs.sync_dir(Path::new("/")).unwrap();
        let (mut model, mut synced) = (Vec::new(), 0);
        for _ in 0..20 {
            let bytes = vec![rng.u8(1..); rng.usize(0..3000)];
            writer.write(&bytes).unwrap();
            model.extend_from_slice(&bytes);
            match rng.u8(0..3) {
                0 => writer.flush().unwrap(),
                1 => {
                    writer.sync().unwrap();
                    synced = model.len();
                }
                _ => {}
            }
            let left = fs.crash(rng.u64(..)).open(Path::new("/f"), OpenOptions::read()).unwrap();
            assert!(read_range(&*left, 0, synced).unwrap() == model[..synced], "seed {seed}");
        }
        writer.finish().unwrap();
        assert_eq!(fs.crash_strict().file_size(Path::new("/f")).unwrap(), model.len() as u64);
    }
}

#[test]
fn a_new_file_without_a_writer_is_not_left_behind() {
    let disk = MemFs::new();
    let fs = FaultFs::new(Arc::new(disk.clone()));
    let path = Path::new("/f");
    let no_reader = || fs.add(FaultRule::new(&[OpKind::Open], FaultAction::Fail(std::io::ErrorKind::Other)));
    no_reader();
    AppendWriter::create(&fs, path, OpenOptions::create_new().direct(), 64).unwrap_err();
    assert!(!disk.exists(path).unwrap());
    AppendWriter::create(&fs, path, OpenOptions::create_new().direct(), 64).unwrap();
    // Existing files stay.
    for options in [OpenOptions::create_new(), OpenOptions::create()] {
        no_reader();
        AppendWriter::create(&fs, path, options.direct(), 64).unwrap_err();
        assert!(disk.exists(path).unwrap());
        fs.clear();
    }
}

#[test]
fn env_writer_3_an_error_is_the_end() {
    for kind in [OpKind::Write, OpKind::SyncData] {
        let fs = FaultFs::new(Arc::new(MemFs::new()));
        let mut writer = AppendWriter::create(&fs, Path::new("/f"), OpenOptions::create_new(), 64).unwrap();
        writer.write(b"abc").unwrap();
        fs.add(FaultRule::new(&[kind], FaultAction::NoSpace));
        assert_eq!(writer.sync().unwrap_err().kind(), std::io::ErrorKind::StorageFull);
        let writes = fs.count(OpKind::Write);
        assert!(writer.write(b"d").is_err() && writer.flush().is_err() && writer.sync().is_err());
        assert!(writer.finish().is_err());
        assert_eq!(fs.count(OpKind::Write), writes, "env_writer.3");
    }
}

#[test]
fn env_writer_3_nothing_is_written_after_a_panic() {
    for op in [OpKind::Write, OpKind::SyncData] {
        let fs = FaultFs::new(Arc::new(MemFs::new()));
        let mut writer = AppendWriter::create(&fs, Path::new("/f"), OpenOptions::create_new(), 4096).unwrap();
        writer.write(b"abc").unwrap();
        fs.add(FaultRule::new(&[op], FaultAction::Panic));
        let burst = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| writer.sync()));
        assert!(crate::panic_text(&*burst.unwrap_err()).contains("injected"));
        let calls = fs.count(OpKind::Write);
        assert!(
            writer.write(&[0; 9000]).is_err() && writer.sync().is_err() && writer.finish().is_err(),
            "env_writer.3"
        );
        assert_eq!(fs.count(OpKind::Write), calls, "env_writer.3");
    }
}

#[test]
fn a_steady_writer_waits_for_the_buffer_before_and_fails_where_that_cannot_be_written() {
    // Hint 1 starts writing buffer 1. Hint 2 waits for it. Hint 3 starts writing buffer 2.
    for (hint, fails) in [(1, false), (2, true), (3, false)] {
        let fs = FaultFs::new(Arc::new(MemFs::new()));
        let options = OpenOptions::create_new();
        let mut writer = AppendWriter::create(&fs, Path::new("f"), options, 10).unwrap().steady();
        fs.add(FaultRule::new(&[OpKind::Hint], FaultAction::Fail(std::io::ErrorKind::Other)).nth(hint));
        let wrote = (0..3).try_for_each(|_| writer.write(&[7; 8]));
        assert_eq!((hint, wrote.is_err()), (hint, fails));
        assert_eq!(writer.finish().is_err(), fails, "env_writer.3");
    }
}
