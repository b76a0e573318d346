//! Runs the real binary at the smallest scale. Every row of every engine must have a record, and faulty
//! engines must fail.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "helpers of a test")]

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const ROWS: [&str; 15] = [
    "bulk load",
    "individual writes",
    "batch writes",
    "nosync writes",
    "len()",
    "random reads",
    "random range reads",
    "random reads (4 threads)",
    "random reads (8 threads)",
    "random reads (16 threads)",
    "random reads (32 threads)",
    "bulk removals",
    "size pre-compact",
    "compaction",
    "size after bench",
];
const ENGINES: [&str; 3] = ["esker", "lmdb", "redb"];
/// Time limit of a step for engines that hang. Every other step must end within it, even on a busy machine
/// with a slow disk.
const TIMEOUT: &str = "10";
const OURS: [&str; 6] = ["--engine", "esker", "--engine", "lmdb", "--engine", "redb"];

fn bench(arguments: &[&str], out: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_esker-bench"));
    command.args(arguments).arg("--out").arg(out).output().unwrap()
}

fn records(out: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(out.join("results.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn find<'a>(records: &'a [Value], engine: &str, row: &str, run: u64) -> &'a Value {
    let mut found = records.iter().filter(|r| r["engine"] == engine && r["row"] == row && r["run"] == run);
    let record = found.next().unwrap_or_else(|| panic!("no record of {engine}, {row}, run {run}"));
    assert!(found.next().is_none(), "two records of {engine}, {row}, run {run}");
    record
}

#[test]
fn every_row_of_every_engine_is_measured() {
    let out = tempfile::tempdir().unwrap();
    let output = bench(&[&["run", "redb", "--scale", "test", "--runs", "2"][..], &OURS].concat(), out.path());
    assert!(output.status.success(), "{output:?}");
    let table = String::from_utf8(output.stdout).unwrap();
    let records = records(out.path());
    assert_eq!(records.len(), ROWS.len() * ENGINES.len() * 2);
    for (engine, row) in ENGINES.iter().flat_map(|engine| ROWS.map(|row| (*engine, row))) {
        for run in [1, 2] {
            let record = find(&records, engine, row, run);
            assert!(record["value"].as_f64().unwrap() > 0.0, "{record}");
            assert!(record["error"].is_null(), "{record}");
            assert_eq!(record["suite"], "redb");
            assert_eq!(record["scale"], "test");
            assert_eq!(record["better"], "lower");
            assert_eq!(record["unit"], if row.starts_with("size") { "bytes" } else { "s" });
            assert!(!record["version"].as_str().unwrap().contains("unknown"), "{record}");
            assert!(record["disk_bytes"].as_u64().unwrap() > 0, "{record}");
            if row.starts_with("size") {
                // Half of the 2,000 + 20 + 5 x 100 + 100 items remain, of 24 + 150 bytes each.
                assert_eq!(record["live_bytes"], 1_310 * 174, "{record}");
            }
            for field in ["peak_rss_bytes", "written_bytes"] {
                assert!(record[field].is_u64(), "{field} of {record}");
            }
            assert!(record["cpu_s"].is_f64(), "{record}");
        }
        assert!(table.lines().any(|line| line.starts_with(row)), "{table}");
    }
    let html = std::fs::read_to_string(out.path().join("report.html")).unwrap();
    assert_eq!(html.matches("<figure data-bars").count(), ROWS.len());
    let run: Value =
        serde_json::from_str(&std::fs::read_to_string(out.path().join("run.json")).unwrap()).unwrap();
    assert_eq!(run["engines"].as_array().unwrap().len(), ENGINES.len());
    assert!(run["machine"]["cores"].as_u64().unwrap() > 0);
    let workload = &run["workloads"][0];
    assert_eq!((&workload["suite"], &workload["scale"]), (&"redb".into(), &"test".into()));
    assert_eq!(workload["streams"][0], serde_json::json!(["items", "items::Items, seed 3"]));
    assert_eq!(workload["rows"].as_array().unwrap().len(), ROWS.len());
    assert!(!out.path().join("esker-bench-data").exists(), "databases are removed");
}

/// First words of the errors of rows that an engine may lack.
const LACKS: [&str; 2] = ["not run", "does not sync"];

fn list() -> String {
    let list = Command::new(env!("CARGO_BIN_EXE_esker-bench")).arg("list").output().unwrap();
    String::from_utf8(list.stdout).unwrap()
}

/// Returns all suites, as `list` names them.
fn suites() -> Vec<String> {
    let list = list();
    let lines = list.lines().take_while(|line| !line.starts_with("Engines"));
    let suites = lines.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    let suites: Vec<_> = suites.map(|suite| suite.split_once(": ").unwrap().0.to_owned()).collect();
    assert!(["redb", "limits", "open"].iter().all(|name| suites.iter().any(|suite| suite == name)), "{list}");
    suites
}

#[test]
fn every_suite_runs_on_every_engine() {
    let out = tempfile::tempdir().unwrap();
    let mut arguments = vec!["run", "all", "--scale", "test", "--runs", "1", "--no-trace"];
    // All engines of the build take minutes. Set this variable after a change of an adapter.
    if std::env::var_os("ESKER_LAB_ALL_ENGINES").is_none() {
        arguments.extend(OURS);
    }
    let output = bench(&arguments, out.path());
    assert!(output.status.success(), "{output:?}");
    let records = records(out.path());
    for suite in suites() {
        let of_suite: Vec<_> = records.iter().filter(|record| record["suite"] == suite).collect();
        assert!(!of_suite.is_empty(), "{suite}");
        for record in of_suite {
            let is_size = record["unit"] == "bytes" && record["error"].is_null();
            assert!(!is_size || record["live_bytes"].as_u64().unwrap() > 0, "{record}");
            match record["error"].as_str() {
                None => assert!(record["value"].as_f64().unwrap() > 0.0, "{record}"),
                Some(error) => {
                    // Not every process may drop the page cache, and not every machine has Redis.
                    let missing =
                        ["the page cache could not be dropped", "redis-benchmark cannot be started"];
                    let is_excused = missing.iter().any(|missing| error.contains(missing));
                    assert!(is_excused || record["engine"] != "esker", "{record}");
                    assert!(LACKS.iter().any(|lack| error.starts_with(lack)), "{record}");
                }
            }
        }
    }
    let esker = |row: &str| find(&records, "esker", row, 1);
    assert!(esker("H rand")["detail"]["latency"]["read"]["p9999"].as_f64().unwrap() > 0.0);
    // On a busy machine the first period may have no operation.
    let mut rates = esker("H rand")["detail"]["series"]["ops/s"].as_array().unwrap().iter();
    assert!(rates.any(|rate| rate.as_f64().unwrap() > 0.0));
    assert_eq!(esker("H rand")["detail"]["load"], "closed");
    assert_eq!(esker("large payload")["detail"]["load"], "open");
    assert!(esker("random read (1 KB)")["detail"]["figures"]["hit rate"].as_f64().unwrap() > 0.5);
    assert!(esker("hotspot writes (fsync'ed)")["commits"].as_u64().unwrap() > 0);
    assert_eq!(esker("populate (128 B)")["commits"], 50);
    let began = |row: String| esker(&row)["detail"]["figures"]["items when it began"].as_f64();
    assert_eq!(
        ["reads", "reads after updates"].map(|row| began(format!("{row}, data in cache"))),
        [Some(40.0); 2]
    );
}

#[test]
fn rows_that_an_engine_cannot_have_are_left_out_and_list_says_why() {
    let out = tempfile::tempdir().unwrap();
    let engines = ["--engine", "bf-tree", "--engine", "sanakirja"];
    let arguments = ["run", "open", "storage-bench", "--scale", "test", "--runs", "1", "--no-trace"];
    bench(&[&arguments[..], &engines].concat(), out.path());
    let records = records(out.path());
    let list = list();
    for (engine, row, reason) in [
        ("bf-tree", "open after kill", "snapshot of the whole tree only"),
        ("sanakirja", "G sync", "at most 510 bytes"),
    ] {
        assert!(!records.iter().any(|record| record["engine"] == engine && record["row"] == row), "{engine}");
        let (_, of_engine) = list.split_once(&format!("\n  {engine} ")).unwrap();
        assert!(of_engine.split("\n  ").any(|line| line.contains(reason)), "{engine}: {of_engine}");
    }
    assert!(find(&records, "bf-tree", "open clean", 1)["error"].is_null());
}

#[test]
fn an_interrupted_run_goes_on() {
    let out = tempfile::tempdir().unwrap();
    let arguments =
        ["run", "open", "--scale", "test", "--runs", "1", "--engine", "esker", "--engine", "lmdb"];
    bench(&arguments, out.path());
    let whole = std::fs::read_to_string(out.path().join("results.jsonl")).unwrap();
    let kept: String = whole.lines().take(2).map(|line| format!("{line}\n")).collect();
    // The interruption cut off the line that was being written.
    let torn = format!("{kept}{{\"suite\":\"op");
    std::fs::write(out.path().join("results.jsonl"), torn).unwrap();
    bench(&[&arguments[..], &["--resume"]].concat(), out.path());
    let resumed = std::fs::read_to_string(out.path().join("results.jsonl")).unwrap();
    assert!(resumed.starts_with(&kept), "what was there is kept");
    assert_eq!(resumed.lines().count(), whole.lines().count());
}

#[test]
fn a_sitting_that_is_over_leaves_its_turns_to_the_next() {
    let out = tempfile::tempdir().unwrap();
    let arguments = ["run", "int", "--scale", "test", "--runs", "2", "--engine", "esker", "--no-trace"];
    let call = |more: &[&str]| {
        let output = bench(&[&arguments[..], more].concat(), out.path());
        assert!(output.status.success(), "{output:?}");
        (records(out.path()).len(), String::from_utf8(output.stderr).unwrap())
    };
    let (there, printed) = call(&["--stop-after", "0"]);
    assert_eq!(there, 0);
    assert!(printed.contains("suite int: 2 of 2 turns are left for --resume"), "{printed}");
    let (there, printed) = call(&["--resume", "--stop-after", "60"]);
    assert_eq!(there, 2);
    assert!(!printed.contains("are left"), "{printed}");
}

#[test]
fn a_part_runs_alone_and_the_rest_follows() {
    let out = tempfile::tempdir().unwrap();
    let arguments = ["run", "churn", "--scale", "test", "--runs", "1", "--engine", "esker", "--no-trace"];
    let rows = |more: &[&str]| -> Vec<String> {
        let output = bench(&[&arguments[..], more].concat(), out.path());
        assert!(output.status.success(), "{output:?}");
        let records = records(out.path());
        assert!(records.iter().all(|record| record["error"].is_null()), "{records:?}");
        records.iter().map(|record| record["row"].as_str().unwrap().to_owned()).collect()
    };
    let part = rows(&["--part", "2"]);
    let whole = rows(&["--resume"]);
    assert!(!part.is_empty() && whole.len() > part.len(), "{part:?} of {whole:?}");
    assert!(whole.starts_with(&part), "what was there is not run again");
}

#[test]
fn a_resumed_run_keeps_what_its_calls_were_and_retries_what_ran_out_of_time() {
    let out = tempfile::tempdir().unwrap();
    let arguments = ["run", "redb", "--scale", "test", "--runs", "1", "--timeout", TIMEOUT, "--no-trace"];
    let call = |more: &[&str]| {
        let output = bench(&[&arguments[..], more].concat(), out.path());
        assert!(output.status.success(), "{output:?}");
        let records = records(out.path());
        let begun = |engine: &str| {
            let record = find(&records, engine, "bulk load", 1);
            record["started_unix_ms"].as_u64().unwrap()
        };
        let hung = find(&records, "canary-hang", "compaction", 1)["error"].as_str().unwrap().to_owned();
        assert!(hung.starts_with("out of time after"), "{hung}");
        (begun("canary-hang"), begun("redb"))
    };
    let first = call(&["--engine", "canary-hang", "--engine", "redb"]);
    let second = call(&["--resume", "--engine", "canary-hang", "--engine", "lmdb"]);
    assert_eq!(first, second, "an end of time is an end for as long as nothing else is said");
    let third = call(&["--resume", "--retry-failed", "--engine", "canary-hang", "--engine", "redb"]);
    assert!(third.0 > first.0 && third.1 == first.1, "{first:?} {third:?}");
    let run: Value =
        serde_json::from_str(&std::fs::read_to_string(out.path().join("run.json")).unwrap()).unwrap();
    let engines = run["engines"].as_array().unwrap().iter().map(|engine| engine["name"].as_str().unwrap());
    assert_eq!(engines.collect::<Vec<_>>(), ["canary-hang", "redb", "lmdb"]);
    let command = |call: &Value| call["command"].as_str().unwrap().split_once(" -- ").unwrap().1.to_owned();
    let arguments = arguments.join(" ");
    assert_eq!(command(&run), format!("{arguments} --engine canary-hang --engine redb"));
    assert_eq!(
        command(&run["resumed"][0]),
        format!("{arguments} --resume --engine canary-hang --engine lmdb")
    );
    assert!(run["resumed"][1]["started_unix_s"].as_u64() >= run["started_unix_s"].as_u64());
    for name in ["run.json", "results.jsonl", "report.html"] {
        let text = std::fs::read_to_string(out.path().join(name)).unwrap();
        assert!(!text.contains(&*out.path().to_string_lossy()), "{name} names a path of this machine");
    }
}

/// Replaces the program `strace` by a script that records the engine and the group, and traces nothing.
#[cfg(unix)]
#[test]
fn a_resumed_run_traces_only_what_it_runs() {
    let out = tempfile::tempdir().unwrap();
    let programs = out.path().join("programs");
    std::fs::create_dir(&programs).unwrap();
    let traced = out.path().join("traced");
    let script = format!(
        "while [ $# -gt 0 ] && [ \"$1\" != child ]; do shift; done\n\
         while [ $# -gt 0 ]; do case \"$1\" in --group) group=$2;; canary-*|esker|lmdb) engine=$1;; esac; shift; done\n\
         [ -z \"$engine\" ] || echo \"$engine $group\" >> '{}'",
        traced.display()
    );
    stand_in(&programs, "strace", &script);
    let call = |more: &[&str]| {
        std::fs::write(&traced, "").unwrap();
        let arguments = ["run", "open", "--scale", "test", "--runs", "1"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_esker-bench"));
        command.args(arguments).args(more).arg("--out").arg(out.path()).env("PATH", path_with(&programs));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        std::fs::read_to_string(&traced).unwrap()
    };
    let results = out.path().join("results.jsonl");
    // Suite `redb` has one group, with rows that commit.
    let all = call(&["redb", "--engine", "esker"]);
    assert_eq!(all, "esker 0\n", "suite open has no row that commits");
    let both = call(&["redb", "--engine", "esker", "--engine", "lmdb", "--resume"]);
    assert_eq!(both, "lmdb 0\n", "what is finished is not traced again");
    // One of the two groups of ycsb is lost.
    let groups = call(&["ycsb", "--engine", "esker", "--resume"]);
    assert_eq!(groups, "esker 0\nesker 1\n");
    let text = std::fs::read_to_string(&results).unwrap();
    let kept = text.lines().filter(|line| !line.contains("(sync)"));
    std::fs::write(&results, kept.map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    assert_eq!(call(&["ycsb", "--engine", "esker", "--resume"]), "esker 1\n");
}

#[test]
fn made_data_is_loaded_and_results_are_compared() {
    let out = tempfile::tempdir().unwrap();
    let dir = out.path().join("db");
    let program = env!("CARGO_BIN_EXE_esker-bench");
    let mut made = Command::new(program)
        .args(["makedata", "1_000", "--hotspot", "0.99:4"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let loaded = Command::new(program)
        .args(["load", "--multi", "20", "--concurrency", "4", "--latency", "--period", "0.01", "--dir"])
        .arg(&dir)
        .stdin(made.stdout.take().unwrap())
        .output()
        .unwrap();
    assert!(made.wait().unwrap().success());
    let text = String::from_utf8(loaded.stdout).unwrap();
    assert!(text.contains("1000 pairs in") && text.contains("closed loop"), "{text}");

    for (name, mode) in [
        ("seq", &["--seq", "500", "--rate", "100_000", "--multi", "2"][..]),
        ("rand", &["--rand", "500:100", "--multi", "16"]),
        ("update", &["--rand-update", "500:0.5", "--no-fsync", "--engine", "redb"]),
    ] {
        let output = Command::new(program)
            .arg("load")
            .args(mode)
            .arg("--dir")
            .arg(out.path().join(name))
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("500 pairs in"), "{name}: {text}");
        assert_eq!(text.contains("open loop"), name == "seq", "{text}");
    }

    bench(&["run", "int", "--scale", "test", "--runs", "1", "--engine", "esker"], out.path());
    let results = out.path().join("results.jsonl");
    let compared = Command::new(program).arg("compare").args([&results, &results]).output().unwrap();
    let text = String::from_utf8(compared.stdout).unwrap();
    assert!(text.contains("int / test / esker / bulk load") && text.contains("1.000"), "{text}");
    let report = Command::new(program).arg("report").arg(&results).arg("--out").arg(&dir).output().unwrap();
    assert!(report.status.success(), "{report:?}");
    assert!(dir.join("report.html").exists());
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let out = tempfile::tempdir().unwrap();
    bench(&["run", "int", "--scale", "test", "--runs", "1", "--engine", "esker", "--no-trace"], out.path());
    let results = out.path().join("results.jsonl");
    let out_of_report = out.path().join("report");
    let commands: [Vec<&OsStr>; 4] = [
        vec!["list".as_ref()],
        vec!["seed-tables".as_ref()],
        vec!["compare".as_ref(), results.as_os_str(), results.as_os_str()],
        vec!["report".as_ref(), results.as_os_str(), "--out".as_ref(), out_of_report.as_os_str()],
    ];
    for arguments in commands {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_esker-bench"));
        let output = command.args(&arguments).stdout(writer).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {output:?}");
    }
    assert!(out_of_report.join("report.html").exists(), "the page is made all the same");
}

/// Writes a script that replaces a program of the machine, for processes that get [`path_with`] its
/// directory.
#[cfg(unix)]
fn stand_in(programs: &Path, name: &str, script: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let program = programs.join(name);
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[cfg(unix)]
fn path_with(programs: &Path) -> String {
    format!("{}:{}", programs.display(), std::env::var("PATH").unwrap())
}

/// Runs the lab with this script in place of the program `fstrim`.
#[cfg(unix)]
fn run_with_fstrim(script: &str, out: &Path) -> Output {
    let programs = out.join("programs");
    std::fs::create_dir(&programs).unwrap();
    stand_in(&programs, "fstrim", script);
    let path = path_with(&programs);
    let mut command = Command::new(env!("CARGO_BIN_EXE_esker-bench"));
    let arguments = ["run", "int", "--scale", "test", "--runs", "3", "--engine", "esker", "--no-trace"];
    command.args(arguments).args(["--trim", "--out"]).arg(out).env("PATH", path).output().unwrap()
}

#[cfg(unix)]
#[test]
fn the_device_is_trimmed_before_each_turn_or_the_run_ends() {
    let out = tempfile::tempdir().unwrap();
    let trimmed = out.path().join("trimmed");
    let output = run_with_fstrim(&format!("echo \"$1\" >> '{}'", trimmed.display()), out.path());
    assert!(output.status.success(), "{output:?}");
    let expected = format!("{}\n", out.path().display()).repeat(3);
    assert_eq!(std::fs::read_to_string(trimmed).unwrap(), expected);
    assert!(String::from_utf8(output.stdout).unwrap().contains("device: trimmed before each turn"));
    assert!(std::fs::read_to_string(out.path().join("report.html")).unwrap().contains("trimmed before each"));

    let out = tempfile::tempdir().unwrap();
    let output = run_with_fstrim("echo 'fstrim: no privilege' >&2; exit 1", out.path());
    assert!(!output.status.success(), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("could not be trimmed: fstrim: no privilege"));
    assert!(records(out.path()).is_empty());
}

#[test]
fn sync_rows_are_seen_to_sync() {
    let out = tempfile::tempdir().unwrap();
    bench(&[&["run", "--scale", "test", "--runs", "1"][..], &OURS].concat(), out.path());
    let records = records(out.path());
    for engine in ENGINES {
        let syncs = |row| find(&records, engine, row, 1)["syncs_per_commit"].as_f64();
        // Machines without strace report null, never a guess.
        if let Some(syncs) = syncs("individual writes") {
            assert!((1.0..4.0).contains(&syncs), "{engine}: {syncs}");
        }
        assert!(syncs("random reads").is_none());
    }
}

/// sled stores large pages in separate files, which only a sync of the file system reaches.
#[cfg(target_os = "linux")]
#[test]
fn sync_commits_of_large_values_sync_the_file_system_below_sled() {
    let out = tempfile::tempdir().unwrap();
    let trace = out.path().join("trace");
    if !Command::new("strace").arg("-V").output().is_ok_and(|output| output.status.success()) {
        println!("strace is not installed");
        return;
    }
    // Suite `badger` writes values of 16 KB, 1 KB and 128 B, each size in a group.
    let syncs_of = |group: &str| {
        let dir = out.path().join(group);
        std::fs::create_dir(&dir).unwrap();
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-e", "trace=syncfs,fdatasync", "-o"]).arg(&trace);
        command.arg(env!("CARGO_BIN_EXE_esker-bench")).args(["child", "badger", "sled", "test", "1"]);
        let output = command.arg(&dir).args(["--group", group, "--traced"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let trace = std::fs::read_to_string(&trace).unwrap();
        ["syncfs(", "fdatasync("].map(|call| trace.matches(call).count())
    };
    // 300 items in batches of 20.
    assert!(syncs_of("0")[0] >= 15, "{:?}", std::fs::read_to_string(&trace));
    let [of_file_system, of_log] = syncs_of("2");
    assert!(of_file_system == 0 && of_log >= 50, "{of_file_system} {of_log}");
}

#[test]
fn canary_a_wrong_value_fails_its_row() {
    let out = tempfile::tempdir().unwrap();
    let output = bench(
        &["run", "--scale", "test", "--runs", "1", "--engine", "canary-wrong", "--engine", "redb"],
        out.path(),
    );
    assert!(output.status.success(), "a failed row is not the end of the run: {output:?}");
    let records = records(out.path());
    let record = find(&records, "canary-wrong", "random reads", 1);
    assert!(record["value"].is_null());
    assert!(record["error"].as_str().unwrap().starts_with("wrong answer: sum of what was found"), "{record}");
    assert!(find(&records, "canary-wrong", "random range reads", 1)["error"].is_null(), "the run went on");
    // Its reopening after a compaction takes 500 ms, and is not timed.
    let (compaction, size) = ("compaction", "size after bench");
    let [compaction, size] = [compaction, size].map(|row| find(&records, "canary-wrong", row, 1));
    assert!(compaction["value"].as_f64().unwrap() < 0.5, "{compaction}");
    let begun = |record: &Value| record["started_unix_ms"].as_u64().unwrap();
    assert!(begun(size) >= begun(compaction) + 500, "{size}");
    let of_wrong = || records.iter().filter(|record| record["engine"] == "canary-wrong");
    assert!(of_wrong().all(|record| record["row"] != "nosync writes"), "a row that it cannot have");
    let bulk = find(&records, "canary-wrong", "individual writes", 1);
    if !find(&records, "redb", "individual writes", 1)["syncs_per_commit"].is_null() {
        assert!(bulk["error"].as_str().unwrap().starts_with("does not sync"), "{bulk}");
    }
    assert!(String::from_utf8(output.stdout).unwrap().contains("no value"));
}

#[test]
fn canary_a_wrong_value_and_a_lost_one_fail_rows_of_keyspaces() {
    let out = tempfile::tempdir().unwrap();
    let arguments = ["run", "keyspaces", "--scale", "test", "--runs", "1", "--no-trace"];
    let engines = ["--engine", "canary-wrong", "--engine", "esker", "--engine", "sanakirja"];
    let output = bench(&[&arguments[..], &engines[..]].concat(), out.path());
    assert!(output.status.success(), "{output:?}");
    let records = records(out.path());
    let wrong = find(&records, "canary-wrong", "random read", 1);
    assert!(wrong["value"].is_null());
    assert!(wrong["error"].as_str().unwrap().starts_with("wrong answer: the value that a get"), "{wrong}");
    // It is in memory, so a reopened database is empty.
    let lost = find(&records, "canary-wrong", "open", 1);
    assert!(lost["error"].as_str().unwrap().starts_with("wrong answer: the value that the first"), "{lost}");
    for (engine, has_prefixes) in [("esker", false), ("sanakirja", true)] {
        let drop = find(&records, engine, "drop", 1);
        assert!(drop["error"].is_null() && drop["value"].as_f64().unwrap() > 0.0, "{drop}");
        assert_eq!(drop["note"].to_string().contains("prefixes"), has_prefixes, "{drop}");
    }
}

#[test]
fn canary_an_item_lost_by_opening_fails_the_rows_that_open() {
    let out = tempfile::tempdir().unwrap();
    let arguments = ["run", "open", "--scale", "test", "--runs", "1", "--no-trace"];
    let engines = ["--engine", "canary-drop", "--engine", "redb"];
    let output = bench(&[&arguments[..], &engines[..]].concat(), out.path());
    assert!(output.status.success(), "{output:?}");
    let records = records(out.path());
    for (row, missing) in [("open clean", 1), ("open clean, cold", 2), ("open after kill", 1)] {
        let sound = find(&records, "redb", row, 1);
        let lost = find(&records, "canary-drop", row, 1);
        assert!(lost["value"].is_null());
        // Not every process may drop the page cache.
        if sound["error"].is_null() || !row.ends_with("cold") {
            assert!(sound["error"].is_null(), "{sound}");
            assert_eq!(
                lost["error"],
                format!("wrong answer: items that are missing: {missing}, not 0"),
                "{lost}"
            );
        }
    }
}

#[test]
fn canary_a_crash_and_a_hang_fail_their_rows_only() {
    let out = tempfile::tempdir().unwrap();
    let arguments = ["run", "--scale", "test", "--runs", "1", "--timeout", TIMEOUT];
    let engines = ["--engine", "canary-crash", "--engine", "canary-hang", "--engine", "redb"];
    let output = bench(&[&arguments[..], &engines[..]].concat(), out.path());
    assert!(output.status.success(), "{output:?}");
    let records = records(out.path());
    for (engine, error) in
        [("canary-crash", "the process ended early"), ("canary-hang", "out of time after 10 s")]
    {
        assert!(find(&records, engine, "random reads", 1)["error"].is_null());
        let record = find(&records, engine, "compaction", 1);
        assert!(record["error"].as_str().unwrap().starts_with(error), "{record}");
        let record = find(&records, engine, "size after bench", 1);
        assert_eq!(record["error"], "not run: compaction failed");
    }
    assert!(find(&records, "redb", "compaction", 1)["error"].is_null());
}

#[test]
fn canary_background_work_without_end_costs_the_rows_after_it_and_not_the_measured_one() {
    let out = tempfile::tempdir().unwrap();
    let arguments = ["run", "--scale", "test", "--runs", "1", "--timeout", TIMEOUT, "--no-trace"];
    bench(&[&arguments[..], &["--engine", "canary-debt"]].concat(), out.path());
    let records = records(out.path());
    let load = find(&records, "canary-debt", "bulk load", 1);
    assert!(load["value"].as_f64().unwrap() > 0.0, "{load}");
    assert!(load["note"].as_str().unwrap().contains("out of time after 10 s"), "{load}");
    let next = find(&records, "canary-debt", "individual writes", 1);
    assert!(next["error"].as_str().unwrap().starts_with("not run: bulk load was measured"), "{next}");
}

#[test]
fn wrong_names_differ_from_wrong_use() {
    let out = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        (&["run", "redis"][..], "no suite redis; there are: limits, redb"),
        (&["run", "redb", "--engine", "sqlite"], "no engine sqlite; there are: "),
        (
            &["run", "churn", "int", "--part", "2"],
            "suite int has no part 2: at scale quick it has 1, from 1 on",
        ),
        (&["run", "churn", "--part", "0"], "suite churn has no part 0: "),
    ] {
        let output = bench(arguments, out.path());
        assert!(!output.status.success());
        assert!(String::from_utf8(output.stderr).unwrap().contains(expected));
    }
}

#[test]
fn list_names_everything() {
    let output = Command::new(env!("CARGO_BIN_EXE_esker-bench")).arg("list").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for name in ROWS.iter().chain(&ENGINES).chain(&["quick", "seed", "full"]) {
        assert!(text.contains(name), "{name} is not in: {text}");
    }
    assert!(!text.contains("canary"));
}
