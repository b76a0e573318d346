//! A replica's connection to its primary: asks, applies, acknowledges, and reconnects.
//!
//! ```text
//!   connect, AUTH --ES.REPLICATE epoch seq--> +CONTINUE: frames --> apply --Ack-->
//!                                             +FULL: copy_in
//!                                             -FORKED: refused, unless there is nothing to lose
//! ```
//!
//! A replica with another history keeps its data and reports that, until an operator decides.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::copy_in;
use super::sender::take_frame;
use super::stream::Stream;
use crate::base::clock;
use crate::config::options::Fsync;
use crate::config::source::Source;
use crate::observe::trace;
use crate::replication::apply::{Changed, Noted, is_pristine, text};
use crate::replication::following::Following;
use crate::replication::frame::{Frame, VERSION};
use crate::resp::Input;
use crate::run::server::Server;

/// How long a read waits before other conditions are checked.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time limits for connecting, and for the first answer.
const CONNECT: Duration = Duration::from_secs(3);
const ANSWER: Duration = Duration::from_secs(30);
/// A primary that has been silent for this long counts as lost.
const SILENCE: Duration = Duration::from_secs(10);
/// The same while it sends commits: then something comes ten times a second. After a network cut, the system
/// repeats lost packets ever more slowly, and a new connection is faster.
const COMMITS_SILENCE: Duration = Duration::from_secs(3);
/// Pauses before the replica tries again: the first, and the longest.
const BACK_OFF: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];
/// How often commits are synced, unless readers must not see what a power loss can take. Then they are synced
/// at once.
const SYNC_EVERY: Duration = Duration::from_millis(100);
/// How often it acknowledges if nothing changes.
const ACK_EVERY: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 256 << 10;

/// Follows the current primary, if any, until the server stops.
pub fn run(server: &Arc<Server>) {
    let mut back_off = BACK_OFF[0];
    let mut wants_copy = false;
    while !server.is_stopping() {
        let (role, term) = {
            let state = server.replication.state.lock();
            (state.role.clone(), state.term)
        };
        let Some(source) = role.source().filter(|source| !source.is_unset()).cloned() else {
            (back_off, wants_copy) = (BACK_OFF[0], false);
            pause(server, term, LOOK_EVERY);
            continue;
        };
        let before = server.replication.state.lock().applied.seq;
        let ended =
            Upstream::connect(server, &source, term).and_then(|upstream| link(upstream, &source, wants_copy));
        let takes_copy = matches!(ended, Err(Ended::Forked(_))) && !wants_copy && may_discard(server);
        {
            let mut state = server.replication.state.lock();
            if state.term != term {
                (back_off, wants_copy) = (BACK_OFF[0], false);
                continue;
            }
            (state.upstream.is_up, state.upstream.is_copying) = (false, false);
            if takes_copy {
                wants_copy = true;
                continue;
            }
            if let Err(Ended::Because(why) | Ended::Forked(why)) = &ended {
                trace::warn("the link to the primary is down", None, why);
            }
            state.upstream.error = match &ended {
                Ok(()) => None,
                Err(Ended::Because(why)) => Some(why.clone()),
                Err(Ended::Forked(why)) => Some(format!(
                    "{why}. Nothing was changed. To give up this server's data for the primary's: REPLICAOF {} {} DISCARD",
                    source.host, source.port
                )),
            };
            if state.applied.seq > before {
                back_off = BACK_OFF[0];
            }
        }
        pause(server, term, back_off);
        back_off = (back_off * 2).min(BACK_OFF[1]);
    }
}

/// Returns whether a fork may be given up: it is empty, an operator said so, or an election has found that
/// its commits were not confirmed.
fn may_discard(server: &Server) -> bool {
    let is_allowed = {
        let state = server.replication.state.lock();
        state.may_discard || state.ballot.number > 0
    };
    is_allowed || server.replication.local().is_some_and(|(db, _)| is_pristine(db).unwrap_or(false))
}

/// Pauses, until the role changes at the latest.
fn pause(server: &Server, term: u64, length: Duration) {
    let start = clock::moment();
    while start.elapsed() < length && !server.is_stopping() && server.replication.state.lock().term == term {
        #[expect(clippy::disallowed_methods, reason = "a thread of its own that waits for another machine")]
        std::thread::sleep((length - start.elapsed().min(length)).min(Duration::from_millis(20)));
    }
}

