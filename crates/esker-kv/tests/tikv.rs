//! TiKV's protocol: a PD server and three stores, each a process of mocktikv (`tests/tikv-mock`), which
//! are killed.
//!
//! The program is named by `ESKER_TIKV_MOCK`, or is `tikv-mock` in the path; without it all is left out.

#![cfg(feature = "tikv")]
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests of processes")]

mod support;

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use esker_kv::layered::Layered;
use esker_kv::tikv::{TiKv, open};
use esker_kv::{Blocking, Error, Kv, Query, Reads, Span, collect, conformance, transact};
use support::{Job, acknowledged, check_after, errors, free_port, kind};
use tokio::runtime::Runtime;

const URL: &str = "ESKER_KV_URL";

type Store = Blocking<Layered<TiKv>>;

/// What a process with a job does.
#[test]
fn child() {
    let Some(job) = support::job() else { return };
    // Ends the line that the test's name is on.
    println!();
    let runtime = Runtime::new().unwrap();
    let layered = Arc::new(runtime.block_on(open(&std::env::var(URL).unwrap())).unwrap());
    let kv = Blocking::new(layered.clone(), runtime.handle().clone());
    match &job[..] {
        "conformance" => {
            println!("passed {}", conformance(&kv).unwrap());
            runtime.block_on(layered.driver().collect_garbage(Duration::from_secs(3_600))).unwrap();
        }
        "check" => support::check(&kv),
        "large" => large(&kv),
        "orphan" => orphan(&kv),
        name => support::load(&kv, 2, name),
    }
}

/// A cluster: the PD server is process 0.
struct Cluster {
    dir: tempfile::TempDir,
    program: String,
    pd: String,
    stores: String,
    processes: Vec<Option<Job>>,
}

impl Cluster {
    fn start() -> Option<Cluster> {
        let program = support::program("ESKER_TIKV_MOCK", "tikv-mock")?;
        let address = || format!("127.0.0.1:{}", free_port());
        let stores = [address(), address(), address()].join(",");
        let dir = tempfile::tempdir().unwrap();
        let processes = vec![None, None, None, None];
        let mut cluster = Cluster { dir, program, pd: address(), stores, processes };
        (0..4).for_each(|n| cluster.run(n));
        Some(cluster)
    }

    fn run(&mut self, n: usize) {
        let mut command = Command::new(&self.program);
        let path = self.dir.path().join(n.to_string());
        command.args(["-store", &n.to_string(), "-pd", &self.pd, "-stores", &self.stores]);
        command.arg("-path").arg(path).stderr(Stdio::null());
        let mut process = Job::spawn(command);
        process.until("up");
        self.processes[n] = Some(process);
    }

    fn kill(&mut self, n: usize) {
        self.processes[n].take().unwrap().kill();
    }

    fn start_job(&self, job: &str) -> Job {
        Job::start(job, &[(URL, &format!("tikv://{}", self.pd))])
    }
}

#[test]
fn conforms() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.start_job("conformance").finish();
}

#[test]
fn nothing_is_lost_when_stores_clients_and_the_pd_server_are_killed() {
    let Some(mut cluster) = Cluster::start() else { return };
    let mut lines = Vec::new();
    let mut steady = cluster.start_job("steady");
    steady.until("done");
    for round in 0..3 {
        let mut killed = cluster.start_job(&format!("killed{round}"));
        killed.until("done");
        killed.read_for(Duration::from_millis(300 + 200 * round as u64));
        lines.extend(killed.kill());
        let victim = [2, 0, 1][round];
        cluster.kill(victim);
        steady.read_for(Duration::from_millis(700));
        cluster.run(victim);
        // It goes on, also with the locks of the killed client in the way.
        steady.read_for(Duration::from_millis(500));
        steady.until("done");
    }
    let hanging = cluster.processes[3].as_ref().unwrap();
    hanging.signal("-STOP");
    steady.read_for(Duration::from_millis(700));
    hanging.signal("-CONT");
    steady.read_for(Duration::from_millis(300));
    steady.until("done");
    steady.say("stop");
    lines.extend(steady.finish());
    let seen = errors(&lines);
    assert!(
        seen.iter().all(|line| [" Unavailable", " OutcomeUnknown", " Conflict"]
            .iter()
            .any(|name| line.contains(name)))
    );
    let names = acknowledged(&lines);
    println!("{} acknowledged, {} failed", names.len(), seen.len());
    check_after(&names, &[(URL, &format!("tikv://{}", cluster.pd))]);
}

