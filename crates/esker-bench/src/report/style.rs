//! How the line of an engine looks in every chart: a colour and a dash.
//!
//! ST1. An engine has the same look in all charts of a page, and no two of a page share one, up to [`LOOKS`].

use std::fmt::Write as _;

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
/// Lengths of strokes and gaps; none is a whole line.
const DASHES: [&str; 3] = ["", "7 3", "2 3"];
/// Looks of peers before they repeat.
const LOOKS: usize = COLOURS.len() * DASHES.len();

/// The look of one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) colour: Colour,
    pub(super) dash: &'static str,
    pub(super) width: u32,
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

    /// ST1.
    pub(super) fn look(&self, engine: &str) -> Look {
        if engine == HOME {
            return Look { colour: HOME_COLOUR, dash: "", width: 3 };
        }
        let at = self.engines.iter().position(|known| known == engine).unwrap_or(0) % LOOKS;
        Look { colour: COLOURS[at % COLOURS.len()], dash: DASHES[at / COLOURS.len()], width: 2 }
    }
}

impl Look {
    /// The attribute of a dash, with a space before it; nothing for a whole line.
    pub(super) fn dash_attribute(self) -> String {
        if self.dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{}\"", self.dash) }
    }

    /// A short line as it stands in the chart, for the key below it.
    pub(super) fn sample(self) -> String {
        let (r, g, b) = self.colour;
        let mut out = String::new();
        let _infallible = write!(
            out,
            "<svg class=\"sample\" viewBox=\"0 0 24 8\" aria-hidden=\"true\"><path d=\"M0 4H24\" stroke=\"rgb({r},{g},{b})\" \
             stroke-width=\"{}\"{}/></svg>",
            self.width,
            self.dash_attribute()
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::report::summary::tests::record;

    #[test]
    fn st1_fifteen_engines_look_different_and_the_same_everywhere() {
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
                (look.colour, look.dash)
            })
            .collect();
        assert_eq!(seen.len(), 15, "ST1");
        assert!(looks.look("peer9").sample().contains("stroke-dasharray"));
    }
}
