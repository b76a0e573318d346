//! Fuzzing entry points: arbitrary bytes from the socket.
//!
//! ```text
//!   bytes --frames--> requests --> the same requests
//!                        `-------> a session of a database in memory --> replies --> the same replies
//!   bytes --frames--> replies ---> the same replies, errors of the engine
//! ```

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker::{Contended, Db, Error as DbError, KeyspaceOptions, SeqNo, Value};

use crate::commit_id::{LaneId, Outcome};
use crate::error::WireError;
use crate::lanes::Lanes;
use crate::protocol::{
    At, Bytes, Op, Opening, Owned, Page, Reply, Request, WireDurability, WireIsolation, WireLifetime, decode,
    frame, read_frame, read_guest, read_version,
};
use crate::session::Session;

/// A host without a socket.
struct Bench {
    db: Db,
    lanes: Arc<Lanes>,
    /// A keyspace with entries.
    keyspace: u32,
}

impl Bench {
    fn new() -> Self {
        let db = Db::builder().background(false).lock_patience(Duration::from_millis(1)).open_in_memory();
        let db = db.expect("a database in memory");
        let lanes = Arc::new(Lanes::new(&db).expect("the keyspace of the records"));
        let options = KeyspaceOptions::new().merge_operator("add-u64");
        let keyspace = db.create_keyspace_with("k", options).expect("a new keyspace");
        for key in ["a", "b", "c"] {
            keyspace.put(key, 7_u64.to_le_bytes()).expect("a put in memory");
        }
        Bench { db, lanes, keyspace: keyspace.id().get() }
    }

    fn connect(&self) -> Session {
        let lane = self.lanes.join(LaneId::random()).expect("a random lane");
        Session::new(&self.db, &self.lanes, Some(lane))
    }
}

