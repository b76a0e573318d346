//! Opens stores by their URLs.

use std::future::Future;
use std::sync::Arc;

use tokio::runtime::Builder;

use crate::async_kv::AsyncKv;
use crate::{Blocking, Error, Kv, Result};

/// The URLs of stores, their features and what they are.
pub const STORES: &[(&str, &str, &str)] = &[
    ("postgres://user@host:port/database", "postgres", "PostgreSQL and what speaks its protocol"),
    ("esker://user@host:port/keyspace", "client", "a server of Esker, in one of its keyspaces"),
    ("tikv://host:port,host:port", "tikv", "TiKV, by its placement drivers"),
    ("slatedb://bucket/path", "slatedb", "SlateDB in an object store; slatedb:///path is a directory"),
];

/// Opens the store of a URL: see [`STORES`]. It has two threads of its own.
///
/// # Errors
/// [`Error::Unsupported`] if no known store has such a URL, or the build lacks the store;
/// [`Error::Unavailable`] if the store does not answer; other errors of the store.
pub fn connect(url: &str) -> Result<Arc<dyn Kv>> {
    let scheme = scheme_of(url);
    match scheme {
        #[cfg(feature = "postgres")]
        Some("postgres" | "postgresql") => {
            open(crate::postgres::Postgres::connect(url, crate::postgres::Options::default()))
        }
        #[cfg(feature = "client")]
        Some("esker") => open(crate::client::open(url)),
        #[cfg(feature = "slatedb")]
        Some("slatedb") => open(crate::slatedb::open(url)),
        #[cfg(feature = "tikv")]
        Some("tikv") => open(crate::tikv::open(url)),
        _ => Err(Error::Unsupported(not_here(url, scheme))),
    }
}

/// Returns what a URL begins with.
fn scheme_of(url: &str) -> Option<&str> {
    url.split_once("://").map(|(scheme, _)| scheme)
}

fn not_here(url: &str, scheme: Option<&str>) -> String {
    let scheme = if scheme == Some("postgresql") { Some("postgres") } else { scheme };
    match STORES.iter().find(|(known, ..)| scheme.is_some() && scheme_of(known) == scheme) {
        Some((known, feature, _)) => format!("{known} needs a build with the feature {feature}"),
        None => {
            let known: Vec<_> = STORES.iter().map(|(url, ..)| *url).collect();
            // No more of it: it may have a password.
            let start = url.split([':', '/', '@']).next().unwrap_or_default();
            format!("{start:?} begins no URL of a store: {}", known.join(", "))
        }
    }
}

#[cfg_attr(
    not(any(feature = "client", feature = "postgres", feature = "slatedb", feature = "tikv")),
    allow(dead_code)
)]
fn open<A: AsyncKv + 'static>(store: impl Future<Output = Result<A>>) -> Result<Arc<dyn Kv>> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(Error::other)?;
    let opened = {
        let _entered = runtime.enter();
        pollster::block_on(store)
    };
    match opened {
        Ok(store) => Ok(Arc::new(Blocking::with_runtime(Arc::new(store), runtime))),
        Err(error) => {
            runtime.shutdown_background();
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_no_store_is_refused_without_its_password() {
        let refused = connect("mysql://me:secret@host/db").err().map(|error| error.to_string());
        let refused = refused.unwrap_or_default();
        assert!(refused.contains("postgres://") && !refused.contains("secret"), "{refused}");
    }
}
