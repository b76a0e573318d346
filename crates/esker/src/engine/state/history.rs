//! History: older versions that a keyspace keeps, and from which number on it can be read.
//!
//! ```text
//!   set_history --option, durable--> Histories --rules, by the clock and the manifest's marks--> merges (compaction/rules.rs)
//!                                        ^-- floors, before the edit of a merge is installed --------'
//!   at, since, versions --view, then floor--> reads of that view, or HistoryGone
//! ```
//!
//! engine_history.1. A reader loads the view first, and the floor of the keyspace after that. A floor rises before a view is installed that lacks what
//!      it stands for. A reader whose number is not below the floor has a view with all that it reads.
//! engine_history.2. A rule is in force for merges before the number is read from which on history is promised, and a merge reads its horizons before the
//!      rules. So one that does not know the rule keeps what readers at its visible number see, and that is no newer.
//! engine_history.3. A duration is counted in the wall clock's time, from marks that flushes make; it never ends early by that, and a clock that
//!      goes back makes it longer. After a clock that was far ahead, nothing is old until the clock has caught up, or
//!      [`Db::reset_time`](crate::Db::reset_time) is called.

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

/// What a keyspace keeps of values that were overwritten and removed: see [`Keyspace::set_history`](crate::Keyspace::set_history). History does not
/// bring back what has expired: reads of the past take it for absent. [`Keyspace::versions`](crate::Keyspace::versions) shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum History {
    /// Nothing but what open snapshots read.
    #[default]
    None,
    /// This number of versions of each key, the newest. A removal is a version, too. A range removal is one for each key in it.
    Versions(u32),
    /// Everything that was there at any time since so long ago.
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

/// What a keyspace keeps, and the number from which on it has done so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) rule: History,
    pub(crate) since: SeqNo,
}

impl Kept {
    /// The number of versions of each key that are kept whatever their age.
    pub(crate) fn versions(self) -> u32 {
        if let History::Versions(versions) = self.rule { versions } else { 0 }
    }

    /// Whether it counts time.
    pub(in crate::engine) fn is_duration(&self) -> bool {
        matches!(self.rule, History::For(_))
    }
}

/// What all keyspaces keep.
#[derive(Debug, Default)]
pub(crate) struct Histories {
    of: RwLock<Inner>,
    /// Whether any keeps anything. Relaxed: a hint that spares flushes the lock.
    are_some: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    kept: BTreeMap<KeyspaceId, Kept>,
    /// Those whose rules are in force for merges alone, since nothing is promised yet (engine_history.2).
    starting: BTreeSet<KeyspaceId>,
    floors: Floors,
}

impl Histories {
    /// What a keyspace keeps from now on.
    pub(in crate::engine) fn set(&self, id: KeyspaceId, kept: Kept) {
        let mut state = self.of.write();
        state.starting.remove(&id);
        match kept.rule {
            History::None => drop(state.kept.remove(&id)),
            _ => drop(state.kept.insert(id, kept)),
        }
        self.are_some.store(!state.kept.is_empty(), Ordering::Relaxed);
    }

    /// The same for merges alone.
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

    /// engine_history.1
    pub(in crate::engine) fn raise(&self, floors: &Floors) {
        if !floors.is_empty() {
            self.of.write().floors.extend(floors);
        }
    }

    fn has_durations(&self) -> bool {
        self.are_some.load(Ordering::Relaxed) && self.of.read().kept.values().any(Kept::is_duration)
    }
}

/// A state that is read by its number.
pub(crate) struct PastSource {
    /// Its view.
    pub(crate) view: Arc<ReadView>,
    /// The newest number.
    pub(crate) visible: SeqNo,
    /// What the keyspace keeps.
    pub(crate) kept: Kept,
    /// From this number on all can be read.
    pub(crate) floor: SeqNo,
}

impl PastSource {
    /// How many commits after `at` wrote or removed an encoded key, no more than `most`, and the oldest of these.
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

    /// Refuses numbers of commits that are yet to be made.
    pub(crate) fn check_made(&self, at: SeqNo) -> Result<()> {
        if at > self.visible {
            return Err(Error::Invalid(format!(
                "there is no commit {at} yet: the newest is {}",
                self.visible
            )));
        }
        Ok(())
    }

    /// The error for a number below the floor.
    pub(crate) fn gone(keyspace: &KeyspaceState, oldest: SeqNo) -> Error {
        Error::HistoryGone { keyspace: keyspace.name().to_string(), oldest }
    }
}

/// The wall clock's time in milliseconds, which does not go back behind these marks.
fn now_ms(env: &Env, marks: &Marks) -> u64 {
    let now = u64::try_from(env.clock.unix_time().as_millis()).unwrap_or(u64::MAX);
    now.max(marks.newest_ms())
}

/// What a new manifest knows of history once these options and the newest commit are known: nothing of commits that a crash has taken, and of
/// keyspaces that keep nothing.
pub(in crate::engine) fn recovered<'a>(
    env: &Env,
    state: &VersionEdit,
    options: impl Iterator<Item = (&'a KeyspaceId, &'a Kept)>,
    newest: SeqNo,
) -> (Marks, Floors) {
    let kept: BTreeMap<_, _> = options.filter(|(_, kept)| kept.rule != History::None).collect();
    let (mut marks, mut floors) = (Marks::default(), state.floors.clone());
    floors.retain(|id| kept.contains_key(&id));
    if kept.values().any(|kept| kept.is_duration()) {
        for (ms, seq) in state.marks.iter().filter(|mark| mark.1 <= newest) {
            marks.extend(&Marks::one(ms, seq));
        }
        marks.extend(&Marks::one(now_ms(env, &state.marks), newest));
    }
    (marks, floors)
}

impl State {
    /// What merges that begin now keep.
    pub(in crate::engine) fn history_rules(&self) -> Rules {
        // The lock, and not a hint: it orders this after the horizons that the merge has read (engine_history.2).
        let kept = self.histories.of.read().kept.clone();
        if kept.is_empty() {
            return Rules::default();
        }
        let manifest = self.tables.manifest();
        let marks = &manifest.state().marks;
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
        Rules::new(kept.iter().filter_map(rule))
    }

    /// A mark for the manifest, if anybody counts time (engine_history.3).
    pub(in crate::engine) fn history_mark(&self) -> Marks {
        if !self.histories.has_durations() {
            return Marks::default();
        }
        // Nothing that becomes visible after this is older than the time asked below.
        let visible = self.published.visible();
        Marks::one(now_ms(&self.env, &self.tables.manifest().state().marks), visible)
    }

    /// Has merges keep what a keyspace is to keep (engine_history.2). The option that is then to be stored; if that fails: [`keep_history`](Self::keep_history).
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
            // As it is stored.
            History::For(Duration::from_millis(rule.ms()))
        } else {
            rule
        };
        // engine_history.2: what is kept by either rule is kept until the commit is made.
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

    /// A keyspace keeps what is stored, and not what was begun.
    pub(in crate::engine) fn keep_history(&self, id: KeyspaceId) {
        self.histories.set(id, self.catalog.options_of(id).history);
    }

    /// What a keyspace keeps now.
    pub(crate) fn history_of(&self, keyspace: &KeyspaceState) -> History {
        self.histories.get(keyspace.id).map_or(History::None, |(kept, _)| kept.rule)
    }

    /// The newest state of a keyspace that is there, to be read at earlier numbers.
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
