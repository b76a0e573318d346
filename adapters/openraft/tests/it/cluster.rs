//! Three nodes in one process. Nodes lose power, come back from what was on the disk, and catch up by entries
//! or by a snapshot. No acknowledged write is lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use esker::Db;
use esker::env::MemFs;
use openraft::error::{InstallSnapshotError, RPCError, RaftError, RemoteError, Unreachable};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft::{BasicNode, Config, Raft, SnapshotPolicy};

use crate::{Request, Types, open, stores};

/// The nodes that can be reached.
#[derive(Clone, Default)]
struct Nodes(Arc<Mutex<BTreeMap<u64, Raft<Types>>>>);

struct Link {
    nodes: Nodes,
    target: u64,
}

type Failed<E> = RPCError<u64, BasicNode, RaftError<u64, E>>;

#[allow(clippy::result_large_err)] // The type is openraft's.
impl Link {
    fn target<E: std::error::Error>(&self) -> Result<Raft<Types>, Failed<E>> {
        let found = self.nodes.0.lock().unwrap().get(&self.target).cloned();
        found.ok_or_else(|| RPCError::Unreachable(Unreachable::new(&std::io::Error::other("no power"))))
    }

    fn failed<E: std::error::Error>(&self, error: RaftError<u64, E>) -> Failed<E> {
        RPCError::RemoteError(RemoteError::new(self.target, error))
    }
}

impl RaftNetworkFactory<Types> for Nodes {
    type Network = Link;

    async fn new_client(&mut self, target: u64, _: &BasicNode) -> Link {
        Link { nodes: self.clone(), target }
    }
}

impl RaftNetwork<Types> for Link {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, Failed<openraft::error::Infallible>> {
        self.target()?.append_entries(rpc).await.map_err(|e| self.failed(e))
    }

    async fn install_snapshot(
        &mut self,
        rpc: InstallSnapshotRequest<Types>,
        _: RPCOption,
    ) -> Result<InstallSnapshotResponse<u64>, Failed<InstallSnapshotError>> {
        self.target()?.install_snapshot(rpc).await.map_err(|e| self.failed(e))
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<u64>,
        _: RPCOption,
    ) -> Result<VoteResponse<u64>, Failed<openraft::error::Infallible>> {
        self.target()?.vote(rpc).await.map_err(|e| self.failed(e))
    }
}

struct Cluster {
    nodes: Nodes,
    files: BTreeMap<u64, (MemFs, Db)>,
}

impl Cluster {
    async fn start(&mut self, id: u64, fs: MemFs) {
        let db = open(&fs);
        let (log, state) = stores(&db);
        let config = Config {
            heartbeat_interval: 50,
            election_timeout_min: 200,
            election_timeout_max: 400,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(20),
            max_in_snapshot_log_to_keep: 5,
            purge_batch_size: 1,
            replication_lag_threshold: 10,
            ..Config::default()
        };
        let config = Arc::new(config.validate().unwrap());
        let raft = Raft::new(id, config, self.nodes.clone(), log, state).await.unwrap();
        self.nodes.0.lock().unwrap().insert(id, raft);
        self.files.insert(id, (fs, db));
    }

    /// Takes the files as after a power loss, then ends the node.
    async fn cut_power(&mut self, id: u64, seed: u64) -> MemFs {
        let raft = self.nodes.0.lock().unwrap().remove(&id).unwrap();
        let (fs, _db) = self.files.remove(&id).unwrap();
        let image = fs.crash(seed);
        raft.shutdown().await.unwrap();
        image
    }

    /// Writes through any leader until one acknowledges.
    async fn write(&self, key: &str, value: &str) {
        for attempt in 0.. {
            assert!(attempt < 400, "there is no leader");
            let nodes: Vec<_> = self.nodes.0.lock().unwrap().values().cloned().collect();
            for raft in nodes {
                let request = Request { key: key.to_owned(), value: value.to_owned() };
                let write = raft.client_write(request);
                if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_secs(2), write).await {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the node has all these values.
    async fn expect(&self, id: u64, expected: &BTreeMap<String, String>) {
        let map = self.files[&id].1.keyspace("map").unwrap();
        for _ in 0..600 {
            let found: BTreeMap<String, String> = map
                .iter()
                .map(|entry| {
                    let (key, value) = entry.unwrap();
                    (String::from_utf8_lossy(&key).into(), String::from_utf8_lossy(&value).into())
                })
                .collect();
            if &found == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("node {id} has not caught up");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_what_it_acknowledged_through_power_losses() {
    let mut cluster = Cluster { nodes: Nodes::default(), files: BTreeMap::new() };
    for id in 1..=3 {
        cluster.start(id, MemFs::new()).await;
    }
    let members: BTreeMap<u64, BasicNode> = (1..=3).map(|id| (id, BasicNode::default())).collect();
    let first = cluster.nodes.0.lock().unwrap()[&1].clone();
    first.initialize(members).await.unwrap();

    // Until it is written all nodes but the first know no members, and hold no election.
    cluster.write("first", "value").await;
    let mut expected = BTreeMap::from([("first".to_owned(), "value".to_owned())]);
    for id in 1..=3 {
        cluster.expect(id, &expected).await;
    }
    for round in 0..6_u64 {
        let victim = round % 3 + 1;
        let image = cluster.cut_power(victim, round).await;
        // In every second round more is written than the others keep in their logs: a snapshot is sent.
        for number in 0..if round % 2 == 0 { 60 } else { 3 } {
            let (key, value) = (format!("key {}", number % 40), format!("{round} {number}"));
            cluster.write(&key, &value).await;
            expected.insert(key, value);
        }
        cluster.start(victim, image).await;
        cluster.expect(victim, &expected).await;
    }
    for id in 1..=3 {
        cluster.expect(id, &expected).await;
        cluster.files[&id].1.check().unwrap();
    }
    // All at once.
    let images =
        [cluster.cut_power(1, 1).await, cluster.cut_power(2, 2).await, cluster.cut_power(3, 3).await];
    for (id, image) in (1..).zip(images) {
        cluster.start(id, image).await;
    }
    cluster.write("last", "value").await;
    expected.insert("last".to_owned(), "value".to_owned());
    for id in 1..=3 {
        cluster.expect(id, &expected).await;
    }
}
