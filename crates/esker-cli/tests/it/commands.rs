//! Tests each command by running the program: output, exit code and error messages.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests of a program look at its files from outside"
)]

use std::fs::File;

use crate::common::Esker;

#[test]
fn put_get_del() {
    let esker = Esker::new();
    assert_eq!(esker.ok("put ann 1"), "");
    esker.ok("put bob 2");
    esker.ok("put ann 3");
    assert_eq!(esker.ok("get ann"), "3\n");
    assert_eq!(esker.ok("count"), "2\n");
    assert_eq!(esker.ok("del ann"), "");
    assert_eq!(esker.run(["get", "ann"]).code, 1);
    assert_eq!(esker.run(["del", "ann"]).code, 1);
    assert_eq!(esker.ok("del bob nina --json"), "{\"removed\":1}\n");
    assert_eq!(esker.ok("count"), "0\n");
}

#[test]
fn what_expires() {
    let esker = Esker::new();
    esker.ok("put --ttl 1000 ann 1");
    esker.ok("put --ttl 0 bob 2");
    esker.ok("put cid 3");
    let left: f64 = esker.ok("ttl ann").trim().parse().unwrap();
    assert!((900.0..=1000.0).contains(&left), "{left}");
    assert_eq!((esker.run(["ttl", "bob"]).code, esker.run(["get", "bob"]).code), (1, 1));
    assert_eq!(
        (esker.ok("ttl cid"), esker.ok("ttl --json cid")),
        ("unlimited\n".into(), "{\"seconds\":null}\n".into())
    );
    assert_eq!(esker.ok("scan --keys-only"), "ann\ncid\n");
    assert_eq!(esker.run(["put", "--ttl", "soon", "a", "b"]).code, 2);
}

#[test]
fn bytes_of_every_kind() {
    let esker = Esker::new();
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(esker.run_with(&all, ["put", "all"]).code, 0);
    assert_eq!(esker.run(["get", "all", "--bytes", "raw"]).out, all);
    assert!(esker.ok("get all").starts_with("\\0\\x01\\x02"));
    assert!(esker.ok("get --bytes hex 616c6c").starts_with("000102"));
    assert!(esker.ok("get --json all").starts_with("{\"key\":\"all\",\"value_hex\":\"0001"));

    esker.run(["put", "--escapes", "a\\tb\\x00", "c\\n"]);
    assert_eq!(esker.ok("get --bytes hex 61096200"), "630a\n");
    assert_eq!(esker.run(["get", "--bytes", "raw", "a\\tb\\x00"]).code, 1);
    assert_eq!(esker.run(["get", "--bytes", "raw", "-e", "a\\tb\\x00"]).text(), "c\n");
    esker.run(["put", "", ""]);
    assert_eq!(esker.run(["get", ""]).text(), "\n");
    esker.run(["put", "--", "-x", "minus"]);
    assert_eq!(esker.ok("get -- -x"), "minus\n");
}

#[test]
fn arguments_are_taken_as_they_are() {
    let esker = Esker::new();
    esker.ok("put C:\\new -1");
    esker.ok("put -2.5 -1e10");
    assert_eq!(esker.ok("get C:\\new"), "-1\n");
    assert_eq!(esker.ok("get --bytes hex 433a5c6e6577"), "2d31\n", "no line end");
    assert_eq!(esker.ok("scan"), "-2.5\t-1e10\nC:\\\\new\t-1\n");
    assert_eq!(esker.ok("get -e C:\\\\new"), "-1\n", "as it is printed");
    assert_eq!(esker.ok("scan --from -2 --to -3 --keys-only"), "-2.5\n");
    esker.ok("del -2.5");
    assert_eq!(esker.ok("count --prefix C:\\n --json"), "{\"entries\":1}\n");
}

#[test]
fn json_contains_no_terminal_control_characters() {
    let esker = Esker::new();
    let hidden = "a\u{7f}\u{9b}\u{202e}\u{2066}\u{200f}\u{61c}\u{e4}\u{1f980}";
    esker.run(["put", "-k", hidden, hidden, hidden]);
    let row = esker.run(["scan", "--json", "-k", hidden, "-k", "default"]);
    let escaped = "a\\u007f\\u009b\\u202e\\u2066\\u200f\\u061c\u{e4}\u{1f980}";
    let expected = format!("{{\"keyspace\":\"{escaped}\",\"key\":\"{escaped}\",\"value\":\"{escaped}\"}}\n");
    assert_eq!(row.text(), expected);
    assert!(esker.ok("info --json").contains(escaped));
    let row: serde_json::Value = serde_json::from_str(row.text()).unwrap();
    assert_eq!(row["value"], hidden, "it is the same");
}

