//! Draws one line chart as SVG: axes, a grid, and a path for each line. plotters draws through a backend of
//! this file, so that the style sheet of the page decides all colours, in light and dark mode.
//!
//! ```text
//! points in seconds and values -> plotters: places in a frame of 660 by 360
//!                              -> the pen: points that look the same are merged -> path d="M110 320l9-3 ..."
//! ```
//!
//! - On a phone a frame is half as wide as its own units: letters are 11 pixels high, and a unit is half a
//!   pixel.
//! - A point is left out only if the line without it passes within half a unit of it.
//! - plotters passes only the colour of an element to its backend. The colour of a line is the number of its
//!   curve; any other colour is that of the grid.
//! - If plotters refuses to draw a chart, the page states that.

use std::convert::Infallible;

use plotters::chart::ChartBuilder;
use plotters::drawing::{DrawingAreaErrorKind, IntoDrawingArea};
use plotters::series::LineSeries;
use plotters::style::{RGBColor, TRANSPARENT};
use plotters_backend::text_anchor::HPos;
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind,
};

use crate::report::markup::{escape, push};
use crate::report::units;

/// Width and height, in units of half a pixel on a phone.
const FRAME: (u32, u32) = (660, 360);
/// Distances from the edges of the frame to the plot.
const LEFT: u32 = 112;
const RIGHT: u32 = 40;
const TOP: u32 = 12;
const BOTTOM: u32 = 38;
const TICK: u32 = 4;
/// Distances from the middle and from the upper edge of a label to its baseline.
const MIDDLE_TO_BASELINE: i32 = 7;
const TOP_TO_BASELINE: i32 = 20;
/// Largest number of labels on an axis.
const LABELS: usize = 5;
/// Largest distance that cannot be seen, in units of the frame.
const UNSEEN: f64 = 0.5;
/// Colour of all elements that are not lines. The colour of a line is the number of its curve.
const GRID: RGBColor = RGBColor(255, 255, 255);

/// A line and the class of its look.
pub(super) struct Curve<'a> {
    pub(super) class: String,
    pub(super) points: &'a [(f64, f64)],
}

/// Draws the curves over `0..end` seconds and `0..top` of what `name` has.
pub(super) fn draw(out: &mut String, title: &str, name: &str, curves: &[Curve<'_>], ends: (f64, f64)) {
    let mut drawn = Elements::default();
    if let Err(error) = chart(Pen { drawn: &mut drawn, curves }, name, curves, ends) {
        push!(out, "<p class=\"bad\">not drawn: {}</p>", escape(&error.to_string()));
    }
    let (width, height) = FRAME;
    let Elements { grid, texts, lines } = drawn;
    push!(
        out,
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">\
             <path class=\"grid\" d=\"{grid}\"/>{texts}{lines}</svg>",
        escape(title)
    );
}

fn chart(
    pen: Pen<'_>,
    name: &str,
    curves: &[Curve<'_>],
    (end, top): (f64, f64),
) -> Result<(), DrawingAreaErrorKind<Infallible>> {
    let (end, top) = (end.max(1e-9), (top * 1.05).max(1e-12));
    // Makes the round figures of plotters round in the unit of the labels.
    let (unit, bytes) = unit(name, top);
    let area = pen.into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .margin_top(TOP)
        .margin_right(RIGHT)
        .y_label_area_size(LEFT)
        .x_label_area_size(BOTTOM)
        .build_cartesian_2d(0.0..end, 0.0..top / unit)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(LABELS)
        .y_labels(LABELS)
        .set_all_tick_mark_size(TICK)
        .axis_style(GRID)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|seconds| plain(units::seconds(*seconds)))
        .y_label_formatter(&|value| tick(*value, name, bytes))
        .draw()?;
    for (n, curve) in (0_u8..).zip(curves) {
        let points = curve.points.iter().map(|(seconds, value)| (*seconds, value / unit));
        chart.draw_series(LineSeries::new(points, RGBColor(0, 0, n)))?;
    }
    area.present()
}

/// The drawing: the data of the grid's path, and the elements.
#[derive(Default)]
struct Elements {
    grid: String,
    texts: String,
    lines: String,
}

/// The backend through which plotters draws.
struct Pen<'a> {
    drawn: &'a mut Elements,
    curves: &'a [Curve<'a>],
}

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

