//! Tests the timed sync in real time: commits that did not wait for the disk become durable without further
//! calls.
//!
//! ```text
//!   commits: None, Buffered --steps--> Disk --power losses--> none loses a commit within BOUND and LOOKS_MIN
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esker::{Db, Durability};
use esker_env::Env;
use fastrand::Rng;

use super::disk::{Disk, Files};
use super::files;
use super::recorder::RecordFs;
use esker_world::failure::{Failure, Result};

/// The promised interval between syncs, plus the time that a sync may take on a busy machine.
const BOUND: Duration = Duration::from_millis(100 + 6000);
/// Minimum number of checks before failing. Each check opens databases, which syncs files of the same disk,
/// so a stalled disk delays the checks, too.
const LOOKS_MIN: u32 = 20;
/// Interval between checks.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Number of losses that all commits must survive to count as durable.
const LOSSES: usize = 4;
const ROUNDS: u64 = 3;
const COMMITS: u64 = 20;

/// Commits, and waits until power losses lose nothing. Returns the longest wait.
pub(super) fn longest_wait(dir: &Path, left: &Path, seed: u64) -> Result<Duration> {
    let mut rng = Rng::with_seed(seed);
    let mut disk = Disk::default();
    files::write(dir, &Files::new())?;
    let fs = RecordFs::new(dir, &disk, None);
    let db = Db::builder().env(Env::with_fs(Arc::new(fs.clone()))).open(dir)?;
    let keyspace = db.default_keyspace();
    let mut longest = Duration::ZERO;
    for round in 1..=ROUNDS {
        for n in 0..COMMITS {
            let mut batch = db.batch();
            batch.put(&keyspace, (round * COMMITS + n).to_be_bytes(), "")?;
            batch.commit_with([Durability::None, Durability::Buffered][n as usize % 2])?;
        }
        let since = Instant::now();
        for look in 1_u32.. {
            let waited = since.elapsed();
            fs.take().iter().for_each(|step| disk.apply(step));
            let kept = (0..LOSSES).map(|_| commits_left(&disk.power_loss(&mut rng), left));
            let kept = kept.collect::<Result<Vec<u64>>>()?.into_iter().min().unwrap_or_default();
            if kept == round * COMMITS {
                longest = longest.max(waited);
                break;
            }
            if waited > BOUND && look >= LOOKS_MIN {
                let made = round * COMMITS;
                return Err(Failure::new(format!(
                    "timed sync: of {made} commits, the last of them {waited:?} old, a power loss leaves {kept}"
                )));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
    db.close()?;
    Ok(longest)
}

fn commits_left(files: &Files, left: &Path) -> Result<u64> {
    files::write(left, files)?;
    let db = Db::builder().open(left)?;
    let commits = db.default_keyspace().len()?;
    db.close()?;
    Ok(commits)
}
