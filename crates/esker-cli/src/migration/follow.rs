//! Follows a running Redis: its snapshot, then its stream, until the command has to end.
//!
//! ```text
//!   receive (thread) --Event--> load --> apply --position--> REPLCONF ACK
//!                      `--spool-----------^
//! ```
//!
//! The end comes with a signal, with all applied that the source had at some moment after the snapshot, or
//! once the source is idle. For the last two the source is asked for its offset.

use std::io::BufReader;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::Server;
use super::apply::Applier;
use super::link::{Down, Link};
use super::load::{Loaded, load};
use super::receive::{Event, Receiver, Shared};
use super::spool::{Spool, Taken};
use super::target::Target;
use crate::failure::{Failure, Result};
use crate::output::{self, count};
use crate::progress::Progress;
use crate::text::shown;

/// How long the applier waits for bytes before it looks at what else there is to do.
const WAIT: Duration = Duration::from_millis(100);
/// Time between two lines about the progress.
const SAID_EVERY: Duration = Duration::from_secs(10);
const BUFFER_BYTES: usize = 256 << 10;

/// When a following ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// At a signal.
    Stopped,
    /// When everything is applied that the source has after the snapshot is loaded.
    CaughtUp,
    /// When the source has written nothing for this long, and everything is applied.
    Idle(Duration),
}

/// What was moved.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    pub(crate) loaded: Loaded,
    pub(crate) commands: u64,
    pub(crate) offset: u64,
    pub(crate) is_caught_up: bool,
}

/// Follows `source` into `target`, with temporary files in `directory`.
pub(crate) fn follow(
    source: &Server,
    target: &mut Target,
    directory: PathBuf,
    until: Until,
) -> Result<Followed> {
    let shared = Arc::new(Shared::default());
    stop_on_signals(shared.clone());
    let (events, received) = channel();
    let receiver = Receiver { source: source.clone(), directory, shared: shared.clone(), events };
    let thread = std::thread::spawn(move || receiver.run());
    let mut follower =
        Follower { source, target, until, shared, followed: Followed::default(), has_loaded: false };
    let ended = loop {
        match received.recv_timeout(WAIT) {
            Ok(Event::Snapshot { file, bytes, offset, spool }) => {
                let done = follower.load(BufReader::new(file), bytes).and_then(|()| {
                    follower.followed.offset = offset;
                    follower.apply(&spool)
                });
                match done {
                    Ok(false) => {}
                    Ok(true) => break Ok(()),
                    Err(failure) => break Err(failure),
                }
            }
            Ok(Event::Failed(why)) => break Err(Failure::message(why)),
            Err(RecvTimeoutError::Timeout) if !follower.shared.stops() => {}
            Err(_) => break Err(Failure::message("stopped before the snapshot was complete")),
        }
    };
    let Follower { shared, followed, .. } = follower;
    shared.stops.store(true, Ordering::Relaxed);
    // A panic of the thread is one of this command.
    thread.join().map_err(|_| Failure::message("the receiving thread panicked"))?;
    ended.map(|()| followed)
}

struct Follower<'a> {
    source: &'a Server,
    target: &'a mut Target,
    until: Until,
    shared: Arc<Shared>,
    followed: Followed,
    /// Whether a snapshot was loaded, or a part of it.
    has_loaded: bool,
}

