//! `esker stats`: the counters of the engine.

use std::io::Write;

use serde_json::{Map, Value};

use crate::Answer;
use crate::database::Session;
use crate::failure::Result;
use crate::output;

/// Its field in the statistics.
const BACKGROUND_ERROR: &str = "background_error";

pub(super) fn run(session: &Session<'_>) -> Result<Answer> {
    let database = session.open()?;
    let mut stats = database.db.stats();
    // The one text among the numbers.
    let error = stats.background_error.take();
    let mut counters = counters(&stats);
    if session.common.json {
        let mut object: Map<String, Value> =
            counters.into_iter().map(|(name, value)| (name, output::json_figure(&value))).collect();
        object.insert(BACKGROUND_ERROR.to_owned(), error.into());
        output::print_json(&object.into())?;
        return Ok(Answer::Yes);
    }
    let error = error.unwrap_or_else(|| "none".to_owned());
    counters
        .iter_mut()
        .filter(|(name, _)| name == BACKGROUND_ERROR)
        .for_each(|pair| pair.1.clone_from(&error));
    let mut out = output::stdout();
    output::write_pairs(&mut out, &counters)?;
    out.flush()?;
    Ok(Answer::Yes)
}

/// Names and values, from the `Debug` form, which has a line for each field: a new counter shows up here by itself.
fn counters(stats: &impl std::fmt::Debug) -> Vec<(String, String)> {
    format!("{stats:#?}")
        .lines()
        .filter_map(|line| line.trim().strip_suffix(',')?.split_once(": "))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_a_counter() {
        #[derive(Debug)]
        #[expect(dead_code, reason = "read through Debug")]
        struct Stats {
            puts: u64,
            tables: u64,
        }
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(counters(&Stats { puts: 7, tables: 1 }), [pair("puts", "7"), pair("tables", "1")]);
    }
}
