//! Tests import and export by running the program: all formats in both directions, bad lines, missing files.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests of a program look at its files from outside"
)]

use crate::common::Esker;

/// Returns entries in TSV with bytes of every kind.
fn entries() -> String {
    let mut random = fastrand::Rng::with_seed(7);
    let mut text = String::new();
    for number in 0..2_000 {
        let value: String = (0..random.usize(..20)).map(|_| format!("\\x{:02x}", random.u8(..))).collect();
        text.push_str(&format!("key{number:05}\\x{:02x}\\t,\"\t{value}\n", random.u8(..)));
    }
    text
}

#[test]
fn every_format_comes_back_exactly() {
    let esker = Esker::new();
    esker.write("in.tsv", entries());
    assert!(esker.ok("import in.tsv").starts_with("imported 2,000 rows, 2,000 new keys, in "));
    let all = esker.ok("scan");
    for (number, name) in ["a.tsv", "a.csv", "a.jsonl"].into_iter().enumerate() {
        for bytes in ["", " --bytes hex"] {
            assert!(esker.ok(&format!("export {name}{bytes}")).starts_with("exported 2,000 rows, "));
            let copy = format!("copy{number}{}", bytes.len());
            esker.ok(&format!("import {name}{bytes} -k {copy} --batch 300"));
            assert_eq!(esker.ok(&format!("scan -k {copy}")), all, "{name}{bytes}");
        }
    }
    esker.ok("export a.txt");
    esker.ok("import a.txt -k keys");
    assert_eq!(esker.ok("scan -k keys --keys-only"), esker.ok("scan --keys-only"));
}

#[test]
fn pipes_copy_a_keyspace() {
    let esker = Esker::new();
    esker.run_with(entries().as_bytes(), ["import"]);
    for format in ["tsv", "csv", "jsonl"] {
        let exported = esker.run(["export", "--format", format]);
        let copied =
            esker.run_with(&exported.out, ["import", "--format", format, "--db", format, "--batch", "0"]);
        assert_eq!(copied.code, 0, "{}", copied.err);
        assert_eq!(esker.ok(&format!("scan --db {format}")), esker.ok("scan"), "{format}");
    }
}

#[test]
fn several_keyspaces_come_back_from_json_lines() {
    let esker = Esker::new();
    for keyspace in ["a", "b", "default"] {
        esker.ok(&format!("put -k {keyspace} key of-{keyspace}"));
    }
    esker.ok("export -k a -k b -k default all.jsonl");
    let done = esker.ok("import all.jsonl --db copy --json");
    assert!(done.contains("\"new_keys\":3,\"rows\":3"), "{done}");
    assert!(esker.ok("import all.jsonl --db copy --json --batch 1").contains("\"new_keys\":0,\"rows\":3"));
    for keyspace in ["a", "b", "default"] {
        assert_eq!(esker.ok(&format!("scan --db copy -k {keyspace}")), format!("key\tof-{keyspace}\n"));
    }
    let said = esker.fails("import all.jsonl -k a --batch 1 --db one");
    assert!(said.contains("all.jsonl:2: the row belongs to the keyspace `b`, but -k selects `a`"), "{said}");
    assert_eq!(esker.ok("keyspaces list --db one"), "a\t1\ndefault\t0\n");
    esker.ok("import all.jsonl -k merged --key key --db one");
    assert_eq!(esker.ok("scan -k merged --db one"), "key\tof-default\n");
    for format in ["tsv", "csv", "words"] {
        let said = esker.fails(&format!("export -k a -k b f --format {format}"));
        assert!(said.contains("use JSON lines (--format jsonl)"), "formats.1: {said}");
    }
}

#[test]
fn a_failed_import_leaves_no_keyspaces_that_rows_name() {
    let esker = Esker::new();
    let row = |name: &str| format!("{{\"keyspace\":{name},\"key\":\"k\",\"value\":\"v\"}}\n");
    esker.write("f.jsonl", [row("\"new\""), row("null"), row("7")].concat());
    assert!(esker.fails("import f.jsonl").contains("f.jsonl:3: keyspace: "));
    assert_eq!(esker.ok("keyspaces list"), "default\t0\n");
    esker.write("f.jsonl", [row("\"\""), row("\"new\"")].concat());
    assert!(esker.ok("import f.jsonl --skip-bad").contains("imported 1 row"));
    assert_eq!(esker.ok("keyspaces list"), "default\t0\nnew\t1\n");
}

