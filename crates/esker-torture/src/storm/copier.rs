//! The copying thread: makes checkpoints, backups and archives, restores them and compares them by commit
//! number.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use esker::backup::{Backup, Point};
use esker::{Builder, Db};
use esker_world::failure::{Failure, Result};
use fastrand::Rng;

use super::child::Counts;
use super::judge::{self, Options};
use super::worker::Log;
use crate::shape::Shape;

/// The state of the thread.
pub(super) struct Copier<'a> {
    pub(super) db: &'a Db,
    pub(super) logs: &'a [Log],
    pub(super) dir: PathBuf,
    pub(super) shape: Shape,
    pub(super) rng: Rng,
    pub(super) counts: &'a Counts,
    /// The newest commit when this life started, where the logs begin.
    pub(super) began_at: u64,
}

impl Copier<'_> {
    /// Makes copies until stopped.
    pub(super) fn run(&mut self, stop: &AtomicBool) -> Result<()> {
        let copies = self.dir.join("copies");
        if copies.exists() {
            fs::remove_dir_all(&copies)?;
        }
        fs::create_dir_all(&copies)?;
        let mut backup = Backup::open(self.dir.join("backup"))?;
        let mut newest = backup.list().unwrap_or_default().last().map(|made| made.seqno.get());
        for n in 0_u64.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let target = copies.join(n.to_string());
            match self.rng.u8(0..10) {
                0..3 => self.checkpoint(&target)?,
                3 => {
                    let made = backup.create(self.db)?;
                    newest = Some(made.seqno.get());
                    if self.rng.bool() {
                        backup.restore(&target).backup(made.id).run()?;
                        self.compare(&target, made.seqno.get(), Options::Same, "backup")?;
                        self.counts.backups.fetch_add(1, Ordering::Relaxed);
                    }
                    backup.prune(3)?;
                }
                // An archive requires a backup.
                4..6 if newest.is_some() => {
                    if let (Some(from), Some(segment)) = (newest, backup.archive(self.db)?)
                        && let (from, last) = (from.max(self.began_at), segment.last.get())
                        && from <= last
                    {
                        let seqno = self.rng.u64(from..=last);
                        self.restore(&mut backup, seqno, &target)?;
                    }
                }
                6 => drop(self.db.sweep()?),
                7 => self.db.flush()?,
                8 => self.db.compact()?,
                _ => {
                    let report = self.db.check()?;
                    if !report.problems.is_empty() {
                        return Err(Failure::new(format!("check: {:#?}", report.problems)));
                    }
                }
            }
        }
        Ok(())
    }

    fn builder(&self) -> Builder {
        self.shape.builder()
    }

    fn checkpoint(&mut self, target: &Path) -> Result<()> {
        let made = self.db.checkpoint(target)?;
        let report = self.builder().check_offline(target)?;
        if !report.is_sound() {
            return Err(Failure::new(format!("checkpoint at {}: {:#?}", made.seqno.get(), report.problems)));
        }
        self.counts.checkpoints.fetch_add(1, Ordering::Relaxed);
        if self.rng.u8(0..8) == 0 {
            let repaired = target.with_extension("repaired");
            self.builder().repair(target, &repaired)?;
            self.compare(&repaired, made.seqno.get(), Options::WithoutHistory, "repaired checkpoint")?;
        }
        self.compare(target, made.seqno.get(), Options::Same, "checkpoint")
    }

    fn restore(&self, backup: &mut Backup, seqno: u64, target: &Path) -> Result<()> {
        let point = Point::Commit(esker::SeqNo::new(seqno));
        backup.restore(target).point(point).builder(self.builder()).run()?;
        self.counts.restores.fetch_add(1, Ordering::Relaxed);
        self.compare(target, seqno, Options::Same, "restore to a commit")
    }

    /// Opens a copy, compares it with the commits up to its number, and removes it.
    fn compare(&self, target: &Path, seqno: u64, kept: Options, what: &str) -> Result<()> {
        let models: Vec<_> = self.logs.iter().map(|log| log.at(seqno)).collect();
        let db = self.builder().open(target)?;
        judge::agree(&db, &models, kept, &format!("{what} of commit {seqno} in {}", target.display()))?;
        db.close()?;
        Ok(fs::remove_dir_all(target)?)
    }
}
