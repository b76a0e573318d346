//! A shared database whose host is also the primary of a replica: each process serves while it is the host.
//!
//! ```text
//!   workers --calls--> host { Shared, Server on one port } --commits--> a replica in the test's process
//!                      killed again and again
//! ```

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use esker::{Builder, Db, Durability};
use esker_server::{Options, Server, Source, Stopper, finish_copy, serve};
use esker_shared::{Error, Shared};
use parking_lot::Mutex;

use crate::kill::{Campaign, journal_of, kills, of_child};

fn engine() -> Builder {
    Db::builder().memory(32 << 20).durability(Durability::Buffered).feed_retention(1 << 30, Duration::MAX)
}

fn open(dir: &Path) -> Shared {
    Shared::builder().engine(engine()).wait(Duration::from_secs(50)).open(dir.join("db")).unwrap()
}

/// The server that runs, and how often one has begun: again after each copy.
#[derive(Default)]
struct Begun {
    times: u32,
    server: Option<Arc<Server>>,
}

/// Runs a server until it is stopped.
fn run(open: impl Fn() -> esker::Result<Db>, options: Options, stopper: &Stopper, now: &Mutex<Begun>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let begin = |server: &Arc<Server>, _: &_| {
        let mut now = now.lock();
        (now.times, now.server) = (now.times + 1, Some(server.clone()));
    };
    runtime.block_on(serve(open, 32 << 20, options, stopper, begin)).unwrap();
}

/// Serves the database of a host on the primary's port.
fn run_primary(dir: &Path, shared: &Shared, stopper: &Stopper) {
    let port = fs::read_to_string(dir.join("port")).unwrap().parse().unwrap();
    let options = Options { port: Some(port), dir: dir.join("db"), ..Options::default() };
    run(|| Ok(shared.db().unwrap()), options, stopper, &Mutex::default());
}

/// The process that [`a_replica_follows_from_host_to_host`] starts.
#[test]
fn worker() {
    let Some((dir, id)) = of_child() else { return };
    let shared = open(&dir);
    let ks = shared.keyspace("k").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !shared.is_host() {
                std::thread::sleep(Duration::from_millis(1));
            }
            run_primary(&dir, &shared, &Stopper::default());
        });
        let mut journal =
            fs::OpenOptions::new().create(true).append(true).open(journal_of(&dir, id)).unwrap();
        for n in 0_u64.. {
            let durability = [Durability::None, Durability::Sync][n as usize % 2];
            ks.with(durability).put(format!("{id}/{n}"), vec![n as u8; 100]).unwrap();
            journal.write_all(format!("{n}\n").as_bytes()).unwrap();
            let added = shared.transact(|t| t.fetch_add(&ks, "sum", 1));
            assert!(!matches!(added, Err(Error::HostGone)), "transact runs it again");
            std::thread::sleep(Duration::from_millis(2));
        }
    });
}

/// All entries, except those that are the server's own.
fn contents(db: &Db) -> esker::Result<Vec<[Vec<u8>; 3]>> {
    let names = db.keyspaces()?.into_iter().filter(|name| !name.starts_with("es."));
    let mut all = Vec::new();
    for name in names {
        for entry in db.open_keyspace(&name)?.iter() {
            let (key, value) = entry?;
            all.push([name.clone().into_bytes(), key.to_vec(), value.to_vec()]);
        }
    }
    Ok(all)
}

/// What a server says about its replication.
fn info_of(server: &Server) -> String {
    let port = server.ports.plain.load(Ordering::Relaxed) as u16;
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    stream.write_all(b"INFO replication\r\n").unwrap();
    let mut text = Vec::new();
    // It ends with the timeout.
    let _ = stream.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn a_replica_follows_from_host_to_host() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    fs::write(dir.join("port"), port.to_string()).unwrap();
    let (replica, stopper) = (Arc::new(Mutex::new(Begun::default())), Stopper::default());
    let of_replica = {
        let (dir, replica, stopper) = (dir.join("replica"), replica.clone(), stopper.clone());
        std::thread::spawn(move || {
            finish_copy(&dir).unwrap();
            let replica_of = Some(Source { host: "127.0.0.1".to_owned(), port });
            let options = Options { port: Some(0), dir: dir.clone(), replica_of, ..Options::default() };
            run(|| engine().open(&dir), options, &stopper, &replica);
        })
    };
    let spawned = Campaign::run(dir, "replicated::worker", kills(10), Duration::from_millis(600));
    let (shared, of_primary) = (open(dir), Stopper::default());
    while !shared.is_host() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let db = shared.db().unwrap();
    let ks = shared.keyspace("k").unwrap();
    for id in 1..=spawned {
        for n in fs::read_to_string(journal_of(dir, id)).unwrap_or_default().lines() {
            assert!(ks.contains(format!("{id}/{n}")).unwrap(), "{id}/{n} is lost");
        }
    }
    let followed = std::thread::scope(|scope| {
        scope.spawn(|| run_primary(dir, &shared, &of_primary));
        let until = Instant::now() + Duration::from_secs(30);
        let mut followed = false;
        while !followed && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
            // A copy may be replacing its database.
            let now = replica.lock().server.clone().and_then(|server| server.local().ok().cloned());
            followed = now.is_some_and(|now| contents(&now).is_ok_and(|all| all == contents(&db).unwrap()));
        }
        let info = replica.lock().server.clone().map_or(String::new(), |server| info_of(&server));
        of_primary.stop();
        stopper.stop();
        if followed { Ok(()) } else { Err(info) }
    });
    of_replica.join().unwrap();
    assert_eq!(followed, Ok(()), "the replica does not follow");
    assert!(replica.lock().times <= 2, "it may begin with a copy, and needs no other one");
    let refused = Shared::open(dir.join("replica"));
    let Err(Error::Db(esker::Error::Invalid(text))) = refused else { panic!("{refused:?}") };
    assert!(text.contains("REPLICAOF NO ONE"), "{text}");
}
