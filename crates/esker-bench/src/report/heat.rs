//! Draws the heat map: every row of every suite, with a cell for each engine, coloured by its distance from
//! the best.
//!
//! - Rows are sorted: first those in which only other engines have a value, then those that Esker loses, the
//!   worst first. Rows whose difference may be chance follow, then those that Esker wins. Rows without Esker
//!   are last.
//! - All tables of the page have the same column order. Below its name an engine shows its isolation class.

use crate::report::classes;
use crate::report::columns;
use crate::report::markup::{escape, place, push};
use crate::report::runs::Runs;
use crate::report::summary::{Cell, FEW_RUNS_MARGIN, HOME, RowSummary, Summary, Verdict};
use crate::report::units::{show, times};
use esker_bench_api::results::Better;

/// Upper bounds of the colours, as multiples of the best.
const STEPS: [f64; 6] = [1.05, 1.25, 1.6, 2.5, 5.0, 12.0];

/// Draws the map.
pub(super) fn draw(out: &mut String, summaries: &[Summary], runs: &Runs) {
    let mut rows = compared(summaries);
    if rows.is_empty() {
        return;
    }
    let loss = |(summary, row): &(&Summary, &RowSummary)| loss(summary, row);
    rows.sort_by(|a, b| a.1.verdict.cmp(&b.1.verdict).then(loss(b).total_cmp(&loss(a))));
    let count = |verdict| rows.iter().filter(|(_, row)| row.verdict == verdict).count();
    let (lost, won, neither) = (count(Verdict::Lost), count(Verdict::Won), count(Verdict::Neither));
    let mut engines = columns::engines(summaries);
    engines.retain(|engine| rows.iter().any(|(summary, _)| position(summary, engine).is_some()));
    let suites: Vec<&str> = summaries.iter().map(|summary| summary.suite.as_str()).collect();
    let classes = classes::of_engines(&engines, &suites, runs);
    push!(
        out,
        "<h2 id=\"all-rows\">All rows: {lost} lost, {won} won, {neither} too close to call</h2><p class=\"soft\"><span class=\"w\">Each cell is the distance \
             from the best of its row: 1.00 is the best, 2.00 takes twice as long or as much.</span> <span class=\"n\">The ratio is Esker's to the best other \
             engine: below 1 Esker is ahead.</span> The rows that Esker loses come first. A row is neither lost nor won if both differ by no more than the \
             spread, or, with fewer than three runs, by no more than a factor of {}. * was not measured in turn with the others.{}</p>\
             <div class=\"wide\"><table class=\"engines heat\" data-heat-rows=\"{}\"><thead><tr><th>suite</th><th class=\"key\">row</th>",
        1.0 + FEW_RUNS_MARGIN,
        legend(&classes),
        rows.len()
    );
    let class_of =
        |at: usize| classes.iter().find(|(_, places)| places.contains(&at)).map_or("", |(name, _)| name);
    columns::heads(
        out,
        engines.iter().enumerate().map(|(at, engine)| (*engine, classes::short(class_of(at)))),
    );
    out.push_str("<th class=\"n\">ratio</th></tr></thead><tbody>");
    for (n, (summary, row)) in rows.iter().enumerate() {
        out.push_str(if n + 1 == lost && lost < rows.len() { "<tr class=\"last-lost\">" } else { "<tr>" });
        line(out, summary, row, &engines);
    }
    out.push_str("</tbody></table></div>");
}

/// Draws the cells of a row.
fn line(out: &mut String, summary: &Summary, row: &RowSummary, engines: &[&str]) {
    let (place, suite) = (place(&summary.suite, &row.name), escape(&summary.suite));
    let runs = if row.runs > 1 { format!(" <small>&times;{}</small>", row.runs) } else { String::new() };
    let link = format!("<a href=\"#{place}\">{suite}</a>{runs}");
    let name = escape(&row.name);
    push!(out, "<td>{link}</td><td class=\"key\">{name}<span class=\"n\"><br>{link}</span></td>");
    for engine in engines {
        match position(summary, engine) {
            Some(at) => cell(out, summary, row, at),
            None if *engine == HOME => out.push_str("<td class=\"home\"></td>"),
            None => out.push_str("<td></td>"),
        }
    }
    if row.peer.is_none() {
        out.push_str("<td class=\"n\"></td>");
    }
    columns::ratio(out, row, "n");
    out.push_str("</tr>");
}

/// Returns the rows that compare engines.
pub(super) fn compared(summaries: &[Summary]) -> Vec<(&Summary, &RowSummary)> {
    let rows = summaries.iter().flat_map(|summary| summary.rows.iter().map(move |row| (summary, row)));
    rows.filter(|(summary, row)| compares(summary, row)).collect()
}

