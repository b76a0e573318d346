//! Line charts: what a row did over time, every engine in one chart. Drawn by plotters into SVG.
//!
//! LC1. Each chart carries the number of its lines; the page's own check and the tests hold the drawing against it.

use plotters::prelude::*;

use crate::report::heat::is_home;
use crate::report::markup::{escape, push};
use crate::report::summary::{RowSummary, Summary};

const SIZE: (u32, u32) = (640, 240);
const AXIS: RGBColor = RGBColor(128, 136, 144);
const HOME: RGBColor = RGBColor(11, 140, 160);
/// Colours that tell apart on white and on black.
const PEERS: [RGBColor; 8] = [
    RGBColor(230, 119, 0),
    RGBColor(156, 54, 181),
    RGBColor(47, 158, 68),
    RGBColor(224, 49, 49),
    RGBColor(59, 91, 219),
    RGBColor(240, 160, 200),
    RGBColor(150, 120, 60),
    RGBColor(110, 110, 220),
];

/// Draws throughput, the slowest operations of each kind, and memory and bytes on disk, as far as the row has them.
pub(super) fn draw(out: &mut String, row: &RowSummary, summary: &Summary) -> Result<(), String> {
    let mut names: Vec<&String> =
        row.details.iter().flatten().flat_map(|detail| detail.series.keys()).collect();
    names.sort();
    names.dedup();
    let shown = names.into_iter().filter(|name| {
        *name == "ops/s"
            || name.ends_with(" p99 s")
            || name.as_str() == "disk bytes"
            || name.as_str() == "memory bytes"
    });
    for name in shown {
        let lines: Vec<(usize, Vec<(f64, f64)>)> = row
            .details
            .iter()
            .enumerate()
            .filter_map(|(at, detail)| {
                let detail = detail.as_ref()?;
                let points = detail.series.get(name)?.iter().enumerate();
                let points: Vec<_> =
                    points.map(|(n, value)| ((n + 1) as f64 * detail.period_s, *value)).collect();
                // A kind of operation that never ran, or one figure alone, makes no line.
                (points.len() > 1 && points.iter().any(|point| point.1 > 0.0)).then_some((at, points))
            })
            .collect();
        if !lines.is_empty() {
            chart(out, &format!("{}: {}", row.name, label(name)), name, &lines, summary)?;
        }
    }
    Ok(())
}

fn label(name: &str) -> String {
    match name {
        "ops/s" => "operations a second over time".to_owned(),
        "disk bytes" => "bytes on disk over time".to_owned(),
        "memory bytes" => "resident memory over time".to_owned(),
        _ => format!("99th percentile of {} over time", name.trim_end_matches(" p99 s")),
    }
}

fn tick(value: f64, name: &str) -> String {
    if name.ends_with(" s") {
        super::units::seconds(value)
    } else if name.ends_with("bytes") {
        super::units::bytes(value)
    } else {
        super::units::count(value)
    }
}

fn chart(
    out: &mut String,
    title: &str,
    name: &str,
    lines: &[(usize, Vec<(f64, f64)>)],
    summary: &Summary,
) -> Result<(), String> {
    let end = lines.iter().filter_map(|(_, points)| points.last()).map(|point| point.0).fold(0.0, f64::max);
    let top = lines.iter().flat_map(|(_, points)| points).map(|point| point.1).fold(0.0, f64::max);
    let mut svg = String::new();
    draw_lines(&mut svg, name, lines, (end, top * 1.05), summary).map_err(|error| error.to_string())?;
    push(
        out,
        format_args!(
            "<figure class=\"time\" data-lines=\"{}\"><h3>{}</h3>{}<figcaption>",
            lines.len(),
            escape(title),
            svg.replacen("<svg ", "<svg role=\"img\" ", 1)
        ),
    );
    for (at, _) in lines {
        let RGBColor(r, g, b) = colour(summary, *at);
        push(
            out,
            format_args!(
                "<span class=\"key\"><i style=\"background:rgb({r},{g},{b})\"></i>{}</span> ",
                escape(&summary.engines[*at].0)
            ),
        );
    }
    out.push_str("</figcaption></figure>");
    Ok(())
}

fn colour(summary: &Summary, at: usize) -> RGBColor {
    if is_home(summary, at) { HOME } else { PEERS[at % PEERS.len()] }
}

fn draw_lines(
    svg: &mut String,
    name: &str,
    lines: &[(usize, Vec<(f64, f64)>)],
    (end, top): (f64, f64),
    summary: &Summary,
) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let mut chart = ChartBuilder::on(&root)
        .margin(8)
        .x_label_area_size(24)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..end.max(1e-9), 0.0..top.max(1e-12))?;
    chart
        .configure_mesh()
        .axis_style(AXIS)
        .bold_line_style(AXIS.mix(0.25))
        .light_line_style(TRANSPARENT)
        .label_style(("sans-serif", 12).into_font().color(&AXIS))
        .x_labels(8)
        .y_labels(5)
        .x_label_formatter(&|x| super::units::seconds(*x))
        .y_label_formatter(&|y| tick(*y, name))
        .draw()?;
    for (at, points) in lines {
        let width = if is_home(summary, *at) { 3 } else { 2 };
        let style = colour(summary, *at).stroke_width(width);
        chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
    }
    root.present()?;
    drop(chart);
    drop(root);
    Ok(())
}
