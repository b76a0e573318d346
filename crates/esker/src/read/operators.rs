//! Merge operators: how `merge` changes values.
//!
//! ```text
//!   Builder --registered by name--> Registered --.
//!   catalog: keyspace --name--> Operators::set ---+--> Operators::of(keyspace) --> Operator
//! ```
//!
//! operators.1. The operator of a keyspace never changes: operands written for one operator are meaningless
//!     to another.
//!
//! An operator is code of the embedding program. It may fail or panic without damage to the
//! engine.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::RwLock;

use crate::types::{Error, KeyspaceId, Result};

mod builtin;
pub mod set;

/// Merges operands into values. [`Keyspace::merge`](crate::Keyspace::merge) uses it to change a key without
/// reading it.
///
/// The engine calls the operator when the key is read and during compactions, with any number of operands.
/// All readers get the same value if these rules hold:
///
/// - `merge(merge(v, [a]), [b])` equals `merge(v, [a, b])`, for any value `v` and for none.
/// - If `combine([a, b])` returns `c`, then `merge(v, [a, b])` equals `merge(v, [c])`.
/// - The result depends only on the arguments, and never changes as long as a database uses the name of the
///   operator.
///
/// [`Builder::merge_operator`](crate::Builder::merge_operator) registers a function as an operator that does
/// not combine.
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
    /// Returns the value of a key after merging operands (at least one, oldest first) into `existing`.
    /// `existing` is `None` if the key had no value.
    ///
    /// # Errors
    /// A description of what is wrong with the value or an operand. Readers of the key get
    /// [`Error::Merge`](crate::Error::Merge) with this text.
    fn merge(&self, existing: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String>;

    /// Combines several operands, oldest first, into one. `None` keeps them separate.
    fn combine(&self, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let _ = operands;
        None
    }

    /// Validates an operand before it is written.
    ///
    /// # Errors
    /// A description of what is wrong with the operand.
    fn check(&self, operand: &[u8]) -> Result<(), String> {
        let _ = operand;
        Ok(())
    }
}

/// Adapts a function to a merge operator.
pub(crate) struct ByFunction<F>(pub(crate) F);

impl<F> MergeOperator for ByFunction<F>
where
    F: Fn(Option<&[u8]>, &[&[u8]]) -> Result<Vec<u8>, String> + Send + Sync,
{
    fn merge(&self, existing: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        (self.0)(existing, operands)
    }
}

/// Merge operators by name.
#[derive(Clone, Default)]
pub(crate) struct Registered(BTreeMap<String, Arc<dyn MergeOperator>>);

impl Registered {
    /// Adds an operator. Replaces an operator with the same name.
    pub(crate) fn add(&mut self, name: impl Into<String>, operator: impl MergeOperator + 'static) {
        self.0.insert(name.into(), Arc::new(operator));
    }

    /// Returns the operator with this name, registered or built in.
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
    /// `None` if it is not registered.
    operator: Option<Arc<dyn MergeOperator>>,
    /// Returns the current name of the keyspace.
    keyspace: Arc<dyn Fn() -> String + Send + Sync>,
}

impl Operator {
    /// Creates the error of a failed operator.
    #[cold]
    pub fn failed(&self, user_key: &[u8], detail: String) -> Error {
        let (keyspace, operator) = ((self.keyspace)(), self.name.to_string());
        Error::Merge { keyspace, operator, key: user_key.to_vec(), detail }
    }

    fn missing(&self) -> Error {
        Error::MergeOperatorMissing { keyspace: (self.keyspace)(), operator: self.name.to_string() }
    }

    /// Calls the operator and catches its panics.
    fn call<T>(&self, key: &[u8], f: impl FnOnce(&dyn MergeOperator) -> Result<T, String>) -> Result<T> {
        let operator = self.operator.as_deref().ok_or_else(|| self.missing())?;
        let done = catch_unwind(AssertUnwindSafe(|| f(operator)))
            .unwrap_or_else(|panic| Err(format!("the operator panicked: {}", text_of_panic(&*panic))));
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

/// Returns the message of a panic.
pub(crate) fn text_of_panic(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// The operators of the keyspaces of a database.
#[derive(Default)]
pub struct Operators {
    registered: Registered,
    of: RwLock<BTreeMap<KeyspaceId, Operator>>,
}

impl Operators {
    /// Creates an empty set of operators.
    pub(crate) fn new(registered: Registered) -> Self {
        Operators { registered, of: RwLock::default() }
    }

    /// Returns whether an operator with this name is registered.
    pub fn knows(&self, name: &str) -> bool {
        self.registered.get(name).is_some()
    }

    /// Sets the operator of a keyspace.
    pub fn set(&self, id: KeyspaceId, name: &str, keyspace: impl Fn() -> String + Send + Sync + 'static) {
        let operator = self.registered.get(name);
        let operator = Operator { name: name.into(), operator, keyspace: Arc::new(keyspace) };
        self.of.write().insert(id, operator);
    }

    /// Returns the operator of a keyspace.
    ///
    /// # Errors
    /// [`Error::NoMergeOperator`] if the keyspace has no operator.
    pub fn of(&self, id: KeyspaceId) -> Result<Operator> {
        self.of.read().get(&id).cloned().ok_or_else(|| none_of(&id.to_string()))
    }
}

impl std::fmt::Debug for Operators {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Operators").field(&self.registered).finish()
    }
}

/// Creates the error for a keyspace without an operator.
#[cold]
pub(crate) fn none_of(keyspace: &str) -> Error {
    Error::NoMergeOperator { keyspace: keyspace.to_owned() }
}
