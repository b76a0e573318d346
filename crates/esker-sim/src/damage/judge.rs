//! The requirements on a damaged database.
//!
//! ```text
//!   damaged files --check offline, dump--> nothing changes
//!                 --open, read, check----> an allowed state, or errors that name the damage
//!                 --compact, open, read--> the same
//!                 --repair---------------> a sound database; differences are reported (repaired.rs)
//! ```
//!
//! No step panics, takes longer than [`TIME_MAX`], or uses much more memory than the size of the database. An
//! error is `Corrupt` or `UnsupportedVersion` and names a damaged or affected file, or it is `Io` and names
//! an unreadable one. A compaction that meets damage changes nothing, and a database that was read completely
//! remains so. Harm to files without data has no effect, and a repair then reports no loss.
//!
//! damage_judge.3. Everything that can be read, by keys, from both ends and by `len()`, belongs to one state
//!     that the harms allow: the newest one, or an exception of allowed.rs.
//! damage_judge.4. Checking offline finds something exactly if opening, reading or checking online does.
//!     Neither checking nor dumping changes anything, and a dump accepts any database.
//! damage_judge.6. A repair creates a sound database that survives a power loss, or nothing if there was
//!     none. The damaged database does not change.
//! damage_judge.7. The report of a repair covers each difference from an allowed state. The repaired value is
//!     older or missing, or, if a loss says so, of an uncommitted transaction or replaced within its commit.
//!     A state is not allowed if a remaining file proves a newer commit, or if
//!     damage of the manifest is proven; then a loss is reported.
//!
//! - If only sectors of tables and of the log are unreadable, a repair loses nothing of other
//!   files, and of a table only keys in its range.

use std::ops::Range;
use std::time::Duration;

use esker::{Builder, Db, DumpOptions, Error};
use esker_env::{Clock, Env, MemFs, SystemClock};

use super::RunOptions;
use super::allowed::Change;
use super::files::{Files, disk, env_with_holes, read};
use super::reading::{Candidates, read_all};
use super::subject::Subject;
use esker_world::failure::caught;
use esker_world::world::{DIR, builder};

/// Maximum duration of a step. Generous, because machines under load stall.
const TIME_MAX: Duration = Duration::from_secs(20);
/// Maximum memory of a step: this much plus a multiple of the file sizes, because files and copies are in
/// memory.
const MEMORY_BYTES_MAX: usize = 64 << 20;
const MEMORY_FACTOR: usize = 16;

/// The outcome of the damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) reading: Outcome,
    /// Whether the state read is older than the newest (allowed.1, allowed.2).
    pub(super) is_older: bool,
    /// Number of losses that a repair reported; `None` if there was nothing to repair.
    pub(super) losses: Option<u64>,
}

/// How much of a damaged database can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It cannot be opened.
    Refused,
    /// Some reads fail.
    Part,
    /// Everything, but a check finds damage.
    OnlyChecked,
    /// Everything, and a check finds no damage.
    Sound,
}

/// A damaged database to be judged.
pub(super) struct Judge<'a> {
    pub(super) subject: &'a Subject,
    /// The database from which foreign files were taken.
    pub(super) donor: Option<&'a Subject>,
    pub(super) options: RunOptions,
    pub(super) change: Change,
    after: &'a Files,
    /// Unreadable ranges of files.
    holes: Vec<(String, Range<u64>)>,
    disk: MemFs,
    bytes: usize,
    clock: SystemClock,
}

