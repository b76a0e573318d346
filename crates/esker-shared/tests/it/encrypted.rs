//! Encrypted databases: each process has the key provider.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use esker::encryption::{KeyProvider, MasterKeys};
use esker::{Builder, Db, EncryptionProblem, Error as DbError};
use esker_shared::{Error, Result, Shared};

use crate::kill::{Killed, of_child, start, wait_for};

fn with_key(id: &str, key: u8) -> Builder {
    Db::builder().encryption(MasterKeys::new(id, &[key; 32]).unwrap())
}

fn open(dir: &Path, builder: Builder) -> Result<Shared> {
    Shared::builder().engine(builder).wait(Duration::from_secs(20)).open(dir.join("db"))
}

/// A host of an encrypted database.
#[test]
fn host() {
    let Some((dir, _)) = of_child() else { return };
    let shared = open(&dir, with_key("a", 1)).unwrap();
    shared.keyspace("k").unwrap().put("of the host", "1").unwrap();
    std::fs::write(dir.join("ready"), "").unwrap();
    loop {
        std::thread::park();
    }
}

fn problem(opened: Result<Shared>) -> EncryptionProblem {
    match opened {
        Err(Error::Db(DbError::Encryption { problem, .. })) => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_process_with_another_key_is_refused_and_harms_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let mut host = Killed(start(dir, "encrypted::host", 0));
    wait_for(&dir.join("ready"));
    let guest = open(dir, with_key("a", 1)).unwrap();
    let ks = guest.keyspace("k").unwrap();
    ks.put("of the guest", "1").unwrap();
    let refused = || {
        let wrong = problem(open(dir, with_key("a", 2)));
        assert!(matches!(&wrong, EncryptionProblem::MasterKeyWrong(id) if id == "a"), "{wrong:?}");
        let unknown = problem(open(dir, with_key("b", 1)));
        assert!(matches!(&unknown, EncryptionProblem::MasterKeyUnknown(id) if id == "a"), "{unknown:?}");
        let missing = problem(open(dir, Db::builder()));
        assert!(matches!(missing, EncryptionProblem::KeyMissing), "{missing:?}");
    };
    refused();
    assert!(!guest.is_host());
    host.kill();
    ks.put("after the host", "1").unwrap();
    assert!(guest.is_host());
    refused();
    guest.close().unwrap();
    // Without a host, too.
    refused();
    let again = open(dir, with_key("a", 1)).unwrap();
    assert_eq!(again.keyspace("k").unwrap().len().unwrap(), 3);
    let bytes = std::fs::read_dir(dir.join("db")).unwrap().map(|entry| entry.unwrap().path());
    for path in bytes.filter(|path| path.is_file()) {
        let bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(12).any(|part| part == b"of the guest"), "{} is plain", path.display());
    }
}

/// A provider that loses its key while the program runs.
#[derive(Clone, Debug)]
struct Lost(Arc<(MasterKeys, AtomicBool)>);

impl KeyProvider for Lost {
    fn current(&self) -> io::Result<String> {
        self.0.0.current()
    }

    fn wrap(&self, id: &str, key: &[u8; 32]) -> io::Result<Vec<u8>> {
        self.0.0.wrap(id, key)
    }

    fn unwrap(&self, id: &str, wrapped: &[u8]) -> io::Result<[u8; 32]> {
        if self.0.1.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.0.0.unwrap(id, wrapped)
    }
}

#[test]
fn a_guest_that_has_lost_the_key_gets_an_error_and_another_one_takes_over() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let host = open(dir, with_key("a", 1)).unwrap();
    let provider = Lost(Arc::new((MasterKeys::new("a", &[1; 32]).unwrap(), AtomicBool::new(false))));
    let keyless = open(dir, Db::builder().encryption(provider.clone())).unwrap();
    let ks = keyless.keyspace("k").unwrap();
    ks.put("a", "1").unwrap();
    let mut left = keyless.begin().unwrap();
    left.put(&ks, "lost", "1").unwrap();
    provider.0.1.store(true, Ordering::Relaxed);
    host.close().unwrap();
    match ks.get("a") {
        Err(Error::Db(DbError::Encryption { problem: EncryptionProblem::MasterKeyUnknown(id), .. })) => {
            assert_eq!(id, "a");
        }
        other => panic!("{other:?}"),
    }
    let other = std::thread::scope(|scope| {
        let commit = scope.spawn(|| left.commit());
        std::thread::sleep(Duration::from_millis(100));
        let other = open(dir, with_key("a", 1)).unwrap();
        // Its outcome can be asked for once there is another host.
        let lost = commit.join().unwrap();
        assert!(matches!(lost, Err(Error::HostGone)), "{lost:?}");
        other
    });
    assert!(other.is_host());
    ks.put("c", "1").unwrap();
    assert_eq!((ks.len().unwrap(), keyless.is_host()), (2, false));
}
