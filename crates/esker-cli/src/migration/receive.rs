//! Receives snapshots and the stream from the source, in a thread of its own.
//!
//! ```text
//!   link --snapshot--> temporary file --Event--> follow
//!     |  --stream----> spool
//!     `<-- REPLCONF ACK, each second
//! ```
//!
//! The source keeps for a replica only so much that it has not taken. Therefore everything goes to files at
//! once, however slow the target is.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use super::Server;
use super::link::{Down, Link, Start};
use super::spool::{Spool, temporary};
use crate::output;
use crate::text::shown;

/// Time between acknowledgements.
const ACK_EVERY: Duration = Duration::from_secs(1);
/// A source that sends nothing for this long is gone. It sends `PING` every ten seconds.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Time between two attempts to connect.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Attempts to connect the first time.
const FIRST_ATTEMPTS: u32 = 5;
const BUFFER_BYTES: usize = 256 << 10;

/// What both threads know. Relaxed suffices for all of it: no other data depends on the values.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The command is to end.
    pub(super) stops: AtomicBool,
    /// The source wants an acknowledgement now.
    pub(super) ack_now: AtomicBool,
}

impl Shared {
    pub(super) fn stops(&self) -> bool {
        self.stops.load(Ordering::Relaxed)
    }
}

/// A step that the other thread has to take.
pub(super) enum Event {
    /// A snapshot is here, and the stream behind it begins.
    Snapshot { file: File, bytes: u64, offset: u64, spool: Arc<Spool> },
    /// The source is lost.
    Failed(String),
}

/// The receiving side.
pub(super) struct Receiver {
    pub(super) source: Server,
    pub(super) directory: PathBuf,
    pub(super) shared: Arc<Shared>,
    pub(super) events: Sender<Event>,
}

/// What is followed.
#[derive(Default)]
struct Following {
    /// Where the bytes of the history go. Absent until its snapshot is here.
    spool: Option<Arc<Spool>>,
    /// Whether a snapshot has ever been received.
    has_begun: bool,
    /// Failures since the last connection that became a replica.
    attempts: u32,
}

impl Receiver {
    /// Receives until the command ends or the source refuses.
    pub(super) fn run(self) {
        let mut following = Following::default();
        while !self.shared.stops() {
            match self.connected(&mut following) {
                Ok(()) => break,
                Err(Down::Refused(why)) => {
                    self.fail(format!("{}: {why}", shown(&self.source.address)));
                    break;
                }
                Err(Down::Later(why)) => {
                    following.attempts += 1;
                    if !following.has_begun && following.attempts >= FIRST_ATTEMPTS {
                        self.fail(format!("{}: {why}", shown(&self.source.address)));
                        break;
                    }
                    self.say(&format!("{why}; connecting again"));
                    std::thread::sleep(RETRY_AFTER);
                }
            }
        }
        if let Some(spool) = following.spool {
            spool.end();
        }
    }

    fn say(&self, text: &str) {
        output::print_message(format_args!("esker: {}: {text}", shown(&self.source.address)));
    }

    fn fail(&self, why: String) {
        // If it is not received, the command has ended.
        let _ended = self.events.send(Event::Failed(why));
    }

    /// Receives from one connection.
    fn connected(&self, following: &mut Following) -> Result<(), Down> {
        let mut link = Link::open(&self.source)?;
        let position = following.spool.as_ref().map(|spool| spool.position());
        let known = position.as_ref().map(|(id, received)| (id.as_str(), *received));
        let spool = match (link.follow(known)?, following.spool.take()) {
            (Start::Continued { id }, Some(spool)) => {
                if let Some(id) = id {
                    spool.rename(id);
                }
                self.say(&format!("connected again; the stream goes on at {}", spool.position().1));
                spool
            }
            (Start::Continued { .. }, None) => {
                return Err(Down::Refused("PSYNC continues what never began".to_owned()));
            }
            (Start::Full { id, offset }, old) => {
                if let Some(old) = old {
                    self.say("the source no longer has what was missed: starting again with a new snapshot");
                    old.end();
                }
                self.snapshot(&mut link, id, offset)?
            }
        };
        following.spool = Some(spool.clone());
        (following.has_begun, following.attempts) = (true, 0);
        self.stream(&mut link, &spool)
    }

    /// Returns the end of the command for an error of a temporary file: another snapshot would meet it, too.
    fn disk(&self, error: io::Error) -> Down {
        Down::Refused(format!("{}: {}", shown(self.directory.display()), shown(error)))
    }

