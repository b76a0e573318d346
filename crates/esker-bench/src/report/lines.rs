//! Draws line charts: the course of a row over time, with a chart for each class of engines.
//!
//! - Each chart states its number of lines. Tests compare the drawing with it.
//! - All charts of one figure of a row have the same axes, so that classes can be compared.
//! - A curve shows one run of a cell with a value. If there are several runs, it names the run.

use crate::report::markup::{escape, push};
use crate::report::plot::{self, Curve};
use crate::report::style::{Look, Looks};
use crate::report::summary::{RowSummary, Summary, Value};

/// The suite whose source shows the mean and every percentile over time.
const ALL_PERCENTILES: &str = "obigstore";

/// Draws those that the row has of throughput, latencies of each kind of operation, memory, and bytes on disk
/// and written.
pub(super) fn draw(
    out: &mut String,
    row: &RowSummary,
    summary: &Summary,
    looks: &Looks,
    classes: &[(&str, Vec<usize>)],
) {
    let details: Vec<_> = row.cells.iter().map(|cell| cell.value().and_then(Value::detail)).collect();
    let mut names: Vec<&String> =
        details.iter().flatten().flat_map(|(_, detail)| detail.series.keys()).collect();
    names.sort();
    names.dedup();
    for name in names.into_iter().filter(|name| is_shown(name, &summary.suite)) {
        let lines: Vec<(usize, Vec<(f64, f64)>)> = details
            .iter()
            .enumerate()
            .filter_map(|(at, detail)| {
                let (_, detail) = detail.as_ref()?;
                let points = detail.series.get(name)?.iter().enumerate();
                let points: Vec<_> =
                    points.map(|(n, value)| ((n + 1) as f64 * detail.period_s, *value)).collect();
                // A kind of operation that never ran makes no line, and neither does a single figure.
                (points.len() > 1 && points.iter().any(|point| point.1 > 0.0)).then_some((at, points))
            })
            .collect();
        let ends = ends(lines.iter().map(|(_, points)| points.as_slice()));
        let classes_drawn: Vec<_> =
            classes.iter().filter(|(_, places)| lines.iter().any(|(at, _)| places.contains(at))).collect();
        for (class, places) in &classes_drawn {
            let of_class = lines.iter().filter(|(at, _)| places.contains(at)).map(|(at, points)| {
                let engine = summary.engines[*at].0.as_str();
                let run = details[*at].map(|(run, _)| run).filter(|_| summary.runs > 1);
                Line { engine, run, look: looks.look(engine), points: points.clone() }
            });
            let of_class: Vec<Line<'_>> = of_class.collect();
            let class = if classes_drawn.len() > 1 { class_text(class) } else { String::new() };
            chart(out, &format!("{}: {}{class}", row.name, label(name)), name, &of_class, ends);
        }
    }
}

/// Returns the class for the title of a chart, if there are charts of other classes.
fn class_text(class: &str) -> String {
    format!(" ({})", if class.is_empty() { "class unknown" } else { class })
}

/// Returns the ends of the lines, in time and in height.
fn ends<'a>(lines: impl Iterator<Item = &'a [(f64, f64)]>) -> (f64, f64) {
    let points = lines.flatten();
    points.fold((0.0, 0.0), |(end, top): (f64, f64), (x, y)| (end.max(*x), top.max(*y)))
}

/// The line of one engine.
struct Line<'a> {
    engine: &'a str,
    /// The run of the curve, if the row has several.
    run: Option<u32>,
    look: Look,
    points: Vec<(f64, f64)>,
}

/// Splits the name of a series of latencies, such as `write p99 s`, into kind of operation and figure.
fn latency_of(name: &str) -> Option<(&str, &str)> {
    name.strip_suffix(" s")?.rsplit_once(' ')
}

fn is_shown(name: &str, suite: &str) -> bool {
    match latency_of(name) {
        Some((_, figure)) => {
            figure == "p99" || suite == ALL_PERCENTILES && (figure == "mean" || figure.starts_with('p'))
        }
        None => ["ops/s", "memory bytes", "disk bytes", "written bytes"].contains(&name),
    }
}

fn label(name: &str) -> String {
    match (name, latency_of(name)) {
        ("ops/s", _) => "operations a second over time".to_owned(),
        ("disk bytes", _) => "bytes on disk over time".to_owned(),
        ("memory bytes", _) => "resident memory over time".to_owned(),
        ("written bytes", _) => "bytes written by the process, since the row began".to_owned(),
        (_, Some((kind, "mean"))) => format!("mean of {kind} over time"),
        (_, Some((kind, "p50"))) => format!("median of {kind} over time"),
        (_, Some((kind, figure))) => {
            format!("{}th percentile of {kind} over time", figure.trim_start_matches('p'))
        }
        (_, None) => name.to_owned(),
    }
}

fn chart(out: &mut String, title: &str, name: &str, lines: &[Line<'_>], ends: (f64, f64)) {
    push!(out, "<figure class=\"time\" data-lines=\"{}\"><h3>{}</h3>", lines.len(), escape(title));
    let curves = lines.iter().map(|line| Curve { class: line.look.class(), points: &line.points });
    plot::draw(out, title, name, &curves.collect::<Vec<_>>(), ends);
    out.push_str("<figcaption>");
    for line in lines {
        let run = line.run.map(|run| format!(", run {run}")).unwrap_or_default();
        push!(out, "<b class=\"{}\">{}{run}</b> ", line.look.class(), escape(line.engine));
    }
    out.push_str("</figcaption></figure>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_and_what_it_is_called() {
        for (name, shown, shown_in_obigstore, called) in [
            ("ops/s", true, true, "operations a second over time"),
            ("written bytes", true, true, "bytes written by the process, since the row began"),
            ("read p99 s", true, true, "99th percentile of read over time"),
            ("read-modify-write p50 s", false, true, "median of read-modify-write over time"),
            ("write p95 s", false, true, "95th percentile of write over time"),
            ("write mean s", false, true, "mean of write over time"),
            ("write max s", false, false, ""),
        ] {
            assert_eq!(
                (is_shown(name, "ycsb"), is_shown(name, ALL_PERCENTILES)),
                (shown, shown_in_obigstore),
                "{name}"
            );
            if shown_in_obigstore {
                assert_eq!(label(name), called);
            }
        }
    }
}
