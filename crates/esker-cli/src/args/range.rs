//! Arguments that select a range of keys, and of the commands that take little else.

use std::ffi::OsString;
use std::num::NonZeroU32;

use super::Common;
use crate::bounds::Bounds;
use crate::failure::Result;

/// Selects a range of keys.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct RangeArgs {
    /// Only keys with this prefix
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    prefix: Option<OsString>,
    /// Only keys at or above this one
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    from: Option<OsString>,
    /// Only keys below this one
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    to: Option<OsString>,
}

impl RangeArgs {
    /// Selects the keys that start with `prefix`.
    pub(crate) fn prefix(prefix: OsString) -> Self {
        RangeArgs { prefix: Some(prefix), ..RangeArgs::default() }
    }

    /// Returns the decoded bounds.
    pub(crate) fn bounds(&self, common: &Common) -> Result<Bounds> {
        let decode = |given: &Option<OsString>| given.as_ref().map(|text| common.decode(text)).transpose();
        Ok(Bounds::new(decode(&self.prefix)?, decode(&self.from)?, decode(&self.to)?))
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Count {
    #[command(flatten)]
    pub(crate) range: RangeArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Split {
    /// Number of parts
    pub(crate) parts: NonZeroU32,
    #[command(flatten)]
    pub(crate) range: RangeArgs,
}
