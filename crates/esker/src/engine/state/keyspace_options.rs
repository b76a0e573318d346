//! Options of single keyspaces, with one encoding for the catalog, unloaded files and changes.
//!
//! ```text
//!   keyspace 0:  "o" + id (varint) --> option (varint), value (string), ...
//! ```
//!
//! - A separate commit sets the options, and the commit that drops the keyspace removes them. Options of a
//!   keyspace that does not exist are ignored.
//! - Opening refuses an option that this build does not know, because writes that ignore it might be wrong.
//!   An unloaded file may have such options: its entries mean the same without them.
//!
//! Bytes: docs/formats/unload.md

use std::sync::Arc;
use std::time::Duration;

use crate::blob::Blobs;
use crate::encoding::bytes::{ByteReader, Decoded, put_string, put_varint};
use crate::engine::state::State;
use crate::engine::state::catalog::KeyspaceState;
use crate::engine::state::history::{History, Kept};
use crate::types::expiry::Expiry;
use crate::types::{Error, KeyspaceId, Result, SeqNo};

// These numbers are stored in files: they never change.
const BLOBS_FROM: u64 = 1;
const IS_LAZY: u64 = 2;
const TTL_MS: u64 = 3;
const MERGE_OPERATOR: u64 = 4;
const BYTES_MAX: u64 = 5;
const HISTORY_VERSIONS: u64 = 10;
const HISTORY_MS: u64 = 11;
/// Stored in the catalog only.
const HISTORY_SINCE: u64 = 12;

/// How commits count the keys of a keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Counting {
    /// Commits look up in memory whether a key exists. Where that would require reading a file, they leave
    /// the lookup to [`len`](crate::Keyspace::len) and to compactions.
    #[default]
    Exact,
    /// Commits do not look up keys, so writes cost less. `len` is exact as well, but looks up all keys
    /// written since the last compaction.
    Lazy,
}

/// The options of a keyspace, which are stored in the database: see
/// [`Keyspace::options`](crate::Keyspace::options).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyspaceOptions {
    /// Which values are stored in blob files. `None`: the database's setting.
    pub blobs: Option<Blobs>,
    /// How commits count its keys.
    pub counting: Counting,
    /// Lifetime of entries put without one. `None`: unlimited.
    pub default_ttl: Option<Duration>,
    /// Which older versions it keeps.
    pub history: History,
    /// Name of the merge operator.
    pub merge_operator: Option<String>,
    /// Size beyond which the oldest entries are removed. `None`: unlimited.
    pub bytes_max: Option<u64>,
}

/// The options of a keyspace as the catalog stores them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredOptions {
    /// Options set by the user, with times as stored: in whole milliseconds.
    pub(crate) given: KeyspaceOptions,
    /// The first commit for which history is kept (history.rs).
    pub(crate) history_since: SeqNo,
}

impl KeyspaceOptions {
    /// The options that a keyspace has if none are given.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets which values are stored in blob files. `None`: the database's setting.
    pub fn blobs(self, blobs: impl Into<Option<Blobs>>) -> Self {
        KeyspaceOptions { blobs: blobs.into(), ..self }
    }

    /// Sets how commits count the keys.
    pub fn counting(self, counting: Counting) -> Self {
        KeyspaceOptions { counting, ..self }
    }

    /// Sets the lifetime of entries put without one. `None`: unlimited.
    pub fn default_ttl(self, ttl: impl Into<Option<Duration>>) -> Self {
        KeyspaceOptions { default_ttl: ttl.into(), ..self }
    }

    /// Sets which older versions are kept.
    pub fn history(self, history: History) -> Self {
        KeyspaceOptions { history, ..self }
    }

    /// Sets the merge operator: see [`Keyspace::set_merge_operator`](crate::Keyspace::set_merge_operator).
    pub fn merge_operator(self, name: impl Into<String>) -> Self {
        KeyspaceOptions { merge_operator: Some(name.into()), ..self }
    }

    /// Sets the size beyond which the oldest entries are removed: see
    /// [`Keyspace::set_bytes_max`](crate::Keyspace::set_bytes_max). `None`: unlimited.
    pub fn bytes_max(self, bytes: impl Into<Option<u64>>) -> Self {
        KeyspaceOptions { bytes_max: bytes.into(), ..self }
    }

    /// Returns the options of keyspace `name` as bytes, for esker-shared. Not part of the API.
    ///
    /// # Errors
    /// Values that no keyspace can have.
    #[doc(hidden)]
    pub fn to_bytes(&self, name: &str) -> Result<Vec<u8>> {
        self.check_values(name)?;
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        Ok(bytes)
    }

