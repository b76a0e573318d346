//! Tests of the storage: openraft's own suite, durability, and a cluster.

#![allow(clippy::unwrap_used, missing_docs)]

mod cluster;
mod durable;
mod suite;

use std::io::Cursor;
use std::sync::Arc;

use esker::env::{Env, MemFs};
use esker::{Db, Keyspace, Transaction};
use esker_openraft::{LogStore, Machine, StateMachine};
use openraft::RaftTypeConfig;
use serde::{Deserialize, Serialize};

openraft::declare_raft_types!(
    pub Types:
        D = Request,
        R = Option<String>,
);

/// Puts a key and returns its old value.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    pub key: String,
    pub value: String,
}

/// A map of strings.
pub struct Map(pub Keyspace);

impl<C: RaftTypeConfig<D = Request, R = Option<String>>> Machine<C> for Map {
    fn keyspaces(&self) -> Vec<Keyspace> {
        vec![self.0.clone()]
    }

    fn apply(&self, t: &mut Transaction, request: &Request) -> esker::Result<Option<String>> {
        let old = t.get(&self.0, &request.key)?;
        t.put(&self.0, &request.key, &request.value)?;
        Ok(old.map(|old| String::from_utf8_lossy(&old).into_owned()))
    }

    fn no_answer(&self) -> Option<String> {
        None
    }
}

pub type Log = LogStore<Types>;
pub type State = StateMachine<Types, Map>;

/// Opens a database of these files.
pub fn open(fs: &MemFs) -> Db {
    Db::builder().memory(16 << 20).env(Env::with_fs(Arc::new(fs.clone()))).open("/db").unwrap()
}

pub fn stores(db: &Db) -> (Log, State) {
    let map = Map(db.keyspace("map").unwrap());
    (LogStore::open(db, "group").unwrap(), StateMachine::open(db, "group", map).unwrap())
}
