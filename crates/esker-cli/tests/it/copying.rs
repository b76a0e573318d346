//! `esker copy` between directories, and what it and `esker serve --store` refuse. Other stores have tests in
//! `cargo xtask stores`.

use crate::common::Esker;

#[test]
fn a_copy_goes_on_and_reports_what_differs() {
    let esker = Esker::new();
    let rows: String = (0..5_000).map(|number| format!("key{number:05}\t{number}\n")).collect();
    assert_eq!(esker.run_with(rows.as_bytes(), ["import"]).code, 0);
    esker.ok("put -k users ann 1");
    let said = esker.run(["copy", "db", "other"]);
    assert!(
        said.err.contains("default: 5,000 entries") && said.err.contains("(5000 written"),
        "{}",
        said.err
    );
    assert_eq!((said.code, esker.ok("scan -d other")), (0, rows));
    assert_eq!(esker.ok("get -d other -k users ann"), "1\n");
    // What has changed since then is brought over.
    esker.ok("put key00007 new");
    let said = esker.run(["copy", "db", "other"]);
    assert!(said.err.contains("(1 written, 4999 were the same)"), "{}", said.err);
    esker.ok("put -d other only there");
    let compared = esker.run(["copy", "db", "other", "--compare"]);
    assert!(compared.code == 1 && compared.err.contains("1 key is only in TO"), "{}", compared.err);
    assert_eq!(esker.run(["copy", "db", "other", "-k", "users"]).code, 0);
    assert_eq!(esker.run(["copy", "db", "other"]).code, 1);
    assert_eq!(esker.run(["copy", "db", "other", "--remove"]).code, 0);
    assert_eq!(esker.run(["copy", "db", "other", "--compare"]).code, 0);
    esker.ok("put -k users ann 2");
    let compared = esker.run(["copy", "db", "other", "--compare"]);
    assert!(compared.code == 1 && compared.err.contains("1 key differs in TO or is not there: copy"));
    esker.ok("put -d other -k more a b");
    for arguments in [&["copy", "db", "other"][..], &["copy", "db", "other", "--compare"]] {
        let said = esker.run(arguments);
        assert!(said.code == 1 && said.err.contains("more: only in TO, 1 key"), "{}", said.err);
    }
    assert_eq!(esker.run(["copy", "db", "other", "-k", "users", "--compare"]).code, 0);
    // A comparison writes nothing.
    assert!(esker.fails("copy db third --compare").contains("no database"));
    let compared = esker.run(["copy", "other", "db", "--compare"]);
    assert!(compared.code == 1 && compared.err.contains("more: 1 entry in FROM, 1 missing"));
    assert!(!esker.ok("keyspaces list").contains("more"));
}

#[test]
fn what_a_copy_would_lose_is_refused() {
    let esker = Esker::new();
    esker.ok("put ann 1 --ttl 3600");
    let said = esker.fails("copy db other");
    assert!(said.contains("--drop-ttl"), "{said}");
    assert_eq!(esker.run(["copy", "db", "other", "--drop-ttl"]).code, 0);
    assert_eq!(esker.ok("get -d other ann"), "1\n");
    assert!(esker.fails("copy nothing other").contains("no database"));
    assert!(esker.fails("copy db other -k nothing").contains("no keyspace `nothing`"));
    for line in ["copy db slatedb:/x", "copy postgres:/x db"] {
        assert!(esker.fails(line).contains("two slashes"), "{line}");
    }
    for url in ["mysql://me:secret@host/db", "postgres://me:secret@127.0.0.1:1/db"] {
        for line in [format!("copy db {url}"), format!("serve --store {url} --port 0")] {
            let mut command = esker.command(&line);
            let done = command.env_remove("ESKER_DB").output().unwrap();
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(done.status.code() == Some(2) && !said.contains("secret"), "{line}: {said}");
        }
    }
}
