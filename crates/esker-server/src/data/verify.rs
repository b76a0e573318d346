//! `ES.VERIFY` of a database: whether main records, parts, expiries and garbage fit together.
//!
//! ```text
//!   main records --> parts, expiry          each by itself, and what it names
//!   expiries, versions of parts, garbage --> what names them
//! ```

use std::ops::{Bound, ControlFlow};

use super::Database;
use super::check::check;
use super::main_record::{Kind, Main};
use super::subkey::{parts_prefix, split_number, ttl_key};
use crate::store::{Order, Reads, Result, Span, Value, prefix_end};

/// Keys and values of the parts of a version.
type Parts = Vec<(Vec<u8>, Vec<u8>)>;

/// Maximum number of problems in a report.
const PROBLEMS_MAX: usize = 1000;
/// Parts of one collection that are looked at as a whole: of a larger one, the main record alone is checked.
const PARTS_BYTES_MAX: usize = 256 << 20;

struct Verify<'a> {
    reads: &'a dyn Reads,
    data: &'a Database,
    /// Versions that main records name.
    named: Vec<u64>,
    problems: Vec<String>,
}

/// What is wrong with a database in one state of the store.
///
/// # Errors
/// The store's.
pub fn verify(reads: &dyn Reads, data: &Database) -> Result<Vec<String>> {
    let mut verify = Verify { reads, data, named: Vec::new(), problems: Vec::new() };
    verify.main_records()?;
    verify.named.sort_unstable();
    if let Some(twice) = verify.named.windows(2).find(|pair| pair[0] == pair[1]) {
        let problem = format!("database {}: two keys name the parts of version {}", data.number, twice[0]);
        verify.problems.push(problem);
    }
    verify.expiries()?;
    verify.garbage()?;
    verify.versions()?;
    Ok(verify.problems)
}

impl Verify<'_> {
    fn note(&mut self, what: &[u8], problem: &str) -> ControlFlow<()> {
        let place = format!("database {}, {}", self.data.number, what.escape_ascii());
        self.problems.push(format!("{place}: {problem}"));
        if self.problems.len() < PROBLEMS_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// Shows the entries of a space, until the store fails or there are too many problems.
    fn walk(
        &mut self,
        space: &crate::store::Space,
        mut visit: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let (reads, mut failed) = (self.reads, None);
        reads.range(space, Span::ALL, Order::Up, &mut |key, value| match visit(self, key, value) {
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
            let mut parts = Vec::new();
            if main.kind != Kind::String {
                let Ok(shape) = main.shape() else { return Ok(verify.note(key, "its head is cut off")) };
                verify.named.push(shape.version);
                match verify.parts(shape.version)? {
                    Some(all) => parts = all,
                    None => return Ok(ControlFlow::Continue(())),
                }
            }
            Ok(match check(&main, &parts) {
                Ok(()) => ControlFlow::Continue(()),
                Err(problem) => verify.note(key, problem),
            })
        })
    }

    /// All parts of a version; none if they are too large to be looked at.
    fn parts(&self, version: u64) -> Result<Option<Parts>> {
        let prefix = parts_prefix(version);
        let end = prefix_end(&prefix);
        let upper = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let (mut parts, mut bytes) = (Vec::new(), 0);
        let span = Span { lower: Bound::Included(&prefix), upper };
        self.reads.range(&self.data.sub, span, Order::Up, &mut |key, value| {
            bytes += key.len() + value.len();
            parts.push((key[prefix.len()..].to_vec(), value.to_vec()));
            if bytes > PARTS_BYTES_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok((bytes <= PARTS_BYTES_MAX).then_some(parts))
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

    /// Parts that no main record names are garbage (data.3). Passes over the parts of a version once it has seen the first.
    fn versions(&mut self) -> Result<()> {
        let mut from = Some(Vec::new());
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
