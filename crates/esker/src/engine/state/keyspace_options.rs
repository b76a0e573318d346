//! Options of single keyspaces, kept in the catalog.
//!
//! ```text
//!   keyspace 0:  "o" + id (varint) --> option (varint), value (varint; of option 3 a string), ...
//! ```
//!
//! keyspace_options.1. They are set by a commit of their own, and go with the drop of the keyspace. Those of a keyspace that is not there mean nothing.
//! keyspace_options.2. An option that this build does not know is refused: what is written without it might be wrong.

use std::sync::Arc;
use std::time::Duration;

use crate::encoding::bytes::{ByteReader, Decoded, put_string, put_varint};
use crate::engine::state::State;
use crate::engine::state::catalog::KeyspaceState;
use crate::engine::state::history::{History, Kept};
use crate::types::expiry::Expiry;
use crate::types::{Error, KeyspaceId, Result, SeqNo};

// The numbers of options stand in files of both forms (portable_options.rs): they never change.
/// The smallest value, in bytes, that goes to a blob file; 0: none does.
pub(in crate::engine) const BLOBS_OVER: u64 = 1;
/// 1: keys are not looked up to count them.
pub(in crate::engine) const IS_LAZY: u64 = 2;
/// How long puts last, in milliseconds.
pub(in crate::engine) const TTL_MS: u64 = 3;
/// The name of the merge operator, as length and bytes.
pub(in crate::engine) const MERGE_OPERATOR: u64 = 4;
/// The number of versions of each key that are kept.
pub(in crate::engine) const HISTORY_VERSIONS: u64 = 10;
/// How long all versions are kept, in milliseconds.
pub(in crate::engine) const HISTORY_MS: u64 = 11;
/// The number from which on that holds.
const HISTORY_SINCE: u64 = 12;

/// How commits count the keys of a keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Counting {
    /// They look in memory whether a key is there, and leave it to [`len`](crate::Keyspace::len) and to compactions to find out where a file
    /// would have to be read.
    #[default]
    Exact,
    /// They do not look: writes cost less, and `len`, which is as exact, looks up all that was written since the last compaction.
    Lazy,
}

/// The options of a keyspace, which are kept in the database: see [`Keyspace::options`](crate::Keyspace::options).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyspaceOptions {
    /// The smallest value, in bytes, that goes to a blob file; 0: none does; none: as the database has it.
    pub blobs_over: Option<usize>,
    /// How commits count its keys.
    pub counting: Counting,
    /// How long puts last that do not say so themselves; none: for ever.
    pub default_ttl: Option<Duration>,
    /// What it keeps of older versions.
    pub history: History,
    /// The operator of merges.
    pub merge_operator: Option<String>,
}

/// The options of one keyspace that differ from the database's, as they are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredOptions {
    /// The smallest value, in bytes, that goes to a blob file, or none does.
    pub(crate) blobs_over: Option<Option<usize>>,
    /// Keys are not looked up to count them (txn/counts.rs).
    pub(crate) is_lazy: bool,
    /// How long puts last that do not say so themselves, in milliseconds; 0: for ever.
    pub(crate) ttl_ms: u64,
    /// What operands are merged with (read/operators.rs).
    pub(crate) merge_operator: Option<String>,
    /// What is kept of older versions (history.rs).
    pub(crate) history: Kept,
}

impl StoredOptions {
    /// What users see of them.
    pub(crate) fn shown(&self) -> KeyspaceOptions {
        KeyspaceOptions {
            blobs_over: self.blobs_over.map(|over| over.unwrap_or(0)),
            counting: if self.is_lazy { Counting::Lazy } else { Counting::Exact },
            default_ttl: (self.ttl_ms > 0).then(|| Duration::from_millis(self.ttl_ms)),
            history: self.history.rule,
            merge_operator: self.merge_operator.clone(),
        }
    }

