//! History: older versions that a keyspace keeps, and the first commit at which it can be read.
//!
//! ```text
//!   set_history --option, durable--> Histories --rules, by clock and marks--> compaction/rules.rs
//!                                        ^--floors, before an edit is installed--'
//!   at, since, versions --view, then floor--> reads of that view, or HistoryGone
//! ```
//!
//! engine_history.1. A reader loads the view first, then the floor of the keyspace. A floor rises before a
//!     view is installed that lacks the versions below it. So a reader at a commit not below the floor has a
//!     view with everything it reads.
//! engine_history.2. Compactions obey a rule before the commit is read from which history is promised. A
//!     compaction reads its horizons before the rules. So a compaction that does not know the rule keeps what
//!     readers at its visible commit see, and that commit is not newer.
//! - A duration is measured by the wall clock, from marks that flushes make. It never ends early. A clock
//!   that goes back makes it longer. After a clock far ahead nothing grows old until the clock has caught up,
//!   or [`Db::reset_time`](crate::Db::reset_time) is called.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use esker_env::Env;
use parking_lot::RwLock;

use crate::compaction::rules::{Rule, Rules};
use crate::engine::state::State;
use crate::engine::state::catalog::KeyspaceState;
use crate::manifest::edit::VersionEdit;
use crate::manifest::history::{Floors, Marks};
use crate::read::view::ReadView;
use crate::types::{Error, KeyspaceId, Result, SeqNo};

/// What a keyspace keeps of overwritten and removed values: see
/// [`Keyspace::set_history`](crate::Keyspace::set_history). History does not bring back expired entries:
/// reads of the past treat them as absent. [`Keyspace::versions`](crate::Keyspace::versions) shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum History {
    /// Only what open snapshots read.
    #[default]
    None,
    /// The newest versions of each key, this many. A removal is a version. A range removal is one for each
    /// key in it.
    Versions(u32),
    /// Everything that was visible at any time within this duration.
    For(Duration),
}

impl History {
    pub(in crate::engine) fn ms(self) -> u64 {
        match self {
            History::For(duration) => u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
            _ => 0,
        }
    }
}

/// What a keyspace keeps, and since which commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) rule: History,
    pub(crate) since: SeqNo,
}

impl Kept {
    /// Number of versions of each key that are kept whatever their age.
    pub(crate) fn versions(self) -> u32 {
        if let History::Versions(versions) = self.rule { versions } else { 0 }
    }

    /// Returns whether the rule is a duration.
    pub(in crate::engine) fn is_duration(&self) -> bool {
        matches!(self.rule, History::For(_))
    }
}

/// What the keyspaces keep.
#[derive(Debug, Default)]
pub(crate) struct Histories {
    of: RwLock<Inner>,
    /// Whether any keyspace keeps history. Relaxed: a hint that spares flushes the lock.
    are_some: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    kept: BTreeMap<KeyspaceId, Kept>,
    /// Keyspaces whose rule only compactions obey, because nothing is promised yet (engine_history.2).
    starting: BTreeSet<KeyspaceId>,
    floors: Floors,
}

impl Histories {
    /// Sets what a keyspace keeps.
    pub(in crate::engine) fn set(&self, id: KeyspaceId, kept: Kept) {
        let mut state = self.of.write();
        state.starting.remove(&id);
        match kept.rule {
            History::None => drop(state.kept.remove(&id)),
            _ => drop(state.kept.insert(id, kept)),
        }
        self.are_some.store(!state.kept.is_empty(), Ordering::Relaxed);
    }

    /// Sets what compactions keep of a keyspace, before it is promised.
    fn start(&self, id: KeyspaceId, kept: Kept) {
        let mut state = self.of.write();
        state.starting.insert(id);
        state.kept.insert(id, kept);
        self.are_some.store(true, Ordering::Relaxed);
    }

    fn get(&self, id: KeyspaceId) -> Option<(Kept, SeqNo)> {
        let state = self.of.read();
        let kept = *state.kept.get(&id).filter(|_| !state.starting.contains(&id))?;
        Some((kept, kept.since.max(state.floors.of(id))))
    }

    /// Raises floors (engine_history.1).
    pub(in crate::engine) fn raise(&self, floors: &Floors) {
        if !floors.is_empty() {
            self.of.write().floors.extend(floors);
        }
    }

    fn has_durations(&self) -> bool {
        self.are_some.load(Ordering::Relaxed) && self.of.read().kept.values().any(Kept::is_duration)
    }
}

/// A state of the past, selected by commit number.
pub(crate) struct PastSource {
    /// Its view.
    pub(crate) view: Arc<ReadView>,
    /// The newest visible commit.
    pub(crate) visible: SeqNo,
    /// What the keyspace keeps.
    pub(crate) kept: Kept,
    /// The first commit at which everything can be read.
    pub(crate) floor: SeqNo,
}

impl PastSource {
    /// Counts the commits after `at` that wrote or removed an encoded key, up to `most`. Also returns the
    /// oldest of them.
    pub(crate) fn items_after(&self, key: &[u8], at: SeqNo, most: u32) -> Result<(u32, SeqNo)> {
        let guard = crate::sync::pin();
        let (mut count, mut oldest) = (0, SeqNo::MAX);
        let mut upto = SeqNo::MAX;
        while count < most
            && let Some(item) =
                self.view.newest_item(key, upto, &guard)?.map(|(item, _)| item).filter(|item| *item > at)
        {
            (count, oldest) = (count + 1, item);
            upto = item.before().unwrap_or_default();
        }
        Ok((count, oldest))
    }

