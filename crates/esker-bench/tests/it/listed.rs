//! The engines of the build and what they lack, as `esker-bench list` tells them, so that a new engine is no
//! line in a test.

#![expect(clippy::unwrap_used, reason = "helpers of a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// The engines that run when none is named, each with the features that it lacks. Those in Go are not among
/// them: they have to be built first.
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
