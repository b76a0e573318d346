//! Changes on their way to a sink: one JSON object each, in batches.
//!
//! ```text
//!   {"commit":7,"history":"a1","n":0,"what":"put","keyspace":"users","key":"ann","value":"1"}
//!   {"commit":7,"history":"a1","n":1,"what":"removed","keyspace":"users","key":"bob","last":true}
//! ```
//!
//! `n` counts the changes of a commit from 0. `last` marks the last one.

use std::fmt::{self, Display, Formatter};
use std::io::Write;
use std::str::FromStr;
use std::sync::Arc;

use crate::text::{push_json, push_json_bytes};

/// A batch is full with this many bytes.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// A commit of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Position {
    /// The number of the database in hexadecimal, or an epoch of the server.
    pub(super) history: Arc<str>,
    pub(super) commit: u64,
}

impl Display for Position {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.history, self.commit)
    }
}

impl FromStr for Position {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.rsplit_once(':').filter(|(history, _)| !history.is_empty());
        let parsed = parts.and_then(|(history, commit)| Some((history, commit.parse().ok()?)));
        let (history, commit) = parsed.ok_or("a position has the form HISTORY:COMMIT")?;
        Ok(Position { history: history.into(), commit })
    }
}

/// What a change did, in the words of `esker feed`.
#[derive(Debug, Default)]
pub(super) struct Described {
    pub(super) what: &'static str,
    pub(super) keyspace: String,
    /// Names and contents. `None`: the content has no form here.
    pub(super) fields: Vec<(String, Option<Vec<u8>>)>,
    pub(super) expires_ms: Option<u64>,
}

impl Described {
    pub(super) fn new(what: &'static str, keyspace: impl Into<String>) -> Self {
        Described { what, keyspace: keyspace.into(), ..Described::default() }
    }

    pub(super) fn with(mut self, name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        self.fields.push((name.into(), Some(bytes.into())));
        self
    }

    /// Adds operands: `operand`, `operand_2`, and so on.
    pub(super) fn with_operands<'a>(self, operands: impl Iterator<Item = &'a [u8]>) -> Self {
        operands.enumerate().fold(self, |described, (i, operand)| {
            described.with(if i == 0 { "operand".to_owned() } else { format!("operand_{}", i + 1) }, operand)
        })
    }
}

/// A change as sinks send it.
#[cfg_attr(
    not(any(feature = "http", feature = "kafka", feature = "nats")),
    allow(dead_code, reason = "files need the line only")
)]
#[derive(Debug)]
pub(super) struct Change {
    pub(super) at: Position,
    /// Index among all changes of the commit.
    n: u64,
    pub(super) keyspace: String,
    #[cfg_attr(not(feature = "kafka"), expect(dead_code, reason = "only Kafka's messages have keys"))]
    pub(super) key: Option<Vec<u8>>,
    /// One JSON object, without a line end. Until it is sealed, its closing brace is missing.
    pub(super) line: Vec<u8>,
}

impl Change {
    pub(super) fn new(at: Position, n: u64, described: Described, all_hex: bool) -> std::io::Result<Self> {
        let Described { what, keyspace, fields, expires_ms } = described;
        let mut line = Vec::new();
        write!(line, "{{\"commit\":{},\"history\":", at.commit)?;
        push_json(&at.history, &mut line)?;
        write!(line, ",\"n\":{n},\"what\":\"{what}\",\"keyspace\":")?;
        push_json(&keyspace, &mut line)?;
        for (name, bytes) in &fields {
            line.push(b',');
            match bytes {
                Some(bytes) => push_json_bytes(name, bytes, all_hex, &mut line)?,
                None => write!(line, "\"{name}\":null")?,
            }
        }
        if let Some(expires_ms) = expires_ms {
            write!(line, ",\"expires_ms\":{expires_ms}")?;
        }
        let key = fields.into_iter().find(|(name, _)| name == "key").and_then(|(_, bytes)| bytes);
        Ok(Change { at, n, keyspace, key, line })
    }

    /// Completes the line.
    pub(super) fn seal(mut self, is_last: bool) -> Self {
        let end: &[u8] = if is_last { b",\"last\":true}" } else { b"}" };
        self.line.extend_from_slice(end);
        self
    }

    /// Identifies the change: equal in each delivery, different for any two changes.
    #[cfg_attr(
        not(any(feature = "http", feature = "kafka", feature = "nats")),
        allow(dead_code, reason = "lines of files have none")
    )]
    pub(super) fn id(&self) -> String {
        let keyspace: String = self.keyspace.escape_default().collect();
        format!("{}:{}:{keyspace}", self.at, self.n)
    }
}

/// Changes that are delivered together, in order.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) changes: Vec<Change>,
    bytes: usize,
    len_max: usize,
    /// The last commit all of whose changes are in this batch or in earlier ones.
    pub(super) end: Option<Position>,
}

impl Batch {
    pub(super) fn new(len_max: usize) -> Self {
        Batch { changes: Vec::new(), bytes: 0, len_max, end: None }
    }

    pub(super) fn clear(&mut self) {
        self.changes.clear();
        (self.bytes, self.end) = (0, None);
    }

    pub(super) fn push(&mut self, change: Change) {
        self.bytes += change.line.len();
        self.changes.push(change);
    }

    #[cfg(feature = "server")]
    pub(super) fn len_max(&self) -> usize {
        self.len_max
    }

    pub(super) fn is_full(&self) -> bool {
        self.changes.len() >= self.len_max || self.bytes >= BATCH_BYTES_MAX
    }

    /// Returns all lines, each with a line end.
    pub(super) fn lines(&self) -> Vec<u8> {
        let mut lines = Vec::with_capacity(self.bytes + self.changes.len());
        for change in &self.changes {
            lines.extend_from_slice(&change.line);
            lines.push(b'\n');
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_lines_have_one_form() {
        let at: Position = "1-9f:7".parse().unwrap();
        assert_eq!((&*at.history, at.commit, at.to_string()), ("1-9f", 7, "1-9f:7".to_owned()));
        for wrong in ["", "7", ":7", "a:", "a:b", "a:-1"] {
            assert!(wrong.parse::<Position>().is_err(), "{wrong}");
        }
        let put = Described::new("put", "u").with("key", b"\xff".to_vec()).with("value", *b"\"");
        let change = Change::new(at, 3, put, false).unwrap().seal(true);
        let line = r#"{"commit":7,"history":"1-9f","n":3,"what":"put","keyspace":"u","key_hex":"ff","value":"\"","last":true}"#;
        assert_eq!(String::from_utf8(change.line.clone()).unwrap(), line);
        assert_eq!(change.id(), "1-9f:7:3:u");
    }
}
