//! Draws one suite as a picture for a page of text: a bar for each row, Esker beside the best other engine.
//!
//! ```text
//! Summary -> row:  name | bar as long as Esker's share of the best peer | the two figures -> SVG
//! ```
//!
//! - A bar ends left of the line if Esker is ahead, and right of it if Esker is behind, for every unit.
//! - A bar too long for the picture is cut off. Its share is printed beside it.
//! - The picture has its own background, so that it is readable on light and dark pages.

use crate::report::markup::{escape, push};
use crate::report::summary::{HOME, RowSummary, Summary};
use crate::report::units::show;
const WIDTH: u32 = 800;
const LINE: f64 = 24.0;
/// Height above the first row.
const TOP: f64 = 58.0;
const BAR_LEFT: f64 = 220.0;
/// Length of the bar of an engine that is as good as the best peer.
const BAR_OF_PEER: f64 = 100.0;
/// A longer bar is cut off.
const BAR_MAX: f64 = 250.0;

const STYLE: &str = "\
text{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1f2328}\
.page{fill:#fff}.soft{fill:#59636e}.ahead{fill:#0b8ca0}.behind{fill:#e67700}\
.peer{stroke:#59636e;stroke-dasharray:3 3}.break{stroke:#fff;stroke-width:3}\
.n{text-anchor:end;font-variant-numeric:tabular-nums}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.page{fill:#0d1117}.soft{fill:#9198a1}\
.peer{stroke:#9198a1}.break{stroke:#0d1117}}";

/// Draws the picture of one suite.
pub(crate) fn draw(summary: &Summary) -> String {
    let bottom = TOP + LINE * summary.rows.len() as f64;
    let height = bottom + 12.0;
    let peer_x = BAR_LEFT + BAR_OF_PEER;
    let (suite, scale, peers) = (&summary.suite, &summary.scale, summary.engines.len().saturating_sub(1));
    let runs =
        if summary.runs == 1 { "one run".to_owned() } else { format!("medians of {} runs", summary.runs) };
    let mut out = String::new();
    push!(
        &mut out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" \
             aria-label=\"Suite {suite}: Esker beside the best of {peers} other engines\"><style>{STYLE}</style>\n\
             <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\" rx=\"6\"/>\n\
             <text x=\"16\" y=\"24\">Suite {suite}, scale {scale}, {runs}</text>\n\
             <text class=\"soft\" x=\"16\" y=\"46\">shorter is better</text>\
             <text class=\"soft\" x=\"{peer_x}\" y=\"46\" text-anchor=\"middle\">best of {peers} others</text>\
             <text class=\"soft n\" x=\"540\" y=\"46\">ratio</text><text class=\"soft n\" x=\"620\" y=\"46\">Esker</text>\
             <text class=\"soft\" x=\"636\" y=\"46\">best other</text>\n\
             <line class=\"peer\" x1=\"{peer_x}\" x2=\"{peer_x}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\n"
    );
    let home = summary.engines.iter().position(|(engine, _)| engine == HOME);
    for (n, row) in summary.rows.iter().enumerate() {
        bar(&mut out, summary, row, home, TOP + LINE * n as f64);
    }
    out + "</svg>\n"
}

/// Draws one row, with its upper edge at `y`.
fn bar(out: &mut String, summary: &Summary, row: &RowSummary, home: Option<usize>, y: f64) {
    let baseline = y + 16.0;
    push!(out, "<text x=\"16\" y=\"{baseline}\">{}</text>", escape(&row.name));
    let median = |at: Option<usize>| Some(row.cells[at?].value()?.median);
    if let Some(value) = median(home) {
        let value = show(value, row.unit);
        push!(out, "<text class=\"n\" x=\"620\" y=\"{baseline}\">{value}</text>");
    }
    if let Some((peer, value)) = row.peer.zip(median(row.peer)) {
        let (name, value) = (escape(&summary.engines[peer].0), show(value, row.unit));
        push!(out, "<text x=\"636\" y=\"{baseline}\">{name} {value}</text>");
    }
    if let Some(share) = row.ratio {
        let class = if share <= 1.0 { "ahead" } else { "behind" };
        let (length, top) = ((BAR_OF_PEER * share).min(BAR_MAX), y + 5.0);
        let digits = if share < 9.995 { 2 } else { 0 };
        push!(
            out,
            "<rect class=\"{class}\" x=\"{BAR_LEFT}\" y=\"{top}\" width=\"{length:.1}\" height=\"14\" rx=\"2\"/>\
                 <text class=\"n\" x=\"540\" y=\"{baseline}\">{share:.digits$}</text>"
        );
        if BAR_OF_PEER * share > BAR_MAX {
            let (x, bottom) = (BAR_LEFT + BAR_MAX - 24.0, y + 21.0);
            let (right, top) = (x + 8.0, y + 3.0);
            push!(out, "<line class=\"break\" x1=\"{x}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{top}\"/>");
        }
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::summary::tests::record;
    use esker_bench_api::results::Better;

    #[test]
    fn a_bar_shows_which_engine_is_ahead_and_a_long_bar_is_broken() {
        let mut records = Vec::new();
        for (row, esker, peer, better) in [
            ("short", 1.0, 2.0, Better::Lower),
            ("rate", 1.0, 2.0, Better::Higher),
            ("long", 50.0, 1.0, Better::Lower),
        ] {
            for (engine, value) in [("esker", esker), ("p<", peer)] {
                records
                    .push(esker_bench_api::results::Record { better, ..record(engine, row, 1, Some(value)) });
            }
        }
        records.push(record("esker", "none", 1, None));
        let picture = draw(&Summary::new(&records));
        let line =
            |row: &str| picture.lines().find(|line| line.contains(&format!(">{row}<"))).unwrap().to_owned();
        assert!(line("short").contains("\"ahead\"") && line("short").contains("width=\"50.0\""));
        assert!(line("rate").contains("\"behind\"") && line("rate").contains("width=\"200.0\""));
        assert!(line("long").contains("\"break\"") && line("long").contains(">50<"));
        assert!(line("long").contains("p&lt; 1.00 s"));
        assert!(!line("none").contains("<rect"));
    }
}
