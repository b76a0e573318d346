//! Tests `esker import` and `esker export` with snapshots of Redis, and with a source that plays Redis.
#![expect(clippy::disallowed_methods, reason = "a thread plays a server")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::common::Esker;
use crate::serving::Server;

/// Written by Redis 7.0.15, with small limits of listpacks: all types, a library, databases 0 and 3.
const SNAPSHOT: &[u8] = include_bytes!("../goldens/redis-7.0.rdb");
const MARK: &str = "0123456789abcdef0123456789abcdef01234567";

/// What the snapshot has, as replies of a server.
const KEYS: &[(&str, &str)] = &[
    ("DBSIZE", ":13"),
    ("GET int", "$5 12345"),
    ("STRLEN packed", ":80"),
    ("PEXPIRETIME later", ":4000000000000"),
    ("LRANGE list 0 2", "*3 $1 1 $3 two $2 -3"),
    ("LLEN list", ":5"),
    ("SMEMBERS set", "*2 $1 a $1 b"),
    ("SISMEMBER ints -2", ":1"),
    ("ZRANGE zset 0 -1 WITHSCORES", "*4 $1 b $2 -2 $1 a $3 1.5"),
    ("ZRANGEBYSCORE zbig 1e299 +inf", "*2 $1 b $1 a"),
    ("HGET hash n", "$1 7"),
    ("HMGET hbig a d", "*2 $1 1 $1 4"),
    ("XLEN stream", ":3"),
    ("XDEL stream 3-1", ":1"),
    ("SELECT 3", "+OK"),
    ("GET other", "$3 db3"),
    ("SELECT 0", "+OK"),
];

fn expect(server: &mut Server, lines: &[(&str, &str)]) {
    for (line, reply) in lines {
        assert_eq!(server.say(line), *reply, "{line}");
    }
}

#[test]
fn a_snapshot_is_imported() {
    let esker = Esker::new();
    esker.write("dump.rdb", SNAPSHOT);
    let mut server = Server::start(&esker, "serve --port 0");
    let import = format!("import dump.rdb --server {}", server.address);
    let said = esker.ok(&import);
    assert!(said.starts_with("imported 14 keys, 1 library of functions"), "{said}");
    expect(&mut server, KEYS);
    let said = esker.fails(&import);
    assert!(said.contains("database 0 has keys") && said.contains("--replace"), "{said}");
    let said =
        esker.run_with(SNAPSHOT, format!("import --server {} --replace --json", server.address).split(' '));
    assert!(said.code == 0 && said.text().contains("\"keys\":14"), "{said:?}");
    for (file, bytes, problem) in [
        ("cut.rdb", &SNAPSHOT[..SNAPSHOT.len() - 20], "the input ends at offset 635"),
        ("other.rdb", b"no snapshot", "this is no snapshot of Redis"),
        ("new.rdb", b"REDIS0099xx", "version 99"),
    ] {
        esker.write(file, bytes);
        let said = esker.fails(&format!("import {file} --server {} --replace", server.address));
        assert!(said.contains(problem) && said.contains("import again"), "{said}");
    }
    let mut damaged = SNAPSHOT.to_vec();
    damaged[100] ^= 1;
    esker.write("damaged.rdb", damaged);
    esker.fails(&format!("import damaged.rdb --server {} --replace", server.address));
    assert!(esker.fails("import dump.rdb").contains("--server"));
    assert!(esker.fails(&format!("{import} --skip-bad")).contains("options of rows"));
    assert_eq!(server.say("CONFIG GET import-mode"), "*2 $11 import-mode $2 no");
}