    /// As users ask for them. `history`: see [`State::begin_history`].
    pub(in crate::engine) fn asked_for(options: &KeyspaceOptions, history: Kept) -> Self {
        StoredOptions {
            blobs_over: options.blobs_over.map(|over| (over > 0).then_some(over)),
            is_lazy: options.counting == Counting::Lazy,
            ttl_ms: options.default_ttl.map_or(0, ttl_ms),
            merge_operator: options.merge_operator.clone(),
            history,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(over) = self.blobs_over {
            [BLOBS_OVER, over.unwrap_or(0) as u64].into_iter().for_each(|n| put_varint(&mut out, n));
        }
        if self.is_lazy {
            [IS_LAZY, 1].into_iter().for_each(|n| put_varint(&mut out, n));
        }
        if self.ttl_ms > 0 {
            [TTL_MS, self.ttl_ms].into_iter().for_each(|n| put_varint(&mut out, n));
        }
        if let Some(name) = &self.merge_operator {
            put_varint(&mut out, MERGE_OPERATOR);
            put_string(&mut out, name.as_bytes());
        }
        let kept = match self.history.rule {
            History::None => return out,
            History::Versions(versions) => [HISTORY_VERSIONS, u64::from(versions)],
            History::For(_) => [HISTORY_MS, self.history.rule.ms()],
        };
        let since = [HISTORY_SINCE, self.history.since.get()];
        kept.into_iter().chain(since).for_each(|n| put_varint(&mut out, n));
        out
    }

    /// The inverse of `encode` (keyspace_options.2).
    pub(crate) fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut options = StoredOptions::default();
        let mut reader = ByteReader::new(bytes);
        while !reader.is_empty() {
            match reader.varint()? {
                BLOBS_OVER => {
                    let over = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
                    options.blobs_over = Some((over > 0).then_some(over));
                }
                TTL_MS => options.ttl_ms = reader.varint()?,
                IS_LAZY => options.is_lazy = reader.varint()? != 0,
                MERGE_OPERATOR => {
                    let name = std::str::from_utf8(reader.string()?);
                    let name = name.map_err(|_| reader.error("the name of a merge operator is no text"))?;
                    options.merge_operator = Some(name.to_owned());
                }
                HISTORY_VERSIONS => {
                    let versions = u32::try_from(reader.varint()?).unwrap_or(u32::MAX);
                    options.history.rule = History::Versions(versions);
                }
                HISTORY_MS => {
                    options.history.rule = History::For(Duration::from_millis(reader.varint()?));
                }
                HISTORY_SINCE => {
                    let since = SeqNo::try_new(reader.varint()?);
                    options.history.since = since.ok_or_else(|| reader.error("a history since no commit"))?;
                }
                other => return Err(reader.error(format!("option {other} of a keyspace is unknown"))),
            }
        }
        Ok(options)
    }
}

/// A lifetime as it is stored.
pub(in crate::engine) fn ttl_ms(ttl: Duration) -> u64 {
    Expiry::after(0, ttl).ms()
}

/// Refuses a default lifetime of zero: all that is put would be gone at once.
pub(in crate::engine) fn check_ttl(keyspace: &KeyspaceState, ttl: Option<Duration>) -> Result<()> {
    match ttl {
        Some(Duration::ZERO) => Err(Error::Invalid(format!(
            "keyspace {:?} cannot have a default lifetime of zero: all that is put would expire at once. Give it none for entries that \
             do not expire",
            keyspace.name()
        ))),
        _ => Ok(()),
    }
}

/// Refuses a keyspace that is gone, and one that a commit is still to create: its options would be stored before it, and stay behind if it never
/// came. The caller has locked the catalog.
pub(in crate::engine) fn check_created(keyspace: &KeyspaceState) -> Result<()> {
    keyspace.check_alive()?;
    if !keyspace.is_dropping() {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "keyspace {:?} is not there yet: give it its options by `set_options` of the batch or transaction that creates it",
        keyspace.name()
    )))
}

/// Refuses another operator than the one that a keyspace has (operators.1).
pub(in crate::engine) fn check_operator(
    keyspace: &KeyspaceState,
    before: Option<&str>,
    after: Option<&str>,
) -> Result<()> {
    match (before, after) {
        (Some(other), after) if after != Some(other) => Err(Error::Invalid(format!(
            "keyspace {:?} has merge operator {other:?}: make another keyspace for {:?}",
            keyspace.name(),
            after.unwrap_or("none")
        ))),
        _ => Ok(()),
    }
}

impl State {
    pub(in crate::engine) fn check_knows(&self, keyspace: &KeyspaceState, operator: &str) -> Result<()> {
        if self.operators.knows(operator) {
            return Ok(());
        }
        let keyspace = keyspace.name().to_string();
        Err(Error::MergeOperatorMissing { keyspace, operator: operator.to_owned() })
    }

    /// What is stored of these options, which a commit of more than them is to set. `before`: what is stored now.
    pub(in crate::engine) fn to_store(
        &self,
        keyspace: &KeyspaceState,
        before: &StoredOptions,
        options: &KeyspaceOptions,
    ) -> Result<StoredOptions> {
        if let Some(operator) = &options.merge_operator {
            self.check_knows(keyspace, operator)?;
        }
        check_ttl(keyspace, options.default_ttl)?;
        check_operator(keyspace, before.merge_operator.as_deref(), options.merge_operator.as_deref())?;
        let history = self.begin_history(keyspace.id, before.history, options.history)?;
        Ok(StoredOptions::asked_for(options, history))
    }

    /// These options are in the catalog; `state`: of a keyspace that may not be there yet.
    pub(in crate::engine) fn take_options(
        &self,
        id: KeyspaceId,
        state: Option<&Arc<KeyspaceState>>,
        options: StoredOptions,
    ) {
        self.blobs.set_limit(id, options.blobs_over);
        self.histories.set(id, options.history);
        if let Some(name) = &options.merge_operator
            && let Some(state) = state.cloned().or_else(|| self.catalog.with_id(id))
        {
            self.operators.set(id, name, move || state.name().to_string());
        }
        self.catalog.note_options(id, state, options);
    }
}
