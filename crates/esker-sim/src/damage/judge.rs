//! What must hold of a damaged database.
//!
//! ```text
//!   damaged files --check offline, dump--> nothing has changed
//!                 --open, read, check----> a state that is allowed, or errors that name what is damaged
//!                 --merge, open, read----> the same
//!                 --repair---------------> a sound database, what differs is told (repaired.rs)
//! ```
//!
//! damage_judge.1. No step panics, takes more than [`TIME_MAX`], or, where memory is measured, much more than the database has bytes.
//! damage_judge.2. An error is `Corrupt` or `UnsupportedVersion`, and names a file that is damaged or to which a damaged one has led; or `Io`, and
//!      names one that cannot be read.
//! damage_judge.3. All that can be read, by keys, from both ends, and `len()`, is of one state, and of one that the harms allow: the
//!      newest, but for the exceptions allowed.1 to allowed.3 (allowed.rs).
//! damage_judge.4. Checking offline finds something exactly if opening, reading or checking online does. Neither it nor a dump, which
//!      shows any database, changes anything.
//! damage_judge.5. A merge that meets damage leaves what is there; one of a database that was read whole leaves it whole.
//! damage_judge.6. A repair makes a sound database that survives a power loss, or nothing, if there was nothing. The damaged one is untouched.
//! damage_judge.7. What differs in the repaired one from a state that is allowed is among the losses that it tells, and is older or
//!      missing, or of a transaction that never committed or that a commit itself replaced, where a loss says so (repaired.3, repaired.4). Which ones those are: as in damage_judge.3. Where a file that is left proves a newer commit than an older state has, or the damage of
//!      the manifest is proven, that state is none of them: then it is told what is lost.
//! damage_judge.8. Harm to files without data does none, and no repair tells of a loss.
//! damage_judge.9. Where nothing is wrong but sectors of tables and of the log that cannot be read, a repair loses nothing of other files, and of a
//!      table no keys outside of its range.

use std::ops::Range;
use std::time::Duration;

use esker::{Builder, Db, DumpOptions, Error};
use esker_env::{Clock, Env, MemFs, SystemClock};

use super::Twist;
use super::allowed::Change;
use super::files::{Files, disk, env_with_holes, read};
use super::reading::{Suspects, read_all};
use super::subject::Subject;
use esker_world::failure::caught;
use esker_world::world::{DIR, builder};

/// No step takes longer (damage_judge.1). Generous, since machines under load stall.
const TIME_MAX: Duration = Duration::from_secs(20);
/// Nor more memory than this, and so many times the files' bytes: they are in memory, and what is written of them too.
const MEMORY_BYTES_MAX: usize = 64 << 20;
const MEMORY_FACTOR: usize = 16;

/// What came of the damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) reading: Outcome,
    /// What was read whole is not the newest state (allowed.1, allowed.2).
    pub(super) is_older: bool,
    /// The losses that a repair told; none if there was nothing to repair.
    pub(super) losses: Option<u64>,
}

/// How far a damaged database can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is not opened.
    Refused,
    /// Some reads fail.
    Part,
    /// All of it, and only a check finds what is wrong.
    OnlyChecked,
    /// All of it, and nothing is wrong.
    Sound,
}