#[cfg(unix)]
#[test]
fn a_closed_standard_output_is_an_error() {
    let esker = Esker::new();
    fill(&esker);
    for (line, code) in [("export", 2), ("scan --json", 2), ("count", 2), ("check", 2), ("put a 1", 0)] {
        let script = format!("exec \"$ESKER\" {line} >&-");
        let output = std::process::Command::new("sh")
            .args(["-c", &script])
            .env("ESKER", env!("CARGO_BIN_EXE_esker"))
            .env("ESKER_DB", "db")
            .current_dir(esker.path("."))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if cfg!(target_os = "linux") {
            assert_eq!(output.status.code(), Some(code), "{line}: {said}");
            assert_eq!(code == 2, said.contains("standard output is closed"), "{line}: {said}");
        }
    }
}

#[test]
fn several_keyspaces_are_distinguished() {
    let esker = Esker::new();
    esker.ok("put -k users ann 1");
    esker.ok("put -k mails ann 2");
    esker.ok("put -k mails bob 3");
    let both = ["-k", "users", "-k", "mails"];
    let ok = |line: &str| {
        let outcome = esker.run(line.split(' ').chain(both));
        assert_eq!(outcome.code, 0, "{line}: {outcome:?}");
        outcome.text().to_owned()
    };
    assert_eq!(ok("count"), "users\t1\nmails\t2\n");
    assert_eq!(
        ok("count --prefix b --json"),
        "{\"entries\":0,\"keyspace\":\"users\"}\n{\"entries\":1,\"keyspace\":\"mails\"}\n"
    );
    assert_eq!(ok("get ann"), "users\t1\nmails\t2\n");
    assert_eq!(ok("get bob"), "mails\t3\n");
    assert_eq!(ok("scan"), "users\tann\t1\nmails\tann\t2\nmails\tbob\t3\n");
    assert_eq!(ok("scan --keys-only -n 1"), "users\tann\nmails\tann\n");
    assert!(ok("export --json").starts_with("{\"keyspace\":\"users\",\"key\":\"ann\",\"value\":\"1\"}\n"));
    assert_eq!(esker.run(["get", "nina"].into_iter().chain(both)).code, 1);
    assert!(esker.fails("count -k users -k user").contains("no keyspace `user`"));
    assert_eq!(ok("del ann nina --json"), "{\"removed\":2}\n");
    assert_eq!(ok("count"), "users\t0\nmails\t1\n");
}

