//! Trimming of streams: the options of `XTRIM`, which `XADD` shares, and what removals do to consumer groups.

use super::streams::id;
use crate::resp::Request;
use crate::resp::fail::{Done, SYNTAX};
use crate::resp::numbers::int;
use crate::run::cx::Cx;
use crate::types::{References, Stream, StreamId};

/// Number of entries that an approximate trim (`~`) removes as a unit, and the default maximum per command.
const PIECE: usize = 100;
const LIMIT: u64 = 100 * PIECE as u64;

/// What a removal does to entries that consumer groups refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// Removes entries, and keeps them pending.
    KeepReferences,
    /// Removes entries, and acknowledges them in all groups.
    RemoveReferences,
    /// Removes only entries that all groups have delivered and acknowledged.
    Acknowledged,
}

impl Removal {
    /// Parses the word of an option.
    pub(super) fn named(word: &[u8]) -> Option<Self> {
        match word.to_ascii_lowercase().as_slice() {
            b"keepref" => Some(Removal::KeepReferences),
            b"delref" => Some(Removal::RemoveReferences),
            b"acked" => Some(Removal::Acknowledged),
            _ => None,
        }
    }
}

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
    removal: Option<Removal>,
}

impl Trim {
    /// Parses an option with its value. Returns the number of words, or none if it is another word.
    pub(super) fn option(&mut self, request: &Request, at: usize) -> Done<Option<usize>> {
        if let Some(removal) = request.get(at).and_then(Removal::named) {
            return match self.removal.replace(removal) {
                None => Ok(Some(1)),
                Some(_) => Err(SYNTAX.into()),
            };
        }
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
        let Some(keep) = self.keep else { return Ok(0) };
        let references = match self.removal {
            None | Some(Removal::KeepReferences) => None,
            Some(_) => Some(stream.references(cx)?),
        };
        let old = self.old(cx, stream, keep, references.as_ref())?;
        for id in &old {
            stream.remove(cx, *id)?;
            if let (Some(references), Some(Removal::RemoveReferences)) = (&references, self.removal) {
                stream.acknowledge_everywhere(cx, references, *id)?;
            }
        }
        // Like in Redis, only XDEL updates the largest removed id.
        Ok(old.len() as u64)
    }

    /// Returns the entries to remove.
    fn old(
        &self,
        cx: &Cx<'_>,
        stream: &Stream,
        keep: Keep,
        references: Option<&References>,
    ) -> Done<Vec<StreamId>> {
        let (to, count) = match keep {
            Keep::Newest(n) => (Some(StreamId::MAX), stream.len().saturating_sub(n)),
            Keep::From(id) => (id.previous(), u64::MAX),
        };
        let Some(mut to) = to else { return Ok(Vec::new()) };
        let acknowledged = references.filter(|_| self.removal == Some(Removal::Acknowledged));
        if let Some(references) = acknowledged {
            to = to.min(references.delivered);
        }
        let limit = match self.is_about {
            true => self.limit.map_or(LIMIT, |limit| if limit == 0 { u64::MAX } else { limit }),
            false => u64::MAX,
        };
        // One more shows whether the limit cuts.
        let count = usize::try_from(count.min(limit.saturating_add(1))).unwrap_or(usize::MAX);
        let mut old = stream.ids_until(cx, to, count, |id| match acknowledged {
            Some(references) => Ok(!stream.is_referenced(cx, references, id)?),
            None => Ok(true),
        })?;
        let most = old.len().min(usize::try_from(limit).unwrap_or(usize::MAX));
        // An approximate trim removes whole units. The last one may be incomplete if all entries are removed.
        if self.is_about && (most < old.len() || (old.len() as u64) < stream.len()) {
            old.truncate(most / PIECE * PIECE);
        }
        Ok(old)
    }
}
