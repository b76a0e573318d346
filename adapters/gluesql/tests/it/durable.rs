//! What survives a power loss, several connections, and indexes that agree with their tables.

use std::sync::Arc;

use esker::Db;
use esker::env::{Env, MemFs};
use esker_gluesql::EskerStorage;
use gluesql_core::prelude::{Glue, Payload, Value};

fn open(fs: &MemFs) -> (Db, Glue<EskerStorage>) {
    let env = Env::with_fs(Arc::new(fs.clone()));
    let db = Db::builder().memory(16 << 20).env(env).open("/db").unwrap();
    let glue = Glue::new(EskerStorage::open(&db, "sql").unwrap());
    (db, glue)
}

fn power_loss(fs: &MemFs) -> Vec<MemFs> {
    let random = (0..6).map(|seed| fs.crash(seed));
    [fs.crash_strict(), fs.kill(), fs.crash_keep_all()].into_iter().chain(random).collect()
}

fn run(glue: &mut Glue<EskerStorage>, sql: &str) {
    glue.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Returns the numbers of a query's first column.
fn numbers(glue: &mut Glue<EskerStorage>, sql: &str) -> Vec<i64> {
    let Some(Payload::Select { rows, .. }) = glue.execute(sql).unwrap().pop() else { panic!("{sql}") };
    let number = |row: &Vec<Value>| if let Value::I64(n) = row[0] { n } else { panic!("{row:?}") };
    rows.iter().map(number).collect()
}

#[test]
fn statements_survive_power_loss_once_they_return() {
    let fs = MemFs::new();
    let (db, mut glue) = open(&fs);
    run(&mut glue, "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER); CREATE INDEX by_n ON t (n);");
    for id in 1..=10 {
        run(&mut glue, &format!("INSERT INTO t VALUES ({id}, {});", 100 - id));
        for image in power_loss(&fs) {
            let (_db, mut glue) = open(&image);
            assert_eq!(numbers(&mut glue, "SELECT id FROM t WHERE n > 0;").len(), id);
            assert_eq!(numbers(&mut glue, "SELECT id FROM t;").len(), id);
        }
    }
    run(&mut glue, "BEGIN; DELETE FROM t WHERE id > 5; UPDATE t SET n = 7 WHERE id = 1;");
    for image in power_loss(&fs) {
        assert_eq!(numbers(&mut open(&image).1, "SELECT id FROM t;").len(), 10);
    }
    run(&mut glue, "COMMIT;");
    for image in power_loss(&fs) {
        let (db, mut glue) = open(&image);
        assert_eq!(numbers(&mut glue, "SELECT id FROM t WHERE n < 1000;"), [1, 5, 4, 3, 2]);
        assert_eq!(numbers(&mut glue, "SELECT id FROM t;"), [1, 2, 3, 4, 5]);
        assert_eq!(db.keyspace("sql/indexes").unwrap().len().unwrap(), 5);
    }
    run(&mut glue, "ALTER TABLE t RENAME TO renamed; ALTER TABLE renamed ADD COLUMN m INTEGER DEFAULT 3;");
    for image in power_loss(&fs) {
        let (db, mut glue) = open(&image);
        assert_eq!(numbers(&mut glue, "SELECT m FROM renamed WHERE n = 7;"), [3]);
        assert_eq!(db.keyspace("sql/indexes").unwrap().len().unwrap(), 5);
    }
    run(&mut glue, "DROP TABLE renamed;");
    for keyspace in ["schemas", "rows", "indexes"] {
        assert!(db.keyspace(&format!("sql/{keyspace}")).unwrap().is_empty().unwrap(), "{keyspace}");
    }
    db.check().unwrap();
}

#[test]
fn a_failed_statement_changes_nothing() {
    let (_db, mut glue) = open(&MemFs::new());
    run(&mut glue, "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER UNIQUE);");
    run(&mut glue, "INSERT INTO t VALUES (1, 1);");
    glue.execute("INSERT INTO t VALUES (2, 2), (3, 1);").unwrap_err();
    assert_eq!(numbers(&mut glue, "SELECT id FROM t;"), [1]);
    assert!(glue.execute("COMMIT;").is_err() && glue.execute("ROLLBACK;").is_err());
    run(&mut glue, "BEGIN;");
    assert!(glue.execute("BEGIN;").is_err());
    run(&mut glue, "INSERT INTO t VALUES (4, 4); COMMIT;");
    assert_eq!(numbers(&mut glue, "SELECT id FROM t;"), [1, 4]);
}

#[test]
fn connections_are_isolated_and_conflicts_are_reported() {
    let (_db, mut one) = open(&MemFs::new());
    let mut two = Glue::new(one.storage.connect());
    run(&mut one, "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO t VALUES (1, 0);");
    run(&mut one, "BEGIN; UPDATE t SET n = n + 1;");
    assert_eq!(numbers(&mut two, "SELECT n FROM t;"), [0]);
    run(&mut two, "UPDATE t SET n = n + 10;");
    let error = one.execute("COMMIT;").unwrap_err().to_string();
    assert!(error.contains("transaction conflict"), "{error}");
    assert_eq!(numbers(&mut one, "SELECT n FROM t;"), [10]);
}

#[test]
fn threads_with_connections_lose_no_update() {
    let (db, mut glue) = open(&MemFs::new());
    run(&mut glue, "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO t VALUES (1, 0);");
    run(&mut glue, "CREATE INDEX by_n ON t (n);");
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let storage = glue.storage.connect();
            std::thread::spawn(move || {
                let mut glue = Glue::new(storage);
                for _ in 0..25 {
                    while let Err(error) = glue.execute("UPDATE t SET n = n + 1;") {
                        assert!(error.to_string().contains("transaction conflict"), "{error}");
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(numbers(&mut glue, "SELECT n FROM t WHERE n = 100;"), [100]);
    assert_eq!(db.keyspace("sql/indexes").unwrap().len().unwrap(), 1);
}

#[test]
fn damaged_rows_are_errors() {
    let (db, mut glue) = open(&MemFs::new());
    run(&mut glue, "CREATE TABLE t (id INTEGER); INSERT INTO t VALUES (1);");
    let rows = db.keyspace("sql/rows").unwrap();
    let (key, _) = rows.first().unwrap().unwrap();
    rows.put(key, "not a row").unwrap();
    glue.execute("SELECT * FROM t;").unwrap_err();
    db.drop_keyspace("sql/rows").unwrap();
    let error = glue.execute("SELECT * FROM t;").unwrap_err().to_string();
    assert!(error.contains("no keyspace named"), "{error}");
}
