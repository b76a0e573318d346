//! What the integration tests leave out: ranges over chunks, snapshots, uploads that end otherwise, threads.

use std::collections::BTreeSet;

use bytes::Bytes;
use esker::Db;
use esker_object_store::EskerStore;
use futures::{StreamExt, TryStreamExt};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutPayload};

fn store() -> (Db, EskerStore) {
    let db = Db::in_memory().unwrap();
    let store = EskerStore::open(&db, "store").unwrap();
    (db, store)
}

fn bytes(len: usize) -> Bytes {
    (0..len).map(|n| (n / 7 + n / (1 << 20)) as u8).collect()
}

#[tokio::test]
async fn ranges_begin_and_end_in_any_chunk() {
    let (_db, store) = store();
    let (path, data) = (Path::from("object"), bytes((3 << 20) + 100));
    let payload: PutPayload = data.chunks(700_001).map(Bytes::copy_from_slice).collect();
    store.put(&path, payload).await.unwrap();
    let edges = [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (2 << 20) + 7, 3 << 20, data.len() as u64];
    for start in edges {
        for end in edges.into_iter().filter(|end| *end > start) {
            let found = store.get_range(&path, start..end).await.unwrap();
            assert_eq!(found, data.slice(start as usize..end as usize), "{start}..{end}");
        }
    }
    let found = store.get_ranges(&path, &[5..10, 4_000_000..4_000_010, 2..3]).await;
    assert!(found.is_err(), "the second range begins behind the end");
    let head = GetOptions { head: true, ..GetOptions::default() };
    let found = store.get_opts(&path, head).await.unwrap();
    assert_eq!(found.meta.size, data.len() as u64);
    assert!(found.bytes().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_read_has_one_version() {
    let (db, store) = store();
    let (path, data) = (Path::from("object"), bytes(3 << 20));
    store.put(&path, data.clone().into()).await.unwrap();
    let read = store.get(&path).await.unwrap();
    store.put(&path, "other".into()).await.unwrap();
    let deleted = store.get(&path).await.unwrap();
    store.delete(&path).await.unwrap();
    db.compact().unwrap();
    assert_eq!(read.bytes().await.unwrap(), data);
    assert_eq!(deleted.bytes().await.unwrap(), "other");
}

#[tokio::test]
async fn listings_go_over_pages_and_see_one_state() {
    let (_db, store) = store();
    let name = |n: u32| Path::from(format!("dir/{:02}/{n:05}", n % 3));
    let puts = (0..2500).map(|n| {
        let store = store.clone();
        async move { store.put(&name(n), "x".into()).await }
    });
    futures::stream::iter(puts).buffered(32).try_collect::<Vec<_>>().await.unwrap();
    let mut listing = store.list(Some(&Path::from("dir")));
    let first = listing.next().await.unwrap().unwrap();
    store.delete(&name(1)).await.unwrap();
    let rest: Vec<_> = listing.map_ok(|meta| meta.location).try_collect().await.unwrap();
    assert_eq!((first.location, rest.len()), (name(0), 2499));
    assert!(rest.is_sorted() && rest.contains(&name(1)));
    let after = store.list_with_offset(Some(&Path::from("dir/01")), &name(1000));
    let after: Vec<_> = after.map_ok(|meta| meta.location).try_collect().await.unwrap();
    assert_eq!((after.len(), &after[0]), (499, &name(1003)));
    // An offset before the prefix, and one behind it.
    assert_eq!(store.list_with_offset(Some(&Path::from("dir/01")), &name(0)).count().await, 832);
    assert_eq!(store.list_with_offset(Some(&Path::from("dir/00")), &name(1)).count().await, 0);
    let level = store.list_with_delimiter(Some(&Path::from("dir"))).await.unwrap();
    assert_eq!((level.objects.len(), level.common_prefixes.len()), (0, 3));
}

#[tokio::test]
async fn uploads_are_listed_until_they_end() {
    let (db, store) = store();
    let path = Path::from("object");
    let id = store.create_multipart(&path).await.unwrap();
    store.put_part(&path, &id, 0, PutPayload::from(vec![1; 3 << 20])).await.unwrap();
    let part = store.put_part(&path, &id, 0, "shorter".into()).await.unwrap();
    store.put_part(&path, &id, 2, "third".into()).await.unwrap();
    let error = store.complete_multipart(&path, &id, vec![part.clone(); 3]).await.unwrap_err();
    assert!(error.to_string().contains("part 1 of the upload is missing"), "{error}");
    let open = store.unfinished_uploads().await.unwrap();
    assert_eq!((open.len(), &open[0].id, &open[0].location), (1, &id, &path));
    store.put_part(&path, &id, 1, "-".into()).await.unwrap();
    let error = store.complete_multipart(&path, &id, vec![part.clone()]).await.unwrap_err();
    assert!(error.to_string().contains("3 parts, not 1"), "{error}");
    store.complete_multipart(&path, &id, vec![part.clone(); 3]).await.unwrap();
    assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "shorter-third");
    assert_eq!(db.keyspace("store/content").unwrap().len().unwrap(), 3);

    let mut upload = store.put_multipart(&path).await.unwrap();
    upload.put_part("x".into()).await.unwrap();
    upload.abort().await.unwrap();
    assert_eq!(db.keyspace("store/content").unwrap().len().unwrap(), 3);
    assert!(store.unfinished_uploads().await.unwrap().is_empty());
    let late = store.put_part(&path, &id, 3, "late".into()).await.unwrap_err();
    assert!(late.to_string().contains("no upload"), "{late}");
    let strange = PartId { content_id: String::new() };
    store.complete_multipart(&path, &"x".to_owned(), vec![strange]).await.unwrap_err();
}

#[tokio::test]
async fn a_rename_moves_no_content_and_onto_itself_does_nothing() {
    let (_db, store) = store();
    let (a, b) = (Path::from("a"), Path::from("b"));
    let put = store.put(&a, "value".into()).await.unwrap();
    store.rename(&a, &b).await.unwrap();
    assert_eq!(store.head(&b).await.unwrap().e_tag, put.e_tag);
    store.rename(&b, &b).await.unwrap();
    store.copy(&b, &b).await.unwrap();
    assert_eq!(store.get(&b).await.unwrap().bytes().await.unwrap(), "value");
    assert!(matches!(store.head(&a).await.unwrap_err(), Error::NotFound { .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_many_creators_wins_and_updates_are_not_lost() {
    let (db, store) = store();
    let path = Path::from("counter");
    let create = |n: usize| {
        let (store, path) = (store.clone(), path.clone());
        tokio::spawn(async move { store.put_opts(&path, n.to_string().into(), PutMode::Create.into()).await })
    };
    let mut won = BTreeSet::new();
    for task in (0..16).map(create).collect::<Vec<_>>() {
        match task.await.unwrap() {
            Ok(put) => assert!(won.insert(put.e_tag.unwrap())),
            Err(error) => assert!(matches!(error, Error::AlreadyExists { .. }), "{error}"),
        }
    }
    assert_eq!(won.len(), 1);
    store.put(&path, "0".into()).await.unwrap();
    let add = |_| {
        let (store, path) = (store.clone(), path.clone());
        tokio::spawn(async move {
            for _ in 0..10 {
                loop {
                    let found = store.get(&path).await.unwrap();
                    let tag = object_store::UpdateVersion { e_tag: found.meta.e_tag.clone(), version: None };
                    let old: u32 = String::from_utf8_lossy(&found.bytes().await.unwrap()).parse().unwrap();
                    let mode = PutMode::Update(tag);
                    match store.put_opts(&path, (old + 1).to_string().into(), mode.into()).await {
                        Ok(_) => break,
                        Err(error) => assert!(matches!(error, Error::Precondition { .. }), "{error}"),
                    }
                }
            }
        })
    };
    for task in (0..8).map(add).collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "80");
    db.check().unwrap();
}

#[tokio::test]
async fn errors_keep_their_source() {
    let (db, store) = store();
    let path = Path::from("object");
    store.put(&path, "value".into()).await.unwrap();
    db.keyspace("store/objects").unwrap().put("bad", "not an object").unwrap();
    let error = store.get(&Path::from("bad")).await.unwrap_err();
    assert!(std::error::Error::source(&error).is_some_and(|source| source.is::<rmp_serde::decode::Error>()));
    db.drop_keyspace("store/content").unwrap();
    let error = store.get(&path).await.unwrap().bytes().await.unwrap_err();
    assert!(std::error::Error::source(&error).is_some_and(|source| source.is::<esker::Error>()), "{error:?}");
}
