//! A receiver of requests that fails in all ways.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::fed;
#[cfg(feature = "server")]
use super::live::Counting;

/// What the receiver does with a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    Take,
    /// Takes it, and closes the connection without an answer.
    TakeSilently,
    /// Closes the connection before it has read the request.
    Close,
    Answer(&'static str),
}

/// Requests: their heads, and the bodies that were taken.
#[derive(Default)]
struct Received {
    heads: Vec<String>,
    bodies: Vec<String>,
}

/// Serves requests, one after the other. The n-th is dealt with by `act`.
fn receive(act: impl Fn(usize) -> Act + Send + 'static) -> (String, Arc<Mutex<Received>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/changes", listener.local_addr().unwrap());
    let received = Arc::new(Mutex::new(Received::default()));
    let shared = received.clone();
    std::thread::spawn(move || {
        let mut n = 0;
        for stream in listener.incoming().flatten() {
            let mut stream = BufReader::new(stream);
            while let Some(answer) = serve(&mut stream, act(n), &shared) {
                n += 1;
                if stream.get_mut().write_all(answer.as_bytes()).is_err() {
                    break;
                }
            }
            n += 1;
        }
    });
    (url, received)
}

/// Reads a request. Returns the answer, or `None` to close the connection.
fn serve(stream: &mut BufReader<TcpStream>, act: Act, received: &Mutex<Received>) -> Option<String> {
    if act == Act::Close {
        return None;
    }
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let lower = head.to_ascii_lowercase();
    let len = lower.split("content-length: ").nth(1)?.split("\r\n").next()?.parse().ok()?;
    let mut body = vec![0; len];
    stream.read_exact(&mut body).ok()?;
    let mut received = received.lock().unwrap();
    received.heads.push(lower);
    if matches!(act, Act::Take | Act::TakeSilently) {
        received.bodies.push(String::from_utf8(body).unwrap());
    }
    match act {
        Act::Take => Some("HTTP/1.1 204 No Content\r\n\r\n".to_owned()),
        Act::Answer(status) => Some(format!("HTTP/1.1 {status}\r\nContent-Length: 8\r\n\r\nthe why\n")),
        _ => None,
    }
}

fn key_of(head: &str) -> &str {
    head.split("idempotency-key: ").nth(1).unwrap().split("\r\n").next().unwrap()
}

#[test]
fn a_failed_request_is_repeated_with_its_key() {
    let esker = fed();
    let acts = [Act::Answer("503 Busy"), Act::Close, Act::TakeSilently, Act::Answer("429 Slow"), Act::Take];
    let (url, received) = receive(move |n| acts.get(n).copied().unwrap_or(Act::Take));
    esker.write("settings", "# secret\nheader = Authorization: Bearer x\n");
    let said = esker.ok(&format!("feed --to {url} --position p --settings settings"));
    assert!(said.starts_with("sent 5 changes"), "{said}");
    let received = received.lock().unwrap();
    let [repeated, taken] = &received.bodies[..] else { panic!("{:?}", received.bodies) };
    assert_eq!((repeated, taken), (&esker.ok("feed --to jsonl:-"), repeated));
    let head = &received.heads[0];
    assert!(head.starts_with("post /changes http/1.1") && head.contains("authorization: bearer x"), "{head}");
    assert!(received.heads.iter().all(|other| key_of(other) == key_of(head)));
}

#[test]
fn a_refusal_stops_with_the_answer() {
    let esker = fed();
    let (url, received) = receive(|n| if n == 1 { Act::Answer("422 Wrong") } else { Act::Take });
    let line = format!("feed --to {url} --position p --batch 1");
    let said = esker.fails(&line);
    assert!(said.contains("422 Unprocessable") || said.contains("422 Wrong"), "{said}");
    assert!(said.contains("the why"), "{said}");
    assert!(esker.ok(&line).starts_with("sent "));
    let received = received.lock().unwrap();
    assert_eq!(received.bodies.concat(), esker.ok("feed --to jsonl:-"), "the refused batch came again");
}

#[cfg(feature = "server")]
#[test]
fn kills_and_failures_leave_no_gap() {
    let mut counting = Counting::new();
    let acts = [Act::Take, Act::Answer("500 No"), Act::Take, Act::TakeSilently, Act::Close, Act::Take];
    let (url, received) = receive(move |n| acts[n % acts.len()]);
    let to = format!("--to {url} --position p --batch 7");
    counting.finish(&to);
    for round in 0..6 {
        let sender = counting.feed(&to);
        counting.write(40);
        std::thread::sleep(std::time::Duration::from_millis(30 * round));
        drop(sender);
    }
    counting.finish(&to);
    counting.check(&received.lock().unwrap().bodies.concat());
}
