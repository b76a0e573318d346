//! Puts changes of the engine's feed into words.

use std::collections::HashMap;

use esker::{Db, FeedChange, KeyspaceId};

use super::change::Described;
use crate::args::Common;

/// Maps keyspace ids to names: the current names, until the feed contains a newer one.
pub(super) struct Names(HashMap<KeyspaceId, String>);

impl Names {
    pub(super) fn of(db: &Db) -> esker::Result<Self> {
        let named = |name: String| Ok((db.open_keyspace(&name)?.id(), name));
        Ok(Names(db.keyspaces()?.into_iter().map(named).collect::<esker::Result<_>>()?))
    }

    /// Describes a change. Returns nothing if the user did not select its keyspace, or if it is internal to
    /// the engine.
    pub(super) fn describe(
        &mut self,
        common: &Common,
        change: &FeedChange<'_>,
    ) -> esker::Result<Option<Described>> {
        if let FeedChange::Named { keyspace, name } = change {
            self.0.insert(*keyspace, (*name).to_owned());
        }
        let of = |id: &KeyspaceId| self.0.get(id).cloned().unwrap_or_else(|| format!("#{}", id.get()));
        let begin = |what, keyspace: String| {
            let is_asked_for = !common.names_keyspace() || common.keyspaces().contains(&keyspace.as_str());
            is_asked_for.then(|| Described::new(what, keyspace))
        };
        Ok(match change {
            FeedChange::Put { keyspace, key, value } => match begin("put", of(keyspace)) {
                Some(put) => {
                    let mut put = put.with("key", *key).with("value", value.read()?.to_vec());
                    put.expires_ms = value.expires_at().map(super::source::millis);
                    Some(put)
                }
                None => None,
            },
            FeedChange::Merge { keyspace, key, operands } => begin("merge", of(keyspace)).map(|merge| {
                merge.with("key", *key).with_operands(operands.iter().map(|operand| operand.bytes()))
            }),
            FeedChange::Delete { keyspace, key } => {
                begin("removed", of(keyspace)).map(|removed| removed.with("key", *key))
            }
            FeedChange::Expire { keyspace, key } => {
                begin("expired", of(keyspace)).map(|expired| expired.with("key", *key))
            }
            FeedChange::DeleteRange { keyspace, start, end } => {
                begin("removed-range", of(keyspace)).map(|range| match end {
                    Some(end) => range.with("from", *start).with("to", *end),
                    None => range.with("from", *start),
                })
            }
            FeedChange::Named { keyspace, name } => {
                begin("named", (*name).to_owned()).map(|named| named.with("id", keyspace.get().to_string()))
            }
            FeedChange::Unnamed { name } => begin("unnamed", (*name).to_owned()),
            _ => None,
        })
    }
}
