//! `esker versions`, `esker scan --since`, `esker keyspaces history`: reading and configuring history.
//!
//! ```text
//!   versions:      COMMIT put VALUE | COMMIT removed                                  newest first
//!   scan --since:  COMMIT removed-range FROM TO, COMMIT put KEY VALUE | removed KEY, at the end COMMIT end
//! ```

use std::fmt::{self, Display, Formatter};
use std::io::Write;
use std::str::FromStr;
use std::time::Duration;

use esker::{Change, History, SeqNo};
use serde_json::{Map, Value};

use crate::Answer;
use crate::args::{Common, HistoryArgs, Scan, Versions};
use crate::bounds::Bounds;
use crate::database::{Database, Session};
use crate::failure::{Failure, Result};
use crate::output;
use crate::text::{ByteForm, json_shown, shown};

/// A commit number on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CommitNo(pub(crate) SeqNo);

impl FromStr for CommitNo {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let number = text.parse().ok().and_then(SeqNo::try_new);
        number.map(CommitNo).ok_or_else(|| "a commit number, as `esker stats` shows it".to_owned())
    }
}

/// A duration on the command line: 90s, 15m, 12h, 7d.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let parse = || {
            let unit = text.chars().last()?;
            let seconds = UNITS.iter().find(|(name, _)| *name == unit)?.1;
            text[..text.len() - 1].parse::<u64>().ok()?.checked_mul(seconds)
        };
        let seconds = parse().ok_or_else(|| "a number with a unit: 90s, 15m, 12h or 7d".to_owned())?;
        Ok(Span(Duration::from_secs(seconds)))
    }
}

impl Display for Span {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (unit, of) = UNITS.into_iter().find(|(_, of)| seconds.is_multiple_of(*of)).unwrap_or(('s', 1));
        write!(f, "{}{unit}", seconds / of)
    }
}

/// Builds an output line: a commit, what it did, and its operands.
pub(super) struct Line<'a> {
    common: &'a Common,
    text: Vec<u8>,
    object: Map<String, Value>,
}

impl<'a> Line<'a> {
    /// `keyspace` is printed if the user selected several.
    pub(super) fn new(common: &'a Common, keyspace: Option<&str>, seqno: SeqNo, what: &str) -> Self {
        let mut line = Line { common, text: Vec::new(), object: Map::new() };
        if let Some(keyspace) = keyspace.filter(|_| common.has_several()) {
            line.text.extend_from_slice(format!("{}\t", shown(keyspace)).as_bytes());
            line.object.insert("keyspace".to_owned(), keyspace.into());
        }
        line.text.extend_from_slice(format!("{seqno}\t{what}").as_bytes());
        line.object.insert("commit".to_owned(), seqno.get().into());
        line.object.insert("what".to_owned(), what.into());
        line
    }

    pub(super) fn with(mut self, name: &str, bytes: &[u8]) -> Self {
        self.text.push(b'\t');
        self.common.form().encode(bytes, &mut self.text);
        let (name, value) = match std::str::from_utf8(bytes) {
            Ok(text) if self.common.form() != ByteForm::Hex => (name.to_owned(), text.to_owned()),
            _ => (format!("{name}_hex"), crate::text::hex(bytes)),
        };
        self.object.insert(name, value.into());
        self
    }

    pub(super) fn write(mut self, out: &mut impl Write) -> Result<()> {
        if self.common.json {
            self.text = json_shown(Value::Object(self.object).to_string()).into_bytes();
        }
        self.text.push(b'\n');
        Ok(out.write_all(&self.text)?)
    }
}

pub(super) fn versions(session: &Session<'_>, args: &Versions) -> Result<Answer> {
    let common = &session.common;
    let key = common.decode(&args.key)?;
    let database = session.open_to_read()?;
    let mut answer = Answer::No;
    let mut out = output::stdout();
    for (name, keyspace) in database.keyspaces(common)? {
        let versions = keyspace.versions(&key).map_err(|error| database.failure(error))?;
        for version in versions.take(args.limit.unwrap_or(usize::MAX)) {
            let version = version.map_err(|error| database.failure(error))?;
            answer = Answer::Yes;
            let line = match &version.value {
                Some(value) if version.is_merge => {
                    Line::new(common, Some(&name), version.seqno, "merge").with("value", value)
                }
                Some(value) => Line::new(common, Some(&name), version.seqno, "put").with("value", value),
                None => Line::new(common, Some(&name), version.seqno, "removed"),
            };
            line.write(&mut out)?;
        }
    }
    out.flush()?;
    Ok(answer)
}

