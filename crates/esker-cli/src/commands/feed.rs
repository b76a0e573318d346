//! `esker feed`: prints what each commit changed.
//!
//! ```text
//!   COMMIT put KEYSPACE KEY VALUE | merge KEYSPACE KEY OPERAND... | removed KEYSPACE KEY
//!        | expired KEYSPACE KEY
//!        | removed-range KEYSPACE FROM TO | named KEYSPACE ID | unnamed KEYSPACE     then COMMIT end
//! ```
//!
//! With `--to` it sends them to a sink instead:
//!
//! ```text
//!   directory | server --source--> batch --sink--> confirmed --position--> FILE, then the next batch
//! ```

mod change;
mod names;
mod position;
mod send;
#[cfg(feature = "server")]
mod server;
mod sinks;
mod source;

use esker::{Error, SeqNo};

use self::change::Described;
use self::names::Names;
pub(crate) use self::source::Since;
use super::past::Line;
use crate::Answer;
use crate::args::{Common, FeedArgs};
use crate::database::{Database, Session};
use crate::failure::{Failure, Result};
use crate::output;

pub(super) fn run(session: &Session<'_>, args: &FeedArgs) -> Result<Answer> {
    if session.shared.is_some() && (args.keep.is_some() || args.send.to.is_some()) {
        return Err(Failure::message(
            "feed --keep and --to open the database themselves: leave the shell for them",
        ));
    }
    if let Some(bytes) = args.keep {
        let age = args.span.map_or(std::time::Duration::MAX, |span| span.0);
        let database =
            Database::open_with(session.opening, false, |builder| builder.feed_retention(bytes, age))?;
        database.close()?;
        return Ok(Answer::Yes);
    }
    if let Some(target) = &args.send.to {
        return send::run(session, args, target);
    }
    let since = args.since.as_ref().map(Since::commit_here).transpose()?;
    let database = session.open_alone(super::FEED_BESIDE)?;
    let failure = |error| database.failure(error);
    let mut feed = match (database.db.feed_after(since.unwrap_or(SeqNo::ZERO)), since) {
        // Without a start position, the feed begins at the oldest retained commit.
        (Err(Error::FeedTruncated { oldest }), None) => {
            database.db.feed_after(oldest.prev()).map_err(failure)?
        }
        (Err(error @ Error::NoFeed), _) => {
            return Err(no_feed(&error));
        }
        (feed, _) => feed.map_err(failure)?,
    };
    let mut names = Names::of(&database.db).map_err(failure)?;
    let mut out = output::stdout();
    let mut last = since.unwrap_or(SeqNo::ZERO);
    let mut left = args.limit.unwrap_or(usize::MAX);
    while left > 0 {
        let Some(mut commit) = feed.try_next().map_err(failure)? else { break };
        let seqno = commit.seqno();
        while let Some(change) = commit.next_change().map_err(failure)? {
            if let Some(described) = names.describe(&session.common, &change).map_err(failure)? {
                line(&session.common, seqno, &described).write(&mut out)?;
            }
        }
        (last, left) = (seqno, left - 1);
    }
    Line::new(&session.common, None, last, "end").write(&mut out)?;
    std::io::Write::flush(&mut out)?;
    Ok(Answer::Yes)
}

fn no_feed(error: &Error) -> Failure {
    Failure::message(format!("{error}\n  `esker feed --keep BYTES` turns the feed on"))
}

/// Formats a change.
fn line<'a>(common: &'a Common, seqno: SeqNo, described: &Described) -> Line<'a> {
    let line = Line::new(common, None, seqno, described.what).with("keyspace", described.keyspace.as_bytes());
    described.fields.iter().fold(line, |line, (name, bytes)| match bytes {
        Some(bytes) => line.with(name, bytes),
        None => line,
    })
}
