//! Jobs that wait for keys to be filled.
//!
//! The jobs that wait for a key are served in order of arrival.

use std::collections::{BTreeSet, HashMap};

use crate::resp::fail::Wait;
use crate::run::queue::Job;

/// Milliseconds after which a retry that is put off comes.
const HELD_MS: u64 = 100;

/// Order of arrival, and the number of the connection.
type Arrival = (u64, u64);

struct Waiting {
    /// `None` while the job is retried.
    job: Option<Box<Job>>,
    keys: Vec<(usize, Vec<u8>)>,
    /// Milliseconds since 1970.
    deadline: Option<u64>,
    /// When to retry it, in milliseconds since 1970.
    again_at: Option<u64>,
    arrival: u64,
    minds_changes: bool,
    /// Jobs of one class get the same from a key: if one has to keep waiting, so do the others.
    class: Option<Vec<u8>>,
}

/// Waiting jobs, by the numbers of their connections.
#[derive(Default)]
pub struct Waiters {
    waiting: HashMap<u64, Waiting>,
    by_key: HashMap<(usize, Vec<u8>), BTreeSet<Arrival>>,
    deadlines: BTreeSet<(u64, u64)>,
    /// When to retry jobs whose keys do not change.
    retries: BTreeSet<(u64, u64)>,
    next_arrival: u64,
    /// Number of jobs that retry after any change of their keys.
    minding: usize,
}

impl Waiters {
    /// Makes a job wait.
    pub fn add(&mut self, job: Box<Job>, wait: Wait, now: u64) {
        let id = job.session.client.id;
        let arrival = self.next_arrival;
        self.next_arrival += 1;
        let keys: Vec<_> = wait.keys.into_iter().map(|key| (job.session.db, key)).collect();
        for key in &keys {
            self.by_key.entry(key.clone()).or_default().insert((arrival, id));
        }
        let deadline = (wait.ms > 0).then(|| now.saturating_add(wait.ms));
        self.deadlines.extend(deadline.map(|at| (at, id)));
        let Wait { class, minds_changes, again_at, .. } = wait;
        self.retries.extend(again_at.map(|at| (at, id)));
        self.minding += usize::from(minds_changes);
        let waiting = Waiting { job: Some(job), keys, deadline, again_at, arrival, minds_changes, class };
        self.waiting.insert(id, waiting);
    }

    /// Returns the connections that wait for a key, in order of arrival.
    pub fn of(&self, db: usize, key: &[u8]) -> Vec<u64> {
        let waiting = self.by_key.get(&(db, key.to_vec()));
        waiting.map_or(Vec::new(), |ids| ids.iter().map(|(_, id)| *id).collect())
    }

    /// Returns what a connection waits for, if other connections may wait for the same.
    pub fn class(&self, id: u64) -> Option<&[u8]> {
        self.waiting.get(&id)?.class.as_deref()
    }

    /// Returns the keys of a database that jobs wait for.
    pub fn keys_of(&self, db: usize) -> Vec<(usize, Vec<u8>)> {
        self.by_key.keys().filter(|key| key.0 == db).cloned().collect()
    }

    /// Returns the number of keys that jobs wait for, and of keys whose every change makes a job retry.
    pub fn keys(&self) -> [usize; 2] {
        let minding = self.waiting.values().filter(|waiting| waiting.minds_changes);
        let minded: BTreeSet<_> =
            if self.minds_changes() { minding.flat_map(|w| &w.keys).collect() } else { BTreeSet::new() };
        [self.by_key.len(), minded.len()]
    }

    /// Returns whether any change of its keys makes a waiting command retry.
    pub fn minds_changes(&self) -> bool {
        self.minding > 0
    }

    /// Returns the connections that wait.
    pub fn all(&self) -> Vec<u64> {
        self.waiting.keys().copied().collect()
    }

    /// Takes a job to retry it. It keeps its position.
    pub fn take(&mut self, id: u64) -> Option<Box<Job>> {
        self.waiting.get_mut(&id)?.job.take()
    }

    /// Returns a job that still has to wait, and is retried at a time in any case.
    pub fn put_back(&mut self, job: Box<Job>, again_at: Option<u64>) {
        let id = job.session.client.id;
        let Some(waiting) = self.waiting.get_mut(&id) else { return };
        waiting.job = Some(job);
        self.set_retry(id, again_at);
    }

    fn set_retry(&mut self, id: u64, again_at: Option<u64>) {
        let Some(waiting) = self.waiting.get_mut(&id) else { return };
        if let Some(before) = std::mem::replace(&mut waiting.again_at, again_at) {
            self.retries.remove(&(before, id));
        }
        self.retries.extend(again_at.map(|at| (at, id)));
    }

    /// Makes a job be retried no later than another one: what that one waits for may be for this one.
    pub fn retry_with(&mut self, id: u64, other: u64) {
        let again_at = |id: u64| self.waiting.get(&id).and_then(|waiting| waiting.again_at);
        let earlier = again_at(id).into_iter().chain(again_at(other)).min();
        self.set_retry(id, earlier);
    }

    /// Puts off the retries that are due, because a pause holds writes.
    pub fn hold_retries(&mut self, now: u64) {
        while let Some(id) = self.take_retry(now) {
            self.set_retry(id, Some(now + HELD_MS));
        }
    }

    /// Removes a job that has stopped waiting.
    pub fn forget(&mut self, id: u64) -> Option<Box<Job>> {
        let waiting = self.waiting.remove(&id)?;
        self.minding -= usize::from(waiting.minds_changes);
        for key in &waiting.keys {
            if let Some(ids) = self.by_key.get_mut(key) {
                ids.remove(&(waiting.arrival, id));
                if ids.is_empty() {
                    self.by_key.remove(key);
                }
            }
        }
        if let Some(at) = waiting.deadline {
            self.deadlines.remove(&(at, id));
        }
        if let Some(at) = waiting.again_at {
            self.retries.remove(&(at, id));
        }
        waiting.job
    }

    /// Removes and returns the job of a connection, if it waits.
    pub fn remove(&mut self, id: u64) -> Option<Box<Job>> {
        self.forget(id)
    }

    /// Removes and returns a job whose timeout has passed.
    pub fn remove_due(&mut self, now: u64) -> Option<Box<Job>> {
        let (at, id) = *self.deadlines.first()?;
        if at > now {
            return None;
        }
        self.forget(id)
    }

    /// Returns the connection of a job that is due to be retried, once.
    pub fn take_retry(&mut self, now: u64) -> Option<u64> {
        let (at, id) = *self.retries.first()?;
        if at > now {
            return None;
        }
        self.retries.remove(&(at, id));
        if let Some(waiting) = self.waiting.get_mut(&id) {
            waiting.again_at = None;
        }
        Some(id)
    }

    /// Returns when the next job is to be retried or times out, in milliseconds since 1970.
    pub fn deadline(&self) -> Option<u64> {
        let first = |times: &BTreeSet<(u64, u64)>| times.first().map(|(at, _)| *at);
        first(&self.deadlines).into_iter().chain(first(&self.retries)).min()
    }

    /// Returns the number of waiting jobs.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }
}
