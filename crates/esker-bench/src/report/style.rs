//! The colour and the dashes of an engine's line in every chart.
//!
//! An engine looks the same in all charts of a page. No two engines of a page look alike, up to [`LOOKS`].

use crate::report::markup::push;
use crate::report::summary::{HOME, Summary};

/// Red, green, blue.
pub(super) type Colour = (u8, u8, u8);

const HOME_COLOUR: Colour = (11, 140, 160);
/// Colours that differ clearly on white and on black.
const COLOURS: [Colour; 8] = [
    (230, 119, 0),
    (156, 54, 181),
    (47, 158, 68),
    (224, 49, 49),
    (59, 91, 219),
    (232, 120, 180),
    (150, 120, 60),
    (120, 130, 140),
];
/// Lengths of strokes and gaps, and the border style that resembles them, for the key.
const DASHES: [(&str, &str); 3] = [("", "solid"), ("14 6", "dashed"), ("4 6", "dotted")];
/// Number of looks of peers before they repeat.
const LOOKS: usize = COLOURS.len() * DASHES.len();

/// The look of Esker, or of the n-th peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Look {
    Home,
    Peer(usize),
}

/// The looks of all engines of a page.
pub(super) struct Looks {
    engines: Vec<String>,
}

impl Looks {
    /// Numbers the engines in the order in which they appear.
    pub(super) fn of(summaries: &[Summary]) -> Self {
        let mut engines: Vec<String> = Vec::new();
        for (engine, _) in summaries.iter().flat_map(|summary| &summary.engines) {
            if engine != HOME && !engines.contains(engine) {
                engines.push(engine.clone());
            }
        }
        Self { engines }
    }

    /// The look of an engine, the same in all charts of a page.
    pub(super) fn look(&self, engine: &str) -> Look {
        if engine == HOME {
            return Look::Home;
        }
        Look::Peer(self.engines.iter().position(|known| known == engine).unwrap_or(0) % LOOKS)
    }

    /// Returns the style of all engines: `.line.CLASS` for lines and `b.CLASS` for keys.
    pub(super) fn style(&self) -> String {
        let mut out = String::new();
        for look in std::iter::once(Look::Home).chain((0..self.engines.len().min(LOOKS)).map(Look::Peer)) {
            let (class, (r, g, b), (dash, border), width) =
                (look.class(), look.colour(), look.dash(), look.width());
            push!(&mut out, ".line.{class}{{stroke:rgb({r},{g},{b});stroke-width:{};", 2 * width);
            if !dash.is_empty() {
                push!(&mut out, "stroke-dasharray:{dash}");
            }
            push!(&mut out, "}}b.{class}::before{{border-top:{width}px {border} rgb({r},{g},{b})}}\n");
        }
        out
    }
}

impl Look {
    /// The class of a line and of its key.
    pub(super) fn class(self) -> String {
        match self {
            Self::Home => "k".to_owned(),
            Self::Peer(n) => format!("k{n}"),
        }
    }

    fn colour(self) -> Colour {
        match self {
            Self::Home => HOME_COLOUR,
            Self::Peer(n) => COLOURS[n % COLOURS.len()],
        }
    }

    fn dash(self) -> (&'static str, &'static str) {
        match self {
            Self::Home => DASHES[0],
            Self::Peer(n) => DASHES[n / COLOURS.len()],
        }
    }

    /// Width of the line in pixels.
    fn width(self) -> u32 {
        if self == Self::Home { 3 } else { 2 }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::report::summary::tests::record;

    #[test]
    fn fifteen_engines_look_different_and_the_same_everywhere() {
        let engines = (0..14).map(|n| format!("peer{n}")).chain([HOME.to_owned()]).collect::<Vec<_>>();
        let mut records: Vec<_> =
            engines.iter().map(|engine| record(engine, "len()", 1, Some(1.0))).collect();
        // Another suite lists the engines in reverse order.
        let other = records.iter().rev().cloned().map(|mut record| {
            record.suite = "int".to_owned();
            record
        });
        let other: Vec<_> = other.collect();
        records.extend(other);
        let looks = Looks::of(&Summary::all(&records));
        let seen: BTreeSet<_> = engines
            .iter()
            .map(|engine| {
                let look = looks.look(engine);
                (look.colour(), look.dash())
            })
            .collect();
        assert_eq!(seen.len(), 15);
        let classes: BTreeSet<String> = engines.iter().map(|engine| looks.look(engine).class()).collect();
        assert_eq!(classes.len(), 15);
        let style = looks.style();
        for class in &classes {
            assert_eq!(style.matches(&format!(".line.{class}{{")).count(), 1, "{class}: {style}");
        }
        let of_peer9 = style.split(".line.k9{").nth(1).unwrap().lines().next().unwrap();
        assert!(of_peer9.contains("stroke-dasharray:14 6") && of_peer9.contains("dashed"), "{of_peer9}");
    }
}
