//! The report to open: one page with nothing outside it, for light and dark screens.
//!
//!   Summary + Context -> a table, a bar chart per row (inline SVG), options and machine

use std::fmt::Write as _;

use crate::machine::Context;
use crate::report::summary::{Cell, HOME, RowSummary, Summary};
use crate::report::units::{bytes, seconds, show};
use esker_bench_api::results::{Better, Unit};

const STYLE: &str = "
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#667;--line:#d8dde3;--page:#fff;--home:#0b7285;--peer:#adb5bd;--good:#2b8a3e;--bad:#c92a2a}
@media(prefers-color-scheme:dark){:root{--ink:#e6e6e6;--soft:#9aa;--line:#333a42;--page:#14171a;--home:#3bc9db;--peer:#5c666f;--good:#69db7c;--bad:#ff8787}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:68rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;width:100%;display:block;overflow-x:auto}
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap;font-variant-numeric:tabular-nums}
th:first-child,td:first-child{text-align:left}small,.soft{color:var(--soft)}.good{color:var(--good)}.bad{color:var(--bad)}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(19rem,1fr));gap:1rem 2rem}
svg{width:100%;height:auto}svg text{fill:var(--ink);font:12px system-ui,sans-serif}.home{fill:var(--home)}.peer{fill:var(--peer)}
h3{margin:.5rem 0 0;font-size:1rem}code{overflow-wrap:anywhere}";

/// Draws the page.
pub(crate) fn page(summary: &Summary, context: &Context) -> String {
    let title = format!("Suite {}, scale {}", summary.suite, summary.scale);
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><style>{STYLE}</style></head><body>\
         <h1>{title}</h1><p class=\"soft\">Median of {} runs in fresh processes that took turns; below it the time of one \
         operation and the spread. The last column is Esker's median over that of the best other engine.</p>",
        summary.runs
    );
    table(&mut out, summary);
    out.push_str("<h2>Row by row</h2><p class=\"soft\">Shorter is better; the thin line spans all runs.</p><div class=\"charts\">");
    for row in &summary.rows {
        chart(&mut out, row, summary);
    }
    out.push_str("</div>");
    setting(&mut out, summary, context);
    out.push_str("</body></html>\n");
    out
}

fn table(out: &mut String, summary: &Summary) {
    out.push_str("<table><thead><tr><th>row</th>");
    for (name, version) in &summary.engines {
        push(out, format_args!("<th>{}<br><small>{}</small></th>", escape(name), escape(version)));
    }
    out.push_str("<th>esker / best peer</th></tr></thead><tbody>");
    for row in &summary.rows {
        push(out, format_args!("<tr><td>{}</td>", escape(&row.name)));
        for (i, cell) in row.cells.iter().enumerate() {
            out.push_str(&table_cell(row, cell, row.best == Some(i)));
        }
        let class = row.ratio.map_or("soft", |ratio| {
            if (ratio <= 1.0) == (row.better == Better::Lower) { "good" } else { "bad" }
        });
        let ratio = row.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        push(out, format_args!("<td class=\"{class}\">{ratio}</td></tr>"));
    }
    let mut total = |name: &str, value: &dyn Fn(usize) -> String| {
        push(out, format_args!("<tr class=\"soft\"><td>{name}</td>"));
        for i in 0..summary.engines.len() {
            push(out, format_args!("<td>{}</td>", value(i)));
        }
        out.push_str("<td></td></tr>");
    };
    total("peak memory", &|i| bytes(summary.totals[i].peak_rss_bytes));
    total("written, all rows", &|i| bytes(summary.totals[i].written_bytes));
    total("processor, all rows", &|i| seconds(summary.totals[i].cpu_s));
    out.push_str("</tbody></table>");
}

fn table_cell(row: &RowSummary, cell: &Cell, is_best: bool) -> String {
    let Some(value) = cell.value() else {
        let Cell::Error(error) = cell else { return String::new() };
        return format!("<td class=\"bad\" title=\"{}\">failed</td>", escape(error));
    };
    let text = show(value.median, row.unit);
    let text = if is_best { format!("<b>{text}</b>") } else { text };
    let mut details = Vec::new();
    if row.unit == Unit::Seconds && row.ops > 1 {
        details.push(format!("{}/op", seconds(value.median / row.ops as f64)));
    }
    details.push(format!("{:.0} %", value.spread() * 100.0));
    if let Some(syncs) = value.syncs_per_commit {
        details.push(format!("{syncs:.2} syncs/commit"));
    }
    format!("<td>{text}<br><small>{}</small></td>", details.join(", "))
}

