//! Damage: the files of a seed's database, closed or killed, are modified in a few places, and all operations
//! on it are judged.
//!
//! ```text
//!   seed --subject.rs--> files, states --draw.rs--> harms --harm.rs--> damaged files --judge.rs--> Figures
//!                         `--> files of earlier points, of another database --^            `--> violations
//! ```
//!
//! A run depends only on its seed and number of operations. Omitting harms does not change the database.
//!
//! Requirements: judge.rs; exceptions: allowed.rs. Usage: docs/testing.md

mod allowed;
mod draw;
mod files;
mod harm;
mod hidden;
mod judge;
mod manifest;
mod proof;
mod reading;
mod repaired;
pub mod report;
mod subject;
mod tail;

use std::collections::BTreeMap;
use std::fmt;

pub use self::files::Files;
pub use self::harm::{Edit, Harm, Kind};

use self::harm::{harmed, unreadable};
use self::judge::{Judge, Outcome, Verdict};
use self::subject::{Donor, Plan};
use esker_world::Failure;

use crate::runner::alone;

/// Runs a piece of work once and returns its peak memory in bytes.
pub type Measure = fn(&mut dyn FnMut()) -> usize;

/// Variations of a run.
#[derive(Clone, Copy, Default)]
pub struct RunOptions {
    /// Creates the harms from the undamaged files, instead of the seed.
    pub harms: Option<fn(&Files) -> Vec<Harm>>,
    /// Measures the memory of each step.
    pub memory: Option<Measure>,
    /// Canary: the judge takes the state before the newest commit for the newest.
    pub hides_newest: bool,
    /// Canary: the judge ignores the losses that a repair reports.
    pub hides_losses: bool,
}

/// Statistics of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Number of damaged databases.
    pub databases: u64,
    /// Number of harms by kind.
    pub harms: BTreeMap<Kind, u64>,
    /// Databases whose files were unchanged by the harms.
    pub unchanged: u64,
    /// Databases that could not be opened.
    pub refused: u64,
    /// Databases with failed reads.
    pub part: u64,
    /// Databases that were read completely, but failed the check.
    pub only_checked: u64,
    /// Databases that were read completely and passed the check.
    pub sound: u64,
    /// Of the databases read completely, those with an older state.
    pub older: u64,
    /// Databases created by repairs.
    pub repairs: u64,
    /// Losses reported by repairs.
    pub losses: u64,
}

impl Figures {
    /// Adds the statistics of another run.
    pub fn add(&mut self, other: &Figures) {
        self.databases += other.databases;
        for (kind, count) in &other.harms {
            *self.harms.entry(*kind).or_default() += count;
        }
        self.unchanged += other.unchanged;
        self.refused += other.refused;
        self.part += other.part;
        self.only_checked += other.only_checked;
        self.sound += other.sound;
        self.older += other.older;
        self.repairs += other.repairs;
        self.losses += other.losses;
    }

    fn of(harms: &[Harm], unchanged: bool, verdict: Verdict) -> Figures {
        let mut figures = Figures {
            databases: 1,
            unchanged: unchanged.into(),
            older: verdict.is_older.into(),
            repairs: verdict.losses.is_some().into(),
            losses: verdict.losses.unwrap_or(0),
            ..Figures::default()
        };
        harms.iter().for_each(|harm| *figures.harms.entry(harm.kind()).or_default() += 1);
        match verdict.reading {
            Outcome::Refused => figures.refused = 1,
            Outcome::Part => figures.part = 1,
            Outcome::OnlyChecked => figures.only_checked = 1,
            Outcome::Sound => figures.sound = 1,
        }
        figures
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { databases, unchanged, refused, part, only_checked, .. } = self;
        let Figures { older, repairs, losses, .. } = self;
        let whole = self.sound + only_checked;
        let count = |kind: Kind| self.harms.get(&kind).copied().unwrap_or(0);
        let harms = Kind::ALL.map(|kind| format!("{} {}", kind.name(), count(kind))).join(", ");
        write!(
            f,
            "{databases} databases damaged ({unchanged} of them in vain): {refused} refused, {part} read in part, {whole} \
             read whole, {only_checked} of them with damage that only a check finds; {older} showed an older state; \
             {repairs} repaired, with {losses} losses; harms: {harms}"
        )
    }
}

/// Creates the database of a seed with `ops` operations, damages and judges it.
///
/// # Errors
/// A requirement is violated.
pub fn run(seed: u64, ops: usize, options: RunOptions) -> Result<Figures, Failure> {
    try_plan(Plan::of(seed, ops), ops, options, None)
}

/// Runs a plan with the given harms, or those of the options or the seed.
fn try_plan(
    plan: Plan,
    ops: usize,
    options: RunOptions,
    harms: Option<Vec<Harm>>,
) -> Result<Figures, Failure> {
    let done = plan.ops.len() as u64;
    let judged = alone(&name_of(plan.seed, ops), move |done| {
        let mut subject = plan.subject(done);
        let donor = Donor::of(plan.seed, ops);
        let harms = match (harms, options.harms) {
            (Some(harms), _) => harms,
            (None, Some(make)) => make(&subject.files),
            (None, None) => plan.harms(&subject, &donor),
        };
        if options.hides_newest {
            subject.forget_newest_commit();
        }
        let after = harmed(&subject.files, &harms);
        let is_foreign = harms.iter().any(|harm| harm.kind() == Kind::Foreign);
        let donor = is_foreign.then(|| donor.get());
        let holes = unreadable(&harms, &after);
        let unchanged = holes.is_empty() && after == subject.files;
        let verdict = Judge::new(&subject, donor, (&after, holes), options).judge()?;
        Ok::<_, String>(Figures::of(&harms, unchanged, verdict))
    });
    judged?.map_err(|cause| Failure { cause, ops: done })
}

/// Returns the harms of a seed.
///
/// # Errors
/// The database disagrees with the model before it is damaged.
pub fn harms(seed: u64, ops: usize) -> Result<Vec<Harm>, Failure> {
    let plan = Plan::of(seed, ops);
    alone(&name_of(seed, ops), move |done| plan.harms(&plan.subject(done), &Donor::of(seed, ops)))
}

fn name_of(seed: u64, ops: usize) -> String {
    format!("damage of seed {seed} (esker-sim damage {seed} --ops {ops})")
}
