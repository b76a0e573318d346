//! Sums up the records of a run, and draws them in three ways.
//!
//! ```text
//! Records -> Summary (medians, spread, best, ratios) -> terminal   a table per suite
//!                                                    -> picture    one suite as an SVG, for a page of text
//!                                                    -> html       heat, bars, lines, details, in one page
//! run.json -> Runs (which suite ran where, when, how) ---^
//! ```

mod async_commits;
mod bars;
mod classes;
mod columns;
mod details;
mod heat;
pub(crate) mod html;
mod limits;
mod lines;
mod markup;
pub(crate) mod picture;
mod plot;
pub(crate) mod runs;
mod standing;
mod style;
pub(crate) mod summary;
mod table;
pub(crate) mod terminal;
mod totals;
mod turns;
pub(crate) mod units;
