//! A connection to a source as a replica of it: login, handshake, acknowledgements.
//!
//! ```text
//!   PING, AUTH, REPLCONF capa eof capa psync2, PSYNC id offset --> +FULLRESYNC id offset, snapshot
//!                                                             `--> +CONTINUE [id]
//! ```

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::{Server, encode};
use crate::text::shown;

/// How long a read waits before the caller looks at what else there is to do.
pub(super) const READ_TIMEOUT: Duration = Duration::from_millis(200);
/// How long connecting, and a reply, may take.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// A reply beyond is no reply of Redis.
const LINE_BYTES_MAX: u64 = 64 << 10;
const BULK_BYTES_MAX: u64 = 4 << 20;

/// Why there is no link.
#[derive(Debug)]
pub(super) enum Down {
    /// It may be there later.
    Later(String),
    /// The source refuses it.
    Refused(String),
}

impl From<io::Error> for Down {
    fn from(error: io::Error) -> Self {
        Down::Later(shown(error))
    }
}

/// How a replication begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// A snapshot follows, then the stream from the offset.
    Full { id: String, offset: u64 },
    /// The stream follows from where it ended, under a new id if there is one.
    Continued { id: Option<String> },
}

/// A connection to the source.
pub(super) struct Link {
    inner: BufReader<TcpStream>,
}

impl Link {
    pub(super) fn open(server: &Server) -> Result<Self, Down> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in server.address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, REPLY_TIMEOUT) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
                    stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
                    let mut link = Link { inner: BufReader::with_capacity(1 << 18, stream) };
                    link.log_in(server)?;
                    return Ok(link);
                }
                Err(error) => last = error,
            }
        }
        Err(last.into())
    }

    fn log_in(&mut self, server: &Server) -> Result<(), Down> {
        if let Some(words) = server.login() {
            self.ask(&words)?;
        }
        self.ask(&["PING"]).map(drop)
    }

    /// Sends a command and returns its reply: a line, or a text.
    pub(super) fn ask(&mut self, words: &[&str]) -> Result<String, Down> {
        self.send(words)?;
        let line = self.line()?;
        match line.split_at_checked(1) {
            Some(("+" | ":", text)) => Ok(text.to_owned()),
            Some(("$", len)) => {
                let len = len.parse::<u64>().ok().filter(|len| *len <= BULK_BYTES_MAX);
                let len = len.ok_or_else(|| Down::Refused("the reply is not that of Redis".to_owned()))?;
                let mut text = vec![0; len as usize + 2];
                self.inner.read_exact(&mut text)?;
                text.truncate(len as usize);
                Ok(String::from_utf8_lossy(&text).into_owned())
            }
            Some(("-", error)) => Err(match error.split(' ').next() {
                Some("LOADING" | "MASTERDOWN" | "NOMASTERLINK" | "BUSY") => Down::Later(shown(error)),
                _ => Down::Refused(format!("{} refused: {}", words[0], shown(error))),
            }),
            _ => Err(Down::Refused("the reply is not that of Redis".to_owned())),
        }
    }

    pub(super) fn send(&mut self, words: &[&str]) -> io::Result<()> {
        let mut bytes = Vec::new();
        encode(words, &mut bytes);
        self.inner.get_mut().write_all(&bytes)
    }

    /// Reads a line that is not empty. A source sends empty ones while it prepares.
    pub(super) fn line(&mut self) -> io::Result<String> {
        loop {
            let mut line = Vec::new();
            let read = self.inner.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
            if read == 0 || line.last() != Some(&b'\n') {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let text = String::from_utf8_lossy(&line);
            if !text.trim_end().is_empty() {
                return Ok(text.trim_end().to_owned());
            }
        }
    }

    /// Reads what has come. Returns 0 if nothing came in time.
    pub(super) fn read_some(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(into) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => Ok(len),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                Ok(0)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Becomes a replica, from behind `position` (an id and an offset) if the source still can.
    pub(super) fn follow(&mut self, position: Option<(&str, u64)>) -> Result<Start, Down> {
        // Port 0: this replica takes no connections. An old server knows no `capa`.
        self.ask(&["REPLCONF", "listening-port", "0"])?;
        match self.ask(&["REPLCONF", "capa", "eof", "capa", "psync2"]) {
            Ok(_) | Err(Down::Refused(_)) => {}
            Err(down) => return Err(down),
        }
        let (id, from) = match position {
            Some((id, offset)) => (id, (offset + 1).to_string()),
            None => ("?", "-1".to_owned()),
        };
        // The source answers once it has begun to prepare a snapshot.
        let reply = self.ask(&["PSYNC", id, &from])?;
        let mut words = reply.split(' ');
        let start = match (words.next(), words.next(), words.next().map(str::parse)) {
            (Some("FULLRESYNC"), Some(id), Some(Ok(offset))) => Start::Full { id: id.to_owned(), offset },
            (Some("CONTINUE"), id, None) => Start::Continued { id: id.map(str::to_owned) },
            _ => return Err(Down::Refused(format!("PSYNC answered: {}", shown(reply)))),
        };
        Ok(start)
    }

    /// Makes reads return soon.
    pub(super) fn watch(&mut self) -> io::Result<()> {
        self.inner.get_mut().set_read_timeout(Some(READ_TIMEOUT))
    }

    /// Returns the id of the source's history, unless the source is older than version 4, and its offset in
    /// it: how many bytes of the stream there are.
    pub(super) fn offset(&mut self) -> Result<(Option<String>, u64), Down> {
        let info = self.ask(&["INFO", "replication"])?;
        let field = |name| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let id = field("master_replid:").map(str::to_owned);
        let offset = field("master_repl_offset:").and_then(|offset| offset.parse().ok());
        let offset =
            offset.ok_or_else(|| Down::Refused("INFO replication has no master_repl_offset".to_owned()))?;
        Ok((id, offset))
    }
}