/// Why a connection ended.
enum Ended {
    Forked(String),
    Because(String),
}

impl From<String> for Ended {
    fn from(why: String) -> Self {
        Ended::Because(why)
    }
}

/// A connection to a primary.
pub struct Upstream {
    server: Arc<Server>,
    term: u64,
    stream: Stream,
    input: Input,
    buffer: Vec<u8>,
    /// When something last arrived, and when something was last sent.
    heard: Instant,
    acked: Instant,
    /// How long it may be silent.
    patience: Duration,
    numbers: [u64; 3],
}

impl Upstream {
    fn connect(server: &Arc<Server>, source: &Source, term: u64) -> Result<Self, Ended> {
        let to = |error: io::Error| format!("connect to {source}: {error}");
        let mut last = Err(format!("connect to {source}: it has no address"));
        for address in (source.host.as_str(), source.port).to_socket_addrs().map_err(to)? {
            last = TcpStream::connect_timeout(&address, CONNECT).map_err(to);
            if last.is_ok() {
                break;
            }
        }
        let stream = last?;
        stream.set_nodelay(true).map_err(text)?;
        stream.set_write_timeout(Some(SILENCE)).map_err(text)?;
        let stream = Stream::of(stream, &source.host, server.options.upstream.tls.as_ref())?;
        stream.socket().set_read_timeout(Some(LOOK_EVERY)).map_err(text)?;
        let now = clock::moment();
        Ok(Upstream {
            server: server.clone(),
            term,
            stream,
            input: Input::default(),
            buffer: vec![0; READ_BYTES],
            heard: now,
            acked: now,
            patience: SILENCE,
            numbers: [0; 3],
        })
    }

