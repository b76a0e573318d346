//! The columns of the page's tables: Esker, then the other engines by name.
//!
//! ```text
//! wide screen     row | Esker | each other engine ...
//! narrow screen   row | Esker | the best of the others, with its name | ratio
//! ```
//!
//! - Both are one table. The class of a cell is `key`, `home`, `best` (the best other engine) or `n` (only on
//!   narrow screens). The style sheet hides the other cells if the screen is narrow.
//! - A screen is narrow if the engines do not fit. With more engines, wider screens count as narrow.

use crate::report::markup::{escape, push};
use crate::report::summary::{HOME, RowSummary, Summary, Verdict};
use crate::report::units::times;

/// Widths in pixels: of all columns that belong to no engine, and of one engine.
const KEYS_WIDTH: usize = 330;
const ENGINE_WIDTH: usize = 60;

/// Returns all engines of a page, in the order of the columns.
pub(super) fn engines(summaries: &[Summary]) -> Vec<&str> {
    let mut engines: Vec<&str> = Vec::new();
    for (engine, _) in summaries.iter().flat_map(|summary| &summary.engines) {
        if !engines.contains(&engine.as_str()) {
            engines.push(engine);
        }
    }
    engines.sort_by_key(|engine| (*engine != HOME, *engine));
    engines
}

/// Returns the style that hides columns on a page too narrow for this number of engines.
pub(super) fn style(engines: usize) -> String {
    format!(
        ".n{{display:none}}\n@media(max-width:{}px){{.engines{{font-size:14px}}.engines :is(th,td):not(.key,.home,.best,.n),.w{{display:none}}\
         .n{{display:inline}}.engines :is(th,td).n{{display:table-cell}}}}\n",
        KEYS_WIDTH + engines * ENGINE_WIDTH
    )
}

/// Draws the heads of the engines' columns, each with a second line.
pub(super) fn heads<'a>(out: &mut String, engines: impl Iterator<Item = (&'a str, &'a str)>) {
    for (engine, below) in engines {
        let class = if engine == HOME { " class=\"home\"" } else { "" };
        let (engine, below) = (escape(engine), escape(below));
        push!(out, "<th{class}>{engine}<br><small>{below}</small></th>");
    }
    out.push_str("<th class=\"n\">best other</th>");
}

/// Returns the class of the cell at position `at` of a row.
pub(super) fn class(summary: &Summary, row: &RowSummary, at: usize) -> &'static str {
    if is_home(summary, at) {
        "home"
    } else if row.peer == Some(at) {
        "best"
    } else {
        ""
    }
}

/// Returns the name of another engine for its cell on a narrow screen.
pub(super) fn peer_name(summary: &Summary, at: usize) -> String {
    if is_home(summary, at) { String::new() } else { format!("{}<br>", escape(&summary.engines[at].0)) }
}

/// Returns whether Esker is at this position.
pub(super) fn is_home(summary: &Summary, at: usize) -> bool {
    summary.engines[at].0 == HOME
}

/// Draws the ratio of a row. `class` is `n` if the wide table has no such column.
pub(super) fn ratio(out: &mut String, row: &RowSummary, class: &str) {
    let colour = match row.verdict {
        Verdict::Won => "good",
        Verdict::Lost => "bad",
        Verdict::Neither | Verdict::Unknown => "soft",
    };
    let text = row.ratio.map_or_else(|| "-".to_owned(), times);
    push!(out, "<td class=\"{colour} {class}\">{text}</td>");
}
