//! Damage: a seed's database, closed or left by a kill, is harmed in a few places, and all that can be done with it is
//! judged.
//!
//! ```text
//!   seed --subject.rs--> files, states --draw.rs--> harms --harm.rs--> damaged files --judge.rs--> Figures
//!                         `--> files of earlier moments, of another database --^          `--> what does not hold
//! ```
//!
//! damage.1. A run depends on its seed and its number of operations alone; whatever harms are left out, the database stays.
//!
//! What must hold: judge.rs; what cannot: allowed.rs. How to run it: docs/testing.md

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

/// Runs a piece of work, once; says how many bytes of memory it held at most.
pub type Measure = fn(&mut dyn FnMut()) -> usize;

/// What is other than usual in a run.
#[derive(Clone, Copy, Default)]
pub struct Twist {
    /// Makes the harms, of the undamaged files, instead of the seed.
    pub harms: Option<fn(&Files) -> Vec<Harm>>,
    /// Measures the memory of each step.
    pub memory: Option<Measure>,
    /// The judge takes the state before the newest commit for the newest.
    pub hides_newest: bool,
    /// The judge does not see what a repair tells of losses.
    pub hides_losses: bool,
}

/// What happened in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Databases damaged.
    pub databases: u64,
    /// Harms, by kind.
    pub harms: BTreeMap<Kind, u64>,
    /// Databases in which no file was another after all harms.
    pub unchanged: u64,
    /// Databases that were not opened.
    pub refused: u64,
    /// Databases of which some reads failed.
    pub part: u64,
    /// Databases that were read whole, and a check found what is wrong.
    pub only_checked: u64,
    /// Databases that were read whole, and nothing was wrong.
    pub sound: u64,
    /// Of those that were read whole, the ones that showed an older state, as they may.
    pub older: u64,
    /// Databases made by repairs.
    pub repairs: u64,
    /// Losses that repairs told.
    pub losses: u64,
}

impl Figures {
    /// Adds another run.
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

/// Damages the database of a seed, made by so many operations, and judges it.
///
/// # Errors
/// Something does not hold.
pub fn run(seed: u64, ops: usize, twist: Twist) -> Result<Figures, Failure> {
    try_plan(Plan::of(seed, ops), ops, twist, None)
}

/// Runs a plan with the harms of its seed, of the twist, or these.
fn try_plan(plan: Plan, ops: usize, twist: Twist, harms: Option<Vec<Harm>>) -> Result<Figures, Failure> {
    let done = plan.ops.len() as u64;
    let judged = alone(&name_of(plan.seed, ops), move |done| {
        let mut subject = plan.subject(done);
        let donor = Donor::of(plan.seed, ops);
        let harms = match (harms, twist.harms) {
            (Some(harms), _) => harms,
            (None, Some(make)) => make(&subject.files),
            (None, None) => plan.harms(&subject, &donor),
        };
        if twist.hides_newest {
            subject.forget_newest_commit();
        }
        let after = harmed(&subject.files, &harms);
        let is_foreign = harms.iter().any(|harm| harm.kind() == Kind::Foreign);
        let donor = is_foreign.then(|| donor.get());
        let holes = unreadable(&harms, &after);
        let unchanged = holes.is_empty() && after == subject.files;
        let verdict = Judge::new(&subject, donor, (&after, holes), twist).judge()?;
        Ok::<_, String>(Figures::of(&harms, unchanged, verdict))
    });
    judged?.map_err(|cause| Failure { cause, ops: done })
}

/// The harms of a seed.
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
