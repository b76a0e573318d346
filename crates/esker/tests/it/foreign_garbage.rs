//! The deferred destructors of other crates run under no lock of the database (sync/pin.rs). The
//! test needs its own process, because all tests of a process share crossbeam's collector.
#![expect(clippy::disallowed_methods, reason = "real threads, and real time to see that none hangs")]

use std::sync::{Arc, mpsc};
use std::time::Duration;

use esker::Db;
use esker_env::{Env, MemFs};

use crate::own_process;

/// A test that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn a_destructor_that_another_crate_has_deferred_may_use_the_database() {
    if own_process::ran(a_destructor_that_another_crate_has_deferred_may_use_the_database) {
        return;
    }
    let (sender, done) = mpsc::channel();
    std::thread::spawn(move || {
        let env = Env::simulated(Arc::new(MemFs::new()), 1);
        let db = Db::builder().background(false).env(env).open("db").expect("open");
        let map = db.default_keyspace();
        let deferred = map.clone();
        let pin = crossbeam_epoch::pin();
        pin.defer(move || deferred.put("from a destructor", "").expect("put"));
        pin.flush();
        drop(pin);
        for n in 0..1000u32 {
            map.put(n.to_be_bytes(), "").expect("put");
        }
        sender.send(map.len().expect("len")).expect("the test waits");
    });
    // The destructor may or may not have run by now.
    let len = done.recv_timeout(PATIENCE).expect("a commit waits for itself");
    assert!((1000..=1001).contains(&len), "{len}");
}
