//! Models of group commit and of the published state, in every interleaving. See `crate::sync`.
#![expect(unsafe_code, reason = "loom watches what the leader owns")]

use std::sync::Arc;

use loom::cell::UnsafeCell;

use super::queue::GroupQueue;
use super::snapshots::Published;
use crate::sync::fault::{Broken, Fault};
use crate::sync::model;
use crate::types::{KeyspaceId, SeqNo};

/// What a leader owns: loom reports two leaders at once as a race.
struct Led {
    queue: GroupQueue<u32, u32>,
    total: UnsafeCell<u32>,
}

// SAFETY: Q1, which is what the model checks.
unsafe impl Sync for Led {}

impl Led {
    fn submit(&self, request: u32) {
        let outcome = self.queue.submit(request, |group| {
            // SAFETY: Q1; loom checks it.
            self.total.with_mut(|total| unsafe { *total += group.iter().sum::<u32>() });
            group.into_iter().map(|request| request * 10).collect()
        });
        assert_eq!(outcome, request * 10, "Q2");
    }
}

#[test]
fn q1_q2_one_leads_and_each_gets_its_outcome() {
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
        // SAFETY: all others have ended.
        led.total.with(|total| assert_eq!(unsafe { *total }, 7));
    });
}

#[test]
fn sn1_sn3_a_snapshot_counts_what_it_sees() {
    model(|| {
        let id = KeyspaceId::new(7);
        // One more item with each commit: the count at a number is that number.
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
        let snapshot = published.snapshot();
        // Twice: loom tries no switch before the first access to an object that a thread has.
        for _ in 0..2 {
            assert_eq!(counter.at(snapshot.seq()), snapshot.seq().get(), "SN3");
        }
        assert!(published.horizons().contains(&snapshot.seq()), "SN2");
        // SN1: without a lock, the count is at least as new as the number seen before it.
        let seen = published.visible();
        assert!(counter.now() >= seen.get(), "SN1");
        let counted = published.count_of(&counter);
        assert!(counted >= seen.get(), "SN1");
        // Nor is it newer than the number seen after it.
        assert!(published.visible().get() >= counted, "SN1");
        writer.join().unwrap();
        assert_eq!(counter.at(snapshot.seq()), snapshot.seq().get(), "SN3");
        assert_eq!(counter.now(), 3);
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_q1_a_second_leader_is_found() {
    let _broken = Broken::new(Fault::SecondLeader);
    q1_q2_one_leads_and_each_gets_its_outcome();
}
