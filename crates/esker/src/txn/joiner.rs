//! Joins the operands of a run in the memtable into one list (memtable/runs.rs).

use std::sync::Arc;

use crate::memtable::Join;
use crate::read::fold::Operands;
use crate::read::view_cell::ViewCell;
use crate::types::Value;

/// Joins operands with the operators of the current view.
struct Joiner(Arc<ViewCell>);

/// Creates a joiner for the applier of the view's active memtable.
pub(super) fn joiner(view: &Arc<ViewCell>) -> Box<dyn Join> {
    Box::new(Joiner(view.clone()))
}

impl Join for Joiner {
    fn join(&self, key: &[u8], lists: &[&[u8]], may_expire_below: Option<bool>) -> Option<Vec<u8>> {
        let view = self.0.get();
        let is_expiring =
            || view.version.expiring() > 0 || view.immutables.iter().any(|memtable| memtable.expiring() > 0);
        let mut operands = Operands::default();
        lists.iter().for_each(|list| operands.push(Value::copy_of(list)));
        Some(operands.joined(key, &view.operators, may_expire_below.unwrap_or_else(is_expiring)))
    }
}
