//! Runs every peer of the default build through the real binary at the smallest scale. Each row that `list`
//! does not exclude must have a value. If the machine can trace, sync rows must sync, and unasked syncs must
//! have a reason.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::listed;

/// Rows of suite `redb` that need a feature, as `list` names it. Every engine has all other rows.
const NEEDS: [(&str, &[&str]); 6] = [
    ("bulk load", &["sync commits", "large transactions"]),
    ("individual writes", &["sync commits"]),
    ("batch writes", &["sync commits"]),
    ("nosync writes", &["nosync commits"]),
    ("bulk removals", &["sync commits", "large transactions"]),
    ("compaction", &["compaction"]),
];

#[test]
fn every_peer_does_every_row_that_list_does_not_exclude() {
    let out = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_esker-bench"))
        .args(["run", "redb", "--scale", "test", "--runs", "1", "--out"])
        .arg(out.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(out.path().join("results.jsonl")).unwrap();
    let mut rows_of: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for record in text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        rows_of.entry(record["engine"].as_str().unwrap().to_owned()).or_default().push(record);
    }
    let engines = listed::engines();
    assert!(engines["esker"].is_empty() && engines["persy"].contains("large transactions"), "{engines:?}");
    assert!(rows_of.keys().eq(engines.keys()), "{:?}", rows_of.keys());
    for (engine, lacks) in &engines {
        let rows = &rows_of[engine];
        let can_have = |row: &&Value| {
            let needs = NEEDS.iter().filter(|(name, _)| row["row"] == *name);
            !needs.flat_map(|(_, needs)| *needs).any(|feature| lacks.contains(*feature))
        };
        let names = |rows: Vec<&Value>| rows.iter().map(|row| row["row"].to_string()).collect::<Vec<_>>();
        let expected = rows_of["esker"].iter().filter(can_have).collect();
        assert_eq!(names(rows.iter().collect()), names(expected), "{engine}");
        for row in rows {
            assert!(!row["note"].to_string().contains("its adapter knows no reason"), "{row}");
            assert!(row["error"].is_null() && row["value"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
}
