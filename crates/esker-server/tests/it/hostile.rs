//! Malformed and hostile bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::harness::TestServer;
use crate::wire::encode;

#[test]
fn random_bytes_end_a_connection_at_worst() {
    let server = TestServer::start();
    let mut random = fastrand::Rng::with_seed(11);
    let text =
        "SET get ZADD LPUSH EXEC MULTI XADD GETRANGE INCRBY SETBIT LRANGE ZRANGE XRANGE SCAN BITCOUNT EXPIRE";
    let commands: Vec<_> = text.split(' ').map(str::as_bytes).collect();
    let words: [&[u8]; 8] = [b"-1", b"k", b"99999999999", b"\0\xff", b"*", b"SET", b"1", b"("];
    for _ in 0..300 {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        let mut bytes = Vec::new();
        for _ in 0..random.usize(1..8) {
            let count = random.usize(1..6);
            let mut chosen: Vec<_> = (0..count).map(|_| words[random.usize(0..words.len())]).collect();
            if random.u8(0..8) > 0 {
                chosen[0] = commands[random.usize(0..commands.len())];
            }
            bytes.extend(encode(&chosen));
            if random.u8(0..4) == 0 {
                let at = random.usize(0..bytes.len());
                bytes[at] = random.u8(..);
            }
        }
        stream.write_all(&bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        // The server replies and closes the connection, whatever the bytes are.
        let mut replies = Vec::new();
        if let Err(error) = stream.read_to_end(&mut replies) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{}", bytes.escape_ascii());
        }
        let replies = String::from_utf8_lossy(&replies);
        assert!(!replies.contains("internal error"), "{} {replies}", bytes.escape_ascii());
    }
    assert_eq!(server.wire().say("PING"), "+PONG");
}

#[test]
fn a_protocol_error_is_replied_and_ends_the_connection() {
    let server = TestServer::start();
    let mut wire = server.wire();
    wire.send_bytes(b"*1\r\n$4\r\nPING\r\n*1\r\n!4\r\n");
    assert_eq!(format!("{:?}", wire.reply()), "+PONG");
    assert_eq!(format!("{:?}", wire.reply()), "-ERR Protocol error: expected '$', got '!'");
    assert!(wire.try_reply().is_none());
}

#[test]
fn deep_pipelines_and_large_values_come_through() {
    let server = TestServer::start();
    let mut wire = server.wire();
    let mut bytes = Vec::new();
    for n in 0..5000 {
        bytes.extend(encode(&["SET".to_owned(), format!("k{}", n % 100), n.to_string()]));
        bytes.extend(encode(&["GET".to_owned(), format!("k{}", n % 100)]));
    }
    bytes.extend(b"PING inline\r\n");
    let mut writer = wire.stream.get_ref().try_clone().unwrap();
    let thread = std::thread::spawn(move || writer.write_all(&bytes).unwrap());
    for n in 0..5000 {
        assert_eq!(format!("{:?}", wire.reply()), "+OK");
        assert_eq!(format!("{:?}", wire.reply()), format!("\"{n}\""));
    }
    assert_eq!(format!("{:?}", wire.reply()), "\"inline\"");
    thread.join().unwrap();
    let large = vec![b'x'; 3 << 20];
    assert_eq!(format!("{:?}", wire.call(&[b"SET".as_slice(), b"large", &large])), "+OK");
    assert_eq!(wire.say("STRLEN large"), format!(":{}", large.len()));
    assert!(format!("{:?}", wire.call(&[b"SET".as_slice(), &vec![b'k'; 70_000], b"v"])).starts_with("-ERR"));
}

#[test]
fn connections_are_limited() {
    let server = TestServer::start();
    let mut wire = server.wire();
    assert_eq!(wire.say("CONFIG SET maxclients 2"), "+OK");
    let mut second = server.wire();
    assert_eq!(second.say("PING"), "+PONG");
    let mut third = server.wire();
    assert_eq!(format!("{:?}", third.reply()), "-ERR max number of clients reached");
    assert_eq!(wire.say("CLIENT KILL TYPE normal"), ":1");
    assert!(second.try_reply().is_none());
}

#[test]
fn a_count_of_random_members_takes_no_more_than_the_reply_may() {
    let server = TestServer::start();
    let mut wire = server.wire();
    wire.say("SADD s a");
    wire.say("ZADD z 1 a");
    wire.say("HSET h a b");
    for count in ["-1000000000000000", "-4611686018427387904", "-9223372036854775807", "-200000000"] {
        for command in ["SRANDMEMBER s", "ZRANDMEMBER z", "HRANDFIELD h"] {
            let reply = wire.say(&format!("{command} {count}"));
            assert_eq!(
                reply, "-ERR the reply is larger than 1 GiB: ask for less at a time",
                "{command} {count}"
            );
        }
    }
    for (command, all) in
        [("SRANDMEMBER s", "*[\"a\"]"), ("ZRANDMEMBER z", "*[\"a\"]"), ("HRANDFIELD h", "*[\"a\"]")]
    {
        assert_eq!(wire.say(&format!("{command} 9223372036854775807")), all);
        assert!(
            wire.say(&format!("{command} -9223372036854775808")).starts_with("-ERR value is out of range")
        );
    }
    assert_eq!(wire.say("HRANDFIELD h -2 WITHVALUES"), "*[\"a\", \"b\", \"a\", \"b\"]");
    assert_eq!(wire.say("ZRANDMEMBER z -2 WITHSCORES"), "*[\"a\", \"1\", \"a\", \"1\"]");
}

#[test]
fn a_reply_that_is_too_large_is_an_error() {
    let server = TestServer::start();
    let mut wire = server.wire();
    wire.call(&[b"SET".as_slice(), b"k", &vec![b'x'; 100 << 20]]);
    let error = "-ERR the reply is larger than 1 GiB: ask for less at a time";
    assert_eq!(wire.say(&format!("MGET{}", " k".repeat(11))), error);
    wire.say(&format!("RPUSH l{}", " k".repeat(11)));
    assert_eq!(wire.say("SORT l BY nosort GET *"), error);
    assert_eq!(wire.say("STRLEN k"), format!(":{}", 100 << 20));
}

#[test]
fn lines_of_http_end_the_connection() {
    let server = TestServer::start();
    for head in ["POST / HTTP/1.1\r\n", "GET k\r\nHost: localhost\r\n", "post x\r\n"] {
        let mut wire = server.wire();
        wire.send_bytes(format!("{head}SET k v\r\n").as_bytes());
        let mut last = String::new();
        while let Some(reply) = wire.try_reply() {
            last = format!("{reply:?}");
        }
        assert_eq!(last, "-ERR Protocol error: a request of HTTP", "{head}");
        assert_eq!(server.wire().say("EXISTS k"), ":0");
    }
    assert!(server.wire().say("HOSTS x").starts_with("-ERR unknown command"));
}