impl Follower<'_> {
    /// Loads a snapshot into the target. Whatever an earlier one has left there is removed.
    fn load(&mut self, file: impl std::io::Read, bytes: u64) -> Result<()> {
        if std::mem::replace(&mut self.has_loaded, true) {
            self.target.prepare(true)?;
        }
        let progress = Progress::bytes(Some(bytes));
        let shared = self.shared.clone();
        let name = format!("the snapshot of {}", self.source.address);
        let loaded = load(&name, file, self.target, &progress, &|| shared.stops())?;
        let seconds = progress.finish().as_secs_f64();
        self.followed.loaded = loaded;
        output::print_message(format_args!(
            "esker: {}: loaded {} keys in {seconds:.1} s; following",
            shown(&self.source.address),
            count(loaded.keys)
        ));
        Ok(())
    }

    /// Applies the stream. Returns whether the command has reached its end.
    fn apply(&mut self, spool: &Spool) -> Result<bool> {
        let mut applier = Applier::default();
        let mut buffer = vec![0; BUFFER_BYTES];
        let (mut said, mut wrote) = (Instant::now(), Instant::now());
        let mut goal = None;
        loop {
            let before = applier.commands;
            let taken = spool.read(&mut buffer, WAIT).map_err(|e| Failure::message(shown(e)))?;
            if let Taken::Bytes(len) = taken {
                let confirmed = applier.apply(&buffer[..len], self.target)?;
                self.followed.offset += confirmed;
                spool.applied.store(self.followed.offset, Ordering::Relaxed);
                let is_asked = std::mem::take(&mut applier.is_asked);
                self.shared.ack_now.fetch_or(is_asked, Ordering::Relaxed);
            }
            self.followed.commands += applier.commands - before;
            if applier.commands > before {
                wrote = Instant::now();
            }
            let (history, received) = spool.position();
            let lag = received.saturating_sub(self.followed.offset);
            match taken {
                Taken::Over if self.shared.stops() => {
                    self.followed.is_caught_up = lag == 0;
                    return Ok(true);
                }
                Taken::Over => return Ok(false),
                _ => {}
            }
            if lag == 0 && self.is_at_end(&history, &mut goal, wrote) {
                self.followed.is_caught_up = true;
                return Ok(true);
            }
            if said.elapsed() >= SAID_EVERY {
                said = Instant::now();
                self.say(lag);
            }
        }
    }

    fn say(&self, lag: u64) {
        output::print_message(format_args!(
            "esker: {}: {} commands, offset {}, {} behind",
            shown(&self.source.address),
            count(self.followed.commands),
            self.followed.offset,
            output::size(lag)
        ));
    }

    /// Returns whether the command ends here, with everything applied that was received of `history`. `wrote`
    /// is the time of the source's last write.
    fn is_at_end(&self, history: &str, goal: &mut Option<u64>, wrote: Instant) -> bool {
        let is_due = match self.until {
            Until::Stopped => false,
            Until::CaughtUp => true,
            Until::Idle(time) => wrote.elapsed() >= time,
        };
        if !is_due {
            return false;
        }
        if goal.is_none() || self.until != Until::CaughtUp {
            // A source that cannot be asked is asked again.
            let asked = Link::open(self.source).and_then(|mut link| link.offset());
            *goal = match asked {
                Ok((id, _)) if id.as_ref().is_some_and(|id| id != history) => {
                    // A restarted source has another history, which the receiver has not met yet.
                    std::thread::sleep(WAIT);
                    None
                }
                asked => asked.map(|(_, offset)| offset).map_err(|down| self.unknown(&down)).ok(),
            };
        }
        goal.is_some_and(|goal| goal <= self.followed.offset)
    }

    fn unknown(&self, down: &Down) {
        let (Down::Later(why) | Down::Refused(why)) = down;
        output::print_message(format_args!("esker: {}: {why}", shown(&self.source.address)));
        std::thread::sleep(WAIT);
    }
}

/// Makes SIGTERM and SIGINT end the following after what was received is applied.
fn stop_on_signals(shared: Arc<Shared>) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            #[cfg(unix)]
            {
                use tokio::signal::unix::{SignalKind, signal};
                let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
                if let (Ok(mut terminate), Ok(mut interrupt)) = signals {
                    tokio::select! {
                        _ = terminate.recv() => {}
                        _ = interrupt.recv() => {}
                    }
                }
            }
            #[cfg(not(unix))]
            let _ = tokio::signal::ctrl_c().await;
        });
        shared.stops.store(true, Ordering::Relaxed);
    });
}