impl DrawingBackend for Pen<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        FRAME
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    /// These charts contain no single pixels.
    fn draw_pixel(&mut self, _: BackendCoord, _: BackendColor) -> Drawn {
        Ok(())
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Drawn {
        self.draw_path([from, to], style)
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        places: I,
        style: &S,
    ) -> Drawn {
        let color = style.color();
        if color.alpha == 0.0 {
            return Ok(());
        }
        let places: Vec<BackendCoord> = places.into_iter().collect();
        let (_, _, n) = color.rgb;
        match self.curves.get(usize::from(n)).filter(|_| color.rgb == (0, 0, n)) {
            Some(curve) => push!(
                &mut self.drawn.lines,
                "<path class=\"line {}\" d=\"{}\"/>",
                curve.class,
                path(&seen(&places))
            ),
            None => self.drawn.grid.push_str(&path(&places)),
        }
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, (x, y): BackendCoord) -> Drawn {
        let (class, baseline) = match style.anchor().h_pos {
            HPos::Right => ("y", y + MIDDLE_TO_BASELINE),
            HPos::Left | HPos::Center => ("x", y + TOP_TO_BASELINE),
        };
        push!(
            &mut self.drawn.texts,
            "<text class=\"{class}\" x=\"{x}\" y=\"{baseline}\">{}</text>",
            escape(text)
        );
        Ok(())
    }
}

/// Returns the unit in which an axis has round figures, and its name for units of bytes.
fn unit(name: &str, top: f64) -> (f64, &'static str) {
    if !name.ends_with("bytes") {
        return (1.0, "");
    }
    let units = [(f64::from(1 << 30), "GiB"), (f64::from(1 << 20), "MiB")];
    units.into_iter().find(|(unit, _)| top >= *unit).unwrap_or((1024.0, "KiB"))
}

fn tick(value: f64, name: &str, bytes: &str) -> String {
    plain(if name.ends_with(" s") {
        units::seconds(value)
    } else if bytes.is_empty() {
        units::count(value)
    } else {
        format!("{value:.3} {bytes}")
    })
}

/// Returns a round figure without useless digits: `20 s` instead of `20.0 s`. Zero has no unit.
fn plain(text: String) -> String {
    let (number, unit) = text.split_once(' ').map_or((text.as_str(), ""), |(number, unit)| (number, unit));
    let number =
        if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    if number == "0" || unit.is_empty() { number.to_owned() } else { format!("{number} {unit}") }
}

/// Drops the positions that cannot be seen from a line that goes from left to right (Ramer, Douglas and
/// Peucker, with vertical distance).
fn seen(places: &[BackendCoord]) -> Vec<BackendCoord> {
    let Some(((first, last), between)) =
        places.split_first().and_then(|(first, rest)| Some(((first, rest.last()?), &rest[..rest.len() - 1])))
    else {
        return places.to_vec();
    };
    let on_the_line = |x: i32| {
        let part = if last.0 > first.0 { f64::from(x - first.0) / f64::from(last.0 - first.0) } else { 0.0 };
        f64::from(first.1) + part * f64::from(last.1 - first.1)
    };
    let distances = between.iter().map(|(x, y)| (f64::from(*y) - on_the_line(*x)).abs()).enumerate();
    let farthest = distances.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, distance)| *distance > UNSEEN);
    match farthest {
        Some((at, _)) => {
            let mut seen_places = seen(&places[..=at + 1]);
            seen_places.pop();
            seen_places.extend(seen(&places[at + 1..]));
            seen_places
        }
        None => vec![*first, *last],
    }
}

