//! `ES.VERIFY` of a database: checks that main records, parts, expiries and garbage agree.
//!
//! ```text
//!   main records --> parts, expiry          each by itself, and what it names
//!   expiries, versions of parts, garbage --> what names them
//! ```

use std::ops::{Bound, ControlFlow};

use super::Database;
use super::check::{Problem, check};
use super::subkey::{NO_VERSION, due_key, parts_prefix, split_due, split_number, ttl_key};
use crate::store::record::{Kind, Main};
use crate::store::{Order, Reads, Result, Space, Span, Value, prefix_end};

/// Maximum number of problems of a keyspace or database in a report.
pub const PROBLEMS_MAX: usize = 1000;
/// Prefix of a line that reports something unchecked, not a problem.
pub const PASSED_OVER: &str = "passed over: ";

/// Keys and values of the parts of a version.
type Parts = Vec<(Vec<u8>, Vec<u8>)>;

/// Maximum size of parts that are checked together. Of a larger collection only the main record is checked.
const PARTS_BYTES_MAX: usize = 256 << 20;

struct Verify<'a> {
    reads: &'a dyn Reads,
    data: &'a Database,
    /// Versions that main records name.
    named: Vec<u64>,
    problems: Vec<String>,
    /// Collections with parts of more than `parts_bytes_max` bytes.
    passed_over: Vec<String>,
    parts_bytes_max: usize,
}

/// Problems of a database in one state of the store, and what was skipped.
///
/// # Errors
/// Errors of the store.
pub fn verify(reads: &dyn Reads, data: &Database) -> Result<Vec<String>> {
    verify_parts(reads, data, PARTS_BYTES_MAX)
}

fn verify_parts(reads: &dyn Reads, data: &Database, parts_bytes_max: usize) -> Result<Vec<String>> {
    let (named, problems, passed_over) = (Vec::new(), Vec::new(), Vec::new());
    let mut verify = Verify { reads, data, named, problems, passed_over, parts_bytes_max };
    verify.main_records()?;
    if verify.problems.len() >= PROBLEMS_MAX {
        // Some main records were not read, so the rest cannot be compared with them.
        verify.problems.push(format!("{PASSED_OVER}what follows in database {}", data.number));
        return Ok(verify.report());
    }
    verify.named.sort_unstable();
    if let Some(twice) = verify.named.windows(2).find(|pair| pair[0] == pair[1]) {
        let problem = format!("database {}: two keys name the parts of version {}", data.number, twice[0]);
        verify.problems.push(problem);
    }
    verify.expiries()?;
    verify.first_deadlines()?;
    verify.garbage()?;
    verify.versions()?;
    Ok(verify.report())
}

