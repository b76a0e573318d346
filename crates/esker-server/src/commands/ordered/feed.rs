//! `ES.FEED`: returns the changes of commits in the namespace of the connection, in order.
//!
//! ```text
//!   ES.FEED 1-9f.. 40 --> 1-9f.. 44 | 42: set a 1, del b | 44: ...      continue with: ES.FEED 1-9f.. 44
//! ```

use std::time::Duration;

use super::super::replication::{check_demoted, position_of};
use super::super::words::Words;
use crate::base::clock;
use crate::command::spec::Group::Esker;
use crate::holdings::namespace::Namespace;
use crate::replication::{Batch, KeyChange, Position, Replication};
use crate::resp::fail::Done;
use crate::resp::numbers::int;
use crate::resp::{Out, Request};
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::run::session::Session;

/// Default maximum number of commits per reply.
const COMMITS: usize = 100;
/// Time to wait for further commits, so that commits in quick succession are synced together.
const GATHER: Duration = Duration::from_millis(5);

#[rustfmt::skip]
pub(in super::super) const TABLE: &[Command] = &[
    command("es.feed", -3, READ | NO_SCRIPT | NO_MULTI | WAITS, NO_KEYS, Esker, "epoch number [count n] [block milliseconds]", "Returns the durable commits after a position, with their changes, and the position to continue from.", feed).awaits(Awaits::Feed),
];

/// The arguments of `ES.FEED`.
pub struct FeedRequest {
    namespace: Namespace,
    at: Position,
    count: usize,
    /// Milliseconds to wait. 0 means no limit, `None` no wait.
    block: Option<u64>,
}

/// Parses the words of a request.
///
/// # Errors
/// Fails if the words are invalid.
pub fn feed_request(session: &Session, request: &Request) -> Done<FeedRequest> {
    let mut asked = FeedRequest {
        namespace: session.namespace(),
        at: position_of(request, 1)?,
        count: COMMITS,
        block: None,
    };
    let mut words = Words::new(request, 3);
    while !words.is_over() {
        if words.takes("count") {
            asked.count = words.positive()?;
        } else {
            words.expect("block")?;
            let ms = u64::try_from(int(words.next()?)?).map_err(|_| "ERR BLOCK can't be negative")?;
            asked.block = Some(ms);
        }
    }
    Ok(asked)
}

impl FeedRequest {
    /// Waits for commits for the requested time.
    ///
    /// # Errors
    /// Fails if the commits are not kept any longer, belong to another history, or cannot be read.
    pub async fn wait(self, replication: &Replication) -> Done<Batch> {
        let end = self.block.filter(|ms| *ms > 0).map(|ms| clock::now_ms().saturating_add(ms));
        let mut feed = tokio::task::block_in_place(|| replication.changes(&self.namespace, self.at))?;
        loop {
            let batch = tokio::task::block_in_place(|| feed.read(replication, self.count))?;
            let left = end.map(|end| end.saturating_sub(clock::now_ms()));
            if !batch.commits.is_empty() || self.block.is_none() || left == Some(0) {
                return Ok(batch);
            }
            let seen = feed.at().seq;
            replication.wait(left.unwrap_or(0), || replication.position().seq > seen).await;
            tokio::time::sleep(GATHER).await;
        }
    }
}

fn feed(cx: &mut Cx<'_>, request: &Request) -> Done {
    let asked = feed_request(cx.session, request)?;
    let batch = match cx.session.turn.fed.take() {
        Some(batch) => batch?,
        // The wait was ended from outside.
        None => {
            check_demoted(cx)?;
            Batch { commits: Vec::new(), at: asked.at }
        }
    };
    cx.out.array(3);
    put_position(cx.out, batch.at);
    cx.out.array(batch.commits.len());
    for (at, changes) in &batch.commits {
        cx.out.array(3);
        put_position(cx.out, *at);
        cx.out.array(changes.len());
        changes.iter().for_each(|change| put_change(cx.out, change));
    }
    Ok(())
}

fn put_position(out: &mut Out, at: Position) {
    out.bulk(at.epoch.to_string().as_bytes());
    out.int(at.seq as i64);
}

fn put_change(out: &mut Out, KeyChange { name, key, words }: &KeyChange) {
    if *name == "all" {
        out.array(1);
        out.bulk(name.as_bytes());
        return;
    }
    out.array(2 + words.len());
    out.bulk(name.as_bytes());
    out.bulk(key);
    words.iter().for_each(|word| out.bulk_or_null(word.as_deref()));
}
