//! A guest's connection to the host.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use esker::Error as DbError;

use crate::commit_id::LaneId;
use crate::protocol::{self, Reply, Request};
use crate::session::Session;
use crate::socket::Stream;
use crate::transport::{NoConnection, Transport, Wire, is_late};

/// How long a connection is given to end a snapshot or transaction that its user dropped.
const RELEASE_MAX: Duration = Duration::from_secs(1);

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
    wire: Wire,
    lane: LaneId,
    /// The number of the last commit.
    number: u64,
    buffer: Vec<u8>,
    wait: Duration,
    is_broken: bool,
}

impl Conn {
    /// Connects to the host of a directory.
    pub(crate) fn open(
        transport: &Transport,
        dir: &Path,
        wait: Duration,
        until: Instant,
    ) -> Result<Self, NoConnection> {
        let lane = transport.new_lane();
        let wire = transport.connect(dir, lane, wait, until)?;
        Ok(Conn { wire, lane, number: 0, buffer: Vec::new(), wait, is_broken: false })
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
        let reply = self.wire.exchange(&frame, &mut self.buffer).map_err(|e| match e.kind() {
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

    /// Ends what it holds in the host. Does not wait for long.
    pub(crate) fn release(&mut self, dir: &Path) {
        let done = self.wire.limit(RELEASE_MAX) && self.call(&Request::Release, dir).is_ok();
        self.is_broken = !done || !self.wire.limit(self.wait);
    }

    /// Ends the connection without questions about its commits.
    pub(crate) fn say_goodbye(mut self) {
        if !self.is_broken
            && let Ok(frame) = protocol::frame(&Request::Goodbye)
        {
            // Without it the host keeps the record for an hour.
            self.wire.send_last(&frame, RELEASE_MAX);
        }
    }

    /// Waits for the end of the connection, whenever that is.
    pub(crate) fn wait_for_end(&mut self) {
        self.wire.wait_for_end();
    }

    /// Returns another handle of its socket.
    pub(crate) fn socket(&self) -> Option<Stream> {
        self.wire.socket()
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
