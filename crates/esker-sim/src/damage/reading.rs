//! Reads a database in every way, although reads may fail, and excludes the states that disagree. All results
//! must belong to one state.
//!
//! ```text
//!   allowed states --names, len, get of every key, scans from both ends--> those that explain all results
//! ```

use esker::{Db, Error, Keyspace};

use esker_world::model::keys::{self, KeyNo};
use esker_world::model::state::State;
use esker_world::model::values::ValueNo;

/// The states that the database may have.
pub(super) struct Candidates<'a> {
    states: Vec<&'a State>,
    /// The first result that none of them explains.
    pub(super) contradiction: Option<String>,
}

impl<'a> Candidates<'a> {
    pub(super) fn new(states: Vec<&'a State>) -> Self {
        Candidates { states, contradiction: None }
    }

    /// Returns whether this state is still possible.
    pub(super) fn may_be(&self, state: &State) -> bool {
        self.states.iter().any(|left| left.digest() == state.digest())
    }

    /// Keeps the states that agree with a result.
    fn keep(&mut self, seen: impl FnOnce() -> String, fits: impl Fn(&State) -> bool) {
        if self.contradiction.is_some() || self.states.iter().all(|state| fits(state)) {
            return;
        }
        let fitting: Vec<_> = self.states.iter().copied().filter(|state| fits(state)).collect();
        if fitting.is_empty() {
            let left = self.states.len();
            self.contradiction = Some(format!("{}, which none of {left} states explains", seen()));
        } else {
            self.states = fitting;
        }
    }
}

/// Reads everything. Returns the errors.
pub(super) fn read_all(db: &Db, candidates: &mut Candidates<'_>) -> Vec<Error> {
    let mut errors = Vec::new();
    let names = match db.keyspaces() {
        Ok(names) => names,
        Err(error) => return vec![error],
    };
    candidates.keep(|| format!("keyspaces {names:?}"), |state| state.names().keys().eq(&names));
    for name in &names {
        match db.open_keyspace(name) {
            Ok(keyspace) => read_keyspace(name, &keyspace, candidates, &mut errors),
            Err(error) => errors.push(error),
        }
    }
    errors
}

fn read_keyspace(name: &str, keyspace: &Keyspace, candidates: &mut Candidates<'_>, errors: &mut Vec<Error>) {
    match keyspace.len() {
        Ok(len) => {
            let has = |state: &State| state.named(name).is_some_and(|map| map.entries().len() as u64 == len);
            candidates.keep(|| format!("{name} has {len} keys"), has);
        }
        Err(error) => errors.push(error),
    }
    for no in (0..keys::count()).map(KeyNo) {
        match keyspace.get(keys::key(no)) {
            Ok(found) => {
                let value = found.as_deref().map(ValueNo::parse);
                let has = |state: &State| {
                    let expected = state.named(name).and_then(|map| map.entries().get(&no).copied());
                    // A value that was never put belongs to no state.
                    value == expected.map(Some)
                };
                candidates.keep(|| format!("{name}/{} is {value:?}", shown(no)), has);
            }
            Err(error) => errors.push(error),
        }
    }
    walk(name, keyspace, false, candidates, errors);
    walk(name, keyspace, true, candidates, errors);
}

/// Reads all entries from one end.
fn walk(
    name: &str,
    keyspace: &Keyspace,
    back: bool,
    candidates: &mut Candidates<'_>,
    errors: &mut Vec<Error>,
) {
    let mut entries = keyspace.iter();
    let mut found = Vec::new();
    let whole = loop {
        let next = if back { entries.next_back() } else { entries.next() };
        match next {
            Some(Ok((key, value))) => found.push((keys::find(&key), ValueNo::parse(&value))),
            Some(Err(error)) => {
                errors.push(error);
                break false;
            }
            None => break true,
        }
    };
    let fits = |state: &State| {
        let Some(map) = state.named(name) else { return false };
        let entries = map.entries().iter();
        let mut expected: Vec<_> = entries.map(|(key, value)| (Some(*key), Some(*value))).collect();
        if back {
            expected.reverse();
        }
        expected.starts_with(&found) && (!whole || expected.len() == found.len())
    };
    let seen = || {
        let end = if back { "back" } else { "front" };
        let rest = if whole { "in all" } else { "before an error" };
        format!("{name} from the {end}: {} entries {rest}, the last {:?}", found.len(), found.last())
    };
    candidates.keep(seen, fits);
}

/// Formats a key for messages.
pub(super) fn shown(no: KeyNo) -> String {
    let key = keys::key(no);
    key[..key.len().min(60)].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_world::model::state::Id;
    use esker_world::op::Write;

    #[test]
    fn what_is_read_of_two_states_is_a_contradiction() {
        let state = |keys: u16| {
            let mut state = State::new();
            (0..keys).for_each(|n| state.write(Id(0), &Write::Put(KeyNo(n), ValueNo::new(4, u32::from(n)))));
            state
        };
        let states = [state(3), state(2), state(1)];
        let mut candidates = Candidates::new(states.iter().collect());
        let has = |n: u16, state: &State| {
            state.named("default").is_some_and(|map| map.entries().contains_key(&KeyNo(n)))
        };
        candidates.keep(String::new, |state| has(0, state));
        assert!(candidates.may_be(&states[2]));
        candidates.keep(String::new, |state| has(1, state));
        assert!(!candidates.may_be(&states[2]) && candidates.may_be(&states[0]));
        assert_eq!(candidates.contradiction, None);
        candidates.keep(|| "no first key".to_owned(), |state| !has(0, state));
        assert!(candidates.contradiction.is_some_and(|text| text.contains("no first key")));
    }
}
