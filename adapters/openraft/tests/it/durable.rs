//! What survives a power loss and a reopening.

use std::collections::BTreeSet;
use std::io::Cursor;

use esker::env::MemFs;
use openraft::entry::FromAppData;
use openraft::storage::{RaftLogStorage, RaftLogStorageExt, RaftStateMachine};
use openraft::testing::{blank_ent, log_id, membership_ent};
use openraft::{Entry, EntryPayload, RaftLogReader, RaftSnapshotBuilder, Vote};

use crate::{Request, Types, open, stores};

fn put(term: u64, index: u64, key: &str) -> Entry<Types> {
    let request = Request { key: key.to_owned(), value: format!("value {index}") };
    Entry { log_id: log_id(term, 1, index), ..Entry::from_app_data(request) }
}

/// The files as after a power loss now: only what was synced, or that and some of the rest.
fn power_loss(fs: &MemFs) -> Vec<MemFs> {
    let random = (0..8).map(|seed| fs.crash(seed));
    [fs.crash_strict(), fs.kill(), fs.crash_keep_all()].into_iter().chain(random).collect()
}

#[tokio::test]
async fn votes_and_entries_survive_power_loss_once_they_are_reported() {
    let fs = MemFs::new();
    let (mut log, _) = stores(&open(&fs));
    for index in 1..=20_u64 {
        log.save_vote(&Vote::new(index, 1)).await.unwrap();
        for image in power_loss(&fs) {
            let (mut log, _) = stores(&open(&image));
            assert_eq!(log.read_vote().await.unwrap(), Some(Vote::new(index, 1)));
        }
        log.blocking_append([put(index, index, "k")]).await.unwrap();
        for image in power_loss(&fs) {
            let (mut log, _) = stores(&open(&image));
            let state = log.get_log_state().await.unwrap();
            assert_eq!(state.last_log_id, Some(log_id(index, 1, index)));
            let entries = log.try_get_log_entries(..).await.unwrap();
            assert_eq!(entries.len() as u64, index);
            assert!(matches!(&entries[0].payload, EntryPayload::Normal(r) if r.value == "value 1"));
        }
    }
}

