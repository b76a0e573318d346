//! Draws where Esker stands, above all tables: a bar for each suite, and three sentences.
//!
//! ```text
//! rows that compare engines -> led | close | behind -> a bar of three parts for each suite, and one for all
//! ```
//!
//! - Each of these rows counts once. It is led (a ratio of at most 1), close (at most [`CLOSE`]) or behind. A
//!   row in which other engines have a value and Esker has none is behind. Rows without Esker do not count.
//! - The figure states its number of parts, for tests.

use crate::report::heat;
use crate::report::markup::{escape, push};
use crate::report::summary::{FEW_RUNS_MARGIN, RowSummary, Summary, Verdict};

/// Largest ratio at which Esker counts as close to the best other engine.
const CLOSE: f64 = 1.2;
/// Class and text of each part.
const PARTS: [(&str, &str); 3] =
    [("led", "Esker leads"), ("close", "within 1.2x of the best other engine"), ("behind", "behind")];

/// Numbers of rows that are led, close and behind.
type Counts = [usize; 3];

/// Draws the picture and the sentences.
pub(super) fn draw(out: &mut String, summaries: &[Summary]) {
    let rows: Vec<_> = heat::compared(summaries)
        .into_iter()
        .filter(|(summary, row)| heat::loss(summary, row) > 0.0)
        .collect();
    let of_suite = |summary: &Summary| count(rows.iter().filter(|(of, _)| std::ptr::eq(*of, summary)));
    let suites: Vec<(&Summary, Counts)> =
        summaries.iter().map(|summary| (summary, of_suite(summary))).collect();
    let suites: Vec<_> = suites.into_iter().filter(|(_, counts)| counts.iter().sum::<usize>() > 0).collect();
    if suites.is_empty() {
        return;
    }
    let all = count(rows.iter());
    let mut bars = String::new();
    let mut parts = 0;
    if suites.len() > 1 {
        parts += bar(&mut bars, "<b>all</b>", all);
    }
    for (summary, counts) in &suites {
        let name = escape(&summary.suite);
        parts += bar(&mut bars, &format!("<a href=\"#{name}\">{name}</a>"), *counts);
    }
    push!(out, "<figure class=\"standing\" data-parts=\"{parts}\"><h3>Rows of each suite</h3><p>");
    PARTS.iter().for_each(|(class, text)| push!(out, "<b class=\"{class}\">{text}</b> "));
    push!(out, "</p>{bars}</figure>");
    sentences(out, &rows, all);
}

/// Counts the rows that Esker leads, those in which it is close, and those in which it is behind.
fn count<'a>(rows: impl Iterator<Item = &'a (&'a Summary, &'a RowSummary)>) -> Counts {
    let mut counts = [0; 3];
    for (summary, row) in rows {
        let loss = heat::loss(summary, row);
        counts[usize::from(loss > 1.0) + usize::from(loss > CLOSE)] += 1;
    }
    counts
}

/// Draws one bar, and returns its number of parts.
fn bar(out: &mut String, name: &str, counts: Counts) -> usize {
    push!(out, "<div><span>{name}</span><span class=\"bar\">");
    let parts = counts.iter().zip(PARTS).filter(|(count, _)| **count > 0);
    let mut drawn = 0;
    for (count, (class, text)) in parts {
        push!(out, "<i class=\"{class}\" style=\"flex-grow:{count}\" title=\"{text}\">{count}</i>");
        drawn += 1;
    }
    out.push_str("</span></div>");
    drawn
}

fn sentences(out: &mut String, rows: &[(&Summary, &RowSummary)], all: Counts) {
    let [led, close, behind] = all;
    let peers = rows.iter().map(|(summary, _)| summary.engines.len() - 1).max().unwrap_or(0);
    let unclear = rows.iter().filter(|(_, row)| row.verdict == Verdict::Neither).count();
    push!(
        out,
        "<p>Esker leads {led} of {} rows, is within 1.2x of the best other engine in {close}, and is behind in {behind}. \
             Each row holds it against the best of up to {peers} other engines, which did the same work, and every answer was verified. \
             {unclear} rows are too close to call: the difference is within the spread, or within a factor of {} in fewer than three runs.</p>",
        rows.len(),
        1.0 + FEW_RUNS_MARGIN
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::summary::tests::record;
    use esker_bench_api::results::Record;

    #[test]
    fn each_row_counts_once() {
        let mut records = Vec::new();
        for (row, esker, lmdb) in [
            ("led", Some(1.0), Some(2.0)),
            ("equal", Some(1.0), Some(1.0)),
            ("close", Some(1.2), Some(1.0)),
            ("behind", Some(1.3), Some(1.0)),
            ("lacking", None, Some(1.0)),
            ("alone", Some(1.0), None),
        ] {
            records.extend([record("esker", row, 1, esker), record("lmdb", row, 1, lmdb)]);
        }
        // No row of this suite has Esker.
        let other = |engine| Record { suite: "int".to_owned(), ..record(engine, "bulk load", 1, Some(1.0)) };
        records.extend([other("lmdb"), other("redb")]);
        let mut page = String::new();
        draw(&mut page, &Summary::all(&records));
        assert!(
            page.contains(
                "leads 2 of 5 rows, is within 1.2x of the best other engine in 1, and is behind in 2."
            ),
            "{page}"
        );
        assert!(page.contains("data-parts=\"3\"") && page.matches("<i class=").count() == 3, "{page}");
        assert!(!page.contains("#int") && !page.contains(">all<"), "one suite counts: {page}");
    }
}
