//! A client that shows raw replies.

use std::fmt;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A reply.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reply {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Null,
    List(char, Vec<Reply>),
    Other(char, String),
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Simple(text) => write!(f, "+{text}"),
            Reply::Error(text) => write!(f, "-{text}"),
            Reply::Int(n) => write!(f, ":{n}"),
            Reply::Bulk(bytes) => write!(f, "{:?}", String::from_utf8_lossy(bytes)),
            Reply::Null => f.write_str("null"),
            Reply::List(kind, items) => {
                write!(f, "{kind}")?;
                f.debug_list().entries(items).finish()
            }
            Reply::Other(kind, text) => write!(f, "{kind}{text}"),
        }
    }
}

/// A connection.
pub struct Wire {
    pub stream: BufReader<TcpStream>,
}

impl Wire {
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        Wire { stream: BufReader::new(stream) }
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    pub fn send<W: AsRef<[u8]>>(&mut self, words: &[W]) {
        self.send_bytes(&encode(words));
    }

    /// Sends the words of a text and returns the reply as text.
    pub fn say(&mut self, text: &str) -> String {
        let words: Vec<_> = text.split(' ').map(|word| if word == "''" { "" } else { word }).collect();
        self.send(&words);
        format!("{:?}", self.reply())
    }

    pub fn call<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Reply {
        self.send(words);
        self.reply()
    }

    pub fn reply(&mut self) -> Reply {
        self.try_reply().expect("a reply")
    }

    /// Reads a reply. Returns none if the connection was closed.
    pub fn try_reply(&mut self) -> Option<Reply> {
        let mut line = Vec::new();
        match self.stream.read_until(b'\n', &mut line) {
            Ok(n) if n > 0 => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("neither a reply nor the connection's end")
            }
            _ => return None,
        }
        let text = String::from_utf8_lossy(&line[1..line.len() - 2]).into_owned();
        Some(match line[0] {
            b'+' => Reply::Simple(text),
            b'-' => Reply::Error(text),
            b':' => Reply::Int(text.parse().unwrap()),
            b'_' => Reply::Null,
            b'$' | b'=' => match text.parse::<i64>().unwrap() {
                -1 => Reply::Null,
                len => {
                    let mut bytes = vec![0; len as usize + 2];
                    self.stream.read_exact(&mut bytes).unwrap();
                    bytes.truncate(len as usize);
                    Reply::Bulk(bytes)
                }
            },
            kind @ (b'*' | b'~' | b'>' | b'%') => match text.parse::<i64>().unwrap() {
                -1 => Reply::Null,
                len => {
                    let len = if kind == b'%' { 2 * len } else { len };
                    let items = (0..len).map(|_| self.try_reply()).collect::<Option<Vec<_>>>()?;
                    Reply::List(kind.into(), items)
                }
            },
            kind => Reply::Other(kind.into(), text),
        })
    }
}

/// Encodes a request.
pub fn encode<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
