//! The heat map: every row of every suite, one cell per engine, coloured by how far it is from the row's best.
//!
//! bench_heat.1. The rows that Esker loses come first, the worst of them on top, and above those the ones where others have a value and it
//!     has none; then the rows whose difference is too small to tell, then those that it wins. A row without Esker comes last.
//! bench_heat.2. Columns stand by class of what the engines' transactions guarantee.

use crate::report::classes;
use crate::report::markup::{escape, place, push};
use crate::report::runs::Runs;
use crate::report::summary::{Cell, FEW_RUNS_MARGIN, HOME, RowSummary, Summary, Verdict};
use crate::report::units::show;
use esker_bench_api::results::Better;

/// Upper bounds of the colours, as multiples of the best.
const STEPS: [f64; 6] = [1.05, 1.25, 1.6, 2.5, 5.0, 12.0];

/// Draws it.
pub(super) fn draw(out: &mut String, summaries: &[Summary], runs: &Runs) {
    let mut rows: Vec<(&Summary, &RowSummary)> =
        summaries.iter().flat_map(|summary| summary.rows.iter().map(move |row| (summary, row))).collect();
    rows.retain(|(summary, row)| compares(summary, row));
    if rows.is_empty() {
        return;
    }
    let loss = |(summary, row): &(&Summary, &RowSummary)| loss(summary, row);
    rows.sort_by(|a, b| a.1.verdict.cmp(&b.1.verdict).then(loss(b).total_cmp(&loss(a))));
    let count = |verdict| rows.iter().filter(|(_, row)| row.verdict == verdict).count();
    let (lost, won, neither) = (count(Verdict::Lost), count(Verdict::Won), count(Verdict::Neither));
    let mut engines: Vec<&str> = Vec::new();
    for (engine, _) in summaries.iter().flat_map(|summary| &summary.engines) {
        if !engines.contains(&engine.as_str())
            && rows.iter().any(|(summary, _)| position(summary, engine).is_some())
        {
            engines.push(engine);
        }
    }
    let suites: Vec<&str> = summaries.iter().map(|summary| summary.suite.as_str()).collect();
    let classes = classes::of_engines(&engines, &suites, runs);
    let engines: Vec<&str> = classes.iter().flat_map(|(_, places)| places).map(|at| engines[*at]).collect();
    push(
        out,
        format_args!(
            "<div id=\"all-rows\"></div><h2>All rows: {lost} lost, {won} won, {neither} neither</h2><p class=\"soft\">Each cell is the distance from the best of its row, \
             of any class: 1.00 is the best, 2.00 takes twice as long or as much; * was not measured in turn with the others. Rows that Esker loses \
             come first; neither lost nor won are those where it and the best other engine differ by no more than the spread, or, with fewer than three runs, by no \
             more than a factor of {}; suites differ in machine, memory and number of runs, which stand under their headings.</p><div class=\"wide\"><table class=\"heat\" data-heat-rows=\"{}\"><thead>",
            1.0 + FEW_RUNS_MARGIN,
            rows.len()
        ),
    );
    // bench_heat.2.
    if classes.len() > 1 {
        out.push_str("<tr><th></th><th></th><th></th>");
        for (class, places) in &classes {
            push(out, format_args!("<th colspan=\"{}\">{class}</th>", places.len()));
        }
        out.push_str("</tr>");
    }
    out.push_str("<tr><th>suite</th><th>row</th><th>runs</th>");
    engines.iter().for_each(|engine| push(out, format_args!("<th>{}</th>", escape(engine))));
    out.push_str("</tr></thead><tbody>");
    for (n, (summary, row)) in rows.iter().enumerate() {
        let class = if n + 1 == lost && lost < rows.len() { " class=\"last-lost\"" } else { "" };
        push(
            out,
            format_args!(
                "<tr{class}><td><a href=\"#{}\">{}</a></td><td>{}</td><td>{}</td>",
                place(&summary.suite, &row.name),
                escape(&summary.suite),
                escape(&row.name),
                row.runs
            ),
        );
        for engine in &engines {
            match position(summary, engine) {
                Some(at) => cell(out, row, at, summary.is_apart(row, at)),
                None => out.push_str("<td></td>"),
            }
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
}

/// Whether a row holds engines against each other: several have a value, or others have one and Esker has none. Rows of one engine (the
/// machine, building blocks) compare nothing, whatever reasons the others give.
fn compares(summary: &Summary, row: &RowSummary) -> bool {
    let values = row.cells.iter().filter(|cell| cell.value().is_some()).count();
    values > 1 || loss(summary, row).is_infinite()
}

fn position(summary: &Summary, engine: &str) -> Option<usize> {
    summary.engines.iter().position(|(name, _)| name == engine)
}

/// bench_heat.1: how many times worse than the best other engine Esker is; 0 where that cannot be said.
fn loss(summary: &Summary, row: &RowSummary) -> f64 {
    let home = position(summary, HOME).map(|at| &row.cells[at]);
    if matches!(home, Some(Cell::Error(_))) && row.best.is_some() {
        return f64::INFINITY;
    }
    row.ratio.map_or(0.0, |ratio| if row.better == Better::Lower { ratio } else { 1.0 / ratio })
}

fn cell(out: &mut String, row: &RowSummary, at: usize, is_apart: bool) {
    let best = row.best.and_then(|best| row.cells[best].value()).map(|value| value.median);
    match (&row.cells[at], best) {
        (Cell::Value(value), Some(best)) if value.median > 0.0 && best > 0.0 => {
            let distance =
                if row.better == Better::Lower { value.median / best } else { best / value.median };
            let step = STEPS.iter().position(|bound| distance <= *bound).unwrap_or(STEPS.len());
            let title = format!("{}, spread {}", show(value.median, row.unit), value.spread_text());
            let mark = if is_apart { "*" } else { "" };
            push(out, format_args!("<td class=\"h{step}\" title=\"{title}\">{distance:.2}{mark}</td>"));
        }
        (Cell::Error(error), _) => {
            push(out, format_args!("<td class=\"soft\" title=\"{}\">-</td>", escape(error)))
        }
        _ => out.push_str("<td class=\"soft\">0</td>"),
    }
}

/// Whether Esker is the engine at this place.
pub(super) fn is_home(summary: &Summary, at: usize) -> bool {
    summary.engines[at].0 == HOME
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::EngineContext;
    use crate::context::tests::context;
    use crate::report::summary::tests::record;
    use esker_bench_api::Isolation;
    use esker_bench_api::results::Record;

    fn runs(engines: &[(&str, Isolation)]) -> Runs {
        let engine = |(name, isolation): &(&str, Isolation)| EngineContext {
            name: (*name).to_owned(),
            version: String::new(),
            isolation: isolation.name().to_owned(),
            async_commits: None,
            options: Vec::new(),
            suites: Vec::new(),
        };
        Runs::new(vec![context("", engines.iter().map(engine).collect())])
    }

    #[test]
    fn bench_heat_1_bench_heat_2_rows_by_verdict_columns_by_class_and_rows_out_of_turn_are_marked() {
        let at = |engine: &str, row: &str, value: f64, started_unix_ms| Record {
            suite: "open".to_owned(),
            started_unix_ms,
            ..record(engine, row, 1, Some(value))
        };
        let records = [
            at("esker", "open clean", 1.02, 10),
            at("sled", "open clean", 1.0, 20),
            at("lmdb", "open clean", 3.0, 60),
            at("esker", "open after kill", 1.0, 30),
            at("sled", "open after kill", 0.5, 40),
            at("lmdb", "open after kill", 2.0, 50),
        ];
        let known =
            [("esker", Isolation::Snapshot), ("sled", Isolation::Batch), ("lmdb", Isolation::Serializable)];
        let mut page = String::new();
        draw(&mut page, &Summary::all(&records), &runs(&known));
        assert!(page.contains("1 lost, 0 won, 1 neither"), "{page}");
        assert!(page.find("open after kill") < page.find("open clean"), "bench_heat.1: {page}");
        let heads = page.split("<th").skip(1).map(|head| head.split(['>', '<']).nth(1).unwrap());
        let heads: Vec<&str> = heads.collect();
        // The first is `thead` itself.
        let expected = ["", "", "", "", "serializable", "snapshot isolation", "atomic batches"];
        assert_eq!(heads[..7], expected, "bench_heat.2");
        assert_eq!(heads[7..], ["suite", "row", "runs", "lmdb", "esker", "sled"], "bench_heat.2");
        assert!(page.contains(">3.00*</td>") && page.matches("*</td>").count() == 1, "{page}");
    }

    #[test]
    fn rows_of_one_engine_are_left_out_whatever_the_others_say() {
        let records = [
            record("esker", "table read", 1, Some(0.5)),
            record("lmdb", "table read", 1, None),
            record("esker", "bulk load", 1, None),
            record("lmdb", "bulk load", 1, Some(2.0)),
            record("esker", "len()", 1, Some(0.5)),
            record("lmdb", "len()", 1, Some(2.0)),
            record("esker", "compaction", 1, None),
            record("lmdb", "compaction", 1, None),
        ];
        let mut page = String::new();
        draw(&mut page, &Summary::all(&records), &runs(&[]));
        assert!(page.contains("data-heat-rows=\"2\"") && page.contains("1 lost, 1 won"), "{page}");
        assert!(page.contains("bulk load") && page.contains("len()"));
        assert!(!page.contains("table read") && !page.contains("compaction"));
    }
}
