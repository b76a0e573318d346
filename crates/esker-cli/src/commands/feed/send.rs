//! Sends the changes of a source to a sink, batch after batch.
//!
//! ```text
//!   source --fill--> batch --deliver--> sink has confirmed --store--> position file --> next batch
//!     ^---- again, with growing pauses ----^
//! ```
//!
//! feed_send.1. A position is stored only once the sink has confirmed all changes up to it.
//! feed_send.2. The position at which a first run begins is stored before anything is sent, so that a killed
//!     run does not begin at a later one.
//! - So each change is delivered at least once, in order. What follows a stored position may come twice.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::change::{Batch, Position};
use super::position::PositionFile;
#[cfg(feature = "server")]
use super::server;
use super::sinks::{self, FeedSink, Target};
use super::source::{DirectorySource, Filled, Source, Tried, Trouble};
use crate::Answer;
use crate::args::{FeedArgs, SendArgs};
use crate::database::Session;
use crate::failure::{Failure, Result};
use crate::output;
use crate::text::{ByteForm, shown};

/// Pause after a first failure. Each further pause is twice as long.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// `esker feed --to`.
pub(super) fn run(session: &Session<'_>, args: &FeedArgs, to: &str) -> Result<Answer> {
    let target: Target = to.parse()?;
    let settings = sinks::Settings::read(&args.send.set, args.send.settings.as_deref())?;
    let mut positions =
        position_file(&target, &args.send)?.map(|path| PositionFile::open(&path)).transpose()?;
    let is_resumed = positions.as_ref().is_some_and(|file| file.stored().is_some());
    let sink = sinks::open(&target, settings, is_resumed)?;
    let all_hex = match session.common.bytes {
        Some(ByteForm::Raw) => {
            return Err(Failure::message(
                "JSON cannot hold raw bytes: leave out --bytes, or use --bytes hex",
            ));
        }
        form => form == Some(ByteForm::Hex),
    };
    let stored = positions.as_ref().and_then(|file| file.stored().cloned());
    let mut sender = Sender { sink, positions: &mut positions, give_up: args.send.give_up, sent: 0 };
    let end = send(session, args, all_hex, stored, &mut sender)?;
    match (&target, session.common.json) {
        (Target::Standard, _) => {}
        (_, true) => {
            output::print_json(&serde_json::json!({ "sent": sender.sent, "position": end.to_string() }))?
        }
        (_, false) => {
            output::print_line(format_args!("sent {}, up to {end}", output::plural(sender.sent, "change")))?
        }
    }
    Ok(Answer::Yes)
}

/// Sends from the source that the command line selects. Returns the position reached.
fn send(
    session: &Session<'_>,
    args: &FeedArgs,
    all_hex: bool,
    stored: Option<Position>,
    sender: &mut Sender<'_>,
) -> Result<Position> {
    let since = args.since.as_ref();
    #[cfg(feature = "server")]
    if let Some(server) = &args.send.server {
        let mut common = session.common.clone();
        if !common.names_keyspace() {
            common.use_keyspace(crate::commands::shell::remote::FIRST.to_owned());
        }
        let login = args.send.password.as_deref().map(|password| (args.send.user.as_str(), password));
        let address = server::Address { server, login, keyspace: common.keyspace()? };
        let mut source = server::ServerSource::new(address, all_hex, !args.send.once);
        let asked = since.map(|since| since.in_history(None)).transpose();
        let after = match stored {
            Some(stored) => Some(stored),
            None => asked?,
        };
        return sender.send_all(&mut source, after, args.send.once, args.send.batch);
    }
    let database = session.open_alone(crate::commands::FEED_BESIDE)?;
    let mut source = DirectorySource::new(&database, &session.common, all_hex)?;
    let asked = since.map(|since| since.in_history(Some(source.history()))).transpose()?;
    let end = sender.send_all(&mut source, stored.or(asked), true, args.send.batch)?;
    drop(source);
    database.close()?;
    Ok(end)
}

/// Returns the name of the position file. Standard output alone can do without.
fn position_file(target: &Target, args: &SendArgs) -> Result<Option<PathBuf>> {
    match (&args.position, target) {
        (Some(path), _) => Ok(Some(path.clone())),
        (None, Target::File(path)) => {
            let mut name = path.clone().into_os_string();
            name.push(".position");
            Ok(Some(name.into()))
        }
        (None, Target::Standard) => Ok(None),
        (None, _) => Err(Failure::message(
            "--position FILE is needed: the command stores there up to which commit the sink has confirmed",
        )),
    }
}

/// The receiving side.
struct Sender<'a> {
    sink: Box<dyn FeedSink>,
    positions: &'a mut Option<PositionFile>,
    give_up: Option<Duration>,
    sent: u64,
}

impl Sender<'_> {
    /// Sends all changes after a position. Returns the position at the end.
    fn send_all(
        &mut self,
        source: &mut dyn Source,
        after: Option<Position>,
        is_ending: bool,
        len_max: u32,
    ) -> Result<Position> {
        let mut at = persist(self.give_up, || source.begin(after.clone()))?;
        // feed_send.2
        self.store(&at)?;
        let mut batch = Batch::new(len_max as usize);
        loop {
            batch.clear();
            let filled = persist(self.give_up, || source.fill(&mut batch))?;
            if !batch.changes.is_empty() {
                persist(self.give_up, || self.sink.deliver(&batch))?;
                self.sent += batch.changes.len() as u64;
            }
            // feed_send.1
            if let Some(end) = batch.end.take().filter(|end| *end != at) {
                self.store(&end)?;
                at = end;
            }
            if is_ending && filled == Filled::AtEnd {
                return Ok(at);
            }
        }
    }

    fn store(&mut self, position: &Position) -> Result<()> {
        match self.positions {
            Some(file) if file.stored() != Some(position) => persist(self.give_up, || file.store(position)),
            _ => Ok(()),
        }
    }
}

/// Repeats an attempt until it succeeds, with growing pauses.
fn persist<T>(give_up: Option<Duration>, mut attempt: impl FnMut() -> Tried<T>) -> Result<T> {
    let (mut first, mut pause) = (None, PAUSE);
    loop {
        let why = match attempt() {
            Ok(done) => {
                if first.is_some() {
                    output::print_message("esker: it works again");
                }
                return Ok(done);
            }
            Err(Trouble::Stop(failure)) => return Err(failure),
            Err(Trouble::Retry(why)) => shown(why),
        };
        if first.is_none() {
            output::print_message(format_args!("esker: {why}: trying again"));
        }
        let start = *first.get_or_insert_with(Instant::now);
        let left = give_up.map(|give_up| give_up.saturating_sub(start.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(Failure::message(format!(
                "{why}\n  given up; the same command goes on after the last confirmed commit"
            )));
        }
        std::thread::sleep(left.map_or(pause, |left| pause.min(left)));
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