/// A transaction whose primary key could not be written leaves a lock on its other key: tikv/client-rust#543.
#[test]
fn a_lock_without_a_primary_key_is_removed() {
    let Some(mut cluster) = Cluster::start() else { return };
    let mut job = cluster.start_job("orphan");
    job.until("ready");
    // The store of the keys from `g` to `p` of the first space.
    cluster.kill(2);
    job.say("go");
    let line = job.until("failed");
    assert!(line.contains("OutcomeUnknown"), "{line}");
    cluster.run(2);
    job.say("go");
    job.finish();
}

fn orphan(kv: &Store) {
    let space = kv.space("orphan").unwrap();
    let wait = || assert!(std::io::stdin().read_line(&mut String::new()).unwrap() > 0);
    let put = |a: &[u8], b: &[u8]| {
        transact(kv, |transaction| {
            transaction.put(&space, b"h", a)?;
            transaction.put(&space, b"z", b)
        })
    };
    put(b"1", b"1").unwrap();
    let mut transaction = kv.begin().unwrap();
    transaction.put(&space, b"h", b"2").and_then(|()| transaction.put(&space, b"z", b"2")).unwrap();
    println!("ready");
    wait();
    let done = transaction.commit();
    println!("failed {}", kind(&done.unwrap_err()));
    wait();
    let values: Vec<_> =
        collect(kv, &space, Query::new(Span::ALL)).unwrap().into_iter().map(|(_, value)| value).collect();
    assert_eq!(values, [&b"1"[..], b"1"]);
    assert_eq!(kv.get(&space, b"z").unwrap().as_deref(), Some(&b"1"[..]));
    put(b"3", b"3").unwrap();
    assert_eq!(kv.get(&space, b"z").unwrap().as_deref(), Some(&b"3"[..]));
}

#[test]
fn large_values_and_removals() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.start_job("large").finish();
}

fn large(kv: &Store) {
    let space = kv.space("large").unwrap();
    let limits = kv.limits();
    let value: Vec<u8> = (0..limits.value_bytes).map(|n| n as u8).collect();
    for key in [b"a", b"b", b"h", b"z"] {
        transact(kv, |transaction| transaction.put(&space, key, &value)).unwrap();
    }
    let page = kv.page(&space, Query::new(Span::ALL)).unwrap();
    assert_eq!((page.entries.len(), page.has_more), (1, true));
    let all = collect(kv, &space, Query::new(Span::ALL)).unwrap();
    assert!(all.len() == 4 && all.iter().all(|(_, read)| *read == value));
    let keys: [&[u8]; 5] = [b"z", b"a", b"x", b"b", b"h"];
    let found = kv.multi_get(&space, &keys).unwrap();
    assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false, true, true]);
    transact(kv, |transaction| transaction.remove_range(&space, Span::between(b"b", b"z"))).unwrap();
    assert_eq!(kv.count(&space, Span::ALL).unwrap(), 2);
    let mut transaction = kv.begin().unwrap();
    let too_long = vec![0; limits.value_bytes + 1];
    assert!(matches!(transaction.put(&space, b"k", &too_long), Err(Error::TooLarge(_))));
    assert!(matches!(
        transaction.put(&space, &too_long[..limits.key_bytes + 1], b""),
        Err(Error::TooLarge(_))
    ));
    transaction.put(&space, &too_long[..limits.key_bytes], b"v").unwrap();
    transaction.commit().unwrap();
}
