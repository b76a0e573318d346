//! The change feed: every durable commit, in order.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use esker::{Db, Feed, FeedChange, FeedCommit, KeyspaceId, Value};
use napi::bindgen_prelude::{Env, JsValue, Object, Unknown};
use napi_derive::napi;
use parking_lot::Mutex;

use crate::completion::{Outcome, buffer};
use crate::error::Failure;
use crate::pool::WAITS;
use crate::shared::Shared;

/// A commit with its changes.
pub(crate) struct Commit {
    seqno: f64,
    changes: Vec<Change>,
}

/// A change. Members that a kind of change lacks are empty.
#[derive(Default)]
struct Change {
    kind: &'static str,
    keyspace_id: Option<u32>,
    keyspace: Option<String>,
    key: Option<Vec<u8>>,
    value: Option<Value>,
    end: Option<Vec<u8>>,
    expires_at: Option<f64>,
    merged_at: Option<f64>,
    lifetime: Option<f64>,
}

impl Change {
    fn into_js(self, env: &Env) -> napi::Result<Object<'_>> {
        let mut change = Object::new(env)?;
        change.set("change", self.kind)?;
        if let Some(id) = self.keyspace_id {
            change.set("keyspaceId", id)?;
        }
        if let Some(name) = self.keyspace {
            change.set("keyspace", name)?;
        }
        if let Some(key) = self.key {
            change.set("key", buffer(env, &key)?)?;
        }
        if let Some(value) = self.value {
            change.set("value", buffer(env, &value)?)?;
        }
        if let Some(end) = self.end {
            change.set("end", buffer(env, &end)?)?;
        }
        let times =
            [("expiresAt", self.expires_at), ("mergedAt", self.merged_at), ("lifetime", self.lifetime)];
        for (name, time) in times {
            if let Some(time) = time {
                change.set(name, time)?;
            }
        }
        Ok(change)
    }
}

impl Commit {
    pub(crate) fn into_js(self, env: &Env) -> napi::Result<Unknown<'_>> {
        let mut changes = env.create_array(0)?;
        for change in self.changes {
            changes.insert(change.into_js(env)?)?;
        }
        let mut commit = Object::new(env)?;
        commit.set("seqno", self.seqno)?;
        commit.set("changes", changes)?;
        Ok(commit.to_unknown())
    }
}

/// A reader, with the names that keyspaces have.
struct Reader {
    feed: Feed,
    names: HashMap<KeyspaceId, Option<String>>,
}

impl Reader {
    fn next(&mut self, db: &Db, patience: Duration) -> Result<Option<Commit>, Failure> {
        let Some(mut commit) = self.feed.next_within(patience)? else { return Ok(None) };
        self.names.clear();
        let mut changes = Vec::new();
        while let Some(made) = self.next_changes(db, &mut commit)? {
            changes.extend(made);
        }
        Ok(Some(Commit { seqno: commit.seqno().get() as f64, changes }))
    }

    fn name(&mut self, db: &Db, id: KeyspaceId) -> Result<Option<String>, Failure> {
        if let Some(name) = self.names.get(&id) {
            return Ok(name.clone());
        }
        let name = db.keyspace_by_id(id)?.map(|keyspace| keyspace.name());
        self.names.insert(id, name.clone());
        Ok(name)
    }

    /// Reads the next change. A merge of several operands is a change for each.
    fn next_changes(&mut self, db: &Db, commit: &mut FeedCommit) -> Result<Option<Vec<Change>>, Failure> {
        let Some(change) = commit.next_change()? else { return Ok(None) };
        let of = |kind, id: KeyspaceId, key: &[u8]| Change {
            kind,
            keyspace_id: Some(id.get()),
            key: Some(key.to_vec()),
            ..Change::default()
        };
        let named = |kind, id: Option<u32>, name: &str| Change {
            kind,
            keyspace_id: id,
            keyspace: Some(name.to_owned()),
            ..Change::default()
        };
        let (keyspace, mut changes) = match &change {
            FeedChange::Put { keyspace, key, value } => {
                let expires_at = value.expires_at().map(ms_since_1970);
                let value = Some(value.read()?);
                (Some(*keyspace), vec![Change { value, expires_at, ..of("put", *keyspace, key) }])
            }
            FeedChange::Merge { keyspace, key, operands } => {
                let one = |operand: &esker::FeedOperand<'_>| Change {
                    value: Some(Value::copy_of(operand.bytes())),
                    merged_at: Some(ms_since_1970(operand.merged_at())),
                    lifetime: operand.lifetime().map(|lifetime| lifetime.as_millis() as f64),
                    ..of("merge", *keyspace, key)
                };
                (Some(*keyspace), operands.iter().map(one).collect())
            }
            FeedChange::Delete { keyspace, key } => (Some(*keyspace), vec![of("delete", *keyspace, key)]),
            FeedChange::Expire { keyspace, key } => (Some(*keyspace), vec![of("expire", *keyspace, key)]),
            FeedChange::DeleteRange { keyspace, start, end } => {
                let end = end.map(<[u8]>::to_vec);
                (Some(*keyspace), vec![Change { end, ..of("delete_range", *keyspace, start) }])
            }
            FeedChange::Named { keyspace, name } => (None, vec![named("named", Some(keyspace.get()), name)]),
            FeedChange::Unnamed { name } => (None, vec![named("unnamed", None, name)]),
            _ => (None, vec![Change { kind: "other", ..Change::default() }]),
        };
        if let Some(id) = keyspace {
            let name = self.name(db, id)?;
            changes.iter_mut().for_each(|change| change.keyspace.clone_from(&name));
        }
        Ok(Some(changes))
    }
}

fn ms_since_1970(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as f64
}

#[napi]
pub struct NativeFeed {
    shared: Arc<Shared>,
    reader: Arc<Mutex<Reader>>,
}

impl NativeFeed {
    pub(crate) fn new(shared: Arc<Shared>, feed: Feed) -> NativeFeed {
        let reader = Reader { feed, names: HashMap::new() };
        NativeFeed { shared, reader: Arc::new(Mutex::new(reader)) }
    }
}

#[napi]
impl NativeFeed {
    /// Waits up to some milliseconds for the next commit.
    #[napi(catch_unwind)]
    pub fn next(&self, number: u32, milliseconds: u32) {
        let (shared, reader) = (self.shared.clone(), self.reader.clone());
        let patience = Duration::from_millis(milliseconds.into());
        WAITS.run(move || {
            let done = shared.done.clone();
            done.finish(number, || {
                let commit = reader.lock().next(&shared.db, patience)?;
                Ok(commit.map_or(Outcome::Nothing, |commit| Outcome::made(|env| commit.into_js(env))))
            });
        });
    }
}
