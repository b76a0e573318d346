//! Import and export from the outside: every format there and back, bad lines, missing files.
#![expect(clippy::disallowed_methods, reason = "tests of a program look at its files from outside")]

mod common;

use common::Esker;

/// Entries with bytes of every kind, in TSV.
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
    assert!(esker.ok("import in.tsv").starts_with("imported 2,000 rows in "));
    let all = esker.ok("scan");
    for (number, name) in ["a.tsv", "a.csv", "a.jsonl"].into_iter().enumerate() {
        for bytes in ["", " --bytes hex"] {
            assert!(esker.ok(&format!("export {name}{bytes}")).starts_with("exported 2,000 rows, "));
            let copy = format!("copy{number}{}", bytes.len());
            esker.ok(&format!("import {name}{bytes} -k {copy} --batch 300"));
            assert_eq!(esker.ok(&format!("scan -k {copy}")), all, "C2: {name}{bytes}");
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
fn export_takes_ranges_and_leaves_no_halves() {
    let esker = Esker::new();
    esker.run_with(b"a\t1\nb\t2\nc\t3\n", ["import"]);
    assert_eq!(esker.ok("export --from b --to c"), "b\t2\n");
    assert_eq!(esker.ok("export --format csv --prefix c"), "key,value\nc,3\n");
    assert_eq!(esker.ok("export --format csv --prefix c --header no"), "\"c\",\"3\"\n");
    assert_eq!(esker.ok("export --from c --to b"), "");
    esker.run(["put", "d\\te", "4"]);
    assert!(esker.fails("export x.tsv --bytes raw").contains("--bytes escaped"));
    assert!(!esker.path("x.tsv").exists() && !esker.path("x.tsv.partial").exists(), "E1");
    assert!(esker.fails("export nowhere/x.tsv").contains("nowhere"));
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
    esker.ok("import -k raw --format words --bytes raw words");
    assert_eq!(esker.ok("get -k raw apple\\r"), "\n");
}

#[test]
fn bad_lines_stop_or_are_skipped() {
    let esker = Esker::new();
    esker.write("bad.tsv", "a\t1\nb\t2\nword\nc\t\\q\nd\t4\n");
    let message = esker.fails("import bad.tsv --batch 2");
    assert!(message.contains("bad.tsv:3: no tab"), "{message}");
    assert!(message.contains("2 rows of the batches before") && message.contains("--skip-bad"), "{message}");
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
    assert_eq!(esker.ok("count -k none"), "0\n");

    esker.write("long.txt", format!("ok\n{}\n", "k".repeat(65_536)));
    assert!(esker.fails("import long.txt").contains("long.txt:2: key of 65536 bytes"));
    let json = esker.ok("import long.txt --skip-bad --json");
    assert!(json.contains("\"bad_lines\":1") && json.contains("\"rows\":1"), "{json}");
}

#[test]
fn i1_missing_files_create_nothing() {
    let esker = Esker::new();
    assert!(esker.fails("import gone.tsv").contains("gone.tsv"));
    std::fs::create_dir(esker.path("folder.tsv")).unwrap();
    assert!(esker.fails("import folder.tsv").contains("is a directory"));
    esker.write("t.csv", "a,b\n1,2\n");
    assert!(esker.fails("import t.csv --key c").contains("the header names: a, b"));
    assert!(!esker.path("db").exists(), "I1");
}
