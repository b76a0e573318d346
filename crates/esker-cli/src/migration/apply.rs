//! Applies the commands of a replication stream to the target.
//!
//! ```text
//!   bytes --parse--> command --> as it is, or what means the same --> target
//!                       `-- MULTI ... EXEC: together, once complete
//! ```
//!
//! `RESTORE` and `FUNCTION RESTORE` have values in the format of the source; their values are decoded. All
//! other commands of Redis's streams mean the same at the target.

use std::time::{SystemTime, UNIX_EPOCH};

use esker_rdb::Key;

use super::stream::{Parsed, parse};
use super::target::Target;
use super::{Words, commands, describe};
use crate::failure::{Failure, Result};
use crate::text::shown;

/// What has come and is not applied yet.
#[derive(Debug, Default)]
pub(crate) struct Applier {
    bytes: Vec<u8>,
    /// Bytes needed before parsing can go on.
    least: usize,
    /// The commands of a transaction that is not complete.
    transaction: Option<Vec<Words>>,
    /// Bytes of that transaction.
    open_bytes: u64,
    pub(crate) commands: u64,
    /// Whether the source asked for an acknowledgement.
    pub(crate) is_asked: bool,
}

impl Applier {
    /// Applies the complete commands in what came before and `bytes`. Returns the number of bytes that are
    /// confirmed since the last call.
    pub(crate) fn apply(&mut self, bytes: &[u8], target: &mut Target) -> Result<u64> {
        self.bytes.extend_from_slice(bytes);
        let (mut at, mut confirmed) = (0, 0);
        while self.bytes.len() - at >= self.least.max(1) {
            match parse(&self.bytes[at..]) {
                Parsed::Part(least) => self.least = least,
                Parsed::Damaged => {
                    let shown = self.bytes[at..].iter().take(40).copied().collect::<Vec<u8>>();
                    return Err(Failure::message(format!(
                        "the stream is damaged at '{}'",
                        shown.escape_ascii()
                    )));
                }
                Parsed::Command(words, len) => {
                    (at, self.least) = (at + len, 0);
                    self.open_bytes += len as u64;
                    self.take(words, target)?;
                    if self.transaction.is_none() {
                        confirmed += std::mem::take(&mut self.open_bytes);
                    }
                }
            }
        }
        self.bytes.drain(..at);
        target.flush()?;
        Ok(confirmed)
    }

    /// Takes one command: applies it, or keeps it for the end of its transaction.
    fn take(&mut self, words: Words, target: &mut Target) -> Result<()> {
        let name = words.first().map(|word| word.to_ascii_uppercase()).unwrap_or_default();
        match (name.as_slice(), &mut self.transaction) {
            (b"" | b"PING", _) => {}
            (b"REPLCONF", _) => self.is_asked = true,
            (b"MULTI", transaction) => *transaction = Some(Vec::new()),
            (b"EXEC", transaction) => {
                let all = transaction.take().unwrap_or_default();
                self.commands += all.len() as u64;
                apply_transaction(&all, target)?;
            }
            (_, Some(transaction)) => transaction.push(words),
            (_, None) => {
                self.commands += 1;
                apply_one(&words, target)?;
            }
        }
        Ok(())
    }
}

fn apply_transaction(all: &[Words], target: &mut Target) -> Result<()> {
    if all.is_empty() {
        return Ok(());
    }
    target.push(&["MULTI"])?;
    all.iter().try_for_each(|words| apply_one(words, target))?;
    target.push(&["EXEC"])
}

fn apply_one(words: &Words, target: &mut Target) -> Result<()> {
    let name = words[0].to_ascii_uppercase();
    match name.as_slice() {
        b"SELECT" => {
            let number = words.get(1).and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
            target.select(number.ok_or_else(|| Failure::message("the stream is damaged at SELECT"))?)
        }
        b"RESTORE" | b"RESTORE-ASKING" if words.len() >= 4 => restore(words, target),
        b"FUNCTION" if words.len() >= 3 && words[1].eq_ignore_ascii_case(b"restore") => {
            restore_libraries(words, target)
        }
        _ => target.push(words),
    }
}

fn undecodable(words: &Words, error: &esker_rdb::Error) -> Failure {
    Failure::message(format!("{} cannot be decoded: {}", describe(words), shown(error)))
}

/// Replaces a key by a value in the source's format.
fn restore(words: &Words, target: &mut Target) -> Result<()> {
    let value = esker_rdb::value_of_dump(&words[3], u64::MAX).map_err(|e| undecodable(words, &e))?;
    let ttl: u64 = std::str::from_utf8(&words[2]).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let is_absolute = words[4..].iter().any(|word| word.eq_ignore_ascii_case(b"absttl"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64);
    let expires_ms = if ttl == 0 || is_absolute { ttl } else { now.saturating_add(ttl) };
    target.push(&[b"DEL", words[1].as_slice()])?;
    let key = Key { name: words[1].clone(), value, expires_ms };
    commands::make(&key, &mut |words| target.push(words))
}

fn restore_libraries(words: &Words, target: &mut Target) -> Result<()> {
    let libraries = esker_rdb::libraries_of_dump(&words[2], u64::MAX).map_err(|e| undecodable(words, &e))?;
    let policy = words.get(3).map(|word| word.to_ascii_lowercase()).unwrap_or_default();
    if policy == b"flush" {
        target.push(&["FUNCTION", "FLUSH"])?;
    }
    let replaces = policy == b"replace";
    libraries.iter().try_for_each(|code| {
        let mut words = vec![&b"FUNCTION"[..], b"LOAD"];
        words.extend(replaces.then_some(&b"REPLACE"[..]));
        words.push(code);
        target.push(&words)
    })
}