/// Reads the bytes as the requests of a guest.
pub fn shared_requests(mut bytes: &[u8]) {
    let _ = read_guest(&mut &*bytes);
    let mut buffer = Vec::new();
    while let Ok(true) = read_frame(&mut bytes, &mut buffer) {
        let Ok(request) = decode::<Request<'_>>(&buffer) else { break };
        let again = frame(&request).expect("it came in a frame");
        assert_eq!(decode::<Request<'_>>(&again[8..]).expect("it was encoded"), request);
    }
}

/// Runs the bytes as the requests of a guest. Another guest finds the database usable and sound afterwards.
pub fn shared_session(mut bytes: &[u8]) {
    let mut buffer = Vec::new();
    let mut served: Option<(Bench, Session)> = None;
    while let Ok(true) = read_frame(&mut bytes, &mut buffer) {
        let Ok(request) = decode::<Request<'_>>(&buffer) else { break };
        let (_, session) = served.get_or_insert_with(|| {
            let bench = Bench::new();
            let session = bench.connect();
            (bench, session)
        });
        let reply = session.run(request).unwrap_or_else(|error| Reply::Refused(WireError::from(&error)));
        let sent = frame(&reply).expect("a reply of a small database");
        assert_eq!(decode::<Reply>(&sent[8..]).expect("it was encoded"), reply);
    }
    let Some((bench, session)) = served else { return };
    drop(session);
    let mut other = bench.connect();
    let Ok(Reply::Keyspace(id)) = other.run(Request::Keyspace("other", Opening::CreateIfMissing)) else {
        panic!("another guest opens no keyspace");
    };
    let put = Op::Put { key: Bytes(b"key"), value: Bytes(b"value"), lifetime: WireLifetime::Default };
    other.run(Request::Commit(1, WireDurability::Sync, vec![(id, put)])).expect("another guest commits");
    let found = other.run(Request::Contains(At::Now, id, Bytes(b"key")));
    assert_eq!(found.expect("another guest reads"), Reply::Bool(true));
    assert_eq!(bench.db.check().expect("a check").problems, Vec::<String>::new());
}

/// Reads the bytes as the replies of a host.
pub fn shared_replies(mut bytes: &[u8]) {
    let _ = read_version(&mut &*bytes);
    let mut buffer = Vec::new();
    while let Ok(true) = read_frame(&mut bytes, &mut buffer) {
        let Ok(reply) = decode::<Reply>(&buffer) else { break };
        let again = frame(&reply).expect("it came in a frame");
        assert_eq!(decode::<Reply>(&again[8..]).expect("it was decoded"), reply);
        if let Reply::Refused(error) = reply {
            let error = error.into_db(Path::new("db"));
            let _ = (error.to_string(), WireError::from(&error));
        }
    }
}

/// Returns inputs of [`shared_requests`] and [`shared_session`].
pub fn request_seeds() -> Vec<Vec<u8>> {
    let id = Bench::new().keyspace;
    let (key, value) = (Bytes(b"a"), Bytes(&[1, 0, 0, 0, 0, 0, 0, 0]));
    let (soon, late) = (Duration::from_secs(9), Some(Duration::from_secs(1 << 33)));
    let put = || Op::Put { key, value, lifetime: WireLifetime::For(soon) };
    let put_until = |end| Op::Put { key, value, lifetime: WireLifetime::Until(end) };
    let (lower, upper) = (Bound::Included(key), Bound::Unbounded);
    let page = |is_reverse| Page { lower, upper, is_reverse, count_max: 1, keys_only: false };
    let options = KeyspaceOptions::new().bytes_max(1 << 20).to_bytes("n").expect("valid options");
    let lane = LaneId([1; 16]);
    let durability = WireDurability::Buffered;
    let sequences = [
        vec![
            Request::Begin(WireIsolation::Exclusive),
            Request::Commit(1, durability, vec![(id, put())]),
            Request::DropKeyspace("k"),
        ],
        vec![
            Request::Keyspace("n", Opening::Create(Bytes(&options))),
            Request::RenameKeyspace("n", "m"),
            Request::DropKeyspace("m"),
            Request::Keyspace("k", Opening::Existing),
            Request::Keyspaces,
        ],
        vec![
            Request::Get(At::Now, id, key),
            Request::Contains(At::Now, id, key),
            Request::Ttl(At::Now, id, key),
            Request::Len(At::Now, id),
            Request::MultiGet(At::Now, id, vec![key, Bytes(b"x")]),
            Request::Page(At::Now, id, page(true)),
            Request::Page(At::Held, id, page(false)),
            Request::Release,
        ],
        vec![
            Request::Gather(vec![(id, put())]),
            Request::Commit(1, durability, vec![(id, Op::Merge(key, value)), (id, Op::Delete(Bytes(b"b")))]),
            Request::Commit(2, durability, vec![(id, Op::DeleteRange(lower, upper))]),
            Request::Resolve(lane, 2, WireDurability::Sync),
            Request::Forget(lane),
            Request::Sync,
        ],
        vec![
            Request::Hold,
            Request::Begin(WireIsolation::Exclusive),
            Request::Write(id, put()),
            Request::FetchAdd(id, key, -1),
            Request::Replace(id, key, Some(value)),
            Request::Lock(id, key, true),
            Request::LockName("name", false),
            Request::Savepoint(7),
            Request::Write(id, put_until(late)),
            Request::Expire(id, key, Some(soon)),
            Request::Savepoint(8),
            Request::Write(id, put_until(Some(Duration::MAX))),
            Request::Expire(id, key, None),
            Request::RollbackTo(7),
            Request::RollbackTo(8),
            Request::ReleaseSavepoint(7),
            Request::Get(At::Held, id, key),
            Request::CommitTransaction(3, WireDurability::Default),
            Request::Goodbye,
        ],
    ];
    sequences.iter().map(|requests| joined(requests)).collect()
}

/// Returns inputs of [`shared_replies`].
pub fn reply_seeds() -> Vec<Vec<u8>> {
    let value = || Owned(Value::copy_of(b"value"));
    let conflict = DbError::Conflict { keyspace: "k".to_owned(), contended: Contended::Key(b"a".to_vec()) };
    let full = DbError::io("write", "db/1.wal", std::io::ErrorKind::StorageFull.into());
    let stopped = DbError::Poisoned(Arc::new(full));
    let merge = DbError::Merge {
        keyspace: "k".to_owned(),
        operator: "max".to_owned(),
        key: b"a".to_vec(),
        detail: "text".to_owned(),
    };
    let refused = [conflict, stopped, merge, DbError::Closed, DbError::SavepointGone];
    vec![
        joined(&[Reply::Done, Reply::Names(vec!["k".to_owned()]), Reply::Keyspace(3), Reply::Bool(true)]),
        joined(&[Reply::Value(Some(value())), Reply::Values(vec![None, Some(value())])]),
        joined(&[Reply::Page { entries: vec![(value(), value())], is_last: true }, Reply::Count(1)]),
        joined(&[Reply::Ttl(Some(Some(Duration::from_millis(5)))), Reply::Number(-1), Reply::Running]),
        joined(&[Reply::Seqno(SeqNo::new(3)), Reply::Outcome(Outcome::Applied(SeqNo::new(5)))]),
        joined(&refused.map(|error| Reply::Refused(WireError::from(&error)))),
    ]
}

fn joined(messages: &[impl serde::Serialize]) -> Vec<u8> {
    messages.iter().flat_map(|message| frame(message).expect("a small message")).collect()
}
