//! The requirements on a repair: see judge.rs.
//!
//! ```text
//!   damaged files --repair--> another directory --open, read, check--> Contents
//!                        `--> report of losses       covers each difference from an allowed state
//! ```
//!
//! Keyspaces are identified by their ids in the undamaged database, and others by name. Without an intact
//! manifest, tables and segments of another database cannot be distinguished, so its values may be recovered,
//! too.
//!
//! - A table adopted by a commit cannot be distinguished from one of an uncommitted transaction.
//!   Uncommitted values may be present if a loss covers that table's keys (tables.6 of the engine's
//!   rescue/repair/tables.rs).
//! - The remainder of a commit may contain values that it replaced itself, if a loss of a table
//!   covers the key.

use std::collections::BTreeMap;

use esker::{Error, KeyspaceId, Loss, LostKeys, RepairReport, RepairedKeyspace};
use esker_env::{Fs, MemFs};

use super::files::Role;
use super::hidden::Hidden;
use super::judge::Judge;
use super::reading::shown;
use super::subject::Subject;
use esker_world::judge::read::contents;
use esker_world::model::keys::{self, KeyNo};
use esker_world::model::map::Map;
use esker_world::model::state::{Contents, Id, State};
use esker_world::model::values::ValueNo;
use esker_world::world::DIR;

/// Directory of the repaired database.
const TARGET: &str = "repaired";

