//! Data that is not in memory.

use std::sync::Arc;

use esker::Db;
use esker_server::Options;
use esker_server::store::LocalStore;

use crate::harness::TestServer;
use crate::wire::encode;

const READERS: usize = 16;

/// Number of threads of this process with this name.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|found| found.trim() == &name[..name.len().min(15)]).count()
}

#[test]
fn a_few_threads_wait_for_the_disk_however_many_clients_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder().memory(1 << 20).open(dir.path()).unwrap();
    // A memory of 0 makes the server treat all data as not in memory.
    let store = Arc::new(LocalStore::new(db.clone(), 0));
    let server = TestServer::start_on(store, db.clone(), Some(db), Options::default());
    let mut clients: Vec<_> = (0..40).map(|_| server.wire()).collect();
    let value = "v".repeat(1000);
    let keys: Vec<Vec<String>> =
        (0..40).map(|n| (0..100).map(|i| format!("key {i} of {n}")).collect()).collect();
    for round in 0..3 {
        for (client, keys) in clients.iter_mut().zip(&keys) {
            for key in keys {
                let value = &format!("{value} {round} {key}");
                client.send_bytes(&[encode(&["SET", key, value]), encode(&["GET", key])].concat());
            }
            client.send(&[&["MGET".to_owned()], &keys[..2]].concat());
        }
        for (client, keys) in clients.iter_mut().zip(&keys) {
            let reply = |key| format!("{:?}", format!("{value} {round} {key}"));
            for key in keys {
                assert_eq!(format!("{:?}", client.reply()), "+OK");
                assert_eq!(format!("{:?}", client.reply()), reply(key));
            }
            assert_eq!(
                format!("{:?}", client.reply()),
                format!("*[{}, {}]", reply(&keys[0]), reply(&keys[1]))
            );
        }
        server.db.compact().unwrap();
    }
    assert_eq!(threads("esker-server-read"), READERS);
}
