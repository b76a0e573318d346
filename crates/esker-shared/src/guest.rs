//! A guest's connection to the host.

use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use esker::Error as DbError;

use crate::commit_id::LaneId;
use crate::protocol::{self, Reply, Request, VERSION};
use crate::session::Session;
use crate::socket;

/// How long a connection is given to end a snapshot or transaction that its user dropped.
const RELEASE_MAX: Duration = Duration::from_secs(1);

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum NoConnection {
    /// Nothing serves the socket.
    Absent,
    /// The host accepts connections, and does not answer.
    Silent,
    /// The host speaks this version.
    Version(u32),
    /// Any other reason.
    Refused(io::Error),
}

/// Why a request has no reply.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The host ended the connection. It may have run the request.
    Broken,
    /// The host did not answer in time. It may run the request.
    Late,
    /// The host sent what is not a reply. It may have run the request.
    Garbled(io::Error),
    /// The engine's error. Nothing was changed, unless that error says otherwise.
    Refused(DbError),
}

/// A connection, and the lane of its commits.
#[derive(Debug)]
pub(crate) struct Conn {
    reader: BufReader<UnixStream>,
    lane: LaneId,
    /// The number of the last commit.
    number: u64,
    buffer: Vec<u8>,
    wait: Duration,
    is_broken: bool,
}

impl Conn {
    /// Connects to the host of a directory.
    pub(crate) fn open(dir: &Path, wait: Duration, until: Instant) -> Result<Self, NoConnection> {
        let stream = socket::connect(dir, until).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => NoConnection::Absent,
            io::ErrorKind::TimedOut => NoConnection::Silent,
            _ => NoConnection::Refused(e),
        })?;
        let lane = LaneId::random();
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let greeted = (|| {
            stream.set_read_timeout(Some(left))?;
            stream.set_write_timeout(Some(left))?;
            protocol::greet_host(&mut &stream, lane)?;
            protocol::read_version(&mut &stream)
        })();
        match greeted {
            Ok(VERSION) => {}
            Ok(theirs) => return Err(NoConnection::Version(theirs)),
            Err(e) if is_late(&e) => return Err(NoConnection::Silent),
            Err(e) if e.kind() == io::ErrorKind::InvalidData => return Err(NoConnection::Refused(e)),
            // The host went while it accepted.
            Err(_) => return Err(NoConnection::Absent),
        }
        let timeouts =
            stream.set_read_timeout(Some(wait)).and_then(|()| stream.set_write_timeout(Some(wait)));
        timeouts.map_err(NoConnection::Refused)?;
        let (reader, buffer) = (BufReader::new(stream), Vec::new());
        Ok(Conn { reader, lane, number: 0, buffer, wait, is_broken: false })
    }

    pub(crate) fn lane(&self) -> LaneId {
        self.lane
    }

    /// Returns the number of its next commit.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Returns whether it cannot be used again.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Sends a request and waits for the reply.
    pub(crate) fn call(&mut self, request: &Request<'_>, dir: &Path) -> Result<Reply, CallError> {
        if self.is_broken {
            return Err(CallError::Broken);
        }
        let frame = protocol::frame(request)
            .map_err(|e| CallError::Refused(DbError::Invalid(format!("a request for the host: {e}"))))?;
        self.is_broken = true;
        let reply = self.exchange(&frame).map_err(|e| match e.kind() {
            _ if is_late(&e) => CallError::Late,
            io::ErrorKind::InvalidData => CallError::Garbled(e),
            _ => CallError::Broken,
        })?;
        match reply {
            Reply::Refused(error) if error.is_closed() => Err(CallError::Broken),
            Reply::Refused(error) => {
                self.is_broken = false;
                Err(CallError::Refused(error.into_db(dir)))
            }
            reply => {
                self.is_broken = false;
                Ok(reply)
            }
        }
    }

    fn exchange(&mut self, frame: &[u8]) -> io::Result<Reply> {
        self.reader.get_mut().write_all(frame)?;
        match protocol::read_frame(&mut self.reader, &mut self.buffer)? {
            true => protocol::decode(&self.buffer),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Ends what it holds in the host. Does not wait for long.
    pub(crate) fn release(&mut self, dir: &Path) {
        let limit = |conn: &Conn, time| conn.reader.get_ref().set_read_timeout(Some(time)).is_ok();
        let done = limit(self, RELEASE_MAX) && self.call(&Request::Release, dir).is_ok();
        self.is_broken = !done || !limit(self, self.wait);
    }

    /// Ends the connection without questions about its commits.
    pub(crate) fn say_goodbye(mut self) {
        if !self.is_broken
            && let Ok(frame) = protocol::frame(&Request::Goodbye)
        {
            // Without it the host keeps the record for an hour.
            let _ = self.reader.get_mut().set_write_timeout(Some(RELEASE_MAX));
            let _ = self.reader.get_mut().write_all(&frame);
        }
    }

    /// Waits for the end of the connection, whenever that is.
    pub(crate) fn wait_for_end(&mut self) {
        if self.reader.get_ref().set_read_timeout(None).is_ok() {
            let _ = self.reader.read(&mut [0]);
        }
    }

    /// Returns another handle of the socket.
    pub(crate) fn socket(&self) -> io::Result<UnixStream> {
        self.reader.get_ref().try_clone()
    }
}

/// Where requests run: in this process, or in the host.
pub(crate) enum Link {
    Local(Box<Session>),
    Remote(Conn),
}

impl Link {
    /// Runs a request.
    pub(crate) fn call(&mut self, request: &Request<'_>, dir: &Path) -> Result<Reply, CallError> {
        match self {
            Link::Local(session) => session.run(request.clone()).map_err(CallError::Refused),
            Link::Remote(conn) => conn.call(request, dir),
        }
    }
}

/// Returns whether a timeout of the socket has passed.
fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