/// Returns the path: the first position, then a step to each next one.
fn path(places: &[BackendCoord]) -> String {
    let mut out = String::new();
    let mut before: Option<BackendCoord> = None;
    for (x, y) in places {
        match before {
            None => push!(&mut out, "M{x} {y}l"),
            Some((was_x, was_y)) => {
                let (right, down) = (x - was_x, y - was_y);
                let space = if out.ends_with('l') { "" } else { " " };
                let between = if down < 0 { "" } else { " " };
                push!(&mut out, "{space}{right}{between}{down}");
            }
        }
        before = Some((*x, *y));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_cannot_be_seen_is_left_out() {
        let straight: Vec<BackendCoord> = (0..100).map(|n| (n, n / 2)).collect();
        assert!(seen(&straight).len() < 4, "{:?}", seen(&straight));
        let mut spike = straight;
        spike[40].1 += 1;
        spike[70].1 = 300;
        let kept = seen(&spike);
        assert!(
            kept.contains(&spike[70]) && kept.contains(&spike[69]) && kept.contains(&spike[71]),
            "{kept:?}"
        );
        for (x, y) in &spike {
            let at = kept.partition_point(|(kept_x, _)| kept_x < x).max(1);
            let (from, to) = (kept[at - 1], kept[at]);
            let part = f64::from(x - from.0) / f64::from(to.0 - from.0);
            let drawn = f64::from(from.1) + part * f64::from(to.1 - from.1);
            assert!((drawn - f64::from(*y)).abs() <= UNSEEN, "{x} {y} {drawn}");
        }
        assert_eq!((seen(&[]).len(), seen(&spike[..1]).len(), seen(&spike[..2]).len()), (0, 1, 2));
    }

    #[test]
    fn steps_are_relative_to_the_place_before() {
        assert_eq!(path(&[(112, 300), (120, 290), (121, 290)]), "M112 300l8-10 1 0");
    }

    #[test]
    fn each_line_has_its_class_and_the_rest_is_grid() {
        let curves = [[(0.0, 1.0), (2.0, 3.0)], [(0.0, 2.0), (2.0, 2.0)]];
        let curves: Vec<_> = curves
            .iter()
            .zip(["k", "k0"])
            .map(|(points, class)| Curve { class: class.to_owned(), points })
            .collect();
        let mut out = String::new();
        draw(&mut out, "<title>", "ops/s", &curves, (2.0, 3.0));
        let classes: Vec<&str> = out
            .split("class=\"")
            .skip(1)
            .filter_map(|part| part.split('"').next())
            .filter(|class| class.len() > 1)
            .collect();
        assert_eq!(classes, ["grid", "line k", "line k0"], "{out}");
        assert!(out.contains("aria-label=\"&lt;title&gt;\""), "{out}");
        // The second line goes from the left end of the plot to the right end, and is level.
        let level = out.split("line k0\" d=\"M112 ").nth(1).unwrap();
        assert!(level.split('"').next().unwrap().ends_with("l507 0"), "{out}");
    }

    #[test]
    fn axes_have_round_figures() {
        let labels = |top, name: &str| -> Vec<String> {
            let mut out = String::new();
            let curve = Curve { class: "k".to_owned(), points: &[(0.0, 0.0), (10.0, top)] };
            draw(&mut out, "", name, &[curve], (10.0, top));
            let labels = out.split("<text class=\"y\"").skip(1);
            labels.filter_map(|text| text.split(['>', '<']).nth(1).map(str::to_owned)).collect()
        };
        assert_eq!(labels(20_000.0, "ops/s"), ["0", "5000", "10 k", "15 k", "20 k"]);
        assert_eq!(labels(4.0e-3, "read p99 s"), ["0", "1 ms", "2 ms", "3 ms", "4 ms"]);
        assert_eq!(
            labels(900.0 * 1024.0 * 1024.0, "memory bytes"),
            ["0", "200 MiB", "400 MiB", "600 MiB", "800 MiB"]
        );
        assert_eq!(labels(18.0 * 1024.0 * 1024.0 * 1024.0, "disk bytes"), ["0", "5 GiB", "10 GiB", "15 GiB"]);
        assert_eq!(labels(1.1 * 1024.0 * 1024.0 * 1024.0, "disk bytes"), ["0", "0.5 GiB", "1 GiB"]);
        assert_eq!(labels(8.0 * 1024.0 * 1024.0, "memory bytes"), ["0", "2 MiB", "4 MiB", "6 MiB", "8 MiB"]);
    }
}
