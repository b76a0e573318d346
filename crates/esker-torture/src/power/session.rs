//! One life of a database over the recording layer: open, write in several threads, close.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use esker_env::Env;

use super::Canary;
use super::disk::{Disk, Files};
use super::files;
use super::recorder::RecordFs;
use super::trace::Step;
use crate::journal::{Crash, Journal};
use crate::shape::{CompactionsBeside, Shape};
use crate::writers::{Found, WriterEvent, Writers};
use esker_world::failure::{Failure, Result};

/// The recording of a session.
pub(crate) struct Session {
    /// All steps, including closing.
    pub(crate) steps: Vec<Step>,
    /// The journal at the opening of the database.
    pub(crate) journal: Journal,
    /// Number of compactions.
    pub(crate) merges: u64,
    /// Number of compactions that began while others ran.
    pub(crate) beside: u64,
    /// Number of recycled log segments.
    pub(crate) recycled: u64,
}

/// The parameters of a session.
pub(crate) struct Plan<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) shape: Shape,
    pub(crate) seed: u64,
    pub(crate) writers: usize,
    pub(crate) tasks: usize,
    pub(crate) canary: Option<Canary>,
}

impl Plan<'_> {
    /// Writes the current files of `disk` to an empty directory, opens the database, compares it with the
    /// promises, and continues.
    pub(crate) fn run(&self, disk: &Disk, mut journal: Journal, writers_max: usize) -> Result<Session> {
        files::write(self.dir, &disk.current())?;
        let fs = RecordFs::new(self.dir, disk, self.canary);
        let env = Env::with_fs(Arc::new(fs.clone()));
        let beside = CompactionsBeside::default();
        let db = beside.with(self.shape.builder()).env(env).open(self.dir)?;
        let found = Found::read(&db, writers_max)?;
        let left = journal.verify(&found, Crash::Process)?;
        journal.settle(&left);
        fs.say(WriterEvent::Opened);
        let writers = Writers { seed: self.seed, count: self.writers, tasks: self.tasks };
        writers.work(&db, &left.expected, &|said| fs.say(said))?;
        let merges = db.stats().compactions;
        db.close()?;
        let steps = fs.take();
        self.compare(disk, &steps)?;
        let recycled = recycled(&steps);
        Ok(Session { steps, journal, merges, beside: beside.get(), recycled })
    }

    /// Checks that replaying the recording gives the real directory.
    fn compare(&self, disk: &Disk, steps: &[Step]) -> Result<()> {
        let mut disk = disk.clone();
        steps.iter().for_each(|step| disk.apply(step));
        let mut recorded = disk.current();
        let mut real = files::read(self.dir)?;
        for files in [&mut recorded, &mut real] {
            files.remove("LOCK");
        }
        let names = |files: &Files| files.keys().cloned().collect::<Vec<_>>();
        if names(&recorded) != names(&real) {
            let (recorded, real) = (names(&recorded), names(&real));
            return Err(Failure::new(format!("recorded files {recorded:?}, real ones {real:?}")));
        }
        match recorded.keys().find(|name| recorded[*name] != real[*name]) {
            Some(name) => Err(Failure::new(format!("the recording of {name} differs from the file"))),
            None => Ok(()),
        }
    }
}

/// Counts files of obsolete segments that were recycled.
fn recycled(steps: &[Step]) -> u64 {
    let (mut spares, mut recycled) = (BTreeSet::new(), 0);
    for step in steps {
        if let Step::Rename { from, to } = step {
            recycled += u64::from(spares.remove(from));
            if from.ends_with(".wal") {
                spares.insert(to);
            }
        }
    }
    recycled
}
