//! The server on a store that is not a database of this process. The code above the trait `Store` needs no
//! files, no number of keys without counting, and no range removal in one write.

use std::any::Any;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use esker::Db;
use esker_server::Options;
use esker_server::store::{
    Durability, Error, Isolation, LocalStore, Locks, Order, Reads, Result, Snapshot, Space, Span, Store,
    Transaction, Value, Visit, Write,
};

use crate::differential::compare;
use crate::harness::TestServer;
use crate::rows_model;

/// A minimal store: walks come in small pieces, and optional methods are missing.
struct Elsewhere(LocalStore);

/// Number of entries per piece.
const PIECE: usize = 3;

fn not_here<T>() -> Result<T> {
    Err(Error::Invalid("another machine has the files".to_owned()))
}

/// Walks in pieces, with one request for each.
fn walk(reads: &dyn Reads, space: &Space, span: Span<'_>, order: Order, visit: &mut Visit<'_>) -> Result<()> {
    let mut last: Option<Vec<u8>> = None;
    loop {
        let mut left = span;
        match (&last, order) {
            (None, _) => {}
            (Some(key), Order::Up) => left.lower = Bound::Excluded(key),
            (Some(key), Order::Down) => left.upper = Bound::Excluded(key),
        }
        let mut piece = Vec::new();
        reads.range(space, left, order, &mut |key, value| {
            piece.push((key.to_vec(), value.to_vec()));
            if piece.len() < PIECE { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        for (key, value) in &piece {
            if visit(key, value).is_break() {
                return Ok(());
            }
        }
        match piece.pop() {
            Some((key, _)) if piece.len() + 1 == PIECE => last = Some(key),
            _ => return Ok(()),
        }
    }
}

fn count(reads: &dyn Reads, space: &Space) -> Result<u64> {
    let mut count = 0;
    walk(reads, space, Span::ALL, Order::Up, &mut |_, _| {
        count += 1;
        ControlFlow::Continue(())
    })?;
    Ok(count)
}

macro_rules! reads {
    ($of:ty, $($deref:tt)*) => {
        impl $of {
            fn inner(&self) -> &dyn Reads {
                &$($deref)* self.0
            }
        }

        impl Reads for $of {
            fn get(&self, space: &Space, key: &[u8]) -> Result<Option<Value>> {
                self.inner().get(space, key)
            }

            fn multi_get(
                &self,
                space: &Space,
                keys: &[&[u8]],
                bytes_max: usize,
            ) -> Result<Vec<Option<Value>>> {
                self.inner().multi_get(space, keys, bytes_max)
            }

            fn range(
                &self,
                space: &Space,
                span: Span<'_>,
                order: Order,
                visit: &mut Visit<'_>,
            ) -> Result<()> {
                walk(self.inner(), space, span, order, visit)
            }

            fn len(&self, space: &Space) -> Result<u64> {
                count(self.inner(), space)
            }
        }
    };
}

struct Still(Arc<dyn Snapshot>);
struct Begun(Box<dyn Transaction>);

reads!(Elsewhere,);
reads!(Still, *);
reads!(Begun, *);

impl Snapshot for Still {}

impl Transaction for Begun {
    fn savepoint(&mut self) -> usize {
        self.0.savepoint()
    }

    fn rollback_to(&mut self, point: usize) -> Result<()> {
        self.0.rollback_to(point)
    }

    fn release(&mut self, point: usize) {
        self.0.release(point);
    }

    fn refresh(&mut self) {
        self.0.refresh();
    }

    fn note_reads(&mut self, notes: bool) {
        self.0.note_reads(notes);
    }

    fn depend_on(&self, space: &Space, span: Span<'_>) -> Result<()> {
        self.0.depend_on(space, span)
    }

    fn admit(&mut self, part: &dyn Transaction) -> Result<()> {
        self.0.admit(part)
    }

    fn visit_writes(&self, space: &Space, visit: &mut dyn FnMut(Write<'_>)) -> Result<()> {
        self.0.visit_writes(space, visit)
    }

    fn repeat(&mut self, space: &Space, write: Write<'_>) -> Result<()> {
        self.0.repeat(space, write)
    }

    fn write_count(&self) -> usize {
        self.0.write_count()
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn as_any(&self) -> &dyn Any {
        self.0.as_any()
    }

    fn put(&mut self, space: &Space, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.put(space, key, value)
    }

    fn merge(&mut self, space: &Space, key: &[u8], operand: &[u8]) -> Result<()> {
        self.0.merge(space, key, operand)
    }

    fn remove(&mut self, space: &Space, key: &[u8]) -> Result<()> {
        self.0.remove(space, key)
    }

    fn delete_range(&mut self, space: &Space, span: Span<'_>) -> Result<()> {
        let mut keys = Vec::new();
        self.range(space, span, Order::Up, &mut |key, _| {
            keys.push(key.to_vec());
            ControlFlow::Continue(())
        })?;
        keys.iter().try_for_each(|key| self.0.remove(space, key))
    }

    fn version(&self) -> u64 {
        self.0.version()
    }

    fn writes(&self) -> u64 {
        self.0.writes()
    }

    fn commit(self: Box<Self>, durability: Durability) -> Result<u64> {
        self.0.commit(durability)
    }
}

impl Store for Elsewhere {
    fn space(&self, name: &str, _: bool) -> Result<Space> {
        self.0.space(name, false)
    }

    fn find_space(&self, name: &str) -> Result<Option<Space>> {
        self.0.find_space(name)
    }

    fn spaces(&self) -> Result<Vec<String>> {
        self.0.spaces()
    }

    fn drop_space(&self, name: &str) -> Result<()> {
        self.0.drop_space(name)
    }

    fn rename_spaces(&self, names: &[(&str, &str)]) -> Result<()> {
        self.0.rename_spaces(names)
    }

    fn snapshot(&self) -> Arc<dyn Snapshot> {
        Arc::new(Still(self.0.snapshot()))
    }

    fn begin(&self) -> Box<dyn Transaction> {
        Box::new(Begun(self.0.begin()))
    }

    fn begin_part(&self, isolation: Isolation) -> Box<dyn Transaction> {
        Box::new(Begun(self.0.begin_part(isolation)))
    }

    fn locks(&self) -> Box<dyn Locks> {
        self.0.locks()
    }

    fn sync(&self) -> Result<()> {
        self.0.sync()
    }

    fn figures(&self) -> Vec<esker::Figure> {
        Vec::new()
    }

    fn set_merge_operator(&self, space: &Space, operator: &str) -> Result<()> {
        self.0.set_merge_operator(space, operator)
    }

    fn health_problem(&self) -> Option<String> {
        None
    }

    fn is_in_memory(&self) -> bool {
        false
    }

    fn compact(&self) -> Result<()> {
        not_here()
    }

    fn check(&self) -> Result<Vec<String>> {
        not_here()
    }
}

fn elsewhere() -> TestServer {
    let db = Db::in_memory().unwrap();
    let store = Arc::new(Elsewhere(LocalStore::new(db.clone(), 1 << 30)));
    TestServer::start_on(store, db, None, Options::default())
}

#[test]
fn types_and_rows_work_on_any_store() {
    let (here, there) = (TestServer::start(), elsewhere());
    for (seed, version) in (1000..1004).zip(["2", "3"].into_iter().cycle()) {
        if let Err(difference) = compare(&mut there.wire(), &mut here.wire(), seed, 1500, version) {
            panic!("{difference}");
        }
    }
    rows_model::agree(&there, 3);
}

#[test]
fn ordered_commands_work_on_any_store_and_tell_what_it_cannot() {
    let servers = [TestServer::start(), elsewhere()];
    let mut wires = servers.each_ref().map(TestServer::wire);
    for line in [
        "ES.KS CREATE plain",
        "ES.KS USE plain",
        "ES.KS OPERATOR plain append",
        "ES.SET a 1",
        "ES.SET b 2",
        "ES.SET c 3",
        "ES.SET d 4",
        "ES.SET e 5",
        "ES.RANGE '' ''",
        "ES.RANGE b '' LIMIT 3 REV",
        "ES.COUNT",
        "ES.COUNT b e",
        "ES.MERGE m x",
        "ES.MERGE m y",
        "ES.GET m",
        "ES.BEGIN",
        "ES.DELRANGE b d",
        "ES.PREFIX ''",
        "ES.CAS a EQ 1 SET 2",
        "ES.COMMIT",
        "ES.RANGE '' ''",
        "ES.BEGIN SNAPSHOT",
        "ES.SET g 7",
        "ES.ROLLBACK",
        "ES.LAST",
        "ES.NEXT d",
        "ES.PREV d",
        "ES.KS LIST",
        "ES.KS DROP plain",
        "ES.KS USE",
        "DBSIZE",
        "SET k v",
        "DBSIZE",
        "FLUSHALL",
        "DBSIZE",
    ] {
        let [here, there] = wires.each_mut().map(|wire| wire.say(line));
        assert_eq!(here, there, "{line}");
    }
    let there = &mut wires[1];
    for line in ["ES.COMPACT", "ES.VERIFY", "REPLICAOF 127.0.0.1 1", "ES.FEED 1-0 1"] {
        assert!(there.say(line).starts_with("-ERR"), "{line}");
    }
    assert_eq!(there.say("INFO").get(..1), Some("\""));
    assert_eq!(there.say("ES.SLOTS"), "*[]");
    assert_eq!(there.say("PING"), "+PONG");
}