impl<'a> Judge<'a> {
    pub(super) fn new(
        subject: &'a Subject,
        donor: Option<&'a Subject>,
        (after, holes): (&'a Files, Vec<(String, Range<u64>)>),
        options: RunOptions,
    ) -> Self {
        Judge {
            subject,
            donor,
            options,
            change: Change::between(&subject.files, after, holes.iter().map(|hole| hole.0.clone())),
            after,
            holes,
            disk: disk(after),
            bytes: after.values().map(Vec::len).sum(),
            clock: SystemClock::new(),
        }
    }

    /// Performs all steps. The error describes a violated requirement.
    pub(super) fn judge(&self) -> Result<Verdict, String> {
        let found_offline = self.step("checking offline", |disk| self.check_offline(&disk))?;
        self.step("dumping", |disk| self.dump(&disk))?;
        let mut candidates = Candidates::new(self.change.shown_states(self.subject, self.donor));
        let reading = self.step("reading", |disk| self.read(&disk, &mut candidates))?;
        if let Some(contradiction) = &candidates.contradiction {
            let online = reading != Outcome::Sound;
            return Err(format!(
                "damage_judge.3: reading: {contradiction}; damage found offline: {found_offline}, online: {online}"
            ));
        }
        self.compare(found_offline, reading)?;
        if reading != Outcome::Refused {
            self.step("merging", |disk| self.merge(&disk, reading, &mut candidates))?;
        }
        let losses = self.step("repairing", |disk| self.repair(&disk))?;
        let is_whole = matches!(reading, Outcome::Sound | Outcome::OnlyChecked);
        Ok(Verdict { reading, is_older: is_whole && !candidates.may_be(&self.subject.newest), losses })
    }

    /// Runs a step on a disk of its own, measuring time and memory.
    fn step<T>(&self, name: &str, work: impl FnOnce(MemFs) -> Result<T, String>) -> Result<T, String> {
        let mut job = Some((work, self.disk.kill()));
        let mut outcome = None;
        let mut run = || {
            if let Some((work, disk)) = job.take() {
                outcome = Some(caught(|| work(disk)));
            }
        };
        let started = self.clock.monotonic();
        let memory = match self.options.memory {
            Some(measure) => measure(&mut run),
            None => {
                run();
                0
            }
        };
        let time = self.clock.monotonic() - started;
        let outcome = outcome.expect("it ran").map_err(|panic| format!("{name}: panic: {panic}"))?;
        if time > TIME_MAX {
            return Err(format!("{name} takes too long: {time:?}"));
        }
        if memory > MEMORY_BYTES_MAX + MEMORY_FACTOR * self.bytes {
            return Err(format!("{name} takes too much memory: {memory} bytes"));
        }
        outcome
    }

    /// Returns a builder for this disk.
    pub(super) fn builder(&self, disk: &MemFs) -> Builder {
        builder(self.env(disk), self.subject.opening)
    }

    fn env(&self, disk: &MemFs) -> Env {
        env_with_holes(disk, self.subject.seed, &self.holes)
    }

    /// Checks that an error is typed and explained by the damage.
    fn typed(&self, doing: &str, error: &Error) -> Result<(), String> {
        match self.change.explains(error) {
            true => Ok(()),
            false => Err(format!("{doing}: {error:?}")),
        }
    }

    /// Checks that the files have not changed.
    pub(super) fn untouched(&self, invariant: &str, doing: &str, disk: &MemFs) -> Result<(), String> {
        match read(disk) == *self.after {
            true => Ok(()),
            false => Err(format!("{invariant}: {doing} has changed the files")),
        }
    }

    /// Checks offline. Returns whether that found anything.
    fn check_offline(&self, disk: &MemFs) -> Result<bool, String> {
        let checked = self.builder(disk).check_offline(DIR);
        self.untouched("damage_judge.4", "checking offline", disk)?;
        match checked {
            Ok(_) if self.change.is_new => {
                Err("checking offline finds a database where there is none".to_owned())
            }
            Ok(report) => Ok(!report.is_sound()),
            Err(Error::NotFound(_)) if self.change.is_new => Ok(true),
            Err(error) => self.typed("checking offline", &error).map(|()| true),
        }
    }

    fn dump(&self, disk: &MemFs) -> Result<(), String> {
        let mut items = 0;
        let options = DumpOptions::default().env(self.env(disk));
        options.dump(DIR, |_| items += 1).map_err(|error| format!("damage_judge.4: dump: {error:?}"))?;
        self.untouched("damage_judge.4", "a dump", disk)?;
        match items < self.after.len() {
            true => Err(format!("damage_judge.4: a dump shows {items} items of {} files", self.after.len())),
            false => Ok(()),
        }
    }

    /// Opens and reads the database.
    fn read(&self, disk: &MemFs, candidates: &mut Candidates<'_>) -> Result<Outcome, String> {
        let db = match self.builder(disk).open(DIR) {
            Ok(db) => db,
            Err(error) => {
                self.typed("opening", &error)?;
                return Ok(Outcome::Refused);
            }
        };
        self.read_open("reading", &db, candidates)
    }

    /// Reads and checks the open database.
    fn read_open(&self, doing: &str, db: &Db, candidates: &mut Candidates<'_>) -> Result<Outcome, String> {
        let errors = read_all(db, candidates);
        errors.iter().try_for_each(|error| self.typed(doing, error))?;
        let problems = match db.check() {
            Ok(report) => report.problems,
            Err(error) => {
                self.typed("checking", &error)?;
                vec![error.to_string()]
            }
        };
        match (errors.first(), problems.first()) {
            (Some(error), None) => {
                Err(format!("damage_judge.4: {doing}: a check finds nothing, but {error}"))
            }
            (Some(_), Some(_)) => Ok(Outcome::Part),
            // Opening reads everything except the blocks of tables.
            (None, Some(problem)) if !self.change.touches_tables() => {
                Err(format!("damage_judge.4: {doing}: it opens, but a check finds {problem}"))
            }
            (None, Some(_)) => Ok(Outcome::OnlyChecked),
            (None, None) => Ok(Outcome::Sound),
        }
    }

    /// Compares the results of offline and online checks (damage_judge.4).
    fn compare(&self, found_offline: bool, reading: Outcome) -> Result<(), String> {
        let found_online = reading != Outcome::Sound;
        if found_offline != found_online && !self.change.is_new {
            return Err(format!(
                "damage_judge.4: found when checked offline: {found_offline}; online: {reading:?}"
            ));
        }
        if self.change.is_harmless() && found_online {
            return Err(format!("{reading:?}, though no file with data has changed"));
        }
        Ok(())
    }

    /// Compacts everything, closes the database, and reads it again.
    fn merge(&self, disk: &MemFs, before: Outcome, candidates: &mut Candidates<'_>) -> Result<(), String> {
        let open = |doing: &str| {
            let opened = self.builder(disk).open(DIR);
            opened.map_err(|error| format!("{doing}: {error:?}"))
        };
        let db = open("opening once more")?;
        let merged = db.compact();
        let closed = db.close();
        for (doing, outcome) in [("merging", &merged), ("closing", &closed)] {
            if let Err(error) = outcome {
                self.typed(doing, error)?;
            }
        }
        let db = open("opening after a compaction")?;
        let after = self.read_open("reading after a compaction", &db, candidates)?;
        if let Some(contradiction) = &candidates.contradiction {
            return Err(format!("damage_judge.3: reading after a compaction: {contradiction}"));
        }
        if before == Outcome::Sound && (merged.is_err() || after != Outcome::Sound) {
            return Err(format!("it was sound, but a compaction ends with {merged:?}, and leaves {after:?}"));
        }
        if before == Outcome::OnlyChecked && after == Outcome::Part {
            return Err("it was read completely, but not after a compaction".to_owned());
        }
        Ok(())
    }
}