#[test]
fn export_takes_ranges_and_leaves_no_halves() {
    let esker = Esker::new();
    esker.run_with(b"a\t1\nb\t2\nc\t3\n", ["import"]);
    assert_eq!(esker.ok("export --from b --to c"), "b\t2\n");
    assert_eq!(esker.ok("export --format csv --prefix c"), "key,value\nc,3\n");
    assert_eq!(esker.ok("export --format csv --prefix c --header no"), "\"c\",\"3\"\n");
    assert_eq!(esker.ok("export --from c --to b"), "");
    esker.run(["put", "d\te", "4"]);
    assert!(esker.fails("export x.tsv --bytes raw").contains("--bytes escaped"));
    assert!(!esker.path("x.tsv").exists() && !esker.path("x.tsv.partial").exists());
    assert!(esker.fails("export nowhere/x.tsv").contains("nowhere"));
}

/// Tests the destinations of an export that are not new files. A link, pipe or device stays what it is.
#[cfg(unix)]
mod targets {
    use std::fs;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
    use std::process::{Command, Stdio};

    use super::Esker;

    fn filled() -> Esker {
        let esker = Esker::new();
        esker.run_with(b"a\t1\nb\t2\n", ["import"]);
        esker
    }

    const ROWS: &[u8] = b"a\t1\nb\t2\n";

    #[test]
    fn cli_target_1_a_directory_is_refused_at_once() {
        let esker = filled();
        fs::create_dir(esker.path("dir")).unwrap();
        symlink("dir", esker.path("link")).unwrap();
        for name in ["dir", "link"] {
            let said = esker.fails(&format!("export --format tsv {name}"));
            assert!(said.contains(&format!("{name} is a directory")), "{said}");
            assert!(!esker.path(&format!("{name}.partial")).exists(), "cli_target.1");
        }
        // The refusal comes before the database is opened.
        assert!(esker.fails("--db nothing export --format tsv dir").contains("is a directory"));
    }

    #[test]
    fn cli_target_2_a_pipe_is_written_and_stays() {
        let esker = filled();
        assert!(Command::new("mkfifo").arg(esker.path("pipe")).status().unwrap().success());
        let mut child = esker.command("export --format tsv pipe").stdout(Stdio::piped()).spawn().unwrap();
        // Reading a pipe without a writer would block forever, if the program replaced the pipe.
        let start = std::time::Instant::now();
        let reader = std::thread::spawn({
            let pipe = esker.path("pipe");
            move || fs::read(pipe)
        });
        while !reader.is_finished() && start.elapsed().as_secs() < 300 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(reader.is_finished(), "cli_target.2: the pipe was not opened");
        assert_eq!(reader.join().unwrap().unwrap(), ROWS, "cli_target.2");
        assert!(child.wait().unwrap().success());
        assert!(fs::symlink_metadata(esker.path("pipe")).unwrap().file_type().is_fifo(), "cli_target.2");
    }

