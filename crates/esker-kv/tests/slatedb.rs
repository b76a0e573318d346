//! SlateDB on files and on an S3 server, with `kill -9`, a second writer and an S3 server that hangs.
//!
//! Each job runs in a process of its own: settings of S3 are variables of the process. The server is moto,
//! by `ESKER_MOTO_SERVER` or `moto_server` in the path; without it, only files are tested.

#![cfg(feature = "slatedb")]
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests of processes")]

mod support;

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use esker_kv::layered::Layered;
use esker_kv::slatedb::{SlateDb, open};
use esker_kv::{Blocking, Error, Kv, Query, Reads, Span, collect, conformance, transact};
use support::{Job, acknowledged, check_after, errors, free_port, kind};
use tokio::runtime::Runtime;

const URL: &str = "ESKER_KV_URL";

type Store = Blocking<Layered<SlateDb>>;

/// What a process with a job does.
#[test]
fn child() {
    let Some(job) = support::job() else { return };
    // Ends the line that the test's name is on.
    println!();
    let runtime = Runtime::new().unwrap();
    let layered = runtime.block_on(open(&std::env::var(URL).unwrap())).unwrap();
    let kv = Blocking::new(Arc::new(layered), runtime.handle().clone());
    match &job[..] {
        "conformance" => println!("passed {}", conformance(&kv).unwrap()),
        "check" => support::check(&kv),
        "large" => large(&kv),
        "outage" => outage(&kv),
        name => support::load(&kv, 4, name),
    }
}

/// A place for a store: its URL and variables.
struct Place {
    variables: Vec<(&'static str, String)>,
    server: Option<Job>,
    _dir: tempfile::TempDir,
}

impl Place {
    fn files() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let variables = vec![(URL, format!("slatedb://{}/store", dir.path().display()))];
        Place { variables, server: None, _dir: dir }
    }