impl Verify<'_> {
    /// The problems, then what was skipped.
    fn report(mut self) -> Vec<String> {
        let more = self.passed_over.len().saturating_sub(PROBLEMS_MAX);
        self.passed_over.truncate(PROBLEMS_MAX);
        self.problems.append(&mut self.passed_over);
        if more > 0 {
            let number = self.data.number;
            self.problems.push(format!("{PASSED_OVER}{more} more large collections of database {number}"));
        }
        self.problems
    }

    /// Records a collection of which only the main record is checked.
    fn pass_over(&mut self, key: &[u8]) {
        let (number, key, mib) = (self.data.number, key.escape_ascii(), self.parts_bytes_max >> 20);
        let why = format!("its parts have more than {mib} MiB; only its main record was checked");
        self.passed_over.push(format!("{PASSED_OVER}database {number}, {key}: {why}"));
    }

    fn note(&mut self, what: &[u8], problem: &str) -> ControlFlow<()> {
        let place = format!("database {}, {}", self.data.number, what.escape_ascii());
        self.problems.push(format!("{place}: {problem}"));
        if self.problems.len() < PROBLEMS_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// Passes the entries of a keyspace to `visit` until the store fails or there are too many problems.
    fn walk(
        &mut self,
        space: &Space,
        visit: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.walk_span(space, Span::ALL, visit)
    }

    /// Same as `walk`, for a range.
    fn walk_span(
        &mut self,
        space: &Space,
        span: Span<'_>,
        mut visit: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let (reads, mut failed) = (self.reads, None);
        reads.range(space, span, Order::Up, &mut |key, value| match visit(self, key, value) {
            Ok(flow) => flow,
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        })?;
        failed.map_or(Ok(()), Err)
    }

    fn main_records(&mut self) -> Result<()> {
        let data = self.data;
        self.walk(&data.main, |verify, key, raw| {
            let main = match Main::decode(Value::from(raw)) {
                Ok(main) => main,
                Err(error) => return Ok(verify.note(key, &error.to_string())),
            };
            if main.expires != 0 && verify.reads.get(&data.ttl, &ttl_key(main.expires, key))?.is_none() {
                return Ok(verify.note(key, "its expiry is not noted, so it is not removed in time"));
            }
            if main.kind == Kind::String {
                return Ok(verify.checked(key, check(&main, &[], &[])));
            }
            let Ok(shape) = main.shape() else { return Ok(verify.note(key, "its head is cut off")) };
            verify.named.push(shape.version);
            if let Some(deadlines) = shape.deadlines {
                verify.named.push(deadlines.version);
                if verify.reads.get(&data.sub, &due_key(deadlines.first, key))?.is_none() {
                    let problem = "its first deadline is not noted, so its fields are not removed in time";
                    return Ok(verify.note(key, problem));
                }
            }
            let parts = verify.parts(shape.version)?;
            let deadlines = match shape.deadlines {
                Some(deadlines) => verify.parts(deadlines.version)?,
                None => Some(Vec::new()),
            };
            let (Some(parts), Some(deadlines)) = (parts, deadlines) else {
                verify.pass_over(key);
                return Ok(ControlFlow::Continue(()));
            };
            Ok(verify.checked(key, check(&main, &parts, &deadlines)))
        })
    }

    fn checked(&mut self, key: &[u8], found: std::result::Result<(), Problem>) -> ControlFlow<()> {
        found.map_or_else(|problem| self.note(key, problem), ControlFlow::Continue)
    }

    /// All parts of a version. `None` if they are too large to check.
    fn parts(&self, version: u64) -> Result<Option<Parts>> {
        let prefix = parts_prefix(version);
        let end = prefix_end(&prefix);
        let upper = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let (mut parts, mut bytes) = (Vec::new(), 0);
        let span = Span { lower: Bound::Included(&prefix), upper };
        self.reads.range(&self.data.sub, span, Order::Up, &mut |key, value| {
            bytes += key.len() + value.len();
            parts.push((key[prefix.len()..].to_vec(), value.to_vec()));
            if bytes > self.parts_bytes_max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok((bytes <= self.parts_bytes_max).then_some(parts))
    }

    fn expiries(&mut self) -> Result<()> {
        let data = self.data;
        self.walk(&data.ttl, |verify, entry, _| {
            let Some((expires, key)) = split_number(entry) else {
                return Ok(verify.note(entry, "an expiry is cut off"));
            };
            let main = verify.reads.get(&data.main, key)?.and_then(|raw| Main::decode(raw).ok());
            Ok(match main {
                Some(main) if main.expires == expires => ControlFlow::Continue(()),
                _ => verify.note(key, "an expiry is noted that the key does not have"),
            })
        })
    }

    /// Checks the entries of hashes by their first deadline (data.4).
    fn first_deadlines(&mut self) -> Result<()> {
        let data = self.data;
        let (from, end) = (parts_prefix(NO_VERSION), parts_prefix(NO_VERSION + 1));
        self.walk_span(&data.sub, Span::between(&from, &end), |verify, entry, _| {
            let Some((first, key)) = split_due(entry) else {
                return Ok(verify.note(entry, "a first deadline is cut off"));
            };
            let main = verify.reads.get(&data.main, key)?.and_then(|raw| Main::decode(raw).ok());
            Ok(match main.and_then(|main| main.due().ok()) {
                Some(due) if due.fields == first => ControlFlow::Continue(()),
                _ => verify.note(key, "a first deadline is noted that the key does not have"),
            })
        })
    }

    fn garbage(&mut self) -> Result<()> {
        let data = self.data;
        self.walk(&data.garbage, |verify, entry, _| {
            let version = split_number(entry).map(|(version, _)| version);
            let is_named = version.is_none_or(|version| verify.named.binary_search(&version).is_ok());
            Ok(match is_named {
                true => verify.note(entry, "parts that a key has are noted as garbage"),
                false => ControlFlow::Continue(()),
            })
        })
    }

    /// Checks that parts without a main record are named as garbage (data.3). Reads one part of each version.
    fn versions(&mut self) -> Result<()> {
        let mut from = prefix_end(&parts_prefix(NO_VERSION));
        while let Some(start) = from.take() {
            let mut first = None;
            self.reads.range(&self.data.sub, Span::from(&start), Order::Up, &mut |key, _| {
                first = Some(key.to_vec());
                ControlFlow::Break(())
            })?;
            let Some(key) = first else { break };
            let Some((version, _)) = split_number(&key) else {
                let _ = self.note(&key, "the key of a part is cut off");
                from = Some([&key[..], &[0]].concat());
                continue;
            };
            let prefix = parts_prefix(version);
            let is_garbage = || self.reads.get(&self.data.garbage, &prefix).map(|entry| entry.is_some());
            if self.named.binary_search(&version).is_err() && !is_garbage()? {
                let problem = "parts that no key has are not noted as garbage";
                if self.note(&prefix, problem).is_break() {
                    break;
                }
            }
            from = prefix_end(&prefix);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use esker::{Db, Durability};

    use super::*;
    use crate::store::record::{Shape, encode_collection};
    use crate::store::{LocalStore, Store, Transaction};

    fn put_set(data: &Database, transaction: &mut dyn Transaction, key: &[u8], version: u64, members: u64) {
        let mut main = Vec::new();
        let shape = Shape { version, len: members, ..Shape::default() };
        encode_collection(&mut main, Kind::Set, 0, &shape, None);
        transaction.put(&data.main, key, &main).unwrap();
        for n in 0..members {
            let part = [parts_prefix(version), n.to_be_bytes()].concat();
            transaction.put(&data.sub, &part, b"").unwrap();
        }
    }

    #[test]
    fn what_is_not_checked_is_named() {
        let store = LocalStore::new(Db::in_memory().unwrap(), 1 << 20);
        let data = Database::open(&store, 3).unwrap();
        let mut transaction = store.begin();
        put_set(&data, &mut *transaction, b"small", 1, 10);
        put_set(&data, &mut *transaction, b"large", 2, 200);
        transaction.commit(Durability::Buffered).unwrap();
        let report = |max| verify_parts(&*store.snapshot(), &data, max).unwrap();
        assert_eq!(report(PARTS_BYTES_MAX), [""; 0]);
        let passed_over = "passed over: database 3, large: its parts have more than 0 MiB; only its main record was checked";
        assert_eq!(report(1000), [passed_over]);
        // Skipped collections hide no problem, and too many problems end the check with a message.
        let mut transaction = store.begin();
        for n in 0..PROBLEMS_MAX {
            transaction.put(&data.main, format!("m{n}").as_bytes(), b"\x0F").unwrap();
        }
        transaction.commit(Durability::Buffered).unwrap();
        let report = report(1000);
        assert_eq!(report.len(), PROBLEMS_MAX + 2);
        assert_eq!(report[PROBLEMS_MAX..], ["passed over: what follows in database 3", passed_over]);
    }
}
