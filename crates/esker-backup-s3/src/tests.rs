//! URLs and settings. `tests/moto.rs` tests requests.

use super::*;

#[test]
fn urls_name_a_bucket_and_perhaps_a_prefix() {
    let open = |url| S3::with(AmazonS3Builder::new().with_region("r"), url);
    for (url, prefix) in [("s3://b", ""), ("s3://b/", ""), ("s3://b/p", "p"), ("s3://b/p/q/", "p/q")] {
        let store = open(url).unwrap();
        assert_eq!((store.url(), store.prefix.as_ref()), (url.trim_end_matches('/'), prefix));
    }
    assert_eq!(open("s3://b/p/q").unwrap().path("files/a.g000001").as_ref(), "p/q/files/a.g000001");
    assert_eq!(open("s3://b").unwrap().path("").as_ref(), "");
    for url in ["s3://", "s3:///p", "b/p", "http://b/p"] {
        assert_eq!(open(url).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{url}");
    }
}

#[test]
fn a_task_of_another_runtime_may_drop_it() {
    let store = S3::with(AmazonS3Builder::new().with_region("r"), "s3://b").unwrap();
    Builder::new_current_thread().build().unwrap().block_on(async { drop(store) });
}
