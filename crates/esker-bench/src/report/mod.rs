//! Reports: the records of a run, summed up once and drawn twice.
//!
//!   Records -> Summary (medians, spread, best, ratios) -> terminal table, report.html

pub(crate) mod html;
pub(crate) mod summary;
pub(crate) mod terminal;
mod units;
