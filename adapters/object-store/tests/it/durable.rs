//! What survives a power loss.

use std::sync::Arc;

use bytes::Bytes;
use esker::Db;
use esker::env::{Env, MemFs};
use esker_object_store::EskerStore;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload};

fn open(fs: &MemFs) -> (Db, EskerStore) {
    let env = Env::with_fs(Arc::new(fs.clone()));
    let db = Db::builder().memory(16 << 20).env(env).open("/db").unwrap();
    let store = EskerStore::open(&db, "store").unwrap();
    (db, store)
}

fn power_loss(fs: &MemFs) -> Vec<MemFs> {
    let random = (0..6).map(|seed| fs.crash(seed));
    [fs.crash_strict(), fs.kill(), fs.crash_keep_all()].into_iter().chain(random).collect()
}

async fn read(store: &EskerStore, path: &Path) -> Option<Bytes> {
    match store.get(path).await {
        Ok(found) => Some(found.bytes().await.unwrap()),
        Err(object_store::Error::NotFound { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Returns the number of chunks of all content.
fn chunks(db: &Db) -> u64 {
    db.keyspace("store/content").unwrap().len().unwrap()
}

#[tokio::test]
async fn objects_survive_power_loss_as_a_whole() {
    let fs = MemFs::new();
    let (db, store) = open(&fs);
    let (path, other) = (Path::from("dir/object"), Path::from("dir/other"));
    for (round, len) in [0_usize, 10, 3 << 20, 5].into_iter().enumerate() {
        let data = Bytes::from(vec![round as u8; len]);
        store.put(&path, data.clone().into()).await.unwrap();
        store.copy(&path, &other).await.unwrap();
        for image in power_loss(&fs) {
            let (db, store) = open(&image);
            assert_eq!(read(&store, &path).await.as_ref(), Some(&data));
            assert_eq!(read(&store, &other).await.as_ref(), Some(&data));
            assert_eq!(chunks(&db), 2 * len.div_ceil(1 << 20) as u64);
        }
    }
    store.rename(&path, &other).await.unwrap();
    for image in power_loss(&fs) {
        let (db, store) = open(&image);
        assert_eq!((read(&store, &path).await, read(&store, &other).await.unwrap().len()), (None, 5));
        assert_eq!(chunks(&db), 1);
    }
    store.delete(&other).await.unwrap();
    for image in power_loss(&fs) {
        let (db, store) = open(&image);
        assert_eq!((read(&store, &other).await, chunks(&db)), (None, 0));
    }
    assert_eq!(chunks(&db), 0);
    db.check().unwrap();
}

#[tokio::test]
async fn an_upload_is_there_as_a_whole_or_not_at_all() {
    let fs = MemFs::new();
    let (db, store) = open(&fs);
    let path = Path::from("upload");
    let mut upload = store.put_multipart(&path).await.unwrap();
    let parts = [vec![1; 10], vec![2; (2 << 20) + 1], vec![3; 1 << 20]];
    for part in &parts {
        upload.put_part(PutPayload::from(part.clone())).await.unwrap();
        for image in power_loss(&fs) {
            assert_eq!(read(&open(&image).1, &path).await, None);
        }
    }
    upload.complete().await.unwrap();
    for image in power_loss(&fs) {
        let (_db, store) = open(&image);
        assert_eq!(read(&store, &path).await, Some(Bytes::from(parts.concat())));
        assert!(store.unfinished_uploads().await.unwrap().is_empty());
    }
    db.check().unwrap();
}

#[tokio::test]
async fn a_reopened_store_gives_new_tags_and_knows_the_old_ones() {
    let fs = MemFs::new();
    let path = Path::from("object");
    let (_db, store) = open(&fs);
    let first = store.put(&path, "one".into()).await.unwrap();
    let (_db, store) = open(&fs.kill());
    let update = PutMode::Update(first.clone().into());
    let second = store.put_opts(&path, "two".into(), update.clone().into()).await.unwrap();
    assert_ne!(first.e_tag, second.e_tag);
    let error = store.put_opts(&path, "three".into(), update.into()).await.unwrap_err();
    assert!(matches!(error, object_store::Error::Precondition { .. }), "{error}");
}