impl Judge<'_> {
    /// Repairs the database. Returns the number of losses if there was anything to repair.
    pub(super) fn repair(&self, disk: &MemFs) -> Result<Option<u64>, String> {
        let repaired = self.builder(disk).repair(DIR, TARGET);
        self.untouched("damage_judge.6", "a repair", disk)?;
        let mut report = match repaired {
            Ok(report) => report,
            Err(error) => return self.refused(disk, &error).map(|()| None),
        };
        let found = self.examine(&disk.crash_strict(), &report)?;
        let losses = report.losses.len() as u64;
        if self.change.is_harmless() && losses > 0 {
            return Err(format!("repairing: no file with data has changed, but {:#?}", report.losses));
        }
        if let Some(loss) = report.losses.iter().find(|loss| !self.change.costs(loss, &self.subject.files)) {
            return Err(format!("unreadable sectors: repairing: more is lost than is unreadable: {loss:?}"));
        }
        if self.options.hides_losses {
            report.losses.clear();
        }
        self.explained(&report, &found)?;
        Ok(Some(losses))
    }

    /// Checks that a failed repair has a reason and leaves nothing.
    fn refused(&self, disk: &MemFs, error: &Error) -> Result<(), String> {
        let left = disk.list_dir(TARGET.as_ref()).unwrap_or_default();
        if !left.is_empty() {
            return Err(format!("damage_judge.6: a repair that fails leaves {left:?}: {error:?}"));
        }
        let names = disk.list_dir(DIR.as_ref()).unwrap_or_default();
        let holds_data = |name: &String| matches!(Role::of(name), Role::Table | Role::Segment);
        match error {
            Error::NotFound(_) if !names.iter().any(holds_data) => Ok(()),
            Error::UnsupportedVersion { .. } if self.change.explains(error) => Ok(()),
            _ => Err(format!("damage_judge.6: repairing: {error:?}")),
        }
    }

    /// Checks that the repaired database survives a power loss, is sound, and matches the report.
    fn examine(&self, disk: &MemFs, report: &RepairReport) -> Result<Contents, String> {
        let failed =
            |doing: &str, error: Error| format!("damage_judge.6: {doing} what was repaired: {error:?}");
        let opened = self.builder(disk).create_if_missing(false).open(TARGET);
        let db = opened.map_err(|error| failed("opening", error))?;
        let found = contents(&db, true).map_err(|error| failed("reading", error))?;
        let online = db.check().map_err(|error| failed("checking", error))?;
        db.close().map_err(|error| failed("closing", error))?;
        let offline = self.builder(disk).check_offline(TARGET);
        let offline = offline.map_err(|error| failed("checking offline", error))?;
        let problems: Vec<_> = online.problems.iter().chain(&offline.problems).collect();
        if !problems.is_empty() {
            return Err(format!("damage_judge.6: what was repaired is not sound: {problems:#?}"));
        }
        let said: Vec<_> = report.keyspaces.iter().map(|k| (k.name.clone(), k.keys)).collect();
        let count = |(name, map): (&String, &Map)| (name.clone(), map.entries().len() as u64);
        let is: Vec<_> = found.iter().map(count).collect();
        match said == is {
            true => Ok(found),
            false => Err(format!("damage_judge.6: the report says {said:?}, and there is {is:?}")),
        }
    }

    /// Checks that the report covers all differences from some allowed state (damage_judge.7).
    fn explained(&self, report: &RepairReport, found: &Contents) -> Result<(), String> {
        let no_ids = BTreeMap::new();
        let tells = report.losses.iter().any(|loss| loss.keys == LostKeys::Any);
        let own = self.change.repaired_states(self.subject, tells);
        let own = own.into_iter().map(|state| (state, &self.subject.ids));
        let foreign = self.change.foreign_states(self.donor, tells).into_iter().map(|state| (state, &no_ids));
        let mut first = None;
        for (state, ids) in own.chain(foreign) {
            match self.unexplained(state, ids, report, found) {
                None => return Ok(()),
                Some(difference) => {
                    first.get_or_insert(difference);
                }
            }
        }
        let (first, losses, notes) = (first.unwrap_or_default(), &report.losses, &report.notes);
        Err(format!("damage_judge.7: repairing: {first}; the losses: {losses:#?}; the notes: {notes:#?}"))
    }

    /// Returns the first difference from this state that the report does not cover.
    fn unexplained(
        &self,
        state: &State,
        ids: &BTreeMap<Id, KeyspaceId>,
        report: &RepairReport,
        found: &Contents,
    ) -> Option<String> {
        let names_lost = report.losses.iter().any(|loss| loses_names(&loss.keys));
        let mut known = Vec::new();
        for (name, id) in state.names() {
            let repaired = counterpart(name, ids.get(id), report);
            if repaired.is_none_or(|keyspace| keyspace.name != *name) && !names_lost {
                return Some(format!("{name:?} is {repaired:?}"));
            }
            known.extend(repaired.map(|keyspace| keyspace.name.as_str()));
            let map = repaired.and_then(|keyspace| found.get(&keyspace.name));
            let number = ids.get(id).copied().or(repaired.map(|keyspace| keyspace.id));
            let difference = self.difference(*id, number, &state.map(*id), map, report);
            if let Some(difference) = difference {
                return Some(format!("{name}/{difference}"));
            }
        }
        let unknown = |(name, _): &(&String, &Map)| !known.contains(&name.as_str());
        found.iter().filter(unknown).find_map(|(name, map)| {
            if !names_lost {
                return Some(format!("keyspace {name:?} has no origin"));
            }
            let number = report.keyspaces.iter().find(|keyspace| keyspace.name == *name).map(|k| k.id);
            let may_be = |key: KeyNo, value: ValueNo| {
                self.had(None, key, value) || self.may_be_hidden(number, key, value, report)
            };
            let never = map.entries().iter().find(|(key, value)| !may_be(**key, **value))?;
            Some(format!("{name}/{} has a value that the key never had", shown(*never.0)))
        })
    }

    /// Returns the first key of a keyspace with an uncovered difference, or with a value that it never had.
    fn difference(
        &self,
        id: Id,
        number: Option<KeyspaceId>,
        expected: &Map,
        map: Option<&Map>,
        report: &RepairReport,
    ) -> Option<String> {
        let nothing = Map::default();
        let (expected, found) = (expected.entries(), map.unwrap_or(&nothing).entries());
        // A keyspace without a known id is lost as a whole.
        let is_reported = |key: KeyNo| {
            number.is_none_or(|number| {
                report.losses.iter().any(|loss| loss.keys.may_hold(number, keys::key(key)))
            })
        };
        let all = expected.keys().chain(found.keys()).copied();
        for key in all.filter(|key| expected.get(key) != found.get(key)) {
            if !is_reported(key) {
                let (shown, is, was) = (shown(key), found.get(&key), expected.get(&key));
                return Some(format!("{shown} is {is:?}, expected {was:?}, and is not among the losses"));
            }
            let may_be = |value: ValueNo| {
                self.had(Some(id), key, value) || self.may_be_hidden(number, key, value, report)
            };
            if let Some(value) = found.get(&key).filter(|value| !may_be(**value)) {
                return Some(format!("{} is {value:?}, which it never was", shown(key)));
            }
        }
        None
    }

    /// Returns whether the key ever had the value, in this keyspace or, if unknown, in any.
    fn had(&self, id: Option<Id>, key: KeyNo, value: ValueNo) -> bool {
        let holds = |map: &Map| map.entries().get(&key) == Some(&value);
        let any = |state: &State| state.names().values().any(|id| holds(&state.map(*id)));
        let own = |state: &State| id.map_or_else(|| any(state), |id| holds(&state.map(id)));
        // Foreign tables and segments may have been used.
        let foreign = |donor: &Subject| donor.chronicle.iter().any(any);
        self.subject.chronicle.iter().any(own) || self.donor.is_some_and(foreign)
    }

    /// Returns whether a value that was never visible may be present.
    fn may_be_hidden(
        &self,
        number: Option<KeyspaceId>,
        key: KeyNo,
        value: ValueNo,
        report: &RepairReport,
    ) -> bool {
        let holds_key = |loss: &&Loss| number.is_none_or(|number| loss.keys.may_hold(number, keys::key(key)));
        let mut losses = report.losses.iter().filter(holds_key);
        let is_of_table = |loss: &Loss| loss.path.extension().is_some_and(|extension| extension == "sst");
        let wrote = |subject: &Subject| subject.hidden.get(&(key, value)).copied();
        let hidden = wrote(self.subject).or_else(|| self.donor.and_then(wrote));
        hidden.is_some_and(|hidden| {
            losses.any(|loss| {
                let is_reported = loss.detail.contains("never have been committed");
                is_reported || (hidden == Hidden::Replaced && is_of_table(loss))
            })
        })
    }
}

/// Returns the repaired keyspace that corresponds to one of the undamaged database.
fn counterpart<'r>(
    name: &str,
    number: Option<&KeyspaceId>,
    report: &'r RepairReport,
) -> Option<&'r RepairedKeyspace> {
    report.keyspaces.iter().find(|keyspace| match number {
        Some(number) => keyspace.id == *number,
        None => keyspace.name == name,
    })
}

/// Returns whether names of keyspaces may be lost.
fn loses_names(keys: &LostKeys) -> bool {
    match keys {
        LostKeys::Names | LostKeys::Any => true,
        LostKeys::Between(low, _) => low.as_ref().is_none_or(|(id, _)| *id == KeyspaceId::CATALOG),
    }
}
