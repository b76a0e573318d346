//! Numbers as the engine's merge operators store them: 8 bytes, little-endian.

use clap::ValueEnum;

use crate::failure::{Failure, Result};
use crate::text::shown;

/// The type of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NumberForm {
    /// Signed integer (`add-i64`)
    I64,
    /// Unsigned integer (`add-u64`)
    U64,
    /// Floating-point number (`add-f64`)
    F64,
}

impl NumberForm {
    /// Encodes a decimal number.
    pub(crate) fn encode(self, text: &[u8]) -> Result<Vec<u8>> {
        let number = std::str::from_utf8(text).ok().map(str::trim);
        let bytes = match self {
            NumberForm::I64 => number.and_then(|number| number.parse::<i64>().ok()).map(i64::to_le_bytes),
            NumberForm::U64 => number.and_then(|number| number.parse::<u64>().ok()).map(u64::to_le_bytes),
            NumberForm::F64 => number.and_then(|number| number.parse::<f64>().ok()).map(f64::to_le_bytes),
        };
        let text = || shown(String::from_utf8_lossy(text));
        bytes
            .map(Vec::from)
            .ok_or_else(|| Failure::message(format!("`{}` is not a number of type {self}", text())))
    }

    /// Returns the number in decimal.
    pub(crate) fn decode(self, bytes: &[u8]) -> Result<String> {
        let Ok(bytes) = bytes.try_into() else {
            let len = bytes.len();
            return Err(Failure::message(format!(
                "the value has {len} bytes instead of the 8 of a number: omit --as {self}"
            )));
        };
        Ok(match self {
            NumberForm::I64 => i64::from_le_bytes(bytes).to_string(),
            NumberForm::U64 => u64::from_le_bytes(bytes).to_string(),
            NumberForm::F64 => f64::from_le_bytes(bytes).to_string(),
        })
    }
}

impl std::fmt::Display for NumberForm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            NumberForm::I64 => "i64",
            NumberForm::U64 => "u64",
            NumberForm::F64 => "f64",
        })
    }
}