/// A damaged database on trial.
pub(super) struct Judge<'a> {
    pub(super) subject: &'a Subject,
    /// Of whom files were put among its own.
    pub(super) donor: Option<&'a Subject>,
    pub(super) twist: Twist,
    pub(super) change: Change,
    after: &'a Files,
    /// What cannot be read: of which files, which bytes.
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
        twist: Twist,
    ) -> Self {
        Judge {
            subject,
            donor,
            twist,
            change: Change::between(&subject.files, after, holes.iter().map(|hole| hole.0.clone())),
            after,
            holes,
            disk: disk(after),
            bytes: after.values().map(Vec::len).sum(),
            clock: SystemClock::new(),
        }
    }

    /// Judges all that can be done with it; an error says what does not hold.
    pub(super) fn judge(&self) -> Result<Verdict, String> {
        let found_offline = self.step("checking offline", |disk| self.check_offline(&disk))?;
        self.step("dumping", |disk| self.dump(&disk))?;
        let mut suspects = Suspects::new(self.change.shown_states(self.subject, self.donor));
        let reading = self.step("reading", |disk| self.read(&disk, &mut suspects))?;
        if let Some(contradiction) = &suspects.contradiction {
            let online = reading != Outcome::Sound;
            return Err(format!(
                "damage_judge.3: reading: {contradiction}; found by a check offline: {found_offline}, online: {online}"
            ));
        }
        self.compare(found_offline, reading)?;
        if reading != Outcome::Refused {
            self.step("merging", |disk| self.merge(&disk, reading, &mut suspects))?;
        }
        let losses = self.step("repairing", |disk| self.repair(&disk))?;
        let is_whole = matches!(reading, Outcome::Sound | Outcome::OnlyChecked);
        Ok(Verdict { reading, is_older: is_whole && !suspects.may_be(&self.subject.newest), losses })
    }

    /// Runs a step on a disk of its own (damage_judge.1).
    fn step<T>(&self, name: &str, work: impl FnOnce(MemFs) -> Result<T, String>) -> Result<T, String> {
        let mut job = Some((work, self.disk.kill()));
        let mut outcome = None;
        let mut run = || {
            if let Some((work, disk)) = job.take() {
                outcome = Some(caught(|| work(disk)));
            }
        };
        let started = self.clock.monotonic();
        let memory = match self.twist.memory {
            Some(measure) => measure(&mut run),
            None => {
                run();
                0
            }
        };
        let time = self.clock.monotonic() - started;
        let outcome =
            outcome.expect("it ran").map_err(|panic| format!("damage_judge.1: {name}: panic: {panic}"))?;
        if time > TIME_MAX {
            return Err(format!("damage_judge.1: {name} takes too long: {time:?}"));
        }
        if memory > MEMORY_BYTES_MAX + MEMORY_FACTOR * self.bytes {
            return Err(format!("damage_judge.1: {name} takes too much memory: {memory} bytes"));
        }
        outcome
    }

    /// The options of whoever works on this disk.
    pub(super) fn builder(&self, disk: &MemFs) -> Builder {
        builder(self.env(disk), self.subject.opening)
    }

    fn env(&self, disk: &MemFs) -> Env {
        env_with_holes(disk, self.subject.seed, &self.holes)
    }

    /// damage_judge.2.
    fn typed(&self, doing: &str, error: &Error) -> Result<(), String> {
        match self.change.explains(error) {
            true => Ok(()),
            false => Err(format!("damage_judge.2: {doing}: {error:?}")),
        }
    }

    /// The files are as they were.
    pub(super) fn untouched(&self, invariant: &str, doing: &str, disk: &MemFs) -> Result<(), String> {
        match read(disk) == *self.after {
            true => Ok(()),
            false => Err(format!("{invariant}: {doing} has changed the files")),
        }
    }

    /// Whether checking offline finds anything.
    fn check_offline(&self, disk: &MemFs) -> Result<bool, String> {
        let checked = self.builder(disk).check_offline(DIR);
        self.untouched("damage_judge.4", "checking offline", disk)?;
        match checked {
            Ok(_) if self.change.is_new => {
                Err("allowed.3: checking offline finds a database where there is none".to_owned())
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

    /// Opens and reads it.
    fn read(&self, disk: &MemFs, suspects: &mut Suspects<'_>) -> Result<Outcome, String> {
        let db = match self.builder(disk).open(DIR) {
            Ok(db) => db,
            Err(error) => {
                self.typed("opening", &error)?;
                return Ok(Outcome::Refused);
            }
        };
        self.read_open("reading", &db, suspects)
    }

    /// Reads it, and checks it.
    fn read_open(&self, doing: &str, db: &Db, suspects: &mut Suspects<'_>) -> Result<Outcome, String> {
        let errors = read_all(db, suspects);
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
            // All but the blocks of tables is looked at when it is opened.
            (None, Some(problem)) if !self.change.touches_tables() => {
                Err(format!("damage_judge.4: {doing}: it opens, but a check finds {problem}"))
            }
            (None, Some(_)) => Ok(Outcome::OnlyChecked),
            (None, None) => Ok(Outcome::Sound),
        }
    }

    /// damage_judge.4, damage_judge.8.
    fn compare(&self, found_offline: bool, reading: Outcome) -> Result<(), String> {
        let found_online = reading != Outcome::Sound;
        if found_offline != found_online && !self.change.is_new {
            return Err(format!(
                "damage_judge.4: found when checked offline: {found_offline}; online: {reading:?}"
            ));
        }
        if self.change.is_harmless() && found_online {
            return Err(format!("damage_judge.8: {reading:?}, though no file with data is another"));
        }
        Ok(())
    }

    /// Merges everything, closes it, and reads it again (damage_judge.5).
    fn merge(&self, disk: &MemFs, before: Outcome, suspects: &mut Suspects<'_>) -> Result<(), String> {
        let open = |doing: &str| {
            let opened = self.builder(disk).open(DIR);
            opened.map_err(|error| format!("damage_judge.5: {doing}: {error:?}"))
        };
        let db = open("opening once more")?;
        let merged = db.compact();
        let closed = db.close();
        for (doing, outcome) in [("merging", &merged), ("closing", &closed)] {
            if let Err(error) = outcome {
                self.typed(doing, error)?;
            }
        }
        let db = open("opening after a merge")?;
        let after = self.read_open("reading after a merge", &db, suspects)?;
        if let Some(contradiction) = &suspects.contradiction {
            return Err(format!("damage_judge.3: reading after a merge: {contradiction}"));
        }
        if before == Outcome::Sound && (merged.is_err() || after != Outcome::Sound) {
            return Err(format!(
                "damage_judge.5: it was sound, and a merge ends with {merged:?}, and leaves {after:?}"
            ));
        }
        if before == Outcome::OnlyChecked && after == Outcome::Part {
            return Err("damage_judge.5: it was read whole, and is not after a merge".to_owned());
        }
        Ok(())
    }
}
