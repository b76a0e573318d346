//! The engines of the build and the features that they lack, from `esker-bench list`. So tests need no change
//! for a new engine.

#![expect(clippy::unwrap_used, reason = "helpers of a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Returns the engines that run by default, each with the features that it lacks. Engines in Go are not among
/// them, because they have to be built first.
pub(crate) fn engines() -> BTreeMap<String, BTreeSet<String>> {
    let list = Command::new(env!("CARGO_BIN_EXE_esker-bench")).arg("list").output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let (_, engines) = list.split_once("\nEngines and their options\n").unwrap();
    let mut lacks: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut engine = "";
    for line in engines.lines() {
        if let Some(lack) = line.strip_prefix("    cannot: ") {
            let (feature, _) = lack.split_once(" - ").unwrap();
            lacks.get_mut(engine).unwrap().insert(feature.to_owned());
        } else if let Some(line) = line.strip_prefix("  ").filter(|line| !line.starts_with(' ')) {
            engine = line.split(' ').next().unwrap();
            lacks.insert(engine.to_owned(), BTreeSet::new());
        }
    }
    let in_go: Vec<Value> = serde_json::from_str(include_str!("../../../../bench/go/engines.json")).unwrap();
    for engine in in_go {
        assert!(lacks.remove(engine["name"].as_str().unwrap()).is_some(), "{}", engine["name"]);
    }
    assert!(lacks.contains_key("esker") && lacks["sanakirja"].contains("async commits"), "{lacks:?}");
    lacks
}