    /// Reads more, if something arrives shortly.
    fn read(&mut self) -> Result<(), String> {
        match self.stream.read(&mut self.buffer) {
            Ok(0) => Err("the primary has ended the connection".to_owned()),
            Ok(n) => {
                self.input.tail().extend_from_slice(&self.buffer[..n]);
                self.heard = clock::moment();
                let mut state = self.server.replication.state.lock();
                state.upstream.heard = clock::now_ms();
                Ok(())
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                if self.heard.elapsed() > self.patience {
                    return Err(format!(
                        "the primary has been silent for {} seconds",
                        self.patience.as_secs()
                    ));
                }
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(text(error)),
        }
    }

    /// Returns the change of the role for which it connected.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Fails if this connection has to end.
    fn check(&self) -> Result<(), String> {
        match self.server.is_stopping() || self.server.replication.state.lock().term != self.term {
            true => Err("the role of this server has changed".to_owned()),
            false => Ok(()),
        }
    }

    /// Returns the next frame, if one arrives shortly.
    ///
    /// # Errors
    /// The connection has ended, or has to end.
    pub fn next(&mut self) -> Result<Option<Frame>, String> {
        if let Some(frame) = take_frame(&mut self.input).map_err(text)? {
            return Ok(Some(frame));
        }
        self.check()?;
        self.read()?;
        take_frame(&mut self.input).map_err(text)
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn send(&mut self, frame: &Frame) -> Result<(), String> {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.stream.write_all(&bytes).map_err(text)
    }

    /// Acknowledges if there is news, or if the last acknowledgement was long ago.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn keep_alive(&mut self) -> Result<(), String> {
        if self.acked.elapsed() < ACK_EVERY {
            return Ok(());
        }
        self.acked = clock::moment();
        self.send(&Frame::Ack(self.numbers))
    }

    fn tell(&mut self, numbers: [u64; 3]) -> Result<(), String> {
        if numbers == self.numbers {
            return self.keep_alive();
        }
        self.numbers = numbers;
        self.acked = clock::moment();
        self.send(&Frame::Ack(numbers))
    }

    /// Sends a command, and waits for the line that answers it.
    fn ask(&mut self, words: &[&str]) -> Result<String, String> {
        let mut bytes = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
        self.stream.write_all(bytes.as_bytes()).map_err(text)?;
        let start = clock::moment();
        loop {
            if let Some(len) = self.input.unread().iter().position(|byte| *byte == b'\n') {
                let line = String::from_utf8_lossy(&self.input.unread()[..len]).trim_end().to_owned();
                self.input.consume(len + 1);
                return Ok(line);
            }
            if start.elapsed() > ANSWER || self.input.unread().len() > READ_BYTES {
                return Err("the primary does not answer".to_owned());
            }
            self.check()?;
            self.heard = clock::moment();
            self.read()?;
        }
    }
}

/// Receives commits or a copy until the connection ends.
fn link(mut upstream: Upstream, source: &Source, wants_copy: bool) -> Result<(), Ended> {
    let server = upstream.server.clone();
    let password = server.config.get("masterauth").unwrap_or_default();
    let user = server.config.get("masteruser").unwrap_or_default();
    if !password.is_empty() {
        let line = match user.is_empty() {
            true => upstream.ask(&["AUTH", &password])?,
            false => upstream.ask(&["AUTH", &user, &password])?,
        };
        if line != "+OK" {
            return Err(Ended::Because(format!("the primary refuses the password (masterauth): {line}")));
        }
    }
    let (at, ballot) = {
        let state = server.replication.state.lock();
        (state.applied, state.ballot.number)
    };
    let (version, epoch, seq) = (VERSION.to_string(), at.epoch.to_string(), at.seq.to_string());
    let ports = [&server.ports.plain, &server.ports.tls].map(|port| port.load(Ordering::Relaxed));
    let port = ports.into_iter().find(|port| *port > 0).unwrap_or(0).to_string();
    let slot = match &server.options.replica_slot {
        Some(name) => name.clone(),
        None => server.replication.own_name().map_err(text)?,
    };
    let mut words = vec!["ES.REPLICATE", &version, &epoch, &seq, &port, &slot];
    words.extend(wants_copy.then_some("FULL"));
    let ballot = ballot.to_string();
    if ballot != "0" {
        words.extend(["BALLOT", &ballot]);
    }
    let line = upstream.ask(&words)?;
    if line.starts_with("+CONTINUE") {
        trace::info("the link to the primary is up", "");
        note(&server, |up| (up.is_up, up.error) = (true, None));
        upstream.patience = COMMITS_SILENCE;
        return Ok(commits(&mut upstream)?);
    }
    if let Some(why) = line.strip_prefix("+FULL") {
        let why = why.trim();
        trace::warn("copies the primary's database again", None, why);
        note(&server, |up| (up.is_copying, up.error) = (true, Some(format!("a copy comes: {why}"))));
        return Ok(copy_in::receive(&server, &mut upstream, source)?);
    }
    let why = line.strip_prefix('-').unwrap_or(&line);
    Err(match why.strip_prefix("FORKED ") {
        Some(why) => Ended::Forked(format!("this server's history is not the primary's: {why}")),
        None => Ended::Because(format!("the primary refuses: {why}")),
    })
}

fn note(server: &Server, change: impl FnOnce(&mut crate::replication::Upstream)) {
    change(&mut server.replication.state.lock().upstream);
}

/// Applies commits as they arrive.
fn commits(upstream: &mut Upstream) -> Result<(), String> {
    let server = upstream.server.clone();
    let replication = &server.replication;
    let mut following = Following::new(replication, upstream.term)?;
    let mut synced = clock::moment();
    loop {
        if let Some(frame) = upstream.next()? {
            let noted = Noted {
                keys: !server.watches.is_empty() || server.sequencer.has_waiters(),
                places: !server.holdings.changes.is_empty(),
            };
            if let Some(changed) = following.take(replication, frame, noted)? {
                tell_of(&server, changed)?;
            }
        }
        // While there is more to apply, the acknowledgement can wait.
        if !upstream.input.unread().is_empty() && upstream.acked.elapsed() < SYNC_EVERY {
            continue;
        }
        let [_, applied, durable] = replication.numbers();
        let at_once = server.config.get("appendfsync").as_deref() == Some(Fsync::Always.name());
        if durable < applied && (at_once || synced.elapsed() >= SYNC_EVERY) {
            upstream.tell(replication.numbers())?;
            replication.sync_applied()?;
            synced = clock::moment();
        }
        upstream.tell(replication.numbers())?;
    }
}

/// Notifies watchers of what a commit has changed.
fn tell_of(server: &Server, changed: Changed) -> Result<(), String> {
    if changed.has_names {
        server.find_databases().map_err(text)?;
    }
    for (number, key) in changed.keys {
        match key {
            Some(key) => {
                server.watches.touch(number, &key);
                server.sequencer.fill(number, key);
            }
            None => server.watches.touch_all(number),
        }
    }
    for change in &changed.places {
        server.holdings.changes.tell(change);
    }
    Ok(())
}
