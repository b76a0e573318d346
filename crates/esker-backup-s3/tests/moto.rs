//! Backups on an S3 server, whose makers are killed at requests. What is restored is compared with a model.
//!
//! The server is moto, by `ESKER_MOTO_SERVER` or `moto_server` in the path. Without it, nothing is tested.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests of processes")]

mod dying;
mod server;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use esker::backup::{Backup, Point};
use esker::encryption::{MasterKeys, with_keys};
use esker::env::Env;
use esker::{Blobs, Builder, Db, Error, SeqNo, Ttl};

use self::dying::{Dying, URL};
use self::server::{curl, moto};

const JOB: &str = "ESKER_S3_JOB";
const DIR: &str = "ESKER_S3_DIR";

type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

fn keys() -> MasterKeys {
    MasterKeys::new("m", &[7; 32]).unwrap()
}

fn builder() -> Builder {
    let builder = Db::builder().memory(64 << 20).blobs(Blobs::From(1000)).encryption(keys());
    builder.feed_retention(1 << 30, Duration::MAX)
}

fn backups(dies_at: Option<u64>) -> Backup {
    Backup::open_store(with_keys(&Env::real(), keys()), Dying::new(dies_at)).unwrap()
}

/// Longer than a part of an upload in every third round.
fn blob(round: u8) -> Vec<u8> {
    let len = if round.is_multiple_of(3) { 9 << 20 } else { 5000 };
    let mut rng = fastrand::Rng::with_seed(round.into());
    (0..len).map(|_| rng.u8(..)).collect()
}

/// Writes a round, and notes its last commit in the directory.
fn fill(db: &Db, dir: &Path, round: u8) {
    let (map, merged) = (db.keyspace("map").unwrap(), db.keyspace("merged").unwrap());
    merged.set_merge_operator("append").unwrap();
    map.put("blob", blob(round)).unwrap();
    map.delete_range([round.wrapping_sub(1), 3]..[round.wrapping_sub(1), 6]).unwrap();
    let mut last = SeqNo::ZERO;
    for n in 0..20 {
        map.put_with_ttl([round, n], [n], Duration::from_secs(86_400)).unwrap();
        last = merged.merge([n], [round]).unwrap();
    }
    std::fs::write(dir.join(format!("round-{round}")), last.get().to_string()).unwrap();
}

/// What [`fill`] has written.
fn model(rounds: u8) -> Contents {
    let (mut map, mut merged) = (BTreeMap::new(), BTreeMap::<Vec<u8>, Vec<u8>>::new());
    for round in 0..rounds {
        map.insert(b"blob".to_vec(), blob(round));
        map.retain(|key, _| key.len() > 2 || key[0] != round.wrapping_sub(1) || !(3..6).contains(&key[1]));
        for n in 0..20 {
            map.insert(vec![round, n], vec![n]);
            merged.entry(vec![n]).or_default().push(round);
        }
    }
    BTreeMap::from([("map".to_owned(), map), ("merged".to_owned(), merged)])
}

