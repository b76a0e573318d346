//! `esker feed`: prints what each commit changed.
//!
//! ```text
//!   COMMIT put KEYSPACE KEY VALUE | merge KEYSPACE KEY OPERAND... | removed KEYSPACE KEY
//!        | expired KEYSPACE KEY
//!        | removed-range KEYSPACE FROM TO | named KEYSPACE ID | unnamed KEYSPACE     then COMMIT end
//! ```

use std::collections::HashMap;

use esker::{Db, Error, FeedChange, KeyspaceId, SeqNo};

use super::past::Line;
use crate::Answer;
use crate::args::{Common, FeedArgs};
use crate::database::{Database, Session};
use crate::failure::{Failure, Result};
use crate::output;

pub(super) fn run(session: &Session<'_>, args: &FeedArgs) -> Result<Answer> {
    if let Some(bytes) = args.keep {
        let age = args.span.map_or(std::time::Duration::MAX, |span| span.0);
        let database =
            Database::open_with(session.opening, false, |builder| builder.feed_retention(bytes, age))?;
        database.close()?;
        return Ok(Answer::Yes);
    }
    let database = session.open_alone(super::FEED_BESIDE)?;
    let failure = |error| database.failure(error);
    let mut feed = match (database.db.feed_after(args.since.map_or(SeqNo::ZERO, |since| since.0)), args.since)
    {
        // Without a start position, the feed begins at the oldest retained commit.
        (Err(Error::FeedTruncated { oldest }), None) => {
            database.db.feed_after(oldest.prev()).map_err(failure)?
        }
        (Err(error @ Error::NoFeed), _) => {
            return Err(Failure::message(format!("{error}\n  `esker feed --keep BYTES` turns the feed on")));
        }
        (feed, _) => feed.map_err(failure)?,
    };
    let mut names = Names::of(&database.db).map_err(failure)?;
    let mut out = output::stdout();
    let mut last = args.since.map_or(SeqNo::ZERO, |since| since.0);
    let mut left = args.limit.unwrap_or(usize::MAX);
    while left > 0 {
        let Some(mut commit) = feed.try_next().map_err(failure)? else { break };
        let seqno = commit.seqno();
        while let Some(change) = commit.next_change().map_err(failure)? {
            if let Some(line) = names.line(&session.common, seqno, &change).map_err(failure)? {
                line.write(&mut out)?;
            }
        }
        (last, left) = (seqno, left - 1);
    }
    Line::new(&session.common, None, last, "end").write(&mut out)?;
    std::io::Write::flush(&mut out)?;
    Ok(Answer::Yes)
}

/// Maps keyspace ids to names: the current names, until the feed contains a newer one.
struct Names(HashMap<KeyspaceId, String>);

impl Names {
    fn of(db: &Db) -> esker::Result<Self> {
        let named = |name: String| Ok((db.open_keyspace(&name)?.id(), name));
        Ok(Names(db.keyspaces()?.into_iter().map(named).collect::<esker::Result<_>>()?))
    }

    /// Formats a change. Returns nothing if the user did not select its keyspace, or if it is internal to the
    /// engine.
    fn line<'a>(
        &mut self,
        common: &'a Common,
        seqno: SeqNo,
        change: &FeedChange<'_>,
    ) -> esker::Result<Option<Line<'a>>> {
        if let FeedChange::Named { keyspace, name } = change {
            self.0.insert(*keyspace, (*name).to_owned());
        }
        let of = |id: &KeyspaceId| self.0.get(id).cloned().unwrap_or_else(|| format!("#{}", id.get()));
        let begin = |what: &str, keyspace: String| {
            let is_asked_for = !common.names_keyspace() || common.keyspaces().contains(&keyspace.as_str());
            is_asked_for.then(|| Line::new(common, None, seqno, what).with("keyspace", keyspace.as_bytes()))
        };
        Ok(match change {
            FeedChange::Put { keyspace, key, value } => match begin("put", of(keyspace)) {
                Some(line) => Some(line.with("key", key).with("value", &value.read()?)),
                None => None,
            },
            FeedChange::Merge { keyspace, key, operands } => begin("merge", of(keyspace)).map(|line| {
                let line = line.with("key", key);
                operands.iter().enumerate().fold(line, |line, (i, operand)| {
                    line.with(
                        &if i == 0 { "operand".to_owned() } else { format!("operand_{}", i + 1) },
                        operand.bytes(),
                    )
                })
            }),
            FeedChange::Delete { keyspace, key } => {
                begin("removed", of(keyspace)).map(|line| line.with("key", key))
            }
            FeedChange::Expire { keyspace, key } => {
                begin("expired", of(keyspace)).map(|line| line.with("key", key))
            }
            FeedChange::DeleteRange { keyspace, start, end } => {
                begin("removed-range", of(keyspace)).map(|line| match end {
                    Some(end) => line.with("from", start).with("to", end),
                    None => line.with("from", start),
                })
            }
            FeedChange::Named { keyspace, name } => begin("named", (*name).to_owned())
                .map(|line| line.with("id", keyspace.get().to_string().as_bytes())),
            FeedChange::Unnamed { name } => begin("unnamed", (*name).to_owned()),
            _ => None,
        })
    }
}
