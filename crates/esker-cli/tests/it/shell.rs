//! Tests `esker shell` with scripts.

use crate::common::{Esker, Outcome};

fn shell(esker: &Esker, script: &str) -> Outcome {
    esker.run_with(script.as_bytes(), ["shell"])
}

fn filled() -> Esker {
    let esker = Esker::new();
    esker.ok("put ann 1");
    esker.ok("put bob 2");
    esker.ok("put -k users apple 3");
    esker
}

#[test]
fn the_commands_are_those_of_the_tool() {
    let esker = filled();
    let script = "\
# a comment

get ann
put 'two words' \"it's\"
put C:\\new -1
scan
.count
prefix an
first --json
last
keyspaces
use users
scan --keys-only
get -k default bob
del apple
count
exit
nonsense
";
    let outcome = shell(&esker, script);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let expected = "1\nC:\\\\new\t-1\nann\t1\nbob\t2\ntwo words\tit's\n4\nann\t1\n{\"key\":\"C:\\\\new\",\"value\":\"-1\"}\n\
                    two words\tit's\ndefault\t4\nusers\t1\napple\n2\n0\n";
    assert_eq!((outcome.text(), outcome.err.as_str()), (expected, ""));
    for line in
        ["stats", "info", "compact", "check", "help", ".help", "help scan", "keyspaces list", "scan --help"]
    {
        let outcome = shell(&esker, line);
        assert!(
            outcome.code == 0 && outcome.err.is_empty() && !outcome.out.is_empty(),
            "{line}: {outcome:?}"
        );
    }
    assert!(shell(&esker, "help").text().contains("begin"));
}

#[test]
fn a_keyspace_that_goes_is_left() {
    let esker = filled();
    let script = "use users\nkeyspaces rename users people\ncount\nkeyspaces drop people\ncount\nkeyspaces\n";
    let outcome = shell(&esker, script);
    assert_eq!((outcome.code, outcome.text()), (0, "1\n2\ndefault\t2\n"), "{outcome:?}");
}

#[test]
fn a_script_stops_at_a_failure() {
    let esker = filled();
    for (line, said) in [
        ("nonsense", "line 2: unrecognized subcommand"),
        ("get", "line 2: the following required"),
        ("put c", "line 2: put KEY VALUE"),
        ("get 'a", "line 2: the quote ' is not closed"),
        ("use nothing", "line 2: no keyspace `nothing`"),
        ("commit", "line 2: there is no transaction"),
        ("rollback", "line 2: there is no transaction"),
        ("begin\nbegin", "line 3: a transaction is open"),
        ("begin\nkeyspaces copy users x", "line 3: a transaction cannot copy a keyspace"),
        ("begin\nkeyspaces drop users\nput -k users a 1\nkeyspaces create users", "line 5: "),
    ] {
        let outcome = shell(&esker, &format!("put ann 1\n{line}\nput after 1\n"));
        assert!(outcome.code == 2 && outcome.err.contains(said), "{line}: {outcome:?}");
        assert_eq!(esker.run(["get", "after"]).code, 1, "{line}");
    }
    // A key that is not found is not a failure.
    let outcome = shell(&esker, "get nina\nput after 1\n");
    assert_eq!(outcome.code, 1, "{outcome:?}");
    assert_eq!(esker.ok("get after"), "1\n");
}

#[test]
fn a_transaction_changes_keyspaces_or_does_not() {
    let esker = filled();
    let changes = "begin\nkeyspaces create new\nput -k new a 1\nput -k more a 1\nkeyspaces clear default\nput c 3\n\
                   keyspaces rename users people\nuse people\nput pear 4\nkeyspaces create short\nkeyspaces drop short\n\
                   keyspaces\n";
    let seen = "default\t1\nmore\t1\nnew\t1\npeople\t2\n";
    let before = esker.ok("keyspaces list");
    let rolled_back = shell(&esker, &format!("{changes}info\nrollback\nkeyspaces\ncount\n"));
    assert_eq!(rolled_back.code, 0, "{rolled_back:?}");
    let text = rolled_back.text();
    assert!(text.starts_with(seen) && text.ends_with(&format!("{before}2\n")), "{rolled_back:?}");
    assert!(rolled_back.err.contains("working in the keyspace `default` again"), "{rolled_back:?}");
    assert_eq!(esker.ok("keyspaces list"), before);
    for change in ["drop users", "rename users other", "create x\nuse x"] {
        let outcome = shell(
            &esker,
            &format!("use users\nbegin\nkeyspaces {change}\nrollback\nget -k users pear\ncount\n"),
        );
        assert_eq!((outcome.code, outcome.text()), (1, "1\n"), "{change}: {outcome:?}");
        assert!(outcome.err.contains("working in the keyspace `users` again"), "{change}: {outcome:?}");
    }
    let committed = shell(&esker, &format!("{changes}commit\nkeyspaces\ncount\n"));
    assert_eq!((committed.code, committed.text()), (0, &*format!("{seen}{seen}2\n")), "{committed:?}");
}

