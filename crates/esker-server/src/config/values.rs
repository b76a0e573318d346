//! The current values of parameters, and how they get to the configuration file.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

use super::SYNONYMS;
use crate::command::secrets::is_secret_option;
use crate::config::file::{self, Change};
use crate::config::kind::Kind;
use crate::config::setting::{Given, Origin, Setting};
use crate::observe::trace;

/// The current values of parameters.
pub(super) struct Values {
    current: Mutex<BTreeMap<String, String>>,
    /// Parameters that `CONFIG SET` has changed. Held while the file is written.
    changed: Mutex<BTreeSet<String>>,
    /// What the operator gave.
    given: Given,
}

impl Values {
    pub(super) fn new(current: BTreeMap<String, String>, given: &Given) -> Self {
        Values { current: Mutex::new(current), changed: Mutex::default(), given: given.clone() }
    }

    /// Returns the value of a parameter.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        self.current.lock().get(name).cloned()
    }

    /// Returns the names and values of parameters.
    pub(super) fn find(&self, is_meant: impl Fn(&str) -> bool) -> Vec<(String, String)> {
        let current = self.current.lock();
        let found = current.iter().filter(|(name, _)| is_meant(name));
        found.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Records new values.
    pub(super) fn change(&self, pairs: Vec<(String, String)>) {
        let names: Vec<_> = pairs.iter().map(|(name, _)| name.clone()).collect();
        self.current.lock().extend(pairs);
        self.changed.lock().extend(names);
    }

    /// Returns the names and values of what `CONFIG SET` has changed.
    pub(super) fn changes(&self) -> Vec<(String, String)> {
        let changed = self.changed.lock();
        changed.iter().filter_map(|name| Some((name.clone(), self.get(name)?))).collect()
    }

    /// Makes the current values those of the start.
    pub(super) fn forget_changes(&self) {
        self.changed.lock().clear();
    }

    /// Writes what `CONFIG SET` has changed to the configuration file. A password that the command line or
    /// the environment gave is not written: it would only get to a further place.
    ///
    /// # Errors
    /// There is no file, or it could not be written.
    pub(super) fn rewrite(&self) -> Result<(), String> {
        let Some(path) = &self.given.file else {
            let why = "ERR The server is running without a config file: start it with --config FILE";
            return Err(why.to_owned());
        };
        let changed = self.changed.lock();
        let mut changes = Vec::new();
        // The first of two synonyms has the value of both.
        let is_second = |name: &str| SYNONYMS.iter().any(|names| names[1] == name);
        for parameter in changed.iter().filter(|name| !is_second(name)) {
            let setting = self.given.settings.iter().find(|setting| setting.parameter == *parameter);
            let outranked =
                setting.filter(|s| matches!(s.origin, Origin::CommandLine | Origin::Environment(_)));
            if let Some(Setting { name, origin, .. }) = outranked {
                trace::warn("the file does not decide", None, &format!("{name} is set by the {origin}"));
                if is_secret_option(name) {
                    continue;
                }
            }
            let mut names: Vec<_> = setting.iter().map(|setting| setting.name.clone()).collect();
            names.push(parameter.clone());
            names.dedup();
            let synonym = SYNONYMS.iter().find(|names| names[0] == parameter);
            names.extend(synonym.map(|names| names[1].to_owned()));
            let kind = Kind::of(parameter).unwrap_or(Kind::Text);
            changes.push(Change { names, value: self.get(parameter).unwrap_or_default(), kind });
        }
        file::rewrite(path, &changes).map_err(|error| format!("ERR Rewriting config file: {error}"))
    }
}
