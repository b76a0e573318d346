//! The child of a fork has its parent's database and must not change it (handle.3). The fork is
//! simulated: the Env reports another process id.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use esker::{Durability, Error};
use esker_env::{Env, Fs, MemFs, SystemThreads, ThreadHandle, Threads};

use crate::common::damage::read;
use crate::common::{dir, tiny};

const PARENT: u32 = 7;
const CHILD: u32 = 8;

#[derive(Debug)]
struct Process(AtomicU32);

impl Process {
    fn become_process(&self, id: u32) {
        self.0.store(id, Ordering::Relaxed);
    }
}

impl Threads for Process {
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<ThreadHandle> {
        SystemThreads.spawn(name, work)
    }
    fn process_id(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn handle_3_a_forked_child_changes_nothing() {
    for background in [false, true] {
        let fs = MemFs::new();
        let process = Arc::new(Process(AtomicU32::new(PARENT)));
        let env = Env { threads: process.clone(), ..Env::with_fs(Arc::new(fs.clone())) };
        let open = || tiny(env.clone()).background(background).open(dir());
        let db = open().unwrap();
        let map = db.default_keyspace();
        map.put("a", "1").unwrap();
        db.create_keyspace("old").unwrap();
        // The parent's threads still run, and may prepare files at any time.
        let files = || {
            if background {
                return Vec::new();
            }
            let mut names = fs.list_dir(dir()).unwrap();
            names.sort();
            names.into_iter().map(|name| (name.clone(), read(&fs, &name))).collect::<Vec<_>>()
        };
        let before = files();
        let is_refused = |what: &str, done: Result<(), Error>| {
            assert!(matches!(done, Err(Error::Forked)), "handle.3: {what}: {done:?}");
        };

        process.become_process(CHILD);
        for durability in [Durability::None, Durability::Buffered, Durability::Sync] {
            let mut batch = db.batch();
            batch.put(&map, "b", "2").unwrap();
            is_refused("commit", batch.commit_with(durability).map(drop).map_err(Into::into));
        }
        is_refused("create", db.create_keyspace("new").map(drop));
        is_refused("drop", db.drop_keyspace("old"));
        is_refused("flush", db.flush());
        is_refused("compact", db.compact());
        is_refused("sync", db.sync());
        is_refused("close", db.clone().close());
        assert_eq!(map.get("a").unwrap().as_deref(), Some(&b"1"[..]));

        // The parent may.
        process.become_process(PARENT);
        assert_eq!(files(), before, "handle.3");
        map.put("b", "2").unwrap();

        // The child drops all of its handles.
        let before = files();
        process.become_process(CHILD);
        drop((map, db));
        assert_eq!(files(), before, "handle.3");
        process.become_process(PARENT);
        let locked = open();
        assert!(matches!(locked, Err(Error::Locked { .. })), "{locked:?}");
        // As after the parent has ended.
        let fs = fs.kill();
        let db = tiny(Env::simulated(Arc::new(fs), 1)).open(dir()).unwrap();
        assert_eq!(db.default_keyspace().len().unwrap(), 2);
    }
}
