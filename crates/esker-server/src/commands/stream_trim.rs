//! Trimming of streams: the options of `XTRIM`, which `XADD` shares.

use super::streams::id;
use crate::resp::Request;
use crate::resp::fail::{Done, SYNTAX};
use crate::resp::numbers::int;
use crate::run::cx::Cx;
use crate::store::Order;
use crate::types::{Stream, StreamId};

/// Number of entries that an approximate trim (`~`) removes as a unit, and the default maximum per command.
const PIECE: usize = 100;
const LIMIT: u64 = 100 * PIECE as u64;

/// Which entries to keep.
#[derive(Clone, Copy)]
enum Keep {
    Newest(u64),
    From(StreamId),
}

/// The options of a trim.
#[derive(Default)]
pub(super) struct Trim {
    keep: Option<Keep>,
    is_about: bool,
    limit: Option<u64>,
}

impl Trim {
    /// Parses an option with its value. Returns the number of words, or none if it is another word.
    pub(super) fn option(&mut self, request: &Request, at: usize) -> Done<Option<usize>> {
        if at + 1 >= request.len() {
            return Ok(None);
        }
        if request.is(at, "limit") {
            let limit = int(&request[at + 1])?;
            self.limit = Some(u64::try_from(limit).map_err(|_| "ERR The LIMIT argument must be >= 0.")?);
            return Ok(Some(2));
        }
        let is_len = request.is(at, "maxlen");
        if !is_len && !request.is(at, "minid") {
            return Ok(None);
        }
        if self.keep.is_some() {
            return Err(
                "ERR syntax error, MAXLEN and MINID options at the same time are not compatible".into()
            );
        }
        let has_sign = at + 2 < request.len() && matches!(&request[at + 1], b"~" | b"=");
        self.is_about = has_sign && request.is(at + 1, "~");
        let word = &request[at + 1 + usize::from(has_sign)];
        self.keep = Some(match is_len {
            true => {
                let n = int(word)?;
                Keep::Newest(u64::try_from(n).map_err(|_| "ERR The MAXLEN argument must be >= 0.")?)
            }
            false => Keep::From(id(word, 0)?),
        });
        Ok(Some(2 + usize::from(has_sign)))
    }

    /// Checks that the options fit together.
    pub(super) fn check(&self) -> Done {
        match (self.keep, self.limit) {
            (None, Some(1..)) => {
                Err("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy".into())
            }
            (_, Some(_)) if !self.is_about => {
                Err("ERR syntax error, LIMIT cannot be used without the special ~ option".into())
            }
            _ => Ok(()),
        }
    }

    /// Parses the options of `XTRIM`. One of them must say what to keep.
    pub(super) fn of(request: &Request, first: usize) -> Done<Self> {
        let (mut trim, mut at) = (Trim::default(), first);
        while at < request.len() {
            at += trim.option(request, at)?.ok_or(SYNTAX)?;
        }
        if trim.keep.is_none() && trim.limit.is_none_or(|limit| limit == 0) {
            return Err("ERR syntax error, XTRIM must be called with a trimming strategy".into());
        }
        trim.check()?;
        Ok(trim)
    }

    /// Removes the entries that are not kept, and returns their number. An approximate trim may remove fewer.
    pub(super) fn run(&self, cx: &mut Cx<'_>, stream: &mut Stream) -> Done<u64> {
        let (to, count) = match self.keep {
            None => (None, 0),
            Some(Keep::Newest(n)) => (Some(StreamId::MAX), stream.len().saturating_sub(n)),
            Some(Keep::From(id)) => (id.previous(), u64::MAX),
        };
        let Some(to) = to else { return Ok(0) };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let mut old = stream.entries(cx, StreamId::default(), to, Order::Up, count)?;
        if self.is_about {
            let limit = self.limit.map_or(LIMIT, |limit| if limit == 0 { u64::MAX } else { limit });
            let most = old.len().min(usize::try_from(limit).unwrap_or(usize::MAX));
            // The last unit may be incomplete if all entries are removed.
            if most < old.len() || (old.len() as u64) < stream.len() {
                old.truncate(most / PIECE * PIECE);
            }
        }
        for (id, _) in &old {
            stream.remove(cx, *id)?;
        }
        // Like in Redis, only XDEL updates the largest removed id.
        Ok(old.len() as u64)
    }
}
