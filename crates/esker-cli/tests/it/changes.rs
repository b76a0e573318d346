//! Tests merge operators and the change feed by running the program.

use crate::common::Esker;

#[test]
fn numbers_are_merged_and_printed() {
    let esker = Esker::new();
    esker.ok("put ann 1");
    esker.ok("keyspaces create counts");
    assert_eq!(esker.ok("keyspaces operator counts"), "none\n");
    assert!(esker.fails("merge -k counts visits 1 --as i64").contains("keyspaces operator counts"));
    esker.ok("keyspaces operator counts add-i64");
    assert_eq!(esker.ok("keyspaces operator counts"), "add-i64\n");
    assert!(esker.fails("keyspaces operator counts append").contains("add-i64"));
    esker.ok("put -k counts --as i64 visits 40");
    esker.ok("merge -k counts --as i64 visits 5");
    esker.ok("merge -k counts --as i64 visits -3");
    assert_eq!(esker.ok("get -k counts --as i64 visits"), "42\n");
    assert!(esker.fails("merge -k counts visits 5").contains("1 bytes instead of 8"));
    assert!(esker.fails("merge -k counts --as u64 visits -1").contains("not a number of type u64"));
    assert!(esker.fails("get --as i64 ann").contains("omit --as i64"));
}

#[test]
fn the_feed_tells_what_commits_have_changed() {
    let esker = Esker::new();
    esker.ok("put ann 1");
    assert!(esker.fails("feed").contains("esker feed --keep BYTES"));
    esker.ok("feed --keep 1000000");
    let end = |text: &str| -> u64 {
        let last = text.lines().last().unwrap();
        last.strip_suffix("\tend").unwrap().parse().unwrap()
    };
    esker.ok("put ann 2");
    let first = end(&esker.ok("feed"));
    let ahead = esker.fails("feed --since 999999");
    assert!(ahead.contains("999999") && !ahead.contains("--keep"), "{ahead}");
    for line in ["keyspaces create counts", "keyspaces operator counts add-i64"] {
        esker.ok(line);
    }
    let made = end(&esker.ok("feed"));
    for line in ["merge -k counts --as u64 visits 1", "del ann", "put x1 y", "del --prefix x"] {
        esker.ok(line);
    }
    let [merged, removed, put, range] = [1, 2, 3, 4].map(|n| made + n);
    let number = "\\x01\\0\\0\\0\\0\\0\\0\\0";
    let all = esker.ok(&format!("feed --since {made}"));
    let expected = format!(
        "{merged}\tmerge\tcounts\tvisits\t{number}\n{removed}\tremoved\tdefault\tann\n{put}\tput\tdefault\tx1\ty\n\
         {range}\tremoved-range\tdefault\tx\ty\n{range}\tend\n"
    );
    assert_eq!(all, expected);
    assert_eq!(esker.ok(&format!("feed -k counts --since {made} --limit 2")), {
        format!("{merged}\tmerge\tcounts\tvisits\t{number}\n{removed}\tend\n")
    });
    assert!(esker.ok("feed").contains(&format!("{first}\tput\tdefault\tann\t2\n")));
    assert!(esker.ok("feed").contains("\tnamed\tcounts\t"));
    let json = format!(
        "{{\"commit\":{put},\"key\":\"x1\",\"keyspace\":\"default\",\"value\":\"y\",\"what\":\"put\"}}\n"
    );
    assert!(esker.ok(&format!("feed --json --since {made}")).contains(&json));
    esker.ok("feed --keep 0");
    assert!(esker.fails("feed").contains("--keep"));
}
