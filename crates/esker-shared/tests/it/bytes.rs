//! Bad bytes on the socket end their connection, and harm nothing else (protocol.1).

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use esker_shared::{Error, Shared};

/// What a guest of this version says first.
fn greeting(lane: u8) -> Vec<u8> {
    [&b"ESKERSHR"[..], &4_u32.to_le_bytes(), &[lane; 16]].concat()
}

/// Sends bytes, reads what comes until the connection ends, and returns it.
fn send(path: &std::path::Path, bytes: &[u8], shuts: bool) -> Vec<u8> {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // The host may have closed the connection already.
    let _ = stream.write_all(bytes);
    if shuts {
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }
    let mut read = Vec::new();
    match stream.read_to_end(&mut read) {
        Err(e) if e.kind() != std::io::ErrorKind::ConnectionReset => panic!("the host keeps it open: {e}"),
        _ => read,
    }
}

#[test]
fn bad_bytes_end_their_connection_only() {
    let dir = tempfile::tempdir().unwrap();
    let (host, guest) = (Shared::open(dir.path()).unwrap(), Shared::open(dir.path()).unwrap());
    let ks = guest.keyspace("k").unwrap();
    ks.put("a", "1").unwrap();
    let path = dir.path().join("SOCKET");
    let frame = |len: u64, bytes: &[u8]| [&greeting(9)[..], &len.to_le_bytes(), bytes].concat();
    let mut rng = fastrand::Rng::with_seed(1);
    let garbage: Vec<u8> = (0..1000).map(|_| rng.u8(..)).collect();
    let other = [&b"ESKERSHR"[..], &7_u32.to_le_bytes()].concat();
    assert_eq!(send(&path, &[&other[..], &[1; 16]].concat(), false)[8..], 4_u32.to_le_bytes(), "its version");
    send(&path, &garbage, false);
    for (bytes, shuts) in [
        (frame(u64::MAX, b""), false),
        (frame(5 << 30, b"x"), false),
        (frame(1 << 31, b"cut off"), true),
        (frame(3, &[255, 255, 255]), false),
        (frame(0, b""), false),
        (frame(garbage.len() as u64, &garbage), false),
        (greeting(9)[..20].to_vec(), true),
        (greeting(9), true),
        (b"".to_vec(), true),
    ] {
        send(&path, &bytes, shuts);
        assert_eq!(guest.keyspace("k").unwrap().get("a").unwrap().as_deref(), Some(&b"1"[..]));
    }
    // Requests with bits turned over. Those that are still requests are run: one may remove a key.
    let request = [&[6, 0, 1, 1][..], b"a"].concat();
    for at in 0..request.len() * 8 {
        let mut bytes = request.clone();
        bytes[at / 8] ^= 1 << (at % 8);
        send(&path, &frame(bytes.len() as u64, &bytes), true);
    }
    assert_eq!(ks.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    // Two connections cannot have one lane.
    let mut first = UnixStream::connect(&path).unwrap();
    first.write_all(&greeting(5)).unwrap();
    first.read_exact(&mut [0; 12]).unwrap();
    assert_eq!(send(&path, &greeting(5), false), b"", "lanes.2");
    drop(host);
}

/// Opens a directory in which something else answers on the socket, and reads a key there.
fn read_beside(answer: &'static [u8]) -> Error {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("SOCKET")).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                stream.write_all(answer).unwrap();
                // Until the guest ends it.
                let _ = stream.read_to_end(&mut Vec::new());
            });
        }
    });
    let opened = Shared::builder().wait(Duration::from_secs(1)).open(dir.path());
    opened.and_then(|shared| shared.keyspace("k")).unwrap_err()
}

#[test]
fn hosts_of_another_version_or_without_an_answer_are_errors() {
    let other = read_beside(b"ESKERSHR\x05\0\0\0and more");
    assert!(matches!(other, Error::Version { theirs: 5, ours: 4, .. }), "{other:?}");
    let silent = read_beside(b"ESKER");
    assert!(matches!(silent, Error::NoHost { .. }), "{silent:?}");
    let garbage = read_beside(b"HTTP/1.1 400 Bad Request");
    assert!(matches!(garbage, Error::Db(esker::Error::Io { .. })), "{garbage:?}");
    // Replies that are none, or too long, or cut off.
    for reply in [&b"\x02\0\0\0\0\0\0\0\xff\xff"[..], b"\xff\xff\xff\xff\xff\xff\xff\xff"] {
        let answer = [b"ESKERSHR\x04\0\0\0", reply].concat().leak();
        let garbage = read_beside(answer);
        assert!(matches!(garbage, Error::Db(esker::Error::Io { .. })), "{garbage:?}");
    }
    let cut = read_beside(b"ESKERSHR\x04\0\0\0\x09");
    assert!(matches!(cut, Error::NoHost { .. }), "{cut:?}");
}
