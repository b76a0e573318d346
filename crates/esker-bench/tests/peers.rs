//! Every peer of the default build, through the real binary at the smallest scale: each row has a value, or says by its
//! adapter's own words why it has none. Where the machine can trace, sync rows sync, and what syncs without being asked to has a reason.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

/// Rows of suite `redb` that a peer cannot do.
const CANNOT: [(&str, &[&str]); 10] = [
    ("esker", &[]),
    ("lmdb", &[]),
    ("libmdbx", &[]),
    ("redb", &[]),
    ("canopydb", &[]),
    ("fjall", &[]),
    ("sled", &["compaction"]),
    ("sanakirja", &["nosync writes", "compaction"]),
    ("persy", &["bulk load", "bulk removals", "compaction"]),
    ("bf-tree", &["bulk load", "individual writes", "batch writes", "bulk removals", "compaction"]),
];

#[test]
fn every_peer_does_every_row_or_says_why_not() {
    let out = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_esker-bench"))
        .args(["run", "redb", "--scale", "test", "--runs", "1", "--out"])
        .arg(out.path())
        .args(CANNOT.iter().flat_map(|(engine, _)| ["--engine", engine]))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(out.path().join("results.jsonl")).unwrap();
    let mut rows_of: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for record in text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        rows_of.entry(record["engine"].as_str().unwrap().to_owned()).or_default().push(record);
    }
    for (engine, cannot) in CANNOT {
        let rows = &rows_of[engine];
        assert_eq!(rows.len(), rows_of["esker"].len(), "{engine}");
        for row in rows {
            if cannot.contains(&row["row"].as_str().unwrap()) {
                assert!(row["error"].as_str().unwrap().starts_with("not supported: "), "{row}");
            } else {
                assert!(!row["note"].to_string().contains("its adapter knows no reason"), "{row}");
                assert!(row["error"].is_null() && row["value"].as_f64().unwrap() > 0.0, "{row}");
            }
        }
    }
}