    /// Refuses the numbers of future commits.
    pub(crate) fn check_made(&self, at: SeqNo) -> Result<()> {
        if at > self.visible {
            return Err(Error::Invalid(format!(
                "there is no commit {at} yet: the newest is {}",
                self.visible
            )));
        }
        Ok(())
    }

    /// The error for a commit below the floor.
    pub(crate) fn below_floor(keyspace: &KeyspaceState, oldest: SeqNo) -> Error {
        Error::HistoryGone { keyspace: keyspace.name().to_string(), oldest }
    }
}

/// The wall clock's time in milliseconds, but never earlier than the newest mark.
fn now_ms(env: &Env, marks: &Marks) -> u64 {
    let now = u64::try_from(env.clock.unix_time().as_millis()).unwrap_or(u64::MAX);
    now.max(marks.newest_ms())
}

/// Marks and floors for the manifest of an opening, given the options and the newest commit. Leaves out marks
/// of commits that a crash has lost, and keyspaces without history.
pub(in crate::engine) fn recovered(
    env: &Env,
    state: &VersionEdit,
    options: impl Iterator<Item = (KeyspaceId, Kept)>,
    newest: SeqNo,
) -> (Marks, Floors) {
    let kept: BTreeMap<_, _> = options.filter(|(_, kept)| kept.rule != History::None).collect();
    let (mut marks, mut floors) = (Marks::default(), state.history.floors.clone());
    floors.retain(|id| kept.contains_key(&id));
    if kept.values().any(|kept| kept.is_duration()) {
        for (ms, seq) in state.history.marks.iter().filter(|mark| mark.1 <= newest) {
            marks.extend(&Marks::one(ms, seq));
        }
        marks.extend(&Marks::one(now_ms(env, &state.history.marks), newest));
    }
    (marks, floors)
}

impl State {
    /// The history rules for compactions that start now.
    pub(in crate::engine) fn history_rules(&self) -> Rules {
        // The lock orders this read after the horizons that the compaction has read (engine_history.2). The
        // hint would not.
        let kept = self.histories.of.read().kept.clone();
        // The numbers tell which entries are the oldest (engine/writes/oldest.rs).
        let limited = self.catalog.limited().into_iter().map(|(id, _)| id);
        let limited: Vec<_> = limited.filter(|id| !kept.contains_key(id)).collect();
        if kept.is_empty() && limited.is_empty() {
            return Rules::default();
        }
        let manifest = self.tables.manifest();
        let marks = &manifest.state().history.marks;
        let now = now_ms(&self.env, marks);
        let rule = |(id, kept): (&KeyspaceId, &Kept)| {
            let rule = match kept.rule {
                History::None => return None,
                History::Versions(versions) => Rule::Versions(versions),
                History::For(_) => {
                    let by = now.checked_sub(kept.rule.ms()).and_then(|then| marks.newest_by(then));
                    Rule::From(by.unwrap_or_default().max(kept.since))
                }
            };
            Some((*id, rule))
        };
        let numbers_only = limited.into_iter().map(|id| (id, Rule::From(SeqNo::MAX)));
        Rules::new(kept.iter().filter_map(rule).chain(numbers_only))
    }

    /// A mark for the manifest, if a keyspace has a duration.
    pub(in crate::engine) fn history_mark(&self) -> Marks {
        if !self.histories.has_durations() {
            return Marks::default();
        }
        // A commit that becomes visible later is not older than the time taken below.
        let visible = self.published.visible();
        Marks::one(now_ms(&self.env, &self.tables.manifest().state().history.marks), visible)
    }

    /// Makes compactions obey a new rule (engine_history.2). Returns what to store; if storing fails, call
    /// [`keep_history`](Self::keep_history).
    pub(in crate::engine) fn begin_history(
        &self,
        id: KeyspaceId,
        before: Kept,
        rule: History,
    ) -> Result<Kept> {
        if matches!(rule, History::Versions(0)) {
            return Err(Error::Invalid("a history of no versions: `History::None` keeps none".into()));
        }
        let rule = if matches!(rule, History::For(_)) {
            // Rounded as it is stored.
            History::For(Duration::from_millis(rule.ms()))
        } else {
            rule
        };
        // engine_history.2: until the commit is made, versions that either rule keeps are kept.
        let since = match (before.rule, rule) {
            (History::Versions(old), History::Versions(new)) if new <= old => before.since,
            (History::For(_) | History::Versions(_), History::For(_)) => before.since,
            _ if rule == History::None => SeqNo::ZERO,
            _ => {
                self.histories.start(id, Kept { rule, since: before.since });
                self.published.visible()
            }
        };
        Ok(Kept { rule, since })
    }

    /// Returns to the stored rule.
    pub(in crate::engine) fn keep_history(&self, id: KeyspaceId) {
        self.histories.set(id, self.catalog.options_of(id).kept());
    }

    /// What a keyspace keeps.
    pub(crate) fn history_of(&self, keyspace: &KeyspaceState) -> History {
        self.histories.get(keyspace.id).map_or(History::None, |(kept, _)| kept.rule)
    }

    /// The newest state of an existing keyspace, for reads of the past.
    pub(crate) fn past(&self, keyspace: &KeyspaceState) -> Result<PastSource> {
        // engine_history.1
        let view = self.view.get();
        view.check_open()?;
        let visible = self.published.visible();
        self.check_there(keyspace)?;
        let (kept, floor) = self.histories.get(keyspace.id).unwrap_or((Kept::default(), visible));
        Ok(PastSource { view, visible, kept, floor: floor.min(visible) })
    }
}
