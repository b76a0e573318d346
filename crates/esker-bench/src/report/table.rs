//! Draws the table of a suite: a line for each row, a column for each engine, Esker's ratio, and the totals
//! as the last lines.
//!
//! A cell has the median, the spread, and after a + how long background work went on after the row. The
//! details of the row have all other figures.

use crate::report::columns;
use crate::report::markup::{escape, push};
use crate::report::summary::{Cell, RowSummary, Summary};
use crate::report::totals::TotalLines;
use crate::report::units::{seconds, show};
use esker_bench_api::results::Unit;

/// Draws the table.
pub(super) fn draw(out: &mut String, summary: &Summary) {
    out.push_str("<div class=\"wide\"><table class=\"engines\"><thead><tr><th class=\"key\">row</th>");
    // The options list the versions in full.
    let short = |version: &str| version.split([' ', '-']).next().unwrap_or_default().to_owned();
    let heads: Vec<_> =
        summary.engines.iter().map(|(name, version)| (name.as_str(), short(version))).collect();
    columns::heads(out, heads.iter().map(|(name, version)| (*name, version.as_str())));
    out.push_str("<th class=\"key\">ratio</th></tr></thead><tbody>");
    for row in &summary.rows {
        push!(out, "<tr><td class=\"key\">{}</td>", escape(&row.name));
        (0..row.cells.len()).for_each(|at| cell(out, summary, row, at));
        if row.peer.is_none() {
            out.push_str("<td class=\"n\"></td>");
        }
        columns::ratio(out, row, "key");
        out.push_str("</tr>");
    }
    let totals = TotalLines::of(summary);
    for (name, texts) in totals.lines {
        push!(out, "<tr class=\"soft\"><td class=\"key\">{name}</td>");
        for (at, text) in texts.iter().enumerate() {
            let class = if columns::is_home(summary, at) { "home" } else { "" };
            push!(out, "<td class=\"{class}\">{text}</td>");
        }
        out.push_str("<td class=\"n\"></td><td class=\"key\"></td></tr>");
    }
    out.push_str("</tbody></table></div>");
    for note in totals.notes {
        push!(out, "<p class=\"soft\">{}</p>", escape(&note));
    }
}

/// Draws a cell: the median, the spread, and how long background work went on after the row.
fn cell(out: &mut String, summary: &Summary, row: &RowSummary, at: usize) {
    let class = columns::class(summary, row, at);
    let value = match &row.cells[at] {
        Cell::Value(value) => value,
        Cell::Error(error) => {
            push!(out, "<td class=\"soft {class}\" title=\"{}\">-</td>", escape(error));
            return;
        }
    };
    let text = show(value.median, row.unit);
    let text = if row.best == Some(at) { format!("<b>{text}</b>") } else { text };
    let mark = if summary.is_apart(row, at) { "*" } else { "" };
    let mut below = value.spread_text();
    if let Some(drain) = value.drain() {
        below += &format!("<br>+ {}", seconds(drain));
    }
    let mut title = Vec::new();
    if row.unit == Unit::Seconds && row.ops > 1 {
        title.push(format!("{}/op", seconds(value.median / row.ops as f64)));
    }
    if let Some(syncs) = value.syncs_text() {
        title.push(format!("syncs/commit {syncs}"));
    }
    let (title, name) = (title.join(", "), columns::peer_name(summary, at));
    push!(
        out,
        "<td class=\"{class}\" title=\"{title}\"><span class=\"n\">{name}</span>{text}{mark}<br><small>{below}</small></td>"
    );
}