/// `esker scan --since`.
pub(super) fn scan_since(session: &Session<'_>, scan: &Scan, since: SeqNo) -> Result<Answer> {
    let common = &session.common;
    let bounds = scan.range.bounds(common)?;
    let database = session.open_to_read()?;
    let mut out = output::stdout();
    for (name, keyspace) in database.keyspaces(common)? {
        let failure = |error| database.failure(error);
        let changes = keyspace.since(since).map_err(failure)?;
        let upto = changes.seqno();
        let mut left = scan.limit.unwrap_or(usize::MAX);
        for change in changes {
            let (seqno, change) = change.map_err(failure)?;
            if !meets(&bounds, &change) {
                continue;
            }
            if !matches!(change, Change::DeleteRange { .. }) {
                let Some(rest) = left.checked_sub(1) else { break };
                left = rest;
            }
            let line = |what| Line::new(common, Some(&name), seqno, what);
            let line = match &change {
                Change::Put { key, value: Some(value), .. } if !scan.keys_only => {
                    line("put").with("key", key).with("value", value)
                }
                Change::Put { key, .. } => line("put").with("key", key),
                Change::DeleteRange { start, end: Some(end), .. } => {
                    line("removed-range").with("from", start).with("to", end)
                }
                Change::DeleteRange { start, .. } => line("removed-range").with("from", start),
                Change::Delete { key, .. } => line("removed").with("key", key),
                _ => continue,
            };
            line.write(&mut out)?;
        }
        Line::new(common, Some(&name), upto, "end").write(&mut out)?;
    }
    out.flush()?;
    Ok(Answer::Yes)
}

/// Returns whether a change concerns keys within the bounds.
fn meets(bounds: &Bounds, change: &Change) -> bool {
    match change {
        Change::Put { key, .. } | Change::Delete { key, .. } => bounds.holds(key),
        Change::DeleteRange { start, end, .. } => {
            let end = end.as_ref().map(|end| end.to_vec());
            Bounds::new(None, Some(start.to_vec()), end).meets(bounds)
        }
        _ => false,
    }
}

/// Prints or sets the history that a keyspace keeps.
pub(super) fn history(session: &Session<'_>, database: &Database, args: &HistoryArgs) -> Result<()> {
    let keyspace = database.keyspace(&args.name)?;
    let asked = match (args.versions, args.span, args.none) {
        (Some(versions), ..) => Some(History::Versions(versions)),
        (_, Some(span), _) => Some(History::For(span.0)),
        (.., true) => Some(History::None),
        _ => None,
    };
    if let Some(history) = asked {
        if database.in_transaction() {
            let text = "a transaction cannot set a history: `commit` or `rollback` first";
            return Err(Failure::message(text));
        }
        return keyspace.set_history(history).map_err(|error| database.failure(error));
    }
    let kept = match keyspace.history() {
        History::None => "none".to_owned(),
        History::Versions(versions) => format!("versions {versions}"),
        History::For(duration) => format!("for {}", Span(duration)),
    };
    match session.common.json {
        true => output::print_json(&serde_json::json!({ "keyspace": args.name, "history": kept })),
        false => output::print_line(kept),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_shown() {
        for (text, seconds) in [("90s", 90), ("15m", 900), ("12h", 43_200), ("7d", 604_800), ("0s", 0)] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.0, Duration::from_secs(seconds));
            assert!(seconds == 0 || span.to_string() == text, "{span}");
        }
        for wrong in ["", "7", "d", "-1d", "1w", "1.5h", "99999999999999999999d"] {
            assert!(wrong.parse::<Span>().is_err(), "{wrong}");
        }
    }
}
