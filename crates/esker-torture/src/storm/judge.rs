//! Compares a database or a copy with the models of its workers.

use std::collections::BTreeSet;

use esker::{Db, History, Keyspace, KeyspaceOptions};
use esker_world::failure::{Failure, Result};

use super::model::{Model, Presence, SLOTS, Slot, key_no};
use super::worker::options;

/// Returns the first difference between a keyspace and its model.
pub(super) fn difference(db: &Db, keyspace: &Keyspace, slot: &Slot) -> Result<Option<String>> {
    let before = db.time_ms();
    let found: Vec<_> = keyspace.iter().collect::<esker::Result<Vec<_>>>()?;
    let span = (before, db.time_ms());
    let mut seen = BTreeSet::new();
    for (bytes, value) in &found {
        let Some(key) = key_no(bytes) else {
            return Ok(Some(format!("the key {} is unknown", bytes.escape_ascii())));
        };
        seen.insert(key);
        match slot.presence(key, span) {
            Presence::Gone => {
                return Ok(Some(format!("{key} is there; it was {:?}", slot.entries.get(&key))));
            }
            Presence::Live if value[..] != slot.entries[&key].content.bytes() => {
                let (len, entry) = (value.len(), slot.entries[&key]);
                return Ok(Some(format!("{key} has another value, of {len} bytes; expected {entry:?}")));
            }
            Presence::Live | Presence::Unsure => {}
        }
    }
    let is_live = |key: &&u16| slot.presence(**key, span) == Presence::Live;
    let missing = slot.entries.keys().filter(is_live).find(|key| !seen.contains(key));
    Ok(missing.map(|key| format!("{key} is missing: {:?}, at {span:?}", slot.entries[key])))
}

/// The expected options of a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Options {
    /// Those of the database.
    Same,
    /// Those without history, which a repair drops.
    WithoutHistory,
}

impl Options {
    fn of(self, slot: usize) -> KeyspaceOptions {
        match self {
            Options::Same => options(slot),
            Options::WithoutHistory => {
                let mut options = options(slot);
                options.history = History::None;
                options
            }
        }
    }
}

/// Returns the first difference between a database and a model.
pub(super) fn difference_of_all(db: &Db, model: &Model, kept: Options) -> Result<Option<String>> {
    for (n, slot) in model.slots.iter().enumerate() {
        let keyspace = match db.open_keyspace(&slot.name) {
            Ok(keyspace) => keyspace,
            // It does not exist yet.
            Err(esker::Error::KeyspaceNotFound(_)) if slot.entries.is_empty() => continue,
            Err(error) => return Ok(Some(format!("{}: {error}", slot.name))),
        };
        let (has, expected) = (keyspace.options(), kept.of(n));
        if has != expected {
            return Ok(Some(format!("{}: the options are {has:?}, not {expected:?}", slot.name)));
        }
        if let Some(difference) = difference(db, &keyspace, slot)? {
            return Ok(Some(format!("{}: {difference}", slot.name)));
        }
    }
    Ok(None)
}

/// Checks that a database equals these models and is sound.
///
/// # Errors
/// The first difference.
pub(super) fn agree(db: &Db, models: &[Model], kept: Options, what: &str) -> Result<()> {
    for model in models {
        assert_eq!(model.slots.len(), SLOTS);
        if let Some(difference) = difference_of_all(db, model, kept)? {
            return Err(Failure::new(format!("{what}: {difference}")));
        }
    }
    let report = db.check()?;
    if !report.problems.is_empty() {
        return Err(Failure::new(format!("{what}: check: {:#?}", report.problems)));
    }
    Ok(())
}
