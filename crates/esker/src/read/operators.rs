//! Merge operators: what `merge` does to values.
//!
//! ```text
//!   Builder --registered by name--> Registered --.
//!   catalog: keyspace --name--> Operators::set ---+--> Operators::of(keyspace) --> Operator
//! ```
//!
//! operators.1. A keyspace has one operator, for good: operands that were written for one mean nothing to another.
//! operators.2. What an operator does is the program's: it may fail or panic, and nothing of the engine's is broken by that.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::RwLock;

use crate::types::{Error, KeyspaceId, Result};

mod builtin;
pub mod set;

/// Merges operands into values: how [`Keyspace::merge`](crate::Keyspace::merge) changes a key without reading it.
///
/// The engine calls it when somebody reads the key, and in compactions, with as many operands as it happens to find. Readers get the same value
/// if these rules hold:
///
/// - `merge(merge(v, [a]), [b])` is `merge(v, [a, b])`, for any value `v` and for none.
/// - If `combine([a, b])` is `c`, then `merge(v, [a, b])` is `merge(v, [c])`.
/// - It depends on its arguments alone, and stays the same for as long as there are databases that use its name.
///
/// [`Builder::merge_operator`](crate::Builder::merge_operator) makes one of a function, which does not combine.
///
/// ```
/// /// Keeps the longest.
/// struct Longest;
///
/// impl esker::MergeOperator for Longest {
///     fn merge(&self, existing: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
///         let all = existing.iter().chain(operands);
///         Ok(all.copied().reduce(|a, b| if b.len() > a.len() { b } else { a }).unwrap_or_default().to_vec())
///     }
///     fn combine(&self, operands: &[&[u8]]) -> Option<Vec<u8>> {
///         self.merge(None, operands).ok()
///     }
/// }
///
/// # fn main() -> esker::Result<()> {
/// let db = esker::Db::builder().merge_operator_by("longest", Longest).open_in_memory()?;
/// let names = db.keyspace("names")?;
/// names.set_merge_operator("longest")?;
/// for name in ["Ann", "Annabel", "Anna"] {
///     names.merge("1", name)?;
/// }
/// assert_eq!(names.get("1")?.as_deref(), Some(&b"Annabel"[..]));
/// # Ok(())
/// # }
/// ```
pub trait MergeOperator: Send + Sync {
    /// The value that a key has once operands, oldest first and at least one, have been merged into what it had; none: it was not there.
    ///
    /// # Errors
    /// What is wrong with the value or an operand. Who reads the key gets [`Error::Merge`](crate::Error::Merge) with this text.
    fn merge(&self, existing: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String>;

    /// One operand in place of several, oldest first; none: they stay apart.
    fn combine(&self, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let _ = operands;
        None
    }

    /// Refuses an operand when it is written.
    ///
    /// # Errors
    /// What is wrong with it.
    fn check(&self, operand: &[u8]) -> Result<(), String> {
        let _ = operand;
        Ok(())
    }
}

/// The operator that a function is.
pub(crate) struct ByFunction<F>(pub(crate) F);

impl<F> MergeOperator for ByFunction<F>
where
    F: Fn(Option<&[u8]>, &[&[u8]]) -> Result<Vec<u8>, String> + Send + Sync,
{
    fn merge(&self, existing: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        (self.0)(existing, operands)
    }
}

/// Operators by name.
#[derive(Clone, Default)]
pub(crate) struct Registered(BTreeMap<String, Arc<dyn MergeOperator>>);

impl Registered {
    /// Takes another one, in place of one of the same name.
    pub(crate) fn add(&mut self, name: impl Into<String>, operator: impl MergeOperator + 'static) {
        self.0.insert(name.into(), Arc::new(operator));
    }

    /// The operator of this name, registered or built in.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<dyn MergeOperator>> {
        self.0.get(name).cloned().or_else(|| builtin::find(name))
    }
}

impl std::fmt::Debug for Registered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The operator of a keyspace.
#[derive(Clone)]
pub struct Operator {
    name: Arc<str>,
    /// None: it is not registered.
    operator: Option<Arc<dyn MergeOperator>>,
    /// What the keyspace is called now.
    keyspace: Arc<dyn Fn() -> String + Send + Sync>,
}

impl Operator {
    /// What is known of a failure.
    #[cold]
    pub fn failed(&self, user_key: &[u8], detail: String) -> Error {
        let (keyspace, operator) = ((self.keyspace)(), self.name.to_string());
        Error::Merge { keyspace, operator, key: user_key.to_vec(), detail }
    }

    fn missing(&self) -> Error {
        Error::MergeOperatorMissing { keyspace: (self.keyspace)(), operator: self.name.to_string() }
    }

    /// Calls it (operators.2).
    fn call<T>(&self, key: &[u8], f: impl FnOnce(&dyn MergeOperator) -> Result<T, String>) -> Result<T> {
        let operator = self.operator.as_deref().ok_or_else(|| self.missing())?;
        let done = catch_unwind(AssertUnwindSafe(|| f(operator)))
            .unwrap_or_else(|panic| Err(format!("it panicked: {}", text_of_panic(&*panic))));
        done.map_err(|detail| self.failed(key, detail))
    }

    /// See [`MergeOperator::merge`].
    pub fn merge(&self, user_key: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>> {
        self.call(user_key, |operator| operator.merge(existing, operands))
    }

    /// See [`MergeOperator::combine`].
    pub fn combine(&self, user_key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.call(user_key, |operator| Ok(operator.combine(operands))).ok().flatten()
    }

    /// See [`MergeOperator::check`].
    pub fn check(&self, user_key: &[u8], operand: &[u8]) -> Result<()> {
        self.call(user_key, |operator| operator.check(operand))
    }
}

/// What a panic said.
pub(crate) fn text_of_panic(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// The operators of a database's keyspaces.
#[derive(Default)]
pub struct Operators {
    registered: Registered,
    of: RwLock<BTreeMap<KeyspaceId, Operator>>,
}

impl Operators {
    /// None yet of these.
    pub(crate) fn new(registered: Registered) -> Self {
        Operators { registered, of: RwLock::default() }
    }

    /// Whether there is an operator of this name.
    pub fn knows(&self, name: &str) -> bool {
        self.registered.get(name).is_some()
    }

    /// A keyspace has this operator from now on.
    pub fn set(&self, id: KeyspaceId, name: &str, keyspace: impl Fn() -> String + Send + Sync + 'static) {
        let operator = self.registered.get(name);
        let operator = Operator { name: name.into(), operator, keyspace: Arc::new(keyspace) };
        self.of.write().insert(id, operator);
    }

    /// The operator of a keyspace.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it has none.
    pub fn of(&self, id: KeyspaceId) -> Result<Operator> {
        self.of.read().get(&id).cloned().ok_or_else(|| none_of(&id.to_string()))
    }
}

impl std::fmt::Debug for Operators {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Operators").field(&self.registered).finish()
    }
}

/// A keyspace has no operator.
#[cold]
pub(crate) fn none_of(keyspace: &str) -> Error {
    Error::Invalid(format!(
        "keyspace {keyspace:?} has no merge operator: give it one by `set_merge_operator`"
    ))
}