/// Replies to a replica up to `PSYNC`, and to that with `reply`. Returns the connection and the words of
/// `PSYNC`.
fn accept(listener: &TcpListener, reply: &[u8]) -> (BufReader<TcpStream>, Vec<String>) {
    let (stream, _) = listener.accept().expect("a replica");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a limit");
    let mut stream = BufReader::new(stream);
    loop {
        let words = command(&mut stream);
        match words[0].as_str() {
            "PSYNC" => {
                stream.get_mut().write_all(reply).expect("reply");
                return (stream, words);
            }
            "INFO" => stream.get_mut().write_all(b"$24\r\nmaster_repl_offset:1000\r\n\r\n").expect("reply"),
            _ => stream.get_mut().write_all(b"+OK\r\n").expect("reply"),
        }
    }
}

/// Reads a command.
fn command(stream: &mut BufReader<TcpStream>) -> Vec<String> {
    let mut line = || {
        let mut line = String::new();
        stream.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    };
    let count: usize = line()[1..].parse().expect("a number of words");
    (0..count).map(|_| (line(), line()).1).collect()
}

/// Reads acknowledgements up to one of this offset.
fn acknowledged(stream: &mut BufReader<TcpStream>, offset: usize) {
    while command(stream) != ["REPLCONF", "ACK", &offset.to_string()] {}
}

fn encoded(lines: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        words
            .iter()
            .for_each(|word| bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes()));
    }
    bytes
}

/// Sends a snapshot and half of a stream, loses the connection in the midst of a transaction, goes on with
/// the rest, and waits for the last acknowledgement.
fn play(listener: TcpListener) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let stream = encoded(&[
            "SELECT 0",
            "SET a 1",
            "PING",
            "MULTI",
            "INCR a",
            "PEXPIREAT a 4000000000000",
            "EXEC",
            "SELECT 3",
            "DEL other",
            "REPLCONF GETACK *",
            "XCLAIM t g c 0 1-1 TIME 5 RETRYCOUNT 1 FORCE JUSTID LASTID 1-1",
        ]);
        let prepare = encoded(&["SELECT 3", "XADD t 1-1 f v", "XGROUP CREATE t g 0"]);
        let stream = [prepare, stream].concat();
        let head = format!("+FULLRESYNC abc 1000\r\n\n\n$EOF:{MARK}\r\n");
        let (mut first, words) = accept(&listener, head.as_bytes());
        assert_eq!(words[1..], ["?", "-1"]);
        for piece in [&SNAPSHOT[..300], &SNAPSHOT[300..], &MARK.as_bytes()[..7], &MARK.as_bytes()[7..]] {
            first.get_mut().write_all(piece).expect("send");
        }
        acknowledged(&mut first, 1000);
        let cut = stream.len() / 2;
        first.get_mut().write_all(&stream[..cut]).expect("send");
        std::thread::sleep(Duration::from_millis(300));
        drop(first);
        let (mut second, words) = accept(&listener, b"+CONTINUE def\r\n");
        assert_eq!(words[1..], ["abc", &(1001 + cut).to_string()]);
        second.get_mut().write_all(&stream[cut..]).expect("send");
        acknowledged(&mut second, 1000 + stream.len());
        // Another history: all begins again, and the connection stays until the replica ends.
        drop(second);
        let counted = [format!("+FULLRESYNC ghi 5\r\n${}\r\n", SNAPSHOT.len()).as_bytes(), SNAPSHOT].concat();
        let (mut third, words) = accept(&listener, &counted);
        assert_eq!(words[1..], ["def", &(1001 + stream.len()).to_string()]);
        acknowledged(&mut third, 5);
        let restore =
            b"*4\r\n$7\r\nRESTORE\r\n$1\r\nr\r\n$1\r\n0\r\n$14\r\n\0\x02hi\x0a\0\0\0\0\0\0\0\0\0\r\n";
        third.get_mut().write_all(&[&encoded(&["SELECT 0"]), &restore[..]].concat()).expect("send");
        third.get_mut().write_all(&encoded(&["SET b 2", "NOSUCH key"])).expect("send");
        let _ended = third.read_to_end(&mut Vec::new());
    })
}

