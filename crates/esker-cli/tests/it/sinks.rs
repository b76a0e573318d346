//! Tests `esker feed --to`: what arrives, and that nothing is lost when either side is killed.
#![expect(clippy::disallowed_methods, reason = "the tests are receivers of a program")]

#[cfg(feature = "http")]
mod http;
#[cfg(all(feature = "kafka", feature = "server"))]
mod kafka;
#[cfg(feature = "server")]
mod live;
#[cfg(all(feature = "nats", feature = "server"))]
mod nats;

use crate::common::Esker;

/// Returns a directory with a feed and a few changes.
fn fed() -> Esker {
    let esker = Esker::new();
    esker.ok("put ann 1");
    esker.ok("feed --keep 100000000");
    for line in ["put bob 2", "put -k users carl 3", "del --prefix a"] {
        esker.ok(line);
    }
    esker
}

/// Returns a port that was free a moment ago.
#[cfg(all(feature = "server", any(feature = "kafka", feature = "nats")))]
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").port()
}

/// Returns a member of each line.
fn members<'a>(lines: &'a str, name: &str) -> Vec<&'a str> {
    let begin = format!("\"{name}\":");
    let member = |line: &'a str| {
        let rest = &line[line.find(&begin)? + begin.len()..];
        Some(rest[..rest.find([',', '}'])?].trim_matches('"'))
    };
    lines.lines().filter_map(member).collect()
}

#[test]
fn a_directory_is_sent_once_and_goes_on() {
    let esker = fed();
    assert!(esker.ok("feed --to jsonl:all").starts_with("sent "));
    let all = String::from_utf8(esker.read("all")).unwrap();
    assert_eq!(members(&all, "what").join(" "), "put put named put removed-range", "{all}");
    assert_eq!(members(&all, "keyspace").join(" "), "default default users users default", "{all}");
    assert_eq!(esker.ok("feed --to jsonl:-"), all);
    assert!(esker.ok("feed --to jsonl:all").starts_with("sent 0 changes"));
    esker.ok("put dora 4 --ttl 100");
    // What a kill leaves of a line is removed.
    esker.write("all", format!("{all}{{\"commit\":"));
    assert!(esker.ok("feed --to jsonl:all --json").starts_with("{\"position\":"));
    let more = String::from_utf8(esker.read("all")).unwrap();
    let last = more.strip_prefix(&all).unwrap();
    assert!(
        last.contains("\"key\":\"dora\",\"value\":\"4\",\"expires_ms\":") && last.lines().count() == 1,
        "{last}"
    );
    let users = esker.ok("feed -k users --to jsonl:- --bytes hex");
    assert_eq!(members(&users, "key_hex"), ["6361726c"], "{users}");
}

#[test]
fn files_are_rotated_and_none_is_replaced() {
    let esker = fed();
    for n in 0..4 {
        esker.ok(&format!("put key {n}"));
        esker.ok("feed --to jsonl:all --set rotate=1 --batch 1");
    }
    let mut names: Vec<_> =
        std::fs::read_dir(esker.path("")).unwrap().flatten().map(|e| e.file_name()).collect();
    names.retain(|name| name.to_string_lossy().starts_with("all."));
    names.retain(|name| !name.to_string_lossy().contains("position"));
    names.sort();
    // A file is rotated before the next batch of the same process, so a run leaves its last one.
    assert!(names.len() >= 3, "{names:?}");
    let mut lines: String =
        names.iter().map(|name| String::from_utf8(esker.read(name.to_str().unwrap())).unwrap()).collect();
    lines.push_str(std::str::from_utf8(&esker.read("all")).unwrap());
    assert_eq!(lines, esker.ok("feed --to jsonl:-"));
}

#[test]
fn what_would_lose_changes_is_refused() {
    let esker = fed();
    esker.write("mine", "my file");
    assert!(esker.fails("feed --to jsonl:mine").contains("mine exists"));
    assert!(esker.fails("feed --to jsonl:mine").contains("mine exists"), "a failed run stores no position");
    assert_eq!(esker.read("mine"), b"my file");
    esker.ok("feed --to jsonl:all");
    let position = String::from_utf8(esker.read("all.position")).unwrap();
    let (before, commit) = position.trim_end().trim_end_matches(['"', '}']).rsplit_once(':').unwrap();
    // A position ahead of the database, as after a restored copy.
    esker.write("all.position", format!("{before}:{}\"}}", commit.parse::<u64>().unwrap() + 1000));
    assert!(esker.fails("feed --to jsonl:all").contains("read all data again"));
    // One of another database.
    esker.write("all.position", "{\"esker_feed\":1,\"position\":\"00000000:1\"}");
    assert!(esker.fails("feed --to jsonl:all").contains("is not a position of this database"));
    esker.write("all.position", "{}");
    assert!(esker.fails("feed --to jsonl:all").contains("is not a position"));
    assert_eq!(esker.read("all.position"), b"{}");
    esker.write("all.position", position);
    esker.ok("feed --keep 0");
    assert!(esker.fails("feed --to jsonl:all").contains("esker feed --keep"));
    for (line, part) in [
        ("--to file:x", "sinks are"),
        ("--to jsonl:x --set rotate=no", "a number of bytes"),
        ("--to jsonl:x --set size=1", "no setting `size`"),
        ("--to http://127.0.0.1:1/", "--position FILE"),
        ("--to jsonl:x --bytes raw", "--bytes hex"),
        ("--to jsonl:db", "no regular file"),
    ] {
        let said = esker.fails(&format!("feed {line}"));
        assert!(said.contains(part), "{line}: {said}");
    }
    #[cfg(not(feature = "kafka"))]
    assert!(esker.fails("feed --to kafka://h:1/t --position p").contains("--features kafka"));
    #[cfg(not(feature = "nats"))]
    assert!(esker.fails("feed --to nats://h:1/s --position p").contains("--features nats"));
}
