//! Tests of logs without a database.

use std::sync::Arc;

use esker_env::{FaultAction, FaultFs, FaultRule, Fs, MemFs, OpKind, OpenOptions};

use super::*;

const DIR: &str = "log";

fn open(fs: &Arc<MemFs>, options: &Options) -> Result<Log> {
    options.clone().env(&Env::simulated(fs.clone(), 1)).open(DIR)
}

fn replayed(log: &mut Log) -> Vec<(u64, Vec<u8>)> {
    let mut records = Vec::new();
    log.replay(|segment, record| {
        records.push((segment, record.to_vec()));
        Ok(())
    })
    .unwrap();
    records
}

#[test]
fn standalone_1_standalone_2_what_was_synced_survives_every_crash() {
    for seed in 0..if cfg!(miri) { 5 } else { 400 } {
        let mut rng = fastrand::Rng::with_seed(seed);
        let codec = [Compression::None, Compression::Lz4][rng.usize(..2)];
        let options = Log::options().segment_bytes(rng.u64(1..300)).compression(codec);
        let mut fs = Arc::new(MemFs::new());
        let mut log = open(&fs, &options).unwrap();
        let mut model: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut synced = 0;
        for _ in 0..rng.usize(1..120) {
            match rng.u32(..20) {
                0 => {
                    let next = log.rotate().unwrap();
                    synced = model.len();
                    assert!(model.iter().all(|(segment, _)| *segment < next));
                }
                1 => {
                    let below = rng.u64(..log.last + 3);
                    log.remove_below(below).unwrap();
                    let last = log.last;
                    let before = model.len();
                    model.retain(|(segment, _)| *segment >= below.min(last));
                    synced = synced.saturating_sub(before - model.len());
                }
                2 => {
                    log.sync().unwrap();
                    synced = model.len();
                }
                3 => assert_eq!(replayed(&mut log), model, "seed {seed}"),
                4 => {
                    drop(log);
                    fs = Arc::new(if rng.bool() { fs.crash(rng.u64(..)) } else { fs.kill() });
                    log = open(&fs, &options).unwrap();
                    let found = replayed(&mut log);
                    assert!(found.len() >= synced, "seed {seed}: {} of {synced}", found.len());
                    assert_eq!(found, model[..found.len()], "seed {seed}");
                    model.truncate(found.len());
                    synced = model.len();
                }
                n => {
                    let record = vec![rng.u8(..); rng.usize(..90)];
                    let last = log.last;
                    let segment = log.append(&record).unwrap();
                    model.push((segment, record));
                    if n > 15 {
                        log.sync().unwrap();
                    }
                    if n > 15 || segment > last {
                        synced = model.len() - usize::from(n <= 15);
                    }
                }
            }
        }
    }
}

#[test]
fn damage_names_the_file_and_the_offset() {
    let fs = Arc::new(MemFs::new());
    let options = Log::options().segment_bytes(1);
    let mut log = open(&fs, &options).unwrap();
    (0..4).for_each(|n| assert_eq!(log.append(&[n; 100]).unwrap(), FIRST + u64::from(n)));
    assert!(matches!(open(&fs, &options), Err(Error::Locked { .. })));
    let flip = |segment: u64, at: u64| {
        let file = fs.open(&Path::new(DIR).join(format!("{segment:06}.log")), OpenOptions::write()).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    };
    // The only record of an earlier segment: a torn tail for recordio, but damage here (standalone.1).
    flip(2, 50);
    let mut found = 0;
    let damaged = log.replay(|segment, _| {
        found = segment;
        Ok(())
    });
    let damaged = damaged.unwrap_err();
    let Error::Corrupt { path, offset, .. } = damaged else { panic!("{damaged}") };
    assert_eq!((found, &*path, offset), (1, Path::new("log/000002.log"), 20));
    log.remove_below(3).unwrap();
    assert_eq!((replayed(&mut log).len(), log.segments()), (2, 3..=4));
    log.sync().unwrap();
    drop(log);
    // The last record of the last segment.
    flip(4, 50);
    let mut log = open(&fs, &options).unwrap();
    assert!(matches!(log.cut_tail(), Tail::Torn { offset: 20, .. }));
    assert_eq!(replayed(&mut log), [(3, vec![2; 100])]);
    log.append_sync(b"5").unwrap();
    log.append_sync(b"6").unwrap();
    drop(log);
    fs.remove_file(Path::new("log/000004.log")).unwrap();
    let missing = open(&fs, &options).unwrap_err();
    assert!(matches!(&missing, Error::Corrupt { path, .. } if path.ends_with("000004.log")), "{missing}");
}

#[test]
fn a_segment_that_cannot_be_created_is_created_later() {
    let mem = Arc::new(MemFs::new());
    let faults = Arc::new(FaultFs::new(mem.clone()));
    let env = Env::simulated(faults.clone(), 1);
    let mut log = Log::options().segment_bytes(100).env(&env).open(DIR).unwrap();
    log.append(&[1; 90]).unwrap();
    faults.add(FaultRule::new(&[OpKind::Create], FaultAction::NoSpace).on_path("000002").forever());
    assert!(log.append(&[2; 90]).is_err());
    assert!(log.rotate().is_err());
    faults.clear();
    assert_eq!(log.append_sync(&[2; 90]).unwrap(), 2);
    drop(log);
    let crashed = Arc::new(mem.crash_strict());
    let mut log = open(&crashed, &Log::options()).unwrap();
    assert_eq!(replayed(&mut log), [(1, vec![1; 90]), (2, vec![2; 90])]);
}
