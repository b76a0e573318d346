//! The log under random work and power losses: acknowledged records come back in order, and nothing else does
//! (recovery.1, recovery.2).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_env::{FaultAction, FaultFs, FaultRule, Fs, FsRef, MemFs, OpKind};

use super::{DIR, Named, append, env_on, payload, pool_in, pool_with, replayed_in};
use crate::types::SeqNo;
use crate::types::canary::{self, Canary};
use crate::wal::{WalOptions, WalPool, WalWriter};

const SEGMENT_BYTES: u64 = 1024;

/// A log under test and what it must hold.
struct World {
    fs: MemFs,
    options: WalOptions,
    pool: Arc<WalPool>,
    log: WalWriter,
    /// The first segment that recovery reads; the engine keeps it in the manifest.
    from: u64,
    /// The newest segment that is named; the engine keeps it in the manifest, too.
    named: Named,
    /// The records from there on, as (sequence number, length).
    records: Vec<(u64, usize)>,
    /// Number of records acknowledged as durable.
    acked: usize,
    next_seq: u64,
}

impl World {
    fn new(options: WalOptions) -> World {
        let fs = MemFs::new();
        let env = env_on(Arc::new(fs.clone()) as FsRef);
        env.fs.create_dir_all(Path::new(DIR)).unwrap();
        let named = Named::default();
        let pool = pool_with(&env, options, &named);
        let log = WalWriter::create(pool.clone(), 1, &[]).unwrap();
        World { fs, options, pool, log, from: 1, named, records: Vec::new(), acked: 0, next_seq: 1 }
    }

    /// Does one random operation.
    fn step(&mut self, rng: &mut fastrand::Rng) {
        match rng.u32(0..100) {
            0..55 => {
                // Few distinct lengths, so that records of recycled files start where recovery looks for new
                // ones.
                let len = [0, 40, 40, 40, 120, 500, 2500][rng.usize(0..7)];
                append(&mut self.log, self.next_seq, len).unwrap();
                self.records.push((self.next_seq, len));
                self.next_seq += rng.u64(1..3);
            }
            55..65 => self.log.write().unwrap(),
            65..75 => {
                self.log.sync().unwrap();
                self.acked = self.records.len();
            }
            75..80 => {
                self.log.write().unwrap();
                let covered = self.records.len();
                if let Some(handle) = self.log.sync_handle() {
                    let outcome = handle.sync();
                    self.log.synced(outcome).unwrap();
                }
                self.acked = covered;
            }
            80..85 => {
                self.log.rotate().unwrap();
                self.acked = self.records.len();
            }
            85..93 => {
                // A flush: all records so far are in tables, and the manifest says so.
                self.from = self.log.rotate().unwrap();
                self.records.clear();
                self.acked = 0;
                self.log.release_below(self.from).unwrap();
            }
            93..99 => drop(self.pool.prepare_step().unwrap()),
            _ => self.pool.trim().unwrap(),
        }
    }

    /// Checks that `fs` holds a prefix with all acknowledged records; returns its length.
    fn check(&self, fs: &MemFs) -> Result<usize, String> {
        self.check_in(fs, &AtomicU64::new(self.named.load(Ordering::Relaxed)))
    }

    fn check_in(&self, fs: &MemFs, named: &AtomicU64) -> Result<usize, String> {
        let env = env_on(Arc::new(fs.clone()) as FsRef);
        let (found, recovered) = replayed_in(&env, self.from, named).map_err(|e| e.to_string())?;
        if found.len() < self.acked {
            return Err(format!("{} records of {} acknowledged ones came back", found.len(), self.acked));
        }
        if found.len() > self.records.len() {
            return Err("more came back than was written".into());
        }
        for ((seq, bytes), &(wanted, len)) in found.iter().zip(&self.records) {
            if (*seq, bytes) != (wanted, &payload(wanted, len)) {
                return Err(format!(
                    "record {seq} came back where {wanted} was written, or with other bytes"
                ));
            }
        }
        // recovery.3: recovery left nothing to trim, even if the power fails right after it.
        let env = env_on(Arc::new(fs.crash_strict()) as FsRef);
        let (again, second) =
            replayed_in(&env, self.from, named).map_err(|e| format!("second recovery: {e}"))?;
        let same =
            again == found && second.trimmed_bytes == 0 && second.next_segment == recovered.next_segment;
        if same { Ok(found.len()) } else { Err(format!("{recovered:?}, then {second:?}")) }
    }

    /// Continues from what a crash left.
    fn restart_on(&mut self, fs: MemFs) -> Result<(), String> {
        let left = self.check_in(&fs, &self.named)?;
        let env = env_on(Arc::new(fs.clone()) as FsRef);
        let (_, recovered) = replayed_in(&env, self.from, &self.named).map_err(|e| e.to_string())?;
        self.pool = pool_with(&env, self.options, &self.named);
        let log = WalWriter::create(self.pool.clone(), recovered.next_segment, &recovered.segments);
        self.log = log.map_err(|e| e.to_string())?;
        self.records.truncate(left);
        self.acked = left;
        self.fs = fs;
        Ok(())
    }
}

