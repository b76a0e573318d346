//! Draws the bars of a row, one for each engine. Engines are grouped by what their transactions guarantee.

use crate::report::columns::is_home;
use crate::report::limits::Limits;
use crate::report::markup::{escape, push};
use crate::report::summary::{Cell, RowSummary, Summary};
use crate::report::units::show;
use esker_bench_api::results::Better;

const LABEL: f64 = 80.0;
const BAR: f64 = 170.0;
const LINE: f64 = 20.0;
/// Shortest bar, so that each can be seen.
const BAR_MIN: f64 = 0.5;

/// Draws the bars, and the limit of the machine as a line if there is one. `classes` has the positions of the
/// engines by class.
pub(super) fn draw(
    out: &mut String,
    row: &RowSummary,
    summary: &Summary,
    limits: &Limits,
    classes: &[(&str, Vec<usize>)],
) {
    let limit = limits.of(&summary.suite, row);
    let values = row.cells.iter().filter_map(Cell::value).map(|value| value.max);
    let longest = values.chain(limit.map(|(value, _)| value)).fold(0.0, f64::max);
    let length = |x: f64| if longest > 0.0 { BAR * x / longest } else { 0.0 };
    let bars = row.cells.iter().filter(|cell| cell.value().is_some()).count();
    let headings = if classes.len() > 1 { classes.len() } else { 0 };
    let height = LINE * (row.cells.len() + headings + usize::from(limit.is_some())) as f64;
    let way = if row.better == Better::Lower { "shorter" } else { "longer" };
    push!(
        out,
        "<figure data-bars=\"{bars}\"><h3>{}</h3><svg viewBox=\"0 0 330 {height}\" role=\"img\" aria-label=\"{}, {way} is better\">",
        escape(&row.name),
        escape(&row.name)
    );
    let mut lines = (0_u32..).map(|line| LINE * f64::from(line));
    let mut next_line = || lines.next().unwrap_or_default();
    for (class, places) in classes {
        if headings > 0 {
            let baseline = next_line() + 14.0;
            push!(out, "<text class=\"soft\" x=\"0\" y=\"{baseline}\">{class}</text>");
        }
        for i in places {
            engine(out, row, summary, *i, next_line(), &length);
        }
    }
    if let Some((value, what)) = limit {
        let (x, y) = (LABEL + length(value), height - 6.0);
        let bottom = height - LINE;
        push!(
            out,
            "<line class=\"limit\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"0\" y2=\"{bottom:.1}\"/>\
                 <text class=\"soft\" x=\"0\" y=\"{y:.1}\">suite limits: {what}, {}</text>",
            show(value, row.unit)
        );
    }
    push!(out, "</svg><figcaption class=\"soft\">{way} is better</figcaption></figure>");
}

/// Draws the bar of engine `i`, with its upper edge at `y`.
fn engine(
    out: &mut String,
    row: &RowSummary,
    summary: &Summary,
    i: usize,
    y: f64,
    length: &dyn Fn(f64) -> f64,
) {
    let baseline = y + 14.0;
    let name = escape(&summary.engines[i].0);
    push!(out, "<text x=\"0\" y=\"{baseline}\">{name}</text>");
    let Some(value) = row.cells[i].value() else {
        push!(out, "<text class=\"soft\" x=\"{LABEL}\" y=\"{baseline}\">no value</text>");
        return;
    };
    let class = if is_home(summary, i) { "home" } else { "peer" };
    let bar = length(value.median).max(BAR_MIN);
    let (from, to) = (LABEL + length(value.min), LABEL + length(value.max));
    let (top, middle, label) = (y + 3.0, y + 10.0, to + 6.0);
    push!(
        out,
        "<rect class=\"{class}\" x=\"{LABEL}\" y=\"{top}\" width=\"{bar:.1}\" height=\"14\" rx=\"2\"/>\
             <line x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{middle}\" y2=\"{middle}\" stroke=\"currentColor\"/>\
             <text x=\"{label:.1}\" y=\"{baseline}\">{}</text>",
        show(value.median, row.unit)
    );
}
