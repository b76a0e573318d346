//! The followers of this server, and their progress.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::position::Position;
use crate::base::clock;
use crate::clients::Client;

/// A replica's request.
#[derive(Clone, Debug)]
pub struct Link {
    /// Its newest commit.
    pub at: Position,
    /// The port that it announces.
    pub port: u16,
    /// The name of its slot.
    pub slot: String,
    /// It wants a copy in any case.
    pub wants_copy: bool,
    /// The ballot that it has promised.
    pub ballot: u32,
}

/// A follower. Atomics are relaxed: each is an independent number that only grows.
#[derive(Debug, Default)]
pub struct Replica {
    /// Its address.
    pub address: String,
    /// The port that it announces.
    pub port: u16,
    /// The name of its slot.
    pub slot: String,
    /// The ballot that it has promised.
    pub ballot: u32,
    /// It receives commits, not a copy.
    pub is_online: AtomicBool,
    received: AtomicU64,
    applied: AtomicU64,
    durable: AtomicU64,
    /// When it last reported, in Unix milliseconds.
    heard: AtomicU64,
}

impl Replica {
    /// Creates a follower at this commit. It reports its durable commit later.
    pub fn new(client: &Client, link: &Link) -> Self {
        let address =
            client.origin.address.rsplit_once(':').map_or(&*client.origin.address, |(host, _)| host);
        let heard = AtomicU64::new(clock::now_ms());
        let at = || AtomicU64::new(link.at.seq);
        let address = address.trim_matches(['[', ']']).to_owned();
        let Link { port, ref slot, ballot, .. } = *link;
        let slot = slot.clone();
        Replica { address, port, slot, ballot, received: at(), applied: at(), heard, ..Replica::default() }
    }

    /// Records what it reports.
    pub fn note(&self, [received, applied, durable]: [u64; 3]) {
        self.received.fetch_max(received, Ordering::Relaxed);
        self.applied.fetch_max(applied, Ordering::Relaxed);
        self.durable.fetch_max(durable, Ordering::Relaxed);
        self.heard.store(clock::now_ms(), Ordering::Relaxed);
    }

    /// Its newest received, visible and durable commit.
    pub fn numbers(&self) -> [u64; 3] {
        [&self.received, &self.applied, &self.durable].map(|n| n.load(Ordering::Relaxed))
    }

    /// Returns the milliseconds since its last report.
    pub fn silent_ms(&self) -> u64 {
        clock::now_ms().saturating_sub(self.heard.load(Ordering::Relaxed))
    }
}

/// A replica and its connection.
type Following = (Arc<Client>, Arc<Replica>);

/// All followers, by the numbers of their connections.
#[derive(Default)]
pub struct Replicas(Mutex<BTreeMap<u64, Following>>);

impl Replicas {
    /// Adds a follower.
    pub fn add(&self, client: &Arc<Client>, replica: &Arc<Replica>) {
        self.0.lock().insert(client.id, (client.clone(), replica.clone()));
    }

    /// Removes a follower.
    pub fn remove(&self, client: &Client) {
        self.0.lock().remove(&client.id);
    }

    /// Returns all followers.
    pub fn list(&self) -> Vec<Arc<Replica>> {
        self.0.lock().values().map(|(_, replica)| replica.clone()).collect()
    }

    /// Returns the number of followers of this ballot that have applied a commit, or have it durably
    /// (ballot.3). A follower with two connections counts once: one of them may have been cut off.
    pub fn count(&self, ballot: u32, seq: u64, is_durable: bool) -> usize {
        let at = if is_durable { 2 } else { 1 };
        let replicas = self.0.lock();
        let online = replicas.values().filter(|(_, replica)| replica.is_online.load(Ordering::Relaxed));
        online
            .filter(|(_, replica)| replica.ballot == ballot)
            .filter(|(_, replica)| replica.numbers()[at] >= seq)
            .map(|(_, replica)| (&replica.slot, &replica.address, replica.port))
            .collect::<BTreeSet<_>>()
            .len()
    }

    /// Returns the number of followers that receive commits and have reported within this time.
    pub fn good(&self, silent_ms_max: u64) -> usize {
        let replicas = self.0.lock();
        let online = replicas.values().filter(|(_, replica)| replica.is_online.load(Ordering::Relaxed));
        online.filter(|(_, replica)| replica.silent_ms() <= silent_ms_max).count()
    }

    /// Returns the number of followers with this slot.
    pub fn with_slot(&self, name: &str) -> usize {
        self.0.lock().values().filter(|(_, replica)| replica.slot == name).count()
    }

    /// Returns the durable commits of followers that receive commits, by their slots. The slowest of several
    /// with one slot counts.
    pub fn durable(&self) -> BTreeMap<String, u64> {
        let mut durable = BTreeMap::new();
        for (_, replica) in self.0.lock().values() {
            let [.., is] = replica.numbers();
            let is = if replica.is_online.load(Ordering::Relaxed) { is } else { 0 };
            durable
                .entry(replica.slot.clone())
                .and_modify(|known: &mut u64| *known = is.min(*known))
                .or_insert(is);
        }
        durable
    }

    /// Ends the connections with this slot. They have to ask again.
    pub fn end(&self, name: &str) {
        let all = self.0.lock();
        let of_slot = all.values().filter(|(_, replica)| replica.slot == name);
        of_slot.for_each(|(client, _)| client.kill());
    }

    /// Ends all connections. They have to ask again.
    pub fn end_all(&self) {
        self.0.lock().values().for_each(|(client, _)| client.kill());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::Clients;

    #[test]
    fn a_follower_with_two_connections_counts_once() {
        let (clients, replicas) = (Clients::default(), Replicas::default());
        let add = |address: &str, slot: &str| {
            let client = clients.add(address.to_owned(), String::new(), 0, [10, 10]).unwrap();
            let at = Position::default();
            let link = Link { at, port: 6379, slot: slot.to_owned(), wants_copy: false, ballot: 1 };
            let replica = Arc::new(Replica::new(&client, &link));
            replica.is_online.store(true, Ordering::Relaxed);
            replica.note([7; 3]);
            replicas.add(&client, &replica);
        };
        add("10.0.0.2:1000", "b");
        add("10.0.0.2:1001", "b");
        assert_eq!(replicas.count(1, 7, true), 1);
        add("10.0.0.3:1000", "c");
        assert_eq!([7, 8].map(|seq| replicas.count(1, seq, true)), [2, 0]);
    }
}
