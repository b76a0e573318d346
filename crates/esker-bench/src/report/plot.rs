//! One line chart as SVG: axes, a grid, and a path for each line.
//!
//! ```text
//! points in seconds and values -> places in a frame of 660 by 360 -> those that cannot be seen apart merged -> path d="M110 320l9-3 ..."
//! ```
//!
//! PL1. A frame is drawn half as wide on a phone as it is in its own units: letters are of 11 pixels there, and a unit is half a pixel.
//! PL2. A point is left out only if the line without it passes within half a unit of it.

use crate::report::markup::{escape, push};
use crate::report::units;

/// PL1.
const FRAME: (f64, f64) = (660.0, 360.0);
const LEFT: f64 = 112.0;
const RIGHT: f64 = 620.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 322.0;
/// Where letters end, left of the plot.
const LABELS: f64 = LEFT - 8.0;
/// PL2: in units of the frame.
const UNSEEN: f64 = 0.5;

/// A line and the class of its look.
pub(super) struct Curve<'a> {
    pub(super) class: String,
    pub(super) points: &'a [(f64, f64)],
}

/// Draws the curves over `0..end` seconds and `0..top` of what `name` has.
pub(super) fn draw(out: &mut String, title: &str, name: &str, curves: &[Curve<'_>], (end, top): (f64, f64)) {
    let (end, top) = (end.max(1e-9), (top * 1.05).max(1e-12));
    let x = |seconds: f64| LEFT + (RIGHT - LEFT) * seconds / end;
    let y = |value: f64| BOTTOM - (BOTTOM - TOP) * value / top;
    let (width, height) = FRAME;
    push(
        out,
        format_args!("<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">", escape(title)),
    );
    let (mut grid, mut texts) = (String::new(), String::new());
    for value in ticks(top, scale(name, top), 4.0) {
        let (line, baseline) = (y(value), y(value) + 7.0);
        push(&mut grid, format_args!("M{LEFT} {line:.0}H{RIGHT}"));
        push(
            &mut texts,
            format_args!("<text class=\"y\" x=\"{LABELS}\" y=\"{baseline:.0}\">{}</text>", tick(value, name)),
        );
    }
    for seconds in ticks(end, 1.0, 4.0) {
        let baseline = BOTTOM + 28.0;
        push(&mut grid, format_args!("M{:.0} {BOTTOM}v8", x(seconds)));
        push(
            &mut texts,
            format_args!(
                "<text class=\"x\" x=\"{:.0}\" y=\"{baseline}\">{}</text>",
                x(seconds),
                plain(units::seconds(seconds))
            ),
        );
    }
    push(out, format_args!("<path class=\"grid\" d=\"{grid}\"/>{texts}"));
    for curve in curves {
        let places: Vec<(f64, f64)> =
            curve.points.iter().map(|(seconds, value)| (x(*seconds).round(), y(*value).round())).collect();
        push(out, format_args!("<path class=\"line {}\" d=\"{}\"/>", curve.class, path(&seen(&places))));
    }
    out.push_str("</svg>");
}

/// What the steps of an axis are multiples of.
fn scale(name: &str, top: f64) -> f64 {
    match (name.ends_with("bytes"), top >= f64::from(1 << 20)) {
        (true, true) => f64::from(1 << 20),
        (true, false) => 1024.0,
        _ => 1.0,
    }
}

/// Round figures from 0 to `top`, about as many as are wanted.
fn ticks(top: f64, scale: f64, wanted: f64) -> Vec<f64> {
    let least = top / scale / wanted;
    let magnitude = 10_f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * magnitude);
    let step = step.into_iter().find(|step| *step >= least * 0.999).unwrap_or(10.0 * magnitude) * scale;
    (0_u32..=10).map(|n| f64::from(n) * step).take_while(|value| *value <= top * 1.000_001).collect()
}

fn tick(value: f64, name: &str) -> String {
    plain(if name.ends_with(" s") {
        units::seconds(value)
    } else if name.ends_with("bytes") {
        units::bytes(value)
    } else {
        units::count(value)
    })
}

/// A round figure without the digits that say nothing: `20 s` instead of `20.0 s`; of zero, no unit either.
fn plain(text: String) -> String {
    let (number, unit) = text.split_once(' ').map_or((text.as_str(), ""), |(number, unit)| (number, unit));
    let number =
        if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    if number == "0" || unit.is_empty() { number.to_owned() } else { format!("{number} {unit}") }
}

/// PL2: of places that go from left to right, those that make the line (Ramer, Douglas and Peucker, with the distance upwards).
fn seen(places: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let Some(((first, last), between)) =
        places.split_first().and_then(|(first, rest)| Some(((first, rest.last()?), &rest[..rest.len() - 1])))
    else {
        return places.to_vec();
    };
    let on_the_line = |x: f64| {
        let part = if last.0 > first.0 { (x - first.0) / (last.0 - first.0) } else { 0.0 };
        first.1 + part * (last.1 - first.1)
    };
    let distances = between.iter().map(|(x, y)| (y - on_the_line(*x)).abs()).enumerate();
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

/// From the first place, steps to each next one.
fn path(places: &[(f64, f64)]) -> String {
    let mut out = String::new();
    let mut before: Option<(f64, f64)> = None;
    for (x, y) in places {
        match before {
            None => push(&mut out, format_args!("M{x} {y}l")),
            Some((was_x, was_y)) => {
                let (right, down) = (x - was_x, y - was_y);
                let space = if out.ends_with('l') { "" } else { " " };
                let between = if down < 0.0 { "" } else { " " };
                push(&mut out, format_args!("{space}{right}{between}{down}"));
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
    fn pl2_only_what_cannot_be_seen_is_left_out() {
        let straight: Vec<(f64, f64)> = (0..100).map(|n| (f64::from(n), f64::from(n / 2))).collect();
        assert!(seen(&straight).len() < 4, "{:?}", seen(&straight));
        let mut spike = straight;
        spike[40].1 += 1.0;
        spike[70].1 = 300.0;
        let kept = seen(&spike);
        assert!(
            kept.contains(&spike[70]) && kept.contains(&spike[69]) && kept.contains(&spike[71]),
            "{kept:?}"
        );
        for (x, y) in &spike {
            let at = kept.partition_point(|(kept_x, _)| kept_x < x).max(1);
            let (from, to) = (kept[at - 1], kept[at]);
            let drawn = from.1 + (x - from.0) / (to.0 - from.0) * (to.1 - from.1);
            assert!((drawn - y).abs() <= UNSEEN, "{x} {y} {drawn}");
        }
        assert_eq!((seen(&[]).len(), seen(&spike[..1]).len(), seen(&spike[..2]).len()), (0, 1, 2));
    }

    #[test]
    fn steps_are_told_from_the_place_before() {
        assert_eq!(path(&[(112.0, 300.0), (120.0, 290.0), (121.0, 290.0)]), "M112 300l8-10 1 0");
    }

    #[test]
    fn axes_have_round_figures() {
        let told = |top, name| -> Vec<String> {
            ticks(top, scale(name, top), 4.0).into_iter().map(|value| tick(value, name)).collect()
        };
        assert_eq!(told(21_000.0, "ops/s"), ["0", "10 k", "20 k"]);
        assert_eq!(told(4.2e-3, "read p99 s"), ["0", "2 ms", "4 ms"]);
        assert_eq!(told(900.0 * 1024.0 * 1024.0, "memory bytes"), ["0", "500 MiB"]);
        assert_eq!(told(8.0 * 1024.0 * 1024.0, "memory bytes"), ["0", "2 MiB", "4 MiB", "6 MiB", "8 MiB"]);
    }
}
