//! The heat map: every row of every suite, one cell per engine, coloured by how far it is from the row's best.
//!
//! H1. The rows that Esker loses come first, the worst of them on top, and above those the ones where others have a value and it
//!     has none; then the rows that it wins. A row without Esker comes last.

use crate::report::markup::{escape, push};
use crate::report::summary::{Cell, HOME, RowSummary, Summary};
use crate::report::units::show;
use esker_bench_api::results::Better;

/// Upper bounds of the colours, as multiples of the best.
const STEPS: [f64; 6] = [1.05, 1.25, 1.6, 2.5, 5.0, 12.0];

/// Draws it.
pub(super) fn draw(out: &mut String, summaries: &[Summary]) {
    let mut rows: Vec<(&Summary, &RowSummary)> =
        summaries.iter().flat_map(|summary| summary.rows.iter().map(move |row| (summary, row))).collect();
    rows.retain(|(summary, row)| compares(summary, row));
    if rows.is_empty() {
        return;
    }
    let loss = |(summary, row): &(&Summary, &RowSummary)| loss(summary, row);
    rows.sort_by(|a, b| loss(b).total_cmp(&loss(a)));
    let lost = rows.iter().filter(|row| loss(row) > 1.0).count();
    let won = rows.iter().filter(|row| (f64::MIN_POSITIVE..=1.0).contains(&loss(row))).count();
    let mut engines: Vec<&str> = Vec::new();
    for (engine, _) in summaries.iter().flat_map(|summary| &summary.engines) {
        if !engines.contains(&engine.as_str())
            && rows.iter().any(|(summary, _)| position(summary, engine).is_some())
        {
            engines.push(engine);
        }
    }
    push(
        out,
        format_args!(
            "<h2>All rows: {lost} lost, {won} won</h2><p class=\"soft\">Each cell is the distance from the best of its row: 1.00 is the best, 2.00 \
             takes twice as long or as much. Rows that Esker loses come first.</p><div class=\"wide\"><table class=\"heat\" \
             data-heat-rows=\"{}\"><thead><tr><th>suite</th><th>row</th>",
            rows.len()
        ),
    );
    engines.iter().for_each(|engine| push(out, format_args!("<th>{}</th>", escape(engine))));
    out.push_str("</tr></thead><tbody>");
    for (n, (summary, row)) in rows.iter().enumerate() {
        let class = if n + 1 == lost && lost < rows.len() { " class=\"last-lost\"" } else { "" };
        push(
            out,
            format_args!("<tr{class}><td>{}</td><td>{}</td>", escape(&summary.suite), escape(&row.name)),
        );
        for engine in &engines {
            match position(summary, engine) {
                Some(at) => cell(out, row, at),
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

/// H1: how many times worse than the best other engine Esker is; 0 where that cannot be said.
fn loss(summary: &Summary, row: &RowSummary) -> f64 {
    let home = position(summary, HOME).map(|at| &row.cells[at]);
    if matches!(home, Some(Cell::Error(_))) && row.best.is_some() {
        return f64::INFINITY;
    }
    row.ratio.map_or(0.0, |ratio| if row.better == Better::Lower { ratio } else { 1.0 / ratio })
}

fn cell(out: &mut String, row: &RowSummary, at: usize) {
    let best = row.best.and_then(|best| row.cells[best].value()).map(|value| value.median);
    match (&row.cells[at], best) {
        (Cell::Value(value), Some(best)) if value.median > 0.0 && best > 0.0 => {
            let distance =
                if row.better == Better::Lower { value.median / best } else { best / value.median };
            let step = STEPS.iter().position(|bound| distance <= *bound).unwrap_or(STEPS.len());
            let title = format!("{}, spread {}", show(value.median, row.unit), value.spread_text());
            push(out, format_args!("<td class=\"h{step}\" title=\"{title}\">{distance:.2}</td>"));
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
    use crate::report::summary::tests::record;

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
        draw(&mut page, &Summary::all(&records));
        assert!(page.contains("data-heat-rows=\"2\"") && page.contains("1 lost, 1 won"), "{page}");
        assert!(page.contains("bulk load") && page.contains("len()"));
        assert!(!page.contains("table read") && !page.contains("compaction"));
    }
}