fn assert_is(dir: &Path, expected: &Contents, what: &str) {
    let db = builder().open(dir).unwrap();
    assert!(db.check().unwrap().problems.is_empty(), "{what}");
    for (name, expected) in expected {
        let keyspace = db.open_keyspace(name).unwrap();
        let found: BTreeMap<_, _> =
            keyspace.iter().map(|entry| entry.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
        assert!(found == *expected, "{what}: {name}");
    }
    let left = db.open_keyspace("map").unwrap().ttl([0, 1]).unwrap();
    assert!(matches!(left, Some(Ttl::Left(left)) if !left.is_zero()), "{what}: {left:?}");
}

/// What a process with a job does.
#[test]
fn child() {
    let Ok(job) = std::env::var(JOB) else { return };
    let dir = std::env::var(DIR).unwrap();
    let dir = Path::new(&dir);
    let (job, at) = job.split_once(' ').unwrap();
    let at = at.parse().ok();
    let db = || builder().open(dir.join("db")).unwrap();
    match job {
        "create" => {
            let (db, mut backup) = (db(), backups(at));
            fill(&db, dir, rounds(dir));
            backup.create(&db).unwrap();
            backup.archive(&db).unwrap();
            fill(&db, dir, rounds(dir));
            backup.archive(&db).unwrap().unwrap();
        }
        "prune" => drop(backups(at).prune(2).unwrap()),
        "hold" => {
            let mut is_first = true;
            let slow = backups(None).on_progress(move |_| {
                if std::mem::take(&mut is_first) {
                    println!("\nholds");
                    std::thread::sleep(Duration::from_secs(5));
                }
            });
            { slow }.create(&db()).unwrap();
        }
        _ => panic!("{job}"),
    }
}

/// The number of rounds written.
fn rounds(dir: &Path) -> u8 {
    (0..).find(|round| !dir.join(format!("round-{round}")).exists()).unwrap()
}

/// Starts this program again. The variables are those of the whole test.
fn start(test: &str, job: &str, variables: &[(&str, String)]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads", "1"]).env(JOB, job);
    command.envs(variables.iter().map(|(name, value)| (*name, value))).stdout(Stdio::piped()).spawn().unwrap()
}

/// Waits for the end of a process, and shows what it has printed.
fn is_success(child: Child) -> bool {
    let ended = child.wait_with_output().unwrap();
    print!("{}", String::from_utf8_lossy(&ended.stdout));
    ended.status.success()
}

/// The main process. It runs in a process of its own, because settings of S3 are variables of the process.
#[test]
fn backups_outlive_their_killed_makers() {
    let temp = tempfile::tempdir().unwrap();
    let Some((_server, endpoint)) = moto() else { return };
    let variables = [
        ("AWS_ENDPOINT", endpoint),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_ACCESS_KEY_ID", "key".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        (DIR, temp.path().to_str().unwrap().to_owned()),
    ];
    assert!(is_success(start("main_process", "main -", &variables)));
}

#[test]
fn main_process() {
    if std::env::var(JOB).as_deref() != Ok("main -") {
        return;
    }
    let dir = std::env::var(DIR).unwrap();
    let dir = Path::new(&dir);
    killed_while_it_creates(dir);
    killed_while_it_prunes(dir);
    one_at_a_time();
    // All commits come back, as far as the remaining backups and the archive reach.
    let mut backup = backups(None);
    let oldest = backup.list().unwrap()[0].seqno;
    for round in 0..rounds(dir) {
        let text = std::fs::read_to_string(dir.join(format!("round-{round}"))).unwrap();
        let commit = SeqNo::new(text.parse().unwrap());
        let to = dir.join(format!("point-{round}"));
        let done = backup.restore(&to).point(Point::Commit(commit)).builder(builder()).run();
        if commit < oldest {
            assert!(matches!(done, Err(Error::NoBackup(_))), "{done:?}");
        } else {
            assert_eq!(done.unwrap().seqno, commit);
            assert_is(&to, &model(round + 1), &format!("round {round}"));
        }
    }
}

/// Kills a process at its n-th change of the store, for each n.
fn killed_while_it_creates(dir: &Path) {
    for nth in (0..).step_by(7) {
        let ended = is_success(start("child", &format!("create {nth}"), &[]));
        let what = format!("killed at {nth}");
        assert!(backups(None).list().is_ok_and(|found| !found.is_empty()) || !ended || nth < 6, "{what}");
        let db = builder().open(dir.join("db")).unwrap();
        let mut backup = backups(None);
        backup.create(&db).unwrap();
        assert!(backup.verify().unwrap().is_sound(), "{what}");
        let to = dir.join(format!("create-{nth}"));
        backup.restore(&to).verify(true).run().unwrap();
        assert_is(&to, &model(rounds(dir)), &what);
        assert_no_parts();
        std::fs::remove_dir_all(&to).unwrap();
        if ended {
            assert!(nth > 9, "{nth}");
            return;
        }
    }
}

fn killed_while_it_prunes(dir: &Path) {
    for nth in 0.. {
        let ended = is_success(start("child", &format!("prune {nth}"), &[]));
        let what = format!("killed at {nth}");
        assert!(backups(None).verify().unwrap().is_sound(), "{what}");
        let to = dir.join(format!("prune-{nth}"));
        backups(None).restore(&to).run().unwrap();
        assert_is(&to, &model(rounds(dir)), &what);
        std::fs::remove_dir_all(&to).unwrap();
        if ended {
            assert_eq!((backups(None).list().unwrap().len(), nth > 5), (2, true));
            return;
        }
        if nth == 2 {
            backups(None).create(&builder().open(dir.join("db")).unwrap()).unwrap();
        }
    }
}

fn one_at_a_time() {
    let mut child = start("child", "hold -", &[]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "holds"));
    let refused = backups(None).prune(1);
    lines.for_each(drop);
    assert!(matches!(refused, Err(Error::Locked { .. })), "{refused:?}");
    assert!(child.wait().unwrap().success());
    assert!(backups(None).verify().unwrap().is_sound());
}

/// The server has no parts of unfinished uploads. A process that was killed before it could note an upload
/// leaves one without parts.
fn assert_no_parts() {
    let endpoint = std::env::var("AWS_ENDPOINT").unwrap();
    let bucket = URL.strip_prefix("s3://").unwrap().split('/').next().unwrap();
    let get = |path: &str| {
        let found = curl(&[&format!("{endpoint}/{bucket}{path}")]);
        assert!(found.status.success(), "{path}");
        String::from_utf8_lossy(&found.stdout).into_owned()
    };
    let uploads = get("?uploads");
    for upload in uploads.split("<Upload>").skip(1) {
        let field =
            |name: &str| upload.split(&format!("<{name}>")).nth(1).unwrap().split('<').next().unwrap();
        let parts = get(&format!("/{}?uploadId={}", field("Key"), field("UploadId")));
        assert!(!parts.contains("<Part>"), "{parts}");
    }
}