    /// A reader of a named pipe that leaves early did not get everything, so the export fails, unlike on
    /// standard output.
    #[test]
    fn a_pipe_that_is_closed_early_is_an_error() {
        let esker = filled();
        esker.run_with(format!("c\t{}\n", "v".repeat(1 << 20)).as_bytes(), ["import"]);
        assert!(Command::new("mkfifo").arg(esker.path("pipe")).status().unwrap().success());
        for format in ["tsv", "csv", "jsonl"] {
            let line = format!("export --format {format} pipe");
            let child = esker.command(&line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            // The pipe holds less than the export writes, so the writer waits for this reader, which then
            // leaves.
            let mut reader = fs::File::open(esker.path("pipe")).unwrap();
            std::io::Read::read_exact(&mut reader, &mut [0]).unwrap();
            drop(reader);
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{format}: {said}");
            assert!(said.contains("write pipe: Broken pipe") && output.stdout.is_empty(), "{format}: {said}");
        }
    }

    /// A reader of standard output may leave early: `esker export | head`.
    #[test]
    fn standard_output_that_is_closed_early_is_no_error() {
        let esker = filled();
        esker.run_with(format!("c\t{}\n", "v".repeat(1 << 20)).as_bytes(), ["import"]);
        for format in ["tsv", "csv", "jsonl"] {
            let line = format!("export --format {format}");
            let mut child =
                esker.command(&line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            drop(child.stdout.take());
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.is_empty(), "{format}: {said}");
        }
    }

    /// Exports to a file that may not grow, as on a full disk.
    #[test]
    fn a_file_that_cannot_grow_is_named() {
        let esker = filled();
        esker.run_with(format!("c\t{}\n", "v".repeat(1 << 20)).as_bytes(), ["import"]);
        esker.ok("compact");
        for name in ["x.tsv", "x.csv", "x.jsonl"] {
            let said = esker.fails_within(512, &format!("export {name}"));
            assert!(said.starts_with(&format!("esker: write {name}.partial: ")), "{said}");
            assert!(!esker.path(&format!("{name}.partial")).exists() && !esker.path(name).exists());
        }
    }

    /// The device is in the test's own directory, because broken code could replace a system device. Creating
    /// it may require root.
    #[test]
    fn cli_target_2_a_device_is_written_and_stays() {
        let esker = filled();
        let null = esker.path("null");
        let made = Command::new("mknod").arg(&null).args(["c", "1", "3"]).stderr(Stdio::null()).status();
        if !made.is_ok_and(|status| status.success()) || fs::File::open(&null).is_err() {
            return;
        }
        for _ in 0..2 {
            assert!(esker.ok("export --format tsv null").starts_with("exported 2 rows, 8 B"));
            assert!(fs::symlink_metadata(&null).unwrap().file_type().is_char_device(), "cli_target.2");
            assert!(!esker.path("null.partial").exists());
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn cli_target_2_standard_output_by_name_is_standard_output() {
        let esker = filled();
        let line = ["export", "--format", "tsv", "/dev/stdout"];
        assert_eq!(esker.run(line).out, ROWS);
        let out = esker.path("out");
        fs::write(&out, "before\n").unwrap();
        let append = fs::OpenOptions::new().append(true).open(&out).unwrap();
        assert_eq!(esker.run_into(append, line).code, 0);
        assert_eq!(fs::read(&out).unwrap(), [b"before\n", ROWS].concat(), "cli_target.2");
    }

    #[test]
    fn cli_target_2_a_link_is_refused() {
        let esker = filled();
        esker.write("real.tsv", "old");
        for to in ["real.tsv", "missing.tsv", "link.tsv"] {
            let link = esker.path("link.tsv");
            symlink(to, &link).unwrap();
            assert!(esker.fails("export link.tsv").contains("link.tsv"), "cli_target.2");
            assert_eq!(
                (esker.read("real.tsv"), fs::read_link(&link).unwrap().to_str()),
                (b"old".to_vec(), Some(to))
            );
            fs::remove_file(link).unwrap();
        }
        assert!(!esker.path("missing.tsv").exists(), "cli_target.2");
    }

    #[test]
    fn cli_target_2_a_foreign_partial_file_is_kept() {
        let esker = filled();
        esker.write("x.tsv", "old");
        esker.write("x.tsv.partial", "mine");
        assert!(esker.fails("export x.tsv").contains("x.tsv.partial exists"));
        assert_eq!(
            (esker.read("x.tsv"), esker.read("x.tsv.partial")),
            (b"old".to_vec(), b"mine".to_vec()),
            "cli_target.2"
        );
    }

    #[test]
    fn the_mode_of_a_file_is_kept() {
        let esker = filled();
        for mode in [0o600, 0o640, 0o666] {
            esker.write("x.tsv", "old");
            fs::set_permissions(esker.path("x.tsv"), fs::Permissions::from_mode(mode)).unwrap();
            esker.ok("export x.tsv");
            assert_eq!(fs::metadata(esker.path("x.tsv")).unwrap().mode() & 0o777, mode);
            assert_eq!(esker.read("x.tsv"), ROWS);
        }
    }

    #[test]
    fn an_export_is_no_more_open_than_its_database() {
        let esker = filled();
        fs::set_permissions(esker.path("db"), fs::Permissions::from_mode(0o700)).unwrap();
        esker.ok("export x.tsv");
        assert_eq!(fs::metadata(esker.path("x.tsv")).unwrap().mode() & 0o777, 0o600);
    }

    /// Runs where the test may change the group of a file.
    #[test]
    fn what_was_the_groups_is_not_another_groups() {
        let esker = filled();
        esker.write("x.tsv", "old");
        fs::set_permissions(esker.path("x.tsv"), fs::Permissions::from_mode(0o640)).unwrap();
        let group = fs::metadata(esker.path("x.tsv")).unwrap().gid();
        if chown(esker.path("x.tsv"), None, Some(group + 1_234)).is_err() {
            return;
        }
        esker.ok("export x.tsv");
        let meta = fs::metadata(esker.path("x.tsv")).unwrap();
        assert_eq!((meta.gid(), meta.mode() & 0o777), (group, 0o600));
    }
}

#[test]
fn word_lists_and_foreign_tables() {
    let esker = Esker::new();
    esker.write("words", "pear\napple\r\nfig\n");
    assert!(esker.fails("import words").contains("--format"));
    esker.ok("import --format words words");
    assert_eq!(esker.ok("scan"), "apple\t\nfig\t\npear\t\n");

    esker.write("t.csv", "id,mail,name\n1,a@x,\"Ann, S\"\n2,b@x,Bob\n");
    esker.ok("import -k csv t.csv --key mail --value name");
    assert_eq!(esker.ok("scan -k csv"), "a@x\tAnn, S\nb@x\tBob\n");
    esker.write("e.jsonl", "{\"id\":7,\"x\":[1]}\n");
    esker.ok("import -k json e.jsonl --key id");
    assert_eq!(esker.ok("get -k json 7"), "{\"id\":7,\"x\":[1]}\n");
    // The two numbers must not be rounded to one.
    let line = |digits: &str| format!("{{\"id\": {digits}, \"v\": {{\"b\": 1.10,\"a\":1e400}}}}\n");
    esker.write("n.jsonl", line("18446744073709551616") + &line("18446744073709551617"));
    esker.ok("import -k numbers n.jsonl --key id --value v");
    assert_eq!(esker.ok("count -k numbers"), "2\n");
    assert_eq!(esker.ok("get -k numbers 18446744073709551617"), "{\"b\": 1.10,\"a\":1e400}\n");
    esker.ok("import -k raw --format words --bytes raw words");
    assert_eq!(esker.ok("get -k raw -e apple\\r"), "\n");
}

#[test]
fn sorted_rows_are_imported_at_once_and_unsorted_ones_not_at_all() {
    let esker = Esker::new();
    esker.ok("put apple old");
    esker.write("sorted.tsv", "ant\t1\napple\t2\nbee\t3\n");
    assert!(esker.ok("import sorted.tsv --sorted").starts_with("imported 3 rows, 2 new keys, in "));
    assert_eq!(esker.ok("scan"), "ant\t1\napple\t2\nbee\t3\n");
    esker.ok("export all.jsonl");
    assert!(esker.ok("import all.jsonl --sorted -k copy").starts_with("imported 3 rows, 3 new keys, in "));

    for (rows, line) in [("b\t1\n\nbad\na\t2\nc\t3\n", 4), ("a\t1\na\t2\n", 2)] {
        esker.write("unsorted.tsv", rows);
        let message = esker.fails("import unsorted.tsv --sorted --skip-bad -k none");
        let place = format!("unsorted.tsv:{line}: the keys of an ingest ascend");
        assert!(message.contains(&place) && message.contains("LC_ALL=C sort"), "{message}");
        assert!(message.contains("0 rows of earlier batches"), "{message}");
        assert!(esker.fails("count -k none").contains("no keyspace `none`"));
    }
    esker.write("mixed.tsv", "b\t1\nbad\nc\t3\n");
    assert!(esker.ok("import mixed.tsv --sorted --skip-bad -k some").contains("imported 2 rows"));
    esker.write("other.jsonl", r#"{"key":"a","value":"1","keyspace":"other"}"#.to_owned() + "\n");
    assert!(esker.fails("import other.jsonl --sorted").contains("--sorted imports all rows into `default`"));
    assert!(esker.fails("import sorted.tsv --sorted --batch 5").contains("cannot be used with"));
}

#[test]
fn bad_lines_stop_or_are_skipped() {
    let esker = Esker::new();
    esker.write("bad.tsv", "a\t1\nb\t2\nword\nc\t\\q\nd\t4\n");
    let message = esker.fails("import bad.tsv --batch 2");
    assert!(message.contains("bad.tsv:3: no tab"), "{message}");
    assert!(message.contains("2 rows of earlier batches") && message.contains("--skip-bad"), "{message}");
    assert_eq!(esker.ok("count"), "2\n");

    let outcome = esker.run(["import", "bad.tsv", "--skip-bad"]);
    assert_eq!(outcome.code, 0);
    assert!(outcome.text().contains("imported 3 rows") && outcome.text().contains("2 bad lines skipped"));
    assert!(
        outcome.err.contains("bad.tsv:3: no tab") && outcome.err.contains("bad.tsv:4: value"),
        "{}",
        outcome.err
    );
    assert_eq!(esker.ok("count"), "3\n");

    let all_or_nothing = esker.run(["import", "bad.tsv", "-k", "none", "--batch", "0"]);
    assert_eq!(all_or_nothing.code, 2);
    assert!(esker.fails("count -k none").contains("no keyspace `none`"));

    // A key takes at most four bytes per byte: this line is too long for a word list, and import does not
    // read all of it.
    esker.write("binary.txt", format!("ok\n{}\nfine\n", "\0".repeat(1 << 20)));
    let message = esker.fails("import binary.txt");
    assert!(message.contains("binary.txt:2: the line is longer than 262140 bytes"), "L1: {message}");
    assert!(esker.ok("import binary.txt --skip-bad").contains("imported 2 rows"), "L1");

    esker.write("long.txt", format!("ok\n{}\n", "k".repeat(65_536)));
    assert!(esker.fails("import long.txt").contains("long.txt:2: key of 65536 bytes"));
    let json = esker.ok("import long.txt --skip-bad --json");
    assert!(json.contains("\"bad_lines\":1") && json.contains("\"rows\":1"), "{json}");
}

#[test]
fn a_last_line_without_its_end_is_imported_with_a_note() {
    let esker = Esker::new();
    let cut = [("tsv", "a\t1\nb\t23"), ("csv", "key,value\na,1\nb,23"), ("words", "a\nb23")];
    for (format, text) in cut {
        esker.write("file", text);
        for (n, (input, skips)) in
            [("-", false), ("-", true), ("/dev/stdin", false), ("file", false)].into_iter().enumerate()
        {
            if input == "/dev/stdin" && !cfg!(target_os = "linux") {
                continue;
            }
            let keyspace = format!("{format}{n}");
            let import = ["import", "--format", format, "--durability", "none", "-k", &keyspace, input];
            let skip_bad = skips.then_some("--skip-bad");
            let done = esker.run_with(text.as_bytes(), import.into_iter().chain(skip_bad));
            let is_whole = done.code == 0 && done.text().contains("imported 2 rows, 2 new keys, ");
            assert!(is_whole && done.err.contains("may have been cut"), "{format} {input}: {}", done.err);
        }
        let whole = ["import", "--format", format, "--durability", "none", "-k", format, "-"];
        let whole = esker.run_with(format!("{text}\n").as_bytes(), whole);
        assert!(whole.code == 0 && !whole.err.contains("cut"), "{format}: {}", whole.err);
    }
    // A truncated object is a bad line.
    let json = esker.run_with(b"{\"key\":\"a\",\"value\":\"1\"}", ["import", "--format", "jsonl", "-"]);
    assert_eq!(json.code, 0, "{}", json.err);
}

/// The input fails after some rows, like a connection that is reset.
#[cfg(target_os = "linux")]
#[test]
fn a_read_error_says_what_is_in() {
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    let esker = Esker::new();
    let (mut ours, mut theirs) = UnixStream::pair().expect("a connection");
    theirs.write_all(b"not read").expect("there is room");
    ours.write_all(b"a\t1\nb\t2\nc\t3\n").expect("there is room");
    // Closing with unread data resets the connection: the program reads the rows, then an error.
    drop(ours);
    let output = esker.command("import --batch 2").stdin(OwnedFd::from(theirs)).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("read standard input: ") && said.contains("; 2 rows of earlier batches"), "{said}");
    assert_eq!(esker.ok("scan"), "a\t1\nb\t2\n");
}

/// The database may not grow further.
#[cfg(target_os = "linux")]
#[test]
fn a_failed_commit_says_what_is_in() {
    let esker = Esker::new();
    let rows: String = (0..4_000).map(|number| format!("key{number:04}\t{}\n", "v".repeat(1_000))).collect();
    esker.write("rows.tsv", rows);
    let said = esker.fails_within(1024, "import rows.tsv --batch 100");
    let (_, rest) = said.split_once("import stopped; ").expect("the rest of the message");
    let rows: u64 = rest.split(' ').next().expect("a number").replace(',', "").parse().expect("a number");
    let found: u64 = esker.ok("count").trim().parse().expect("a number");
    assert!(rows > 0 && rows < 4_000 && (rows == found || rows + 100 == found), "{found} found: {said}");
}

/// The log can no longer be written while commits do not wait for the disk: committed rows may be lost.
#[cfg(target_os = "linux")]
#[test]
fn rows_that_may_be_lost_are_not_said_to_be_in() {
    use std::io::Write;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

    let rows = |from: u32| (from..from + 100).map(|n| format!("key{n:03}\tvalue\n")).collect::<String>();
    for (durability, end) in [("none", ""), ("buffered", ""), ("none", "bad\n")] {
        let esker = Esker::new();
        let script = format!("trap '' XFSZ; exec \"$ESKER\" import --batch 100 --durability {durability}");
        let mut child = Command::new("sh")
            .args(["-c", &script])
            .env("ESKER", env!("CARGO_BIN_EXE_esker"))
            .env("ESKER_DB", "db")
            .current_dir(esker.path("."))
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        let mut input = child.stdin.take().expect("it is piped");
        input.write_all(rows(0).as_bytes()).expect("it reads");
        let (log, start) = (esker.path("db/000001.wal"), Instant::now());
        while !log.exists() {
            assert!(start.elapsed().as_secs() < 300, "the first rows are committed");
            std::thread::sleep(Duration::from_millis(2));
        }
        // From here on the process cannot write beyond the first bytes of any file.
        let limit = Rlimit { current: Some(512), ..getrlimit(Resource::Fsize) };
        prlimit(Some(Pid::from_child(&child)), Resource::Fsize, limit).expect("it is our child");
        // The process may already have stopped because of the limit.
        let _ignored = input.write_all((rows(100) + end).as_bytes());
        drop(input);
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains(" rows had been committed; how many of the last ones are on disk is not known"),
            "{durability}: {said}"
        );
        assert!(said.contains("closing the database: ") && !said.contains("in the database"), "{said}");
        let found: u64 = esker.ok("count").trim().parse().expect("a number");
        assert!(found < 200, "{durability}: {found} rows are there: {said}");
    }
}

#[test]
fn a_keyspace_that_cannot_be_created_stops_the_import() {
    let esker = Esker::new();
    let outcome = esker.run_with(b"a\t1\n", ["import", "-k", ""]);
    assert_eq!(outcome.code, 2, "{}", outcome.err);
    assert!(outcome.err.contains("import stopped; 0 rows"), "{}", outcome.err);
}

#[test]
fn missing_files_create_nothing() {
    let esker = Esker::new();
    assert!(esker.fails("import gone.tsv").contains("gone.tsv"));
    std::fs::create_dir(esker.path("folder.tsv")).unwrap();
    assert!(esker.fails("import folder.tsv").contains("is a directory"));
    esker.write("t.csv", "a,b\n1,2\n");
    assert!(esker.fails("import t.csv --key c").contains("the header names: a, b"));
    assert!(!esker.path("db").exists());
}