    fn s3() -> Option<Place> {
        let program = support::program("ESKER_MOTO_SERVER", "moto_server")?;
        let endpoint = format!("http://127.0.0.1:{}", free_port());
        let mut command = Command::new(program);
        command.args(["-H", "127.0.0.1", "-p", endpoint.rsplit(':').next()?]).stderr(Stdio::null());
        let server = Job::spawn(command);
        let bucket = format!("{endpoint}/store");
        let end = Instant::now() + Duration::from_secs(60);
        while !Command::new("curl")
            .args(["-sfo", "/dev/null", "-X", "PUT", &bucket])
            .status()
            .unwrap()
            .success()
        {
            assert!(Instant::now() < end, "moto does not answer");
            std::thread::sleep(Duration::from_millis(200));
        }
        let variables = vec![
            (URL, "slatedb://store/of/tests?flush_ms=20".to_owned()),
            ("AWS_ENDPOINT_URL", endpoint),
            ("AWS_ACCESS_KEY_ID", "key".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
        ];
        Some(Place { variables, server: Some(server), _dir: tempfile::tempdir().unwrap() })
    }

    fn all() -> impl Iterator<Item = Place> {
        std::iter::once(Place::files()).chain(Place::s3())
    }

    fn variables(&self) -> Vec<(&str, &str)> {
        self.variables.iter().map(|(name, value)| (*name, &value[..])).collect()
    }

    fn start(&self, job: &str) -> Job {
        Job::start(job, &self.variables())
    }
}

#[test]
fn conforms() {
    for place in Place::all() {
        place.start("conformance").finish();
    }
}

#[test]
fn acknowledged_commits_outlive_a_killed_writer() {
    for place in Place::all() {
        let mut names = Vec::new();
        for round in 0..3 {
            let mut job = place.start(&format!("round{round}"));
            job.until("ready");
            job.until("done");
            job.read_for(Duration::from_millis(700 + 300 * round));
            let lines = job.kill();
            assert_eq!(errors(&lines).len(), 0, "{lines:?}");
            names.extend(acknowledged(&lines));
            check_after(&names, &place.variables());
        }
    }
}

#[test]
fn a_second_writer_fences_the_first() {
    for place in Place::all() {
        let mut first = place.start("first");
        first.until("done");
        let mut second = place.start("second");
        second.until("done");
        first.until("error");
        // The first may have lost the answers to commits of that moment; then nothing works any more.
        first.read_for(Duration::from_secs(3));
        let first = first.kill();
        let mut names = acknowledged(&first);
        let seen = errors(&first);
        assert!(seen.iter().all(|line| line.contains(" Unavailable") || line.contains(" OutcomeUnknown")));
        assert!(seen.len() > 8 && seen[8..].iter().all(|line| line.contains(" Unavailable")), "{seen:?}");
        let last_done = first.iter().rposition(|line| line.starts_with("done")).unwrap();
        let last_fenced = first.iter().position(|line| line.contains(" Unavailable")).unwrap();
        assert!(last_done < last_fenced + 4, "the first commits after it was fenced");
        second.read_for(Duration::from_millis(500));
        let second = second.kill();
        assert_eq!(errors(&second).len(), 0);
        names.extend(acknowledged(&second));
        check_after(&names, &place.variables());
    }
}

#[test]
fn large_values_and_removals() {
    Place::files().start("large").finish();
}

fn large(kv: &Store) {
    let space = kv.space("large").unwrap();
    let value: Vec<u8> = (0..20_000_000_u32).map(|n| n as u8).collect();
    for key in 0..8 {
        transact(kv, |transaction| transaction.put(&space, &[key], &value)).unwrap();
    }
    let page = kv.page(&space, Query::new(Span::ALL)).unwrap();
    assert_eq!((page.entries.len(), page.has_more), (1, true));
    assert!(collect(kv, &space, Query::new(Span::ALL)).unwrap().iter().all(|(_, read)| *read == value));
    transact(kv, |transaction| transaction.remove_range(&space, Span::ALL)).unwrap();
    assert_eq!(kv.count(&space, Span::ALL).unwrap(), 0);
    let mut transaction = kv.begin().unwrap();
    let limits = kv.limits();
    let too_long = vec![0; limits.value_bytes.max(limits.key_bytes) + 1];
    assert!(matches!(transaction.put(&space, &too_long, b""), Err(Error::TooLarge(_))));
    assert!(matches!(transaction.put(&space, b"k", &too_long), Err(Error::TooLarge(_))));
    let longest = &too_long[..limits.key_bytes];
    transaction.put(&space, longest, b"v").unwrap();
    transaction.commit().unwrap();
    assert_eq!(kv.get(&space, longest).unwrap().as_deref(), Some(&b"v"[..]));
}

#[test]
fn an_s3_server_that_hangs() {
    let Some(mut place) = Place::s3() else { return };
    place.variables[0].1.push_str("&timeout_ms=1000");
    let mut job = place.start("outage");
    job.until("ready");
    let server = place.server.as_ref().unwrap();
    server.signal("-STOP");
    job.say("go");
    let line = job.until("hung");
    server.signal("-CONT");
    assert!(line.contains("OutcomeUnknown"), "{line}");
    job.say("go");
    job.finish();
}

fn outage(kv: &Store) {
    let space = kv.space("outage").unwrap();
    println!("ready");
    let wait = || assert!(std::io::stdin().read_line(&mut String::new()).unwrap() > 0);
    wait();
    let done = transact(kv, |transaction| transaction.put(&space, b"hung", b"1"));
    println!("hung {}", kind(&done.unwrap_err()));
    wait();
    let end = Instant::now() + Duration::from_secs(30);
    while let Err(error) = transact(kv, |transaction| transaction.put(&space, b"works", b"1")) {
        assert!(matches!(error, Error::OutcomeUnknown(_)) && Instant::now() < end, "{error}");
    }
    // What was in the way of the later commit is there, too.
    assert_eq!(collect(kv, &space, Query::new(Span::ALL)).unwrap().len(), 2);
}