/// Segments of one size; segments that grow; long records that fill several segments of their own.
fn layouts() -> [WalOptions; 3] {
    let usual = WalOptions { segment_bytes_max: SEGMENT_BYTES, ..WalOptions::default() };
    [
        usual,
        WalOptions { first_segment_bytes: 512, segment_bytes_max: 4 * SEGMENT_BYTES, ..usual },
        WalOptions { bulk_segment_bytes: SEGMENT_BYTES, ..usual },
    ]
}

fn run(seed: u64) -> Result<(), String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut world = World::new(layouts()[seed as usize % 3]);
    for _ in 0..4 {
        for _ in 0..rng.u32(5..60) {
            world.step(&mut rng);
            if rng.u32(0..4) == 0 {
                world.check(&world.fs.crash(rng.u64(..)))?;
            }
        }
        world.check(&world.fs.crash_strict())?;
        world.check(&world.fs.crash_keep_all())?;
        // Only the process dies: recovery finds records that a power loss could still take, and must sync
        // them (recovery.4).
        let killed = world.fs.kill();
        world.check(&killed)?;
        let left = if rng.bool() { world.fs.kill() } else { world.fs.crash(rng.u64(..)) };
        world.restart_on(left)?;
    }
    Ok(())
}

#[test]
fn wal_1_every_crash_leaves_a_prefix_with_all_that_was_acknowledged() {
    for seed in 0..400 {
        run(seed).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

#[test]
fn recovery_7_no_crash_in_a_bulk_record_leaves_what_looks_like_a_cut() {
    let mut torn = 0;
    for seed in 0..80 {
        let usual = layouts()[0];
        // All of it in one segment, or in four.
        let bulk_segment_bytes = if seed % 2 == 0 { usual.bulk_segment_bytes } else { 600_000 };
        let mut world = World::new(WalOptions { bulk_segment_bytes, ..usual });
        append(&mut world.log, 1, 40).unwrap();
        world.log.sync().unwrap();
        (world.records, world.acked) = (vec![(1, 40), (2, 2 << 20), (3, 40)], 1);
        append(&mut world.log, 2, 2 << 20).unwrap();
        append(&mut world.log, 3, 40).unwrap();
        world.log.write().unwrap();
        let names = world.fs.list_dir(DIR.as_ref()).unwrap();
        let segments = names.iter().filter(|name| name.ends_with(".wal")).count();
        assert_eq!(segments > 4, seed % 2 == 1, "{names:?}");
        let left = world.check(&world.fs.crash(seed)).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        torn += u32::from(left < 3);
    }
    assert!(torn > 20, "{torn}");
}

#[test]
fn wal_4_without_the_generation_in_the_checksum_the_sweep_fails() {
    canary::set(Some(Canary::WalGenerationIgnored));
    let caught = (0..100).filter(|seed| run(*seed).is_err()).count();
    canary::set(None);
    assert!(caught > 0, "the sweep would not notice stale records");
}

#[test]
fn recovery_3_recovery_stopped_at_any_call_can_be_run_again() {
    let mut tears = 0;
    for seed in 0..40 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut world = World::new(layouts()[seed as usize % 3]);
        for _ in 0..30 {
            world.step(&mut rng);
        }
        let left = if seed % 2 == 0 { world.fs.kill() } else { world.fs.crash(seed) };
        for nth in 1.. {
            let fs = left.kill();
            let faults = FaultFs::new(Arc::new(fs.clone()));
            let fault = FaultAction::Fail(std::io::ErrorKind::Other);
            faults.add(FaultRule::new(&OpKind::CHANGES, fault).nth(nth).forever());
            let named = AtomicU64::new(world.named.load(Ordering::Relaxed));
            let result = replayed_in(&env_on(Arc::new(faults) as FsRef), world.from, &named);
            let checked = world.check_in(&fs.crash(seed + nth), &named);
            checked.unwrap_or_else(|e| panic!("seed {seed}, call {nth}: {e}"));
            if result.is_ok() {
                break;
            }
            tears += 1;
        }
    }
    assert!(tears > 40, "only {tears} recoveries were stopped");
}

#[test]
fn wal_6_a_fault_at_any_call_loses_nothing_acknowledged() {
    for nth in 1..150 {
        let fs = MemFs::new();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let env = env_on(Arc::new(faults.clone()) as FsRef);
        env.fs.create_dir_all(Path::new(DIR)).unwrap();
        let named = Named::default();
        let mut log = WalWriter::create(pool_in(&env, SEGMENT_BYTES, &named), 1, &[]).unwrap();
        let action = [FaultAction::NoSpace, FaultAction::ShortWrite { keep: 10 }][nth % 2];
        faults.add(FaultRule::new(&OpKind::CHANGES, action).nth(nth as u64));
        let mut acked = Vec::new();
        for seq in 1..40 {
            let bytes = payload(seq, 90);
            if log.append(SeqNo::new(seq), &[&bytes]).and_then(|()| log.sync()).is_ok() {
                acked.push((seq, bytes));
            }
        }
        for crashed in [fs.crash_strict(), fs.crash_keep_all(), fs.crash(nth as u64)] {
            let named = AtomicU64::new(named.load(Ordering::Relaxed));
            let (found, _) = replayed_in(&env_on(Arc::new(crashed) as FsRef), 1, &named).unwrap();
            // A record whose sync failed may be there as well: the last one, after which the writer is
            // poisoned.
            assert!(found.starts_with(&acked) && found.len() <= acked.len() + 1, "call {nth}");
        }
    }
}