fn chart(out: &mut String, row: &RowSummary, summary: &Summary) {
    const LABEL: f64 = 70.0;
    const BAR: f64 = 180.0;
    const LINE: f64 = 20.0;
    let longest = row.cells.iter().filter_map(Cell::value).map(|value| value.max).fold(0.0, f64::max);
    let height = LINE * row.cells.len() as f64;
    push(
        out,
        format_args!("<div><h3>{}</h3><svg viewBox=\"0 0 330 {height}\" role=\"img\">", escape(&row.name)),
    );
    for (i, (cell, (engine, _))) in row.cells.iter().zip(&summary.engines).enumerate() {
        let y = LINE * i as f64;
        let baseline = y + 14.0;
        push(out, format_args!("<text x=\"0\" y=\"{baseline}\">{}</text>", escape(engine)));
        let Some(value) = cell.value() else {
            push(out, format_args!("<text x=\"{LABEL}\" y=\"{baseline}\">failed</text>"));
            continue;
        };
        let length = |x: f64| if longest > 0.0 { BAR * x / longest } else { 0.0 };
        let class = if engine == HOME { "home" } else { "peer" };
        let (bar, from, to) = (length(value.median), LABEL + length(value.min), LABEL + length(value.max));
        let (top, middle, label) = (y + 3.0, y + 10.0, to + 6.0);
        push(
            out,
            format_args!(
                "<rect class=\"{class}\" x=\"{LABEL}\" y=\"{top}\" width=\"{bar:.1}\" height=\"14\" rx=\"2\"/>\
             <line x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{middle}\" y2=\"{middle}\" stroke=\"currentColor\"/>\
             <text x=\"{label:.1}\" y=\"{baseline}\">{}</text>",
                show(value.median, row.unit)
            ),
        );
    }
    out.push_str("</svg></div>");
}

fn setting(out: &mut String, summary: &Summary, context: &Context) {
    out.push_str("<h2>Machine and settings</h2>");
    push(
        out,
        format_args!(
            "<p>{}<br>Commit {}<br><code>{}</code></p>",
            escape(&context.machine.line()),
            escape(&context.commit),
            escape(&context.command)
        ),
    );
    for engine in &context.engines {
        push(out, format_args!("<h3>{} {}</h3><ul>", escape(&engine.name), escape(&engine.version)));
        for (option, reason) in &engine.options {
            push(
                out,
                format_args!("<li>{} <span class=\"soft\">- {}</span></li>", escape(option), escape(reason)),
            );
        }
        out.push_str("</ul>");
    }
    let mut failures = String::new();
    for (failure, rows) in summary.failures() {
        push(&mut failures, format_args!("<li>{} ({})</li>", escape(&failure), escape(&rows.join(", "))));
    }
    if !failures.is_empty() {
        push(out, format_args!("<h2>Failed rows</h2><ul>{failures}</ul>"));
    }
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a String cannot fail");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::report::summary::tests::record;

    #[test]
    fn a_page_has_every_row_and_shows_failures() {
        let records = [
            record("esker", "bulk load", 1, Some(0.5)),
            record("lmdb", "bulk load", 1, Some(2.0)),
            record("esker", "len()", 1, None),
            record("lmdb", "len()", 1, Some(1e-6)),
        ];
        let context = Context {
            machine: Machine::describe(&std::env::temp_dir()),
            commit: "abc".to_owned(),
            started_unix_s: 0,
            command: "esker-bench run redb".to_owned(),
            engines: Vec::new(),
        };
        let page = page(&Summary::new(&records), &context);
        assert_eq!(page.matches("<svg").count(), 2);
        assert_eq!(page.matches("<rect").count(), 3);
        assert!(page.contains("<b>500 ms</b>") && page.contains("50.0 ms/op"));
        assert!(page.contains("it broke &lt;here&gt;") && !page.contains("<here>"));
        assert!(!page.contains("http"), "the page loads nothing");
    }
}