#[test]
fn a_source_is_followed_through_lost_connections() {
    let esker = Esker::new();
    let mut server = Server::start(&esker, "serve --port 0");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let source = listener.local_addr().expect("an address").to_string();
    let player = play(listener);
    let begun = Instant::now();
    let outcome = esker.run(format!("import --redis {source} --server {}", server.address).split(' '));
    player.join().expect("the source");
    let said = &outcome.err;
    assert_eq!(outcome.code, 2, "{outcome:?}");
    assert!(said.contains("the stream goes on at") && said.contains("starting again"), "{said}");
    assert!(
        said.contains("refuses NOSUCH 'key': ERR unknown command") && said.contains("--replace"),
        "{said}"
    );
    assert!(begun.elapsed() < Duration::from_secs(60));
    // The new snapshot has replaced what came before.
    expect(&mut server, &[("GET a", "$-1"), ("GET b", "$1 2"), ("GET r", "$2 hi"), ("EXISTS list", ":1")]);
    expect(&mut server, &[("SELECT 3", "+OK"), ("GET other", "$3 db3"), ("EXISTS t", ":0")]);
}

#[test]
fn a_source_that_restarts_at_offset_0_is_loaded_again() {
    let esker = Esker::new();
    let mut server = Server::start(&esker, "serve --port 0");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let source = listener.local_addr().expect("an address").to_string();
    let player = std::thread::spawn(move || {
        for id in ["abc", "def"] {
            let head = format!("+FULLRESYNC {id} 0\r\n${}\r\n", SNAPSHOT.len());
            let (mut stream, _) = accept(&listener, &[head.as_bytes(), SNAPSHOT].concat());
            acknowledged(&mut stream, 0);
            if id == "def" {
                stream.get_mut().write_all(&encoded(&["NOSUCH key"])).expect("send");
                let _ended = stream.read_to_end(&mut Vec::new());
            }
        }
    });
    let said = esker.fails(&format!("import --redis {source} --server {}", server.address));
    player.join().expect("the source");
    assert!(said.contains("starting again") && said.contains("refuses NOSUCH 'key'"), "{said}");
    expect(&mut server, KEYS);
}

#[test]
fn a_source_that_refuses_is_named() {
    let esker = Esker::new();
    let server = Server::start(&esker, "serve --port 0");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let source = listener.local_addr().expect("an address").to_string();
    let refusing = std::thread::spawn(move || accept(&listener, b"-NOPERM no rights\r\n"));
    let said = esker.fails(&format!("import --redis {source} --server {}", server.address));
    assert!(said.contains("PSYNC refused: NOPERM no rights"), "{said}");
    drop(refusing.join());
    for (line, problem) in [
        ("import --redis x:1", "--server"),
        (&format!("import x.rdb --redis x:1 --server {}", server.address), "not both"),
        (&format!("import --redis x:1 --redis-user ann --server {}", server.address), "needs a password"),
        (&format!("export x.csv --redis x:1 --server {}", server.address), "without a file"),
    ] {
        assert!(esker.fails(line).contains(problem), "{line}");
    }
}

#[test]
fn keys_go_from_server_to_server() {
    let esker = Esker::new();
    esker.write("dump.rdb", SNAPSHOT);
    let source = Server::start(&esker, "serve --port 0");
    let mut target = Server::start(&esker, "-d other serve --port 0");
    esker.ok(&format!("import dump.rdb --server {}", source.address));
    let said = esker.ok(&format!("export --server {} --redis {}", source.address, target.address));
    assert!(said.starts_with("exported 14 keys"), "{said}");
    expect(&mut target, KEYS);
    let said = target.say("FCALL f 0");
    assert!(cfg!(not(feature = "lua")) || said == ":42", "{said}");
    // The entry 2-1 is deleted, and still pending. The reply has lists inside, so it is the last one.
    assert_eq!(target.say("XPENDING stream g"), "*4 :2 $3 1-1 $3 2-1 *1");
    assert!(
        esker
            .fails(&format!("export --server {} --redis {}", source.address, target.address))
            .contains("has keys")
    );
}