#[tokio::test]
async fn truncating_and_purging_survive_power_loss() {
    let fs = MemFs::new();
    let (mut log, _) = stores(&open(&fs));
    log.blocking_append((1..=10).map(|index| put(1, index, "k"))).await.unwrap();
    log.truncate(log_id(1, 1, 8)).await.unwrap();
    for image in power_loss(&fs) {
        let (mut log, _) = stores(&open(&image));
        assert_eq!(log.get_log_state().await.unwrap().last_log_id, Some(log_id(1, 1, 7)));
    }
    log.purge(log_id(1, 1, 7)).await.unwrap();
    for image in power_loss(&fs) {
        let (mut log, _) = stores(&open(&image));
        let state = log.get_log_state().await.unwrap();
        assert_eq!(state.last_purged_log_id, Some(log_id(1, 1, 7)));
        assert_eq!(state.last_log_id, state.last_purged_log_id);
        assert!(log.try_get_log_entries(..).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn state_and_position_survive_together() {
    let fs = MemFs::new();
    let db = open(&fs);
    let (_, mut state) = stores(&db);
    let members = vec![BTreeSet::from([1, 2])];
    state.apply([membership_ent::<Types>(1, 1, 1, members.clone())]).await.unwrap();
    for index in 2..=20_u64 {
        let answers = state.apply([put(1, index, "k"), blank_ent::<Types>(1, 1, index)]).await.unwrap();
        assert_eq!(answers, [(index > 2).then(|| format!("value {}", index - 1)), None]);
        for image in power_loss(&fs) {
            let db = open(&image);
            let (_, mut state) = stores(&db);
            let (last, membership) = state.applied_state().await.unwrap();
            assert_eq!(last, Some(log_id(1, 1, index)));
            assert_eq!(membership.membership().get_joint_config(), &members);
            assert_eq!(*membership.log_id(), Some(log_id(1, 1, 1)));
            let value = db.keyspace("map").unwrap().get("k").unwrap();
            assert_eq!(value.as_deref(), Some(format!("value {index}").as_bytes()));
        }
    }
}

#[tokio::test]
async fn an_installed_snapshot_replaces_the_state_and_survives() {
    let (leader_fs, follower_fs) = (MemFs::new(), MemFs::new());
    let (_, mut leader) = stores(&open(&leader_fs));
    leader.apply((1..=50).map(|index| put(2, index, &format!("key {index}")))).await.unwrap();
    let mut builder = leader.get_snapshot_builder().await;
    leader.apply([put(2, 51, "later")]).await.unwrap();
    let built = builder.build_snapshot().await.unwrap();
    assert_eq!(built.meta.last_log_id, Some(log_id(2, 1, 50)));

    let db = open(&follower_fs);
    let (_, mut follower) = stores(&db);
    follower.apply([put(1, 1, "lost")]).await.unwrap();
    let old = follower.get_snapshot_builder().await;
    // A damaged snapshot changes nothing.
    let damaged = Cursor::new(built.snapshot.get_ref()[..100].to_vec());
    follower.install_snapshot(&built.meta, Box::new(damaged)).await.unwrap_err();
    assert_eq!(follower.applied_state().await.unwrap().0, Some(log_id(1, 1, 1)));

    follower.install_snapshot(&built.meta, built.snapshot.clone()).await.unwrap();
    for image in power_loss(&follower_fs) {
        let db = open(&image);
        let (_, mut follower) = stores(&db);
        let map = db.keyspace("map").unwrap();
        assert_eq!((map.len().unwrap(), map.get("lost").unwrap()), (50, None));
        assert_eq!(follower.applied_state().await.unwrap().0, Some(log_id(2, 1, 50)));
        let current = follower.get_current_snapshot().await.unwrap().unwrap();
        assert_eq!(current.meta, built.meta);
        assert_eq!(current.snapshot.get_ref(), built.snapshot.get_ref());
    }
    // A builder from before does not replace the newer snapshot.
    let mut old = old;
    let older = old.build_snapshot().await.unwrap();
    assert_eq!(older.meta.last_log_id, Some(log_id(1, 1, 1)));
    assert_eq!(follower.get_current_snapshot().await.unwrap().unwrap().meta, built.meta);
    db.check().unwrap();
}

#[tokio::test]
async fn groups_of_one_database_are_apart() {
    let db = esker::Db::in_memory().unwrap();
    let mut one = crate::Log::open(&db, "one").unwrap();
    let mut two = crate::Log::open(&db, "two").unwrap();
    one.blocking_append([put(1, 1, "k")]).await.unwrap();
    two.save_vote(&Vote::new(3, 2)).await.unwrap();
    assert_eq!(one.read_vote().await.unwrap(), None);
    assert_eq!(two.get_log_state().await.unwrap().last_log_id, None);
}

#[tokio::test]
async fn long_logs_are_sent_in_parts() {
    let db = esker::Db::in_memory().unwrap();
    let (mut log, _) = stores(&db);
    let large = |index| {
        let request = Request { key: "k".to_owned(), value: "x".repeat(1 << 20) };
        Entry { log_id: log_id(1, 1, index), ..Entry::<Types>::from_app_data(request) }
    };
    log.blocking_append((1..=10).map(large)).await.unwrap();
    let part = log.limited_get_log_entries(2, 11).await.unwrap();
    assert_eq!((part.len(), part[0].log_id.index), (3, 2));
    assert_eq!(log.limited_get_log_entries(10, 11).await.unwrap().len(), 1);
    assert!(log.limited_get_log_entries(11, 20).await.unwrap().is_empty());
}

#[tokio::test]
async fn errors_keep_their_source() {
    let db = esker::Db::in_memory().unwrap();
    let (mut log, mut state) = stores(&db);
    db.keyspace("group/meta").unwrap().put("vote", "no vote").unwrap();
    let error = log.read_vote().await.unwrap_err().to_string();
    assert!(error.contains("Vote") && error.contains("cannot decode vote"), "{error}");
    db.drop_keyspace("map").unwrap();
    let error = state.apply([put(1, 1, "k")]).await.unwrap_err().to_string();
    assert!(error.contains("no keyspace named \"map\""), "{error}");
}
