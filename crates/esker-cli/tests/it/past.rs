//! Tests the history of keyspaces by running the program.

use crate::common::Esker;

#[test]
fn a_keyspace_with_history_is_read_as_it_was() {
    let esker = Esker::new();
    esker.ok("put ann 1");
    assert_eq!(esker.ok("keyspaces history default"), "none\n");
    esker.ok("keyspaces history default --versions 3");
    assert_eq!(esker.ok("keyspaces history default"), "versions 3\n");
    let number = || -> u64 {
        let stats: serde_json::Value = serde_json::from_str(&esker.ok("stats --json")).unwrap();
        stats["seqno"].as_u64().unwrap()
    };
    let first = number();
    for line in ["put bob x", "put ann 2", "del bob", "put cid 3", "put x1 4", "del --prefix x"] {
        esker.ok(line);
    }
    let last = number();
    assert_eq!(
        (esker.ok(&format!("get --at {first} ann")), esker.ok("get ann")),
        ("1\n".into(), "2\n".into())
    );
    assert_eq!(esker.ok(&format!("scan --at {first}")), "ann\t1\n");
    assert_eq!(esker.run(["get", "--at", &first.to_string(), "bob"]).code, 1);
    let [bob, ann, gone, cid] = [1, 2, 3, 4].map(|n| first + n);
    assert_eq!(esker.ok("versions bob"), format!("{gone}\tremoved\n{bob}\tput\tx\n"));
    let json = format!("{{\"commit\":{ann},\"value\":\"2\",\"what\":\"put\"}}\n");
    assert_eq!(esker.ok("versions ann --json --limit 1"), json);
    assert_eq!(esker.run(["versions", "nina"]).code, 1);
    let since = format!("{gone}\tremoved\tbob\n{cid}\tput\tcid\t3\n{last}\tend\n");
    assert_eq!(esker.ok(&format!("scan --since {ann} --from b --to d")), since);
    assert!(esker.ok(&format!("scan --since {ann}")).starts_with(&format!("{last}\tremoved-range\tx\ty\n")));
    assert_eq!(esker.ok(&format!("scan --since {last}")), format!("{last}\tend\n"));
    let said = esker.fails(&format!("get --at {} ann", first - 2));
    assert!(said.contains("keeps nothing older"), "{said}");
    assert!(esker.fails(&format!("scan --at {}", last + 9)).contains("there is no commit"));
    esker.ok("keyspaces history default --for 7d");
    assert_eq!(esker.ok("keyspaces history default"), "for 7d\n");
    assert_eq!(esker.ok("keyspaces limit default"), "none\n");
    esker.ok("keyspaces limit default --size 1000000 --age 7d");
    assert_eq!(esker.ok("keyspaces limit default"), "bytes 1000000\nage 7d\n");
    assert!(esker.ok("info").contains(", at most 1000000 bytes"));
    esker.ok("keyspaces limit default --none");
    assert_eq!(
        esker.ok("keyspaces limit default --json"),
        "{\"age_seconds\":null,\"bytes\":null,\"keyspace\":\"default\"}\n"
    );
    esker.ok("keyspaces history default --none");
    assert!(esker.fails(&format!("scan --at {first}")).contains("keeps nothing"));
}
