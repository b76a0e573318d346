//! Names and values of entries of the log and of tables, as dumps show them.

use super::DumpValue;
use crate::encoding::operand::{Operand, elements};
use crate::types::expiry::{Expiry, value_of};
use crate::types::op::Kind;

/// Returns the name of a kind. `removal`: the name for removals.
pub(super) fn name_of(kind: Kind, removal: &'static str) -> &'static str {
    match (kind.is_operand(), kind.is_live()) {
        (true, _) => "merge",
        (false, true) => "put",
        (false, false) => removal,
    }
}

/// Adds the value, or the operands, oldest first; the expiry; and whether a sweep removed the key.
pub(super) fn push_value(fields: &mut Vec<(&'static str, DumpValue)>, kind: Kind, value: &[u8]) {
    match elements(value).ok().filter(|_| kind.is_operand()) {
        Some(operands) => {
            for Operand { at_ms, lifetime_ms, bytes } in operands {
                fields.push(("operand", bytes.into()));
                fields.push(("merged_ms", at_ms.into()));
                fields.extend((lifetime_ms > 0).then(|| ("lifetime_ms", lifetime_ms.into())));
            }
        }
        None if kind.has_value() => fields.push(("value", value_of(kind, value).into())),
        None => {}
    }
    let expiry = Expiry::of_version(kind, value);
    fields.extend(expiry.map(|expiry| ("expires_ms", expiry.ms().into())));
    if kind.is_sweep() {
        fields.push(("because", "it had expired".into()));
    }
}