    /// The inverse of [`to_bytes`](Self::to_bytes). Not part of the API.
    ///
    /// # Errors
    /// [`Error::Invalid`]: other bytes, or an option that this build does not know.
    #[doc(hidden)]
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let decoded = StoredOptions::decode(bytes);
        let decoded = decoded.map_err(|e| Error::Invalid(format!("options of a keyspace: {}", e.detail)))?;
        Ok(decoded.given)
    }

    /// Refuses values that no keyspace can have.
    fn check_values(&self, name: &str) -> Result<()> {
        if self.default_ttl == Some(Duration::ZERO) {
            return Err(Error::Invalid(format!(
                "keyspace {name:?} cannot have a default lifetime of zero: all that is put would expire at once. Give it none for \
                 entries that do not expire"
            )));
        }
        if self.bytes_max == Some(0) {
            return Err(Error::Invalid(format!(
                "keyspace {name:?} cannot have a maximum of no bytes: give it none, or clear it"
            )));
        }
        Ok(())
    }

    /// Appends the options that differ from the defaults.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        if let Some(blobs) = self.blobs {
            // 0: never.
            put_number(out, BLOBS_FROM, blobs.limit().unwrap_or(0) as u64);
        }
        if self.counting == Counting::Lazy {
            put_number(out, IS_LAZY, 1);
        }
        if let Some(ttl) = self.default_ttl {
            put_number(out, TTL_MS, whole_ms(ttl));
        }
        match self.history {
            History::None => {}
            History::Versions(versions) => put_number(out, HISTORY_VERSIONS, versions.into()),
            History::For(_) => put_number(out, HISTORY_MS, self.history.ms()),
        }
        if let Some(name) = &self.merge_operator {
            put_option(out, MERGE_OPERATOR, name.as_bytes());
        }
        if let Some(bytes) = self.bytes_max {
            put_number(out, BYTES_MAX, bytes);
        }
    }

    /// Default lifetime of puts in milliseconds. 0: unlimited.
    pub(in crate::engine) fn ttl_ms(&self) -> u64 {
        self.default_ttl.map_or(0, whole_ms)
    }
}

impl StoredOptions {
    /// Makes the stored form. `history`: see [`State::begin_history`].
    pub(crate) fn new(given: &KeyspaceOptions, history: Kept) -> Self {
        let default_ttl = given.default_ttl.map(|ttl| Duration::from_millis(whole_ms(ttl)));
        let blobs = given.blobs.map(|blobs| Blobs::of_limit(blobs.limit()));
        let given = KeyspaceOptions { blobs, default_ttl, history: history.rule, ..given.clone() };
        StoredOptions { given, history_since: history.since }
    }

    /// Returns the history that the keyspace keeps.
    pub(crate) fn kept(&self) -> Kept {
        Kept { rule: self.given.history, since: self.history_since }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.given.encode(&mut out);
        if self.given.history != History::None {
            put_number(&mut out, HISTORY_SINCE, self.history_since.get());
        }
        out
    }

    /// The inverse of `encode`.
    pub(crate) fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut reader = ByteReader::new(bytes);
        match Self::decode_known(&mut reader)? {
            (options, None) => Ok(options),
            (_, Some(unknown)) => Err(reader.error(format!("option {unknown} of a keyspace is unknown"))),
        }
    }

    /// Decodes all of the bytes. Also returns an unknown option, if there is one.
    pub(crate) fn decode_known(reader: &mut ByteReader<'_>) -> Decoded<(Self, Option<u64>)> {
        let (mut options, mut unknown) = (StoredOptions::default(), None);
        let given = &mut options.given;
        while !reader.is_empty() {
            let (option, value) = (reader.varint()?, reader.string()?);
            let number = || ByteReader::new(value).varint();
            match option {
                BLOBS_FROM => {
                    let limit = usize::try_from(number()?).unwrap_or(usize::MAX);
                    given.blobs = Some(Blobs::of_limit(Some(limit).filter(|limit| *limit > 0)));
                }
                IS_LAZY => given.counting = if number()? != 0 { Counting::Lazy } else { Counting::Exact },
                TTL_MS => {
                    let ms = Some(number()?).filter(|ms| *ms > 0);
                    given.default_ttl = ms.map(Duration::from_millis);
                }
                MERGE_OPERATOR => {
                    let name = std::str::from_utf8(value).map(str::to_owned);
                    let name = name.map_err(|_| reader.error("the name of a merge operator is not UTF-8"))?;
                    given.merge_operator = Some(name);
                }
                BYTES_MAX => given.bytes_max = Some(number()?).filter(|bytes| *bytes > 0),
                HISTORY_VERSIONS => {
                    given.history = History::Versions(u32::try_from(number()?).unwrap_or(u32::MAX));
                }
                HISTORY_MS => given.history = History::For(Duration::from_millis(number()?)),
                HISTORY_SINCE => {
                    let since = SeqNo::try_new(number()?);
                    options.history_since =
                        since.ok_or_else(|| reader.error("a history without a first commit"))?;
                }
                other => unknown = Some(other),
            }
        }
        Ok((options, unknown))
    }
}

