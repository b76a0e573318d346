//! The integration tests of object_store.

use std::future::Future;

use esker_object_store::EskerStore;
use object_store::integration;

async fn with<T: Future<Output = ()>>(test: impl FnOnce(EskerStore) -> T) {
    let dir = tempfile::tempdir().unwrap();
    let db = esker::Db::builder().memory(64 << 20).open(dir.path()).unwrap();
    test(EskerStore::open(&db, "store").unwrap()).await;
    db.check().unwrap();
}

macro_rules! integration {
    ($($name:ident($($more:tt)*);)*) => {$(
        #[tokio::test]
        async fn $name() {
            with(|store| async move { integration::$name(&store, $($more)*).await }).await;
        }
    )*};
}

integration! {
    put_get_delete_list();
    put_get_attributes();
    get_opts();
    put_opts(true);
    stream_get();
    list_uses_directories_correctly();
    list_with_delimiter();
    list_with_offset_exclusivity();
    rename_and_copy();
    copy_if_not_exists();
    copy_rename_nonexistent_object();
    multipart_race_condition(true);
    multipart_out_of_order();
}

#[tokio::test]
async fn get_nonexistent_object() {
    with(|store| async move {
        let error = integration::get_nonexistent_object(&store, None).await.unwrap_err();
        assert!(matches!(error, object_store::Error::NotFound { .. }), "{error}");
    })
    .await;
}

#[tokio::test]
async fn multipart() {
    with(|store| async move { integration::multipart(&store, &store).await }).await;
}

#[tokio::test]
async fn multipart_with_opts() {
    with(|store| async move { integration::multipart_with_opts(&store, &store).await }).await;
}

#[tokio::test]
async fn multipart_put_part_out_of_order() {
    with(|store| async move { integration::multipart_put_part_out_of_order(&store, &store).await }).await;
}