    /// Receives a snapshot and hands it over.
    fn snapshot(&self, link: &mut Link, history: String, offset: u64) -> Result<Arc<Spool>, Down> {
        let head = link.line()?;
        let disk = |error| self.disk(error);
        link.watch()?;
        let mut file = temporary(&self.directory).map_err(disk)?;
        let bytes = match head.strip_prefix('$').map(|rest| (rest.strip_prefix("EOF:"), rest.parse())) {
            Some((Some(mark), _)) => self.until_mark(link, mark.as_bytes(), &file)?,
            Some((None, Ok(len))) => self.counted(link, len, &file)?,
            _ => return Err(Down::Refused(format!("no snapshot but: {}", shown(head)))),
        };
        file.seek(SeekFrom::Start(0)).map_err(disk)?;
        let spool = Arc::new(Spool::new(&self.directory, history, offset).map_err(disk)?);
        // A source without a disk sends the stream only after this.
        acknowledge(link, &spool)?;
        // If it is not received, the command has ended.
        let _ended = self.events.send(Event::Snapshot { file, bytes, offset, spool: spool.clone() });
        Ok(spool)
    }

    /// Receives a snapshot of known length.
    fn counted(&self, link: &mut Link, len: u64, file: &File) -> Result<u64, Down> {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, file);
        let mut left = len;
        self.each_piece(link, |buffer, link| {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            let read = link.read_some(&mut buffer[..most])?;
            out.write_all(&buffer[..read]).map_err(|error| self.disk(error))?;
            left -= read as u64;
            Ok((read, left == 0))
        })?;
        out.flush().map_err(|error| self.disk(error))?;
        Ok(len)
    }

    /// Receives a snapshot that a mark ends. The source waits behind it, so it is at the end of what came.
    fn until_mark(&self, link: &mut Link, mark: &[u8], file: &File) -> Result<u64, Down> {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, file);
        let (mut last, mut bytes) = (Vec::new(), 0);
        self.each_piece(link, |buffer, link| {
            let read = link.read_some(buffer)?;
            out.write_all(&buffer[..read]).map_err(|error| self.disk(error))?;
            bytes += read as u64;
            last.extend_from_slice(&buffer[read.saturating_sub(mark.len())..read]);
            last.drain(..last.len().saturating_sub(mark.len()));
            Ok((read, last == mark))
        })?;
        out.flush().map_err(|error| self.disk(error))?;
        Ok(bytes - mark.len() as u64)
    }

    /// Calls `take` until it says that all is here. It returns how much has come.
    fn each_piece(
        &self,
        link: &mut Link,
        mut take: impl FnMut(&mut [u8], &mut Link) -> Result<(usize, bool), Down>,
    ) -> Result<(), Down> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut heard = Instant::now();
        loop {
            let (read, is_over) = take(&mut buffer, link)?;
            if is_over {
                return Ok(());
            }
            if self.shared.stops() {
                return Err(Down::Later("stopped".to_owned()));
            }
            note_silence(read, &mut heard)?;
        }
    }

    /// Receives the stream until the command ends.
    fn stream(&self, link: &mut Link, spool: &Spool) -> Result<(), Down> {
        link.watch()?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let (mut heard, mut acknowledged) = (Instant::now(), Instant::now());
        while !self.shared.stops() {
            let read = link.read_some(&mut buffer)?;
            if read > 0 {
                spool.append(&buffer[..read]).map_err(|error| self.disk(error))?;
            }
            note_silence(read, &mut heard)?;
            let is_asked = self.shared.ack_now.swap(false, Ordering::Relaxed);
            if is_asked || acknowledged.elapsed() >= ACK_EVERY {
                acknowledge(link, spool)?;
                acknowledged = Instant::now();
            }
        }
        Ok(())
    }
}

fn acknowledge(link: &mut Link, spool: &Spool) -> io::Result<()> {
    let applied = spool.applied.load(Ordering::Relaxed).to_string();
    link.send(&["REPLCONF", "ACK", &applied])
}

/// Fails if nothing was read for too long.
fn note_silence(read: usize, heard: &mut Instant) -> io::Result<()> {
    if read > 0 {
        *heard = Instant::now();
    } else if heard.elapsed() > SILENCE_MAX {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "the source is silent"));
    }
    Ok(())
}
