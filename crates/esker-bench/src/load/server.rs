//! A server that is loaded: rows of one column, through the crate `esker-client`.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use esker_bench_api::{Failure, Result, generate::obigstore};
use esker_client::ob::{self, Row};
use esker_client::{Client, Names};

use super::Pair;

/// The column of all rows.
const COLUMN: &str = "v";

/// Connections to a server, one for each request in flight.
pub(super) struct Server {
    table: String,
    idle: Mutex<Vec<Client>>,
}

impl Server {
    /// Connects to `HOST:PORT`, or to a URL of the client.
    pub(super) fn connect(address: &str, table: &str, connections: u64) -> Result<Self> {
        let url = if address.contains("://") { address.to_owned() } else { format!("redis://{address}/") };
        let connect =
            |_| Client::connect(&url).map_err(|error| Failure::Engine(format!("{address}: {error}")));
        let idle = (0..connections).map(connect).collect::<Result<_, _>>()?;
        Ok(Server { table: table.to_owned(), idle: Mutex::new(idle) })
    }

    /// Sets a row for each pair, all in one commit.
    pub(super) fn put(&self, pairs: &[Pair]) -> Result<Instant> {
        self.with(|client| {
            let rows = pairs
                .iter()
                .fold(ob::put_rows(&*self.table), |rows, pair| rows.row(&pair.key, [(COLUMN, &pair.value)]));
            client.run(rows.request())?;
            Ok(Instant::now())
        })
    }

    /// Reads these rows in one request. Each must be there, with the value of its key.
    pub(super) fn get(&self, pairs: &[Pair]) -> Result<Instant> {
        let names = Names::new().list(pairs.iter().map(|pair| pair.key.clone()));
        let slice = ob::slice(&*self.table).keys(names).columns(Names::new().one(COLUMN));
        let (rows, end) = self.with(|client| Ok((client.run(slice.request())?.rows, Instant::now())))?;
        let mut keys: Vec<_> = pairs.iter().map(|pair| &pair.key).collect();
        keys.sort();
        keys.dedup();
        // Rows come in the order of their keys.
        let there = |at: usize| rows.get(at).map(|row| &row.key);
        if let Some(at) = (0..keys.len()).find(|at| there(*at) != Some(keys[*at])) {
            return Err(missing(keys[at]));
        }
        verify(&rows).map(|()| end)
    }

    /// Reads `keys` rows, starting at the key of the pair.
    pub(super) fn range(&self, pair: &Pair, keys: usize) -> Result<Instant> {
        let names = Names::new().range(&*pair.key, "");
        let slice = ob::slice(&*self.table).keys(names).columns(Names::new().one(COLUMN)).max_keys(keys);
        let (rows, end) = self.with(|client| Ok((client.run(slice.request())?.rows, Instant::now())))?;
        if rows.first().is_none_or(|row| row.key != pair.key) {
            return Err(missing(&pair.key));
        }
        if rows.len() > keys || !rows.is_sorted_by(|a, b| a.key < b.key) {
            return Err(Failure::Wrong("the rows of a range are too many, or not in order".to_owned()));
        }
        verify(&rows).map(|()| end)
    }

    fn with<T>(&self, run: impl FnOnce(&mut Client) -> esker_client::Result<T>) -> Result<T> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut client = idle().pop().ok_or(Failure::Engine("more requests than connections".to_owned()))?;
        let done = run(&mut client).map_err(Failure::engine);
        idle().push(client);
        done
    }
}

fn missing(key: &[u8]) -> Failure {
    Failure::Wrong(format!("no row {}: load the same keys first", key.escape_ascii()))
}

/// Checks that each row has the value that its key determines.
fn verify(rows: &[Row]) -> Result<()> {
    for row in rows {
        let mut expected = vec![0; row.columns.first().map_or(0, |column| column.data.len())];
        obigstore::value(&row.key, &mut expected);
        if row.columns.first().is_none_or(|column| column.data != expected) {
            return Err(Failure::Wrong(format!("row {} has another value", row.key.escape_ascii())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use esker_server::store::LocalStore;
    use esker_server::{Listeners, Options};

    use super::*;
    use crate::load::{KeySource, Source};

    fn pairs(count: usize) -> Vec<Pair> {
        let mut pairs = vec![Pair::default(); count];
        let mut source = Source::new(KeySource::Sequential, 1, 40, count as u64, 0);
        source.take(&mut pairs).unwrap();
        source.values().fill(&mut pairs);
        pairs
    }

    #[test]
    fn what_was_loaded_is_read_and_wrong_answers_are_seen() {
        let db = esker::Db::in_memory().unwrap();
        let store = Arc::new(LocalStore::new(db.clone(), 1 << 30));
        let options = Options { port: Some(0), ..Options::default() };
        let served = esker_server::Server::new(store, Some(db), options).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listeners = runtime.block_on(Listeners::bind(&served)).unwrap();
        let port = served.ports.plain.load(Ordering::Relaxed);
        let running = runtime.spawn({
            let served = served.clone();
            async move { esker_server::run(served, &listeners).await }
        });
        let server = Server::connect(&format!("127.0.0.1:{port}"), "t", 1).unwrap();
        let mut pairs = pairs(100);
        assert!(matches!(server.get(&pairs[..1]), Err(Failure::Wrong(_))));
        server.put(&pairs).unwrap();
        server.get(&[&pairs[3..9], &pairs[3..4]].concat()).unwrap();
        server.range(&pairs[95], 10).unwrap();
        pairs[50].value[0] ^= 1;
        server.put(&pairs[50..51]).unwrap();
        for failed in [server.get(&pairs[40..60]), server.range(&pairs[45], 6)] {
            assert!(failed.unwrap_err().to_string().contains("another value"));
        }
        server.range(&pairs[45], 5).unwrap();
        drop(server);
        served.stop_now();
        runtime.block_on(running).unwrap().unwrap();
    }
}