/// Returns whether a row compares engines: several have a value, or others have one and Esker has none. A row
/// of one engine (the machine, building blocks) compares nothing, whatever errors the others have.
fn compares(summary: &Summary, row: &RowSummary) -> bool {
    let values = row.cells.iter().filter(|cell| cell.value().is_some()).count();
    values > 1 || loss(summary, row).is_infinite()
}

fn position(summary: &Summary, engine: &str) -> Option<usize> {
    summary.engines.iter().position(|(name, _)| name == engine)
}

/// Returns how many times worse than the best other engine Esker is, or 0 if that is unknown.
pub(super) fn loss(summary: &Summary, row: &RowSummary) -> f64 {
    let home = position(summary, HOME).map(|at| &row.cells[at]);
    if matches!(home, Some(Cell::Error(_))) && row.best.is_some() {
        return f64::INFINITY;
    }
    row.ratio.unwrap_or(0.0)
}

/// Explains the short names of classes.
fn legend(classes: &[(&str, Vec<usize>)]) -> String {
    let known = classes.iter().filter(|(name, _)| !name.is_empty());
    let named: Vec<String> = known.map(|(name, _)| format!("{}: {name}", classes::short(name))).collect();
    if named.is_empty() {
        return String::new();
    }
    format!(" Under its name an engine has what its transactions guarantee ({}).", named.join(", "))
}

fn cell(out: &mut String, summary: &Summary, row: &RowSummary, at: usize) {
    let best = row.best.and_then(|best| row.cells[best].value()).map(|value| value.median);
    let class = columns::class(summary, row, at);
    match (&row.cells[at], best) {
        (Cell::Value(value), Some(best)) if value.median > 0.0 && best > 0.0 => {
            let distance =
                if row.better == Better::Lower { value.median / best } else { best / value.median };
            let step = STEPS.iter().position(|bound| distance <= *bound).unwrap_or(STEPS.len());
            let mark = if summary.is_apart(row, at) { "*" } else { "" };
            let (shown, distance) = (show(value.median, row.unit), times(distance));
            let text = if class.is_empty() {
                format!("{distance}{mark}")
            } else {
                let name = columns::peer_name(summary, at);
                format!(
                    "<span class=\"w\">{distance}{mark}</span><span class=\"n\">{name}{shown}{mark}</span>"
                )
            };
            let spread = value.spread_text();
            push!(out, "<td class=\"h{step} {class}\" title=\"{shown}, spread {spread}\">{text}</td>");
        }
        (Cell::Error(error), _) => {
            push!(out, "<td class=\"soft {class}\" title=\"{}\">-</td>", escape(error))
        }
        _ => push!(out, "<td class=\"soft {class}\">0</td>"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::tests::{context, of_class};
    use crate::report::summary::tests::record;
    use esker_bench_api::Isolation;
    use esker_bench_api::results::{Record, Setting};

    fn runs(engines: &[(&str, Isolation)]) -> Runs {
        let engines = engines.iter().map(|(name, isolation)| of_class(name, *isolation));
        Runs::new(vec![context("", engines.collect())])
    }

    #[test]
    fn rows_by_verdict_columns_by_class_and_rows_out_of_turn_are_marked() {
        let at = |engine: &str, row: &str, value: f64, started_unix_ms| Record {
            suite: "open".to_owned(),
            setting: Setting { started_unix_ms, ..Setting::default() },
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
        assert!(page.contains("1 lost, 0 won, 1 too close to call"), "{page}");
        assert!(page.find("open after kill") < page.find("open clean"), "{page}");
        let heads = page.split("<th").skip(2).map(|head| head.split(['>', '<']).nth(1).unwrap());
        let heads: Vec<&str> = heads.collect();
        assert_eq!(heads, ["suite", "row", "esker", "lmdb", "sled", "best other", "ratio"]);
        assert!(page.contains("lmdb<br><small>serial</small>"), "{page}");
        assert!(page.contains("class=\"home\">esker<br><small>snapshot</small>"), "{page}");
        // On a narrow screen a row has Esker, the best other engine with its name, and the ratio.
        let row = page.split("open after kill").nth(1).unwrap();
        assert!(row.contains("h3 home\" title=\"1.00 s, spread -\"><span class=\"w\">2.00</span><span class=\"n\">1.00 s</span>"), "{row}");
        assert!(
            row.contains("<span class=\"n\">sled<br>500 ms</span>") && row.contains("bad n\">2.00</td>"),
            "{row}"
        );
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