#[test]
fn wait_waits_for_a_database_in_use() {
    let esker = Esker::new();
    let db = esker::Db::open(esker.path("db")).unwrap();
    assert!(esker.fails("--wait 0.1 put a 2").contains("in use by process"));
    let waiting = esker.command("--wait 60 put a 1").spawn().unwrap();
    let checking =
        esker.command("--wait 60 check --offline").stdout(std::process::Stdio::null()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    db.close().unwrap();
    for mut child in [waiting, checking] {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(esker.ok("--wait 60 get a"), "1\n");
}

#[test]
fn scan_and_count_take_ranges() {
    let esker = Esker::new();
    for key in ["a", "ab", "abc", "b", "c"] {
        esker.run(["put", key, &key.to_uppercase()]);
    }
    assert_eq!(esker.ok("scan"), "a\tA\nab\tAB\nabc\tABC\nb\tB\nc\tC\n");
    assert_eq!(esker.ok("scan --prefix ab --keys-only"), "ab\nabc\n");
    assert_eq!(esker.ok("scan --from ab --to c --keys-only"), "ab\nabc\nb\n");
    assert_eq!(esker.ok("scan --prefix a --from ab --to abc"), "ab\tAB\n");
    assert_eq!(esker.ok("scan --reverse --limit 2"), "c\tC\nb\tB\n");
    assert_eq!(esker.ok("scan --reverse --keys-only --to b -n 1"), "abc\n");
    assert_eq!(esker.ok("scan --from c --to a"), "");
    assert_eq!(esker.ok("scan --json -n 1"), "{\"key\":\"a\",\"value\":\"A\"}\n");
    assert_eq!(esker.ok("scan --json --keys-only -n 1"), "{\"key\":\"a\"}\n");
    assert_eq!(esker.ok("scan --bytes hex --prefix 6162 -n 1"), "6162\t4142\n");
    assert_eq!(esker.ok("count"), "5\n");
    assert_eq!(esker.ok("count --prefix a"), "3\n");
    assert_eq!(esker.ok("count --from b --json"), "{\"entries\":2}\n");
    assert_eq!(esker.ok("count --from c --to a"), "0\n");
    esker.ok("del --from ab --to b");
    assert_eq!(esker.ok("scan --keys-only"), "a\nb\nc\n");
    assert_eq!(esker.run(["del", "--prefix", "zz"]).code, 1);
}

#[test]
fn keyspaces_are_apart() {
    let esker = Esker::new();
    esker.ok("put -k users ann 1");
    esker.ok("put ann 2");
    assert_eq!(esker.ok("get -k users ann"), "1\n");
    assert_eq!(esker.ok("get ann"), "2\n");
    let message = esker.fails("get -k user ann");
    assert!(message.contains("no keyspace `user`") && message.contains("default, users"), "{message}");
    let info = esker.ok("info --json");
    assert!(info.contains("\"keyspaces\":{\"default\":1,\"users\":1}"), "{info}");
    assert!(esker.ok("info").contains("users"));
}

#[test]
fn only_put_and_import_create() {
    let esker = Esker::new();
    for line in ["get a", "del a", "scan", "count", "export", "info", "stats", "check", "compact"] {
        let message = esker.fails(line);
        assert!(message.contains("no database in db") && message.contains("esker put"), "{line}: {message}");
        assert!(!esker.path("db").exists(), "{line}");
    }
    esker.ok("put a 1 --db other");
    assert!(esker.path("other").exists() && !esker.path("db").exists(), "--db goes before ESKER_DB");
}

#[test]
fn a_database_in_use_can_be_read() {
    let esker = Esker::new();
    let db = esker::Db::open(esker.path("db")).unwrap();
    let map = db.default_keyspace();
    for round in ["1", "2"] {
        map.put("a", round).unwrap();
        db.keyspace(&format!("k{round}")).unwrap();
        assert_eq!(esker.ok("get a"), format!("{round}\n"));
        assert_eq!(esker.ok("scan"), format!("a\t{round}\n"));
        assert_eq!(esker.ok("count"), "1\n");
        assert_eq!(esker.ok("export"), format!("a\t{round}\n"));
        assert!(esker.ok("keyspaces list").contains(&format!("k{round}")));
        assert!(esker.ok("info").contains("keyspaces"));
        assert!(esker.ok("stats --json").contains("seqno"));
        assert!(esker.ok("check").contains("sound: 1 live key"));
        assert!(esker.run(["unload", &format!("file {round}")]).code == 0);
        db.flush().unwrap();
    }
    let shell = esker.run_with(b"get a\nput a 3\n", ["shell"]);
    assert!(shell.text().starts_with("2\n") && shell.code == 2, "{shell:?}");
    assert!(shell.err.contains("opened to read") && shell.err.contains("open for reading only"), "{shell:?}");
    assert_eq!(map.get("a").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn a_database_in_use_names_its_process() {
    let esker = Esker::new();
    let db = esker::Db::open(esker.path("db")).unwrap();
    let message = esker.fails("put a 1");
    assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
    for (line, instead) in [
        ("feed", "esker feed --server"),
        ("backup send", "esker unload"),
        ("backup create b", "esker unload"),
        ("checkpoint c", "esker unload"),
        ("backup feed b", "esker feed --server"),
    ] {
        assert!(esker.fails(line).contains(instead), "{line}: {}", esker.fails(line));
    }
    esker.ok("unload copied");
    db.close().unwrap();
    assert_eq!(esker.run(["get", "a"]).code, 1);
}

#[test]
fn a_database_that_is_being_read_names_no_process() {
    let esker = Esker::new();
    // LOCK still contains the id of this process.
    esker.ok("put a 1");
    let lock = File::open(esker.path("db/LOCK")).unwrap();
    lock.lock_shared().unwrap();
    let message = esker.fails("put a 2");
    assert!(message.contains("in use by another process") && !message.contains("end it"), "{message}");
    // Readers do not exclude each other.
    assert!(esker.ok("check --offline").contains("sound"));
    // Closing it would not do while a child of another test, between its fork and its exec, has a descriptor
    // of it.
    lock.unlock().unwrap();
    assert_eq!(esker.ok("get a"), "1\n");
}

#[test]
fn output_that_cannot_be_written_is_no_panic() {
    let esker = Esker::new();
    fill(&esker);
    let mut lines = vec!["check", "check --offline", "check --json", "compact", "compact --json"];
    lines.extend(["export rows.tsv", "import rows.tsv", "dump db", "repair db new"]);
    lines.extend(["info", "stats", "scan", "count", "get key1"]);
    for line in lines {
        // `repair` has to find its target missing.
        let remove = || drop(std::fs::remove_dir_all(esker.path("new")));
        remove();
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let closed = esker.run_into(writer, line.split(' '));
        assert!(closed.code == 0 && closed.err.is_empty(), "{line}: {closed:?}");
        if cfg!(target_os = "linux") {
            remove();
            let full = File::options().write(true).open("/dev/full").unwrap();
            let full = esker.run_into(full, line.split(' '));
            assert!(full.code == 2 && full.err.starts_with("esker: write the output: "), "{line}: {full:?}");
        }
    }
}

#[test]
fn messages_that_cannot_be_written_are_no_panic() {
    let esker = Esker::new();
    let mut rows = "a\t1\n".to_owned();
    rows.push_str(&"word\n".repeat(30));
    rows.push_str("b\t2\n");
    esker.write("bad.tsv", rows);
    let lines = [("get a", 2), ("import bad.tsv", 2), ("import bad.tsv --skip-bad", 0), ("del c", 1)];
    for (line, code) in lines {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let closed = esker.run_saying(writer, line.split(' '));
        assert_eq!(closed.code, code, "{line}: {closed:?}");
        if cfg!(target_os = "linux") {
            let full = File::options().write(true).open("/dev/full").unwrap();
            assert_eq!(esker.run_saying(full, line.split(' ')).code, code, "{line}");
        }
    }
    assert_eq!(esker.ok("count"), "2\n");
}
/// A limit too low for a database is reported as such, not as damage.
#[cfg(target_os = "linux")]
#[test]
fn a_limit_of_open_files_is_reported() {
    let esker = Esker::new();
    fill(&esker);
    let run = |line: &str, limit: u32| {
        let script = format!("ulimit -n {limit}; exec \"$ESKER\" {line}");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script]).env("ESKER", env!("CARGO_BIN_EXE_esker")).env("ESKER_DB", "db");
        let output = command.current_dir(esker.path(".")).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let mut has_put = false;
    for limit in 4..9 {
        for line in ["count", "put a 1", "check", "repair db new"] {
            let (code, said) = run(line, limit);
            has_put |= code == Some(0) && line.starts_with("put");
            let _missing = std::fs::remove_dir_all(esker.path("new"));
            let is_requested = said.contains("ulimit -n") && !said.contains("salvages");
            assert!(code == Some(0) || code == Some(2) && is_requested, "{limit}: {line}: {code:?} {said}");
        }
    }
    assert_eq!(run("count", 4).0, Some(2));
    assert_eq!(esker.ok("count"), if has_put { "51\n" } else { "50\n" });
}

#[test]
fn nonsense_is_explained() {
    let esker = Esker::new();
    assert!(esker.fails("put --escapes a\\q 1").contains("unknown escape"));
    assert!(esker.fails("put --escapes --bytes hex 61 62").contains("exclude each other"));
    assert!(esker.fails("--wait soon count").contains("a number of seconds"));
    assert!(esker.fails("put -k a -k b key value").contains("give -k once"));
    assert!(esker.fails("put --bytes hex abc 1").contains("two make a byte"));
    assert!(esker.fails("frobnicate").contains("frobnicate"));
    assert!(esker.fails("del").contains("KEYS"));
    assert!(!esker.path("db").exists());
    esker.ok("put a 1");
    let long = "k".repeat(65_536);
    let outcome = esker.run(["put", &long, "1"]);
    assert!(
        outcome.code == 2 && outcome.err.contains("65,535") | outcome.err.contains("65535"),
        "{}",
        outcome.err
    );
}

/// Fifty entries.
fn fill(esker: &Esker) {
    let rows: String = (0..50).map(|number| format!("key{number}\t{number}\n")).collect();
    assert_eq!(esker.run_with(rows.as_bytes(), ["import"]).code, 0);
}

#[test]
fn info_stats_check_compact() {
    let esker = Esker::new();
    fill(&esker);
    assert!(esker.ok("compact").contains(" before, "));
    assert!(esker.ok("compact --json").contains("\"after_bytes\":"));
    assert!(esker.ok("check").starts_with("sound: "));
    assert!(esker.ok("check --json").contains("\"problems\":[]"));
    assert!(esker.ok("stats").lines().count() > 1);
    let stats: serde_json::Value = serde_json::from_str(&esker.ok("stats --json")).unwrap();
    assert_eq!((&stats["health"], &stats["items"]), (&"ok".into(), &50.into()), "{stats}");
    assert_eq!(stats["background_error"], serde_json::Value::Null);
    assert_eq!(stats["keyspace_stats"][0]["items"], 50);
    assert!(stats["keyspace_stats"][0]["table_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{stats}");
    assert!(esker.ok("stats").lines().any(|line| line.split_whitespace().eq(["background_error", "none"])));
    let tables = esker.ok("stats --tables");
    assert!(tables.starts_with("base ") && tables.contains("50 entries, 0 removals"), "{tables}");
    let tables: serde_json::Value = serde_json::from_str(&esker.ok("stats --tables --json")).unwrap();
    assert_eq!((&tables[0]["level"], &tables[0]["keys"]), (&"base".into(), &50.into()), "{tables}");
    let lines = esker.ok("stats --watch 0.01 --count 3");
    let with_rates = lines.lines().filter(|line| line.contains("  gets 0/s")).count();
    assert_eq!((lines.lines().count(), with_rates), (3, 2), "{lines}");
    let looks = esker.ok("stats --json --watch 0.01 --count 2");
    assert!(looks.lines().nth(1).is_some_and(|look| look.contains("\"per_second\":{")), "{looks}");
    assert!(esker.fails("stats --watch 0").contains("seconds"));
    assert!(esker.fails("stats --count 2").contains("--watch"));
    assert_eq!(esker.ok("count"), "50\n");
}

#[test]
fn check_lists_damage() {
    let esker = Esker::new();
    fill(&esker);
    esker.ok("compact");
    let table = std::fs::read_dir(esker.path("db"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|e| e == "sst"))
        .expect("compaction leaves a table");
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&table, bytes).unwrap();
    let outcome = esker.run(["check"]);
    assert_eq!(outcome.code, 1, "{}{}", outcome.text(), outcome.err);
    assert!(outcome.text().contains(".sst"), "{}", outcome.text());
    assert!(outcome.text().contains("problems: live keys not counted"), "{}", outcome.text());
    assert!(esker.run(["check", "--json"]).text().contains("\"live_keys\":null"));
}

#[test]
fn names_of_keyspaces_are_printed_on_one_line() {
    let esker = Esker::new();
    assert_eq!(esker.run(["put", "-k", "a\n\u{1b}[31mb", "key", "value"]).code, 0);
    let info = esker.ok("info");
    assert!(info.lines().any(|line| line.trim_start().starts_with("a\\n\\u{1b}[31mb ")), "{info}");
    assert!(esker.fails("get -k other key").contains("a\\n\\u{1b}[31mb"));
}

#[test]
fn every_help_teaches_by_example() {
    let esker = Esker::new();
    let all = esker.ok("--help");
    let commands =
        "put get del scan count import export keyspaces shell info stats check repair dump compact"
            .split(" ");
    for command in commands {
        assert!(all.contains(&format!("\n  {command} ")), "{command}");
        assert!(esker.ok(&format!("{command} --help")).contains(&format!("esker {command}")), "{command}");
    }
}

#[test]
fn sizes_and_split_points_of_ranges() {
    let esker = Esker::new();
    esker.ok("-k users put a 1");
    esker.ok("-k mails put a 1");
    let lines: String = (0..2000).map(|n| format!("k{n:04}\tvalue {n}\n")).collect();
    esker.write("keys.tsv", lines);
    esker.ok("-k users import keys.tsv");
    esker.ok("compact");
    let size =
        |args: &str| esker.ok(format!("-k users size {args}").trim_end()).trim().parse::<u64>().unwrap();
    assert!((10_000..100_000).contains(&size("")));
    assert!(size("--prefix k00") < size(""));
    assert_eq!(size("--from m --to a"), 0);
    assert!(esker.ok("-k users --json size").starts_with("{\"bytes\":"));
    assert!(esker.ok("-k users -k mails size").lines().nth(1).unwrap().starts_with("mails\t"));
    let points = esker.ok("-k users split 3");
    let points: Vec<_> = points.lines().collect();
    assert!(points.len() == 2 && points.is_sorted() && points[0] > "k0", "{points:?}");
    assert!(esker.ok("-k users --json split 2").starts_with("{\"key\":"));
    assert_eq!(esker.ok("-k users split 1"), "");
}
