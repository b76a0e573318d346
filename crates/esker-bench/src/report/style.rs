//! How the line of an engine looks in every chart: a colour and a dash.
//!
//! An engine has the same look in all charts of a page, and no two of a page share one, up to [`LOOKS`].

use crate::report::markup::push;
use crate::report::summary::{HOME, Summary};

/// Red, green, blue.
pub(super) type Colour = (u8, u8, u8);

const HOME_COLOUR: Colour = (11, 140, 160);
/// Colours that tell apart on white and on black.
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
/// Lengths of strokes and gaps, and the border that looks like them, for the key; none is a whole line.
const DASHES: [(&str, &str); 3] = [("", "solid"), ("14 6", "dashed"), ("4 6", "dotted")];
/// Looks of peers before they repeat.
const LOOKS: usize = COLOURS.len() * DASHES.len();

/// The look of one engine: Esker's, or the n-th of its peers.
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
    /// Engines keep the order in which they come up.
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

    /// What makes the looks of all engines: lines by `.line.CLASS`, and their keys by `b.CLASS`.
    pub(super) fn style(&self) -> String {
        let mut out = String::new();
        for look in std::iter::once(Look::Home).chain((0..self.engines.len().min(LOOKS)).map(Look::Peer)) {
            let (class, (r, g, b), (dash, border), width) =
                (look.class(), look.colour(), look.dash(), look.width());
            push(
                &mut out,
                format_args!(".line.{class}{{stroke:rgb({r},{g},{b});stroke-width:{};", 2 * width),
            );
            if !dash.is_empty() {
                push(&mut out, format_args!("stroke-dasharray:{dash}"));
            }
            push(
                &mut out,
                format_args!("}}b.{class}::before{{border-top:{width}px {border} rgb({r},{g},{b})}}\n"),
            );
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

    /// In pixels.
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
        // Another suite names them the other way round.
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