fn put_number(out: &mut Vec<u8>, option: u64, number: u64) {
    let mut value = Vec::new();
    put_varint(&mut value, number);
    put_option(out, option, &value);
}

fn put_option(out: &mut Vec<u8>, option: u64, value: &[u8]) {
    put_varint(out, option);
    put_string(out, value);
}

/// Returns a lifetime in milliseconds, rounded up.
fn whole_ms(ttl: Duration) -> u64 {
    Expiry::after(0, ttl).ms()
}

/// Refuses a keyspace that is dropped or not created yet. If the commit that creates it failed, its options
/// would stay behind. The caller has locked the catalog.
pub(in crate::engine) fn check_created(keyspace: &KeyspaceState) -> Result<()> {
    keyspace.check_alive()?;
    if !keyspace.is_dropping() {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "keyspace {:?} does not exist yet: set its options with `set_options` of the batch or transaction that creates it",
        keyspace.name()
    )))
}

impl State {
    /// Checks options and returns what a commit stores for them. `before`: the stored options.
    pub(in crate::engine) fn to_store(
        &self,
        keyspace: &KeyspaceState,
        before: &StoredOptions,
        options: &KeyspaceOptions,
    ) -> Result<StoredOptions> {
        let (name, operator) = (keyspace.name(), options.merge_operator.as_ref());
        if let Some(operator) = operator.filter(|operator| !self.operators.knows(operator)) {
            return Err(Error::MergeOperatorMissing {
                keyspace: name.to_string(),
                operator: operator.clone(),
            });
        }
        options.check_values(&name)?;
        // operators.1
        if let Some(other) = before.given.merge_operator.as_ref().filter(|other| operator != Some(other)) {
            return Err(Error::Invalid(format!(
                "keyspace {name:?} has merge operator {other:?}: make another keyspace for {:?}",
                operator.map_or("none", String::as_str)
            )));
        }
        let history = self.begin_history(keyspace.id, before.kept(), options.history)?;
        Ok(StoredOptions::new(options, history))
    }

    /// Applies options from the catalog. `state`: the keyspace, if it exists already.
    pub(in crate::engine) fn take_options(
        &self,
        id: KeyspaceId,
        state: Option<&Arc<KeyspaceState>>,
        options: StoredOptions,
    ) {
        self.blobs.set_blobs(id, options.given.blobs);
        self.histories.set(id, options.kept());
        if let Some(name) = &options.given.merge_operator
            && let Some(state) = state.cloned().or_else(|| self.catalog.with_id(id))
        {
            self.operators.set(id, name, move || state.name().to_string());
        }
        self.catalog.note_options(id, state, options);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_options_are_stored_and_unknown_ones_refused() {
        let given = KeyspaceOptions {
            blobs: Some(Blobs::Never),
            counting: Counting::Lazy,
            default_ttl: Some(Duration::from_nanos(1_000_001)),
            history: History::Versions(3),
            merge_operator: Some("max".to_owned()),
            bytes_max: Some(700),
        };
        let stored = StoredOptions::new(&given, Kept { rule: given.history, since: SeqNo::new(300) });
        assert_eq!(stored.given.default_ttl, Some(Duration::from_millis(2)));
        let sent = stored.given.to_bytes("k").unwrap();
        assert_eq!(KeyspaceOptions::from_bytes(&sent).unwrap(), stored.given);
        for none in [KeyspaceOptions::new().bytes_max(0), KeyspaceOptions::new().default_ttl(Duration::ZERO)]
        {
            assert!(none.to_bytes("k").is_err(), "it would arrive as no limit: {none:?}");
        }
        let mut bytes = stored.encode();
        assert_eq!(StoredOptions::decode(&bytes), Ok(stored.clone()));
        bytes.extend([99, 1, b'x']);
        assert!(StoredOptions::decode(&bytes).is_err());
        assert_eq!(StoredOptions::decode_known(&mut ByteReader::new(&bytes)), Ok((stored, Some(99))));
        assert!(StoredOptions::decode(&[12, 0]).is_err(), "a number is missing");
    }
}
