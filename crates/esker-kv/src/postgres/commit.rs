//! A commit: all writes and `COMMIT` in one round trip. Large ones go out in parts, one after the other.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::error::Stage;
use super::pipeline::{Request, in_order};
use super::session::Connection;
use super::view::PostgresView;
use crate::Result;
use crate::layered::Write;

/// Bytes of keys and values of a statement, unless one entry is larger.
const PART_BYTES: usize = 4 << 20;
/// Maximum number of keys of a statement.
const PART_KEYS: usize = 5_000;
/// Number of statements that are sent with `COMMIT`. The client library copies each.
const PIPELINED: usize = 8;

/// A statement of a commit.
enum Step {
    RemoveRange(Bytes, Bytes),
    /// Conflicts if one of these keys was inserted by another transaction (postgres.4).
    Claim(Vec<Bytes>),
    Remove(Vec<Bytes>),
    /// Conflicts if one of these keys was changed or removed by another transaction (postgres.5).
    Lock(Vec<Bytes>),
    Put(Vec<Bytes>, Vec<Bytes>),
}

/// Returns the statements of a commit, in their order. `for_update` has the keys read for update, and whether
/// they are there.
fn plan(writes: Vec<Write>, for_update: &BTreeMap<Bytes, bool>) -> Vec<Step> {
    let mut steps = Vec::new();
    let missing = for_update.iter().filter(|(_, is_there)| !**is_there);
    let mut removed: BTreeSet<Bytes> = missing.map(|(key, _)| key.clone()).collect();
    let mut puts: Vec<(Vec<Bytes>, Vec<Bytes>)> = Vec::new();
    let mut bytes = usize::MAX;
    for write in writes {
        match write {
            Write::RemoveRange(from, to) => steps.push(Step::RemoveRange(from, to)),
            Write::Remove(key) => drop(removed.insert(key)),
            Write::Put(key, value) => {
                removed.remove(&key);
                bytes = bytes.saturating_add(key.len() + value.len());
                if bytes > PART_BYTES || puts.last().is_some_and(|(keys, _)| keys.len() == PART_KEYS) {
                    bytes = key.len() + value.len();
                    puts.push((Vec::new(), Vec::new()));
                }
                if let Some((keys, values)) = puts.last_mut() {
                    keys.push(key);
                    values.push(value);
                }
            }
        }
    }
    let removed: Vec<Bytes> = removed.into_iter().collect();
    for keys in removed.chunks(PART_KEYS) {
        steps.push(Step::Claim(keys.to_vec()));
        steps.push(Step::Remove(keys.to_vec()));
    }
    for (keys, values) in puts {
        // Keys read for update are locked, and the insert notices if a missing one is there meanwhile.
        let unlocked: Vec<_> = keys.iter().filter(|key| !for_update.contains_key(*key)).cloned().collect();
        if !unlocked.is_empty() {
            steps.push(Step::Lock(unlocked));
        }
        steps.push(Step::Put(keys, values));
    }
    steps
}

fn slices(bytes: &[Bytes]) -> Vec<&[u8]> {
    bytes.iter().map(|bytes| &bytes[..]).collect()
}

impl Step {
    async fn run(&self, connection: &Connection) -> Result<(), tokio_postgres::Error> {
        let client = &connection.client;
        let done = match self {
            Step::RemoveRange(from, to) => {
                client.execute(&connection.remove_range, &[&&from[..], &&to[..]]).await
            }
            Step::Claim(keys) => client.execute(&connection.claim, &[&slices(keys)]).await,
            Step::Lock(keys) => client.execute(&connection.lock, &[&slices(keys)]).await,
            Step::Remove(keys) => client.execute(&connection.remove, &[&slices(keys)]).await,
            Step::Put(keys, values) => {
                client.execute(&connection.put, &[&slices(keys), &slices(values)]).await
            }
        };
        done.map(|_| ())
    }
}

/// Makes writes and commits.
pub(super) async fn commit(view: PostgresView, writes: Vec<Write>) -> Result<()> {
    view.check_conflicts()?;
    let steps = plan(writes, &view.for_update);
    if steps.is_empty() {
        // What was read for update is locked until here. Dropping the view rolls back.
        return Ok(());
    }
    // postgres.1: a `BEGIN` that fails ends the commit here.
    view.begin().await?;
    let connection = view.connection();
    let (first, last) = steps.split_at(if steps.len() > PIPELINED { steps.len() - 1 } else { 0 });
    for step in first {
        view.lease.checked(view.lease.wait(Stage::Open, step.run(connection)).await?)?;
    }
    let mut requests: Vec<Request<'_, ()>> =
        last.iter().map(|step| Box::pin(step.run(connection)) as Request<'_, ()>).collect();
    requests.push(Box::pin(connection.client.batch_execute("COMMIT")));
    let count = requests.len();
    let done = view.lease.wait(Stage::Commit, in_order(requests)).await?;
    let Err(failed) = done else {
        view.end();
        return Ok(());
    };
    let stage = match failed.sent == count {
        false => Stage::Open,
        true if failed.at + 1 == count => Stage::Commit,
        true => Stage::CommitSent,
    };
    if stage != Stage::Open {
        view.end();
    }
    view.lease.checked_at(Err(failed.error), stage)
}