#[test]
fn a_transaction_is_all_or_nothing() {
    let esker = filled();
    let script = "begin\nput c 3\ndel ann\ndel --prefix b\nput -k users pear 4\nget c\nget -k users pear\ncount\nscan\n";
    let open = shell(&esker, script);
    assert_eq!((open.code, open.text()), (1, "3\n4\n1\nc\t3\n"), "{open:?}");
    assert!(open.err.contains("rolled back"), "{}", open.err);
    let rolled_back = shell(&esker, &format!("{script}rollback\nscan\n"));
    assert_eq!(
        (rolled_back.code, rolled_back.text()),
        (0, "3\n4\n1\nc\t3\nann\t1\nbob\t2\n"),
        "{rolled_back:?}"
    );
    let failed = shell(&esker, &format!("{script}nonsense\ncommit\n"));
    assert_eq!((failed.code, esker.ok("count")), (2, "2\n".to_owned()), "{failed:?}");
    let committed = shell(&esker, &format!("{script}commit\n"));
    assert_eq!(committed.code, 0, "{committed:?}");
    assert_eq!(esker.ok("scan -k default -k users"), "default\tc\t3\nusers\tapple\t3\nusers\tpear\t4\n");
}

#[test]
fn a_savepoint_undoes_a_part() {
    let esker = filled();
    let script = "begin\nput c 3\nsavepoint one\ndel ann\nsavepoint two\nkeyspaces create new\nuse new\nput d 4\n\
                  rollback two\ncount -k default\nrollback one\ncount\nput e 5\nrollback one\ncount\ncommit\nscan\n";
    let outcome = shell(&esker, script);
    let expected = "2\n3\n3\nann\t1\nbob\t2\nc\t3\n";
    assert_eq!((outcome.code, outcome.text()), (0, expected), "{outcome:?}");
    assert!(outcome.err.contains("working in the keyspace `default` again"), "{outcome:?}");
    assert_eq!(esker.ok("keyspaces list"), "default\t3\nusers\t1\n");
    // The newest of a name counts. A savepoint ends with its transaction, and by a return to an older one.
    let again = "begin\nsavepoint a\nput x 1\nsavepoint a\nput x 2\nrollback a\nget x\n";
    assert_eq!(shell(&esker, again).text(), "1\n");
    for (line, said) in [
        ("savepoint a", "line 1: there is no transaction"),
        ("rollback a", "line 1: there is no transaction"),
        ("begin\nrollback a", "line 2: the transaction has no savepoint `a`"),
        ("begin\nsavepoint a\nrollback\nbegin\nrollback a", "line 5: the transaction has no savepoint `a`"),
        (
            "begin\nsavepoint a\nsavepoint b\nrollback a\nrollback b",
            "line 5: the transaction has no savepoint",
        ),
    ] {
        let outcome = shell(&esker, line);
        assert!(outcome.code == 2 && outcome.err.contains(said), "{line}: {outcome:?}");
    }
}

#[test]
fn lifetimes_and_the_feed_are_shown() {
    let esker = filled();
    esker.ok("feed --keep 1000000");
    let outcome = shell(&esker, "put x 1 --ttl 100\nttl ann\nttl x\nbegin\ndel ann\nttl ann\nrollback\n");
    let lines: Vec<&str> = outcome.text().lines().collect();
    assert_eq!((outcome.code, lines.len(), lines[0]), (1, 2, "unlimited"), "{outcome:?}");
    let left: f64 = lines[1].parse().unwrap();
    assert!(left > 90.0 && left <= 100.0, "{left}");
    let feed = shell(&esker, "put y 2\nfeed\n");
    assert!(feed.code == 0 && feed.text().contains("\tput\tdefault\ty\t2\n"), "{feed:?}");
    let kept = shell(&esker, "feed --keep 10\n");
    assert!(kept.code == 2 && kept.err.contains("leave the shell"), "{kept:?}");
}

#[test]
fn a_database_in_use_is_read() {
    let esker = filled();
    let db = esker::Db::open(esker.path("db")).unwrap();
    let outcome = shell(&esker, "count\n");
    assert_eq!((outcome.code, outcome.text()), (0, "2\n"), "{outcome:?}");
    assert!(outcome.err.contains(&format!("process {}", std::process::id())), "{outcome:?}");
    db.close().unwrap();
    assert!(esker.fails("-k nothing shell").contains("no keyspace `nothing`"));
    assert!(Esker::new().fails("shell").contains("no database in db"));
}
