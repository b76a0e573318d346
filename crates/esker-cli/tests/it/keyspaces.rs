//! Tests `esker keyspaces` by running the program.

use crate::common::Esker;

#[test]
fn keyspaces_come_and_go() {
    let esker = Esker::new();
    assert!(esker.fails("keyspaces create a").contains("no database in db"));
    esker.ok("put ann 1");
    assert_eq!(esker.ok("keyspaces create users"), "");
    assert!(esker.fails("keyspaces create users").contains("exists already"));
    esker.ok("put -k users bob 2");
    assert_eq!(esker.ok("keyspaces list"), "default\t1\nusers\t1\n");
    esker.ok("keyspaces rename users people");
    assert!(esker.fails("keyspaces rename users people").contains("no keyspace `users`"));
    let json = "{\"entries\":1,\"keyspace\":\"default\"}\n{\"entries\":1,\"keyspace\":\"people\"}\n";
    assert_eq!(esker.ok("keyspaces list --json"), json);
    esker.ok("keyspaces clear default --yes");
    assert_eq!(esker.ok("count"), "0\n");
    // Standard input is not a terminal, so there is no confirmation.
    esker.ok("keyspaces drop people");
    assert_eq!(esker.ok("keyspaces list"), "default\t0\n");
    assert!(esker.fails("keyspaces drop people").contains("no keyspace `people`"));
    assert!(esker.fails("keyspaces drop default").contains("cleared"));
}

#[test]
fn a_copy_holds_the_same_and_replaces_nothing() {
    let esker = Esker::new();
    let rows: String = (0..25_000).map(|number| format!("key{number:05}\t{number}\n")).collect();
    assert_eq!(esker.run_with(rows.as_bytes(), ["import"]).code, 0);
    assert!(esker.ok("keyspaces copy default copy").starts_with("copied 25,000 rows in "));
    assert_eq!(esker.ok("scan -k copy"), rows);
    for (from, to) in [("default", "copy"), ("copy", "copy")] {
        let said = esker.fails(&format!("keyspaces copy {from} {to}"));
        assert!(said.contains("`copy` exists and is not empty"), "{said}");
    }
    esker.ok("keyspaces create empty");
    assert!(esker.ok("keyspaces copy copy empty --json").contains("\"rows\":25000"));
    assert!(esker.fails("keyspaces copy nothing new").contains("no keyspace `nothing`"));
    assert_eq!(esker.ok("keyspaces list"), "copy\t25000\ndefault\t25000\nempty\t25000\n");
}

#[test]
fn a_copy_has_lives_and_options() {
    let esker = Esker::new();
    esker.ok("put --ttl 3600 brief 1");
    esker.ok("put long 2");
    esker.ok("keyspaces operator default append");
    esker.ok("keyspaces history default --versions 3");
    esker.ok("merge long 3");
    let said = esker.ok("keyspaces copy default two");
    assert!(said.contains("its history is not copied"), "{said}");
    let seconds: f64 = esker.ok("-k two ttl brief").trim().parse().unwrap();
    assert!(seconds > 3500.0, "{seconds}");
    assert_eq!(esker.ok("-k two ttl long"), "unlimited\n");
    esker.ok("-k two merge long 4");
    assert_eq!(esker.ok("-k two get long"), "234\n");
    assert_eq!(esker.ok("keyspaces history two"), esker.ok("keyspaces history default"));
}

#[test]
fn json_lines_keep_when_rows_expire_and_other_formats_say_that_they_do_not() {
    let esker = Esker::new();
    esker.ok("put --ttl 3600 brief 1");
    esker.ok("put long 2");
    esker.ok("export all.jsonl");
    esker.ok("-k back import all.jsonl");
    let seconds: f64 = esker.ok("-k back ttl brief").trim().parse().unwrap();
    assert!(seconds > 3500.0 && esker.ok("-k back ttl long") == "unlimited\n", "{seconds}");
    let tsv = esker.run(["export", "all.tsv"]);
    assert!(tsv.code == 0 && tsv.err.contains("1 of the rows expire"), "{}", tsv.err);
    esker.write("bad.jsonl", "{\"key\":\"a\",\"value\":\"1\",\"expires_ms\":\"soon\"}\n");
    assert!(esker.fails("import bad.jsonl").contains("milliseconds since 1970"));
    esker.ok("-k other import bad.jsonl --key key --value value");
    assert!(esker.fails("-k sorted import all.jsonl --sorted").contains("omit --sorted"));
}

/// The database may not grow further.
#[cfg(target_os = "linux")]
#[test]
fn a_copy_that_fails_says_what_is_there() {
    let esker = Esker::new();
    let mut random = fastrand::Rng::with_seed(5);
    let mut value = || (0..100).map(|_| random.alphanumeric()).collect::<String>();
    let rows: String = (0..30_000).map(|number| format!("key{number:05}\t{}\n", value())).collect();
    assert_eq!(esker.run_with(rows.as_bytes(), ["import"]).code, 0);
    let said = esker.fails_within(1024, "keyspaces copy default copy");
    let is_there = esker.ok("keyspaces list").contains("copy\t");
    assert!(!is_there || said.contains("`copy` may hold a part"), "{said}");
}
