//! What connects guests with their host: the socket of the directory, or a simulated network.
//!
//! ```text
//!   Conn --frame--> Wire --socket-----------> the host's thread
//!                    `-----simulated network-> the host's session, in the same thread
//! ```

use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use esker::{Builder, Db, Error as DbError};

use crate::commit_id::LaneId;
use crate::protocol::{self, Reply, VERSION};
#[cfg(feature = "simulation")]
use crate::simulation::{Network, SimulatedWire};
use crate::socket::{self, Stream};

/// Longest pause between attempts to find a host.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// How processes reach each other.
#[derive(Clone, Debug, Default)]
pub(crate) enum Transport {
    #[default]
    Socket,
    #[cfg(feature = "simulation")]
    Simulated(Network),
}

/// A guest's end of a connection.
#[derive(Debug)]
pub(crate) enum Wire {
    Socket(BufReader<Stream>),
    #[cfg(feature = "simulation")]
    Simulated(SimulatedWire),
}

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

impl Transport {
    /// Returns the directory as all of the process names it.
    pub(crate) fn dir(&self, path: &Path) -> io::Result<PathBuf> {
        match self {
            Transport::Socket => std::path::absolute(path),
            #[cfg(feature = "simulation")]
            Transport::Simulated(_) => Ok(path.to_owned()),
        }
    }

    /// Opens the database of a process that is to be the host.
    pub(crate) fn open(&self, builder: Builder, dir: &Path) -> esker::Result<Db> {
        match self {
            Transport::Socket => builder.open(dir),
            #[cfg(feature = "simulation")]
            Transport::Simulated(network) => network.open(dir),
        }
    }

    /// Returns the name of a new lane.
    pub(crate) fn new_lane(&self) -> LaneId {
        match self {
            Transport::Socket => LaneId::random(),
            #[cfg(feature = "simulation")]
            Transport::Simulated(network) => network.new_lane(),
        }
    }

    /// Connects to the host of a directory.
    pub(crate) fn connect(
        &self,
        dir: &Path,
        lane: LaneId,
        wait: Duration,
        until: Instant,
    ) -> Result<Wire, NoConnection> {
        match self {
            Transport::Socket => connect(dir, lane, wait, until).map(Wire::Socket),
            #[cfg(feature = "simulation")]
            Transport::Simulated(network) => network.connect(lane).map(Wire::Simulated),
        }
    }

    /// Waits before another attempt, longer each time. Returns false once `until` has passed.
    pub(crate) fn pause(&self, pause: &mut Duration, until: Instant) -> bool {
        match self {
            Transport::Socket if Instant::now() >= until => return false,
            Transport::Socket => std::thread::sleep(*pause),
            // Nothing happens while the only thread waits.
            #[cfg(feature = "simulation")]
            Transport::Simulated(_) if *pause > crate::simulation::LONGEST_PAUSE => return false,
            #[cfg(feature = "simulation")]
            Transport::Simulated(_) => {}
        }
        *pause = (*pause * 2).min(PAUSE_MAX);
        true
    }
}

fn connect(
    dir: &Path,
    lane: LaneId,
    wait: Duration,
    until: Instant,
) -> Result<BufReader<Stream>, NoConnection> {
    let stream = socket::connect(dir, until).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => NoConnection::Absent,
        io::ErrorKind::TimedOut => NoConnection::Silent,
        _ => NoConnection::Refused(e),
    })?;
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
    let timeouts = stream.set_read_timeout(Some(wait)).and_then(|()| stream.set_write_timeout(Some(wait)));
    timeouts.map_err(NoConnection::Refused)?;
    Ok(BufReader::new(stream))
}

impl Wire {
    /// Sends a frame and reads the reply into the buffer.
    pub(crate) fn exchange(&mut self, frame: &[u8], buffer: &mut Vec<u8>) -> io::Result<Reply> {
        match self {
            Wire::Socket(reader) => {
                reader.get_mut().write_all(frame)?;
                match protocol::read_frame(reader, buffer)? {
                    true => protocol::decode(buffer),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                }
            }
            #[cfg(feature = "simulation")]
            Wire::Simulated(wire) => wire.exchange(frame, buffer),
        }
    }

    /// Sets how long replies are waited for.
    pub(crate) fn limit(&self, time: Duration) -> bool {
        match self {
            Wire::Socket(reader) => reader.get_ref().set_read_timeout(Some(time)).is_ok(),
            #[cfg(feature = "simulation")]
            Wire::Simulated(_) => true,
        }
    }

    /// Sends a frame that has no reply.
    pub(crate) fn send_last(&mut self, frame: &[u8], within: Duration) {
        match self {
            Wire::Socket(reader) => {
                let _ = reader.get_mut().set_write_timeout(Some(within));
                let _ = reader.get_mut().write_all(frame);
            }
            #[cfg(feature = "simulation")]
            Wire::Simulated(wire) => wire.send_last(frame),
        }
    }

    /// Waits for the end of the connection, whenever that is.
    pub(crate) fn wait_for_end(&mut self) {
        match self {
            Wire::Socket(reader) => {
                if reader.get_ref().set_read_timeout(None).is_ok() {
                    let _ = reader.read(&mut [0]);
                }
            }
            #[cfg(feature = "simulation")]
            Wire::Simulated(_) => {}
        }
    }

    /// Returns another handle of the socket, if there is one.
    pub(crate) fn socket(&self) -> Option<Stream> {
        match self {
            Wire::Socket(reader) => reader.get_ref().try_clone().ok(),
            #[cfg(feature = "simulation")]
            Wire::Simulated(_) => None,
        }
    }
}

/// Returns whether a timeout of the socket has passed.
pub(crate) fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Returns the error of a path that does not exist.
pub(crate) fn unresolved(path: &Path, error: io::Error) -> DbError {
    DbError::io("resolve", path, error)
}
