//! Loom models of group commit, the published state and dropped keyspaces, in every interleaving. See
//! `crate::sync`.
#![expect(unsafe_code, reason = "loom watches what the leader owns")]

use std::sync::Arc;

use loom::cell::UnsafeCell;

use super::drop_mark::DropMark;
use super::queue::GroupQueue;
use super::snapshots::Published;
use crate::sync::fault::{Broken, Fault};
use crate::sync::model;
use crate::types::{KeyspaceId, SeqNo};

/// State owned by the leader: loom reports concurrent leaders as a race.
struct Led {
    queue: GroupQueue<u32, u32>,
    total: UnsafeCell<u32>,
}

// SAFETY: queue.1, which is what the model checks.
unsafe impl Sync for Led {}

impl Led {
    fn submit(&self, request: u32) {
        let outcome = self.queue.submit(request, |group| {
            // SAFETY: queue.1; loom checks it.
            self.total.with_mut(|total| unsafe { *total += group.iter().sum::<u32>() });
            group.into_iter().map(|request| request * 10).collect()
        });
        assert_eq!(outcome, request * 10, "queue.2");
    }
}

#[test]
fn queue_1_queue_2_one_leads_and_each_gets_its_outcome() {
    model(|| {
        let led = Arc::new(Led { queue: GroupQueue::default(), total: UnsafeCell::new(0) });
        let others: Vec<_> = [1, 2]
            .map(|request| {
                let led = led.clone();
                loom::thread::spawn(move || led.submit(request))
            })
            .into();
        led.submit(4);
        others.into_iter().for_each(|other| other.join().unwrap());
        // SAFETY: the other threads have ended.
        led.total.with(|total| assert_eq!(unsafe { *total }, 7));
    });
}

#[test]
fn snapshots_1_snapshots_3_a_snapshot_counts_what_it_sees() {
    model(|| {
        let id = KeyspaceId::new(7);
        // One key is added by each commit, so the count at a sequence number equals that number.
        let published = Published::new(SeqNo::new(1), [(id, 1)]);
        let counter = published.counter(id);
        let writer = {
            let published = published.clone();
            loom::thread::spawn(move || {
                for seq in 2..=3 {
                    published.publish(SeqNo::new(seq), &[(id, 1)]);
                }
            })
        };
        let snapshot = published.snapshot(std::time::Duration::ZERO);
        // Twice, because loom tries no switch before the first access of a thread to an object.
        for _ in 0..2 {
            assert_eq!(counter.at(snapshot.seq()), snapshot.seq().get(), "snapshots.3");
        }
        assert!(published.horizons().contains(&snapshot.seq()), "snapshots.2");
        // snapshots.1: without a lock, the count is at least as new as the sequence number read before it.
        let seen = published.visible();
        assert!(counter.now() >= seen.get(), "snapshots.1");
        let counted = published.count_of(&counter);
        assert!(counted >= seen.get(), "snapshots.1");
        // It is not newer than the sequence number read after it.
        assert!(published.visible().get() >= counted, "snapshots.1");
        writer.join().unwrap();
        assert_eq!(counter.at(snapshot.seq()), snapshot.seq().get(), "snapshots.3");
        assert_eq!(counter.now(), 3);
    });
}

/// A keyspace that is written and dropped concurrently.
struct Keyspace {
    mark: DropMark,
    queue: GroupQueue<Request, Result<(), Refused>>,
    /// Requests executed by leaders.
    done: UnsafeCell<Vec<Request>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Write(u32),
    Drop,
    /// A drop whose leader sets the mark too late.
    LateDrop,
    /// A drop that fails before it reaches the log.
    FailingDrop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refused;

// SAFETY: queue.1; loom checks it.
unsafe impl Sync for Keyspace {}

impl Keyspace {
    fn new() -> Arc<Keyspace> {
        let done = UnsafeCell::new(Vec::new());
        Arc::new(Keyspace { mark: DropMark::default(), queue: GroupQueue::default(), done })
    }

    fn submit(&self, request: Request) -> Result<(), Refused> {
        self.queue.submit(request, |group| group.into_iter().map(|request| self.enter(request)).collect())
    }

    fn enter(&self, request: Request) -> Result<(), Refused> {
        match request {
            Request::Write(_) if self.mark.is_set() => return Err(Refused),
            Request::FailingDrop => return Err(Refused),
            Request::Write(_) | Request::Drop | Request::LateDrop => {}
        }
        // SAFETY: queue.1; loom checks it.
        self.done.with_mut(|done| unsafe { (*done).push(request) });
        if request == Request::Drop {
            self.mark.set();
        }
        Ok(())
    }

    /// Writes concurrently with a drop. Returns the writes executed and the outcome of the drop.
    fn write_while_dropping(self: &Arc<Keyspace>, drop: Request) -> (Vec<u32>, Result<(), Refused>) {
        let writers = [1, 2].map(|n| {
            let keyspace = self.clone();
            loom::thread::spawn(move || keyspace.submit(Request::Write(n)).map(|()| n))
        });
        let outcome = self.submit(drop);
        if drop == Request::LateDrop {
            self.mark.set();
        }
        let written = writers.into_iter().filter_map(|writer| writer.join().unwrap().ok()).collect();
        (written, outcome)
    }

    /// Returns the executed requests, after the other threads have ended.
    fn done(&self) -> Vec<Request> {
        // SAFETY: there is no leader.
        self.done.with(|done| unsafe { (*done).clone() })
    }
}

#[test]
fn drop_mark_1_catalog_3_nothing_is_written_behind_a_drop() {
    nothing_is_written_behind(Request::Drop);
}

fn nothing_is_written_behind(drop: Request) {
    model(move || {
        let keyspace = Keyspace::new();
        let (written, outcome) = keyspace.write_while_dropping(drop);
        assert_eq!(outcome, Ok(()));
        let done = keyspace.done();
        assert_eq!(done.last(), Some(&drop), "catalog.3");
        assert_eq!(done.len(), written.len() + 1);
        assert!(written.iter().all(|&n| done.contains(&Request::Write(n))), "queue.2");
        assert_eq!(keyspace.submit(Request::Write(3)), Err(Refused), "catalog.3");
    });
}

#[test]
fn drop_mark_2_a_drop_that_fails_leaves_no_mark() {
    model(|| {
        let keyspace = Keyspace::new();
        let (written, outcome) = keyspace.write_while_dropping(Request::FailingDrop);
        assert_eq!((outcome, keyspace.done().len()), (Err(Refused), written.len()));
        assert_eq!(keyspace.submit(Request::Write(3)), Ok(()), "drop_mark.2");
        assert_eq!(keyspace.submit(Request::Drop), Ok(()));
        assert_eq!(keyspace.submit(Request::Write(4)), Err(Refused), "catalog.3");
    });
}

#[test]
#[should_panic(expected = "catalog.3")]
fn canary_dm1_a_keyspace_marked_late_is_found() {
    nothing_is_written_behind(Request::LateDrop);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_q1_a_second_leader_is_found() {
    let _broken = Broken::new(Fault::SecondLeader);
    queue_1_queue_2_one_leads_and_each_gets_its_outcome();
}
