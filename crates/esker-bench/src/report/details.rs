//! What stands behind each row: latencies, bytes, memory, processor, syncs, notes, and the command that repeats it.

use crate::report::markup::{escape, push};
use crate::report::summary::{Cell, RowSummary, Summary};
use crate::report::units::{bytes, count, seconds};

/// Draws a table that opens on demand.
pub(super) fn draw(out: &mut String, row: &RowSummary, summary: &Summary) {
    push(
        out,
        format_args!(
            "<details><summary>{}</summary><p class=\"soft\">repeat: <code>cargo run --release -p esker-bench -- run {} --scale {}</code></p>\
             <div class=\"wide\"><table><thead><tr><th>engine</th><th>written</th><th>write amp.</th><th>read</th><th>on disk</th>\
             <th>space amp.</th><th>peak memory</th><th>of it anonymous</th><th>processor</th><th>syncs per commit</th><th>drain</th>\
             <th>longest stall</th><th>latency of</th><th>count</th><th>mean</th><th>50</th><th>90</th><th>95</th><th>99</th><th>99.9</th>\
             <th>99.99</th><th>max</th><th>notes</th></tr></thead><tbody>",
            escape(&row.name),
            escape(&summary.suite),
            escape(&summary.scale)
        ),
    );
    for (at, cell) in row.cells.iter().enumerate() {
        engine(out, row, cell, at, &summary.engines[at].0);
    }
    out.push_str("</tbody></table></div></details>");
}

fn engine(out: &mut String, row: &RowSummary, cell: &Cell, at: usize, name: &str) {
    let Cell::Value(value) = cell else {
        let Cell::Error(error) = cell else { return };
        push(
            out,
            format_args!("<tr><td>{}</td><td colspan=\"22\">{}</td></tr>", escape(name), escape(error)),
        );
        return;
    };
    let last = &value.last;
    let usage = &last.usage;
    let over = |part: u64, whole: u64| {
        if whole == 0 { "-".to_owned() } else { format!("{:.2}", part as f64 / whole as f64) }
    };
    let detail = row.details[at].as_deref();
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let mut notes = vec![last.memory_limit.clone(), last.note.clone()];
    if let Some(detail) = detail {
        if !detail.load.is_empty() {
            notes.push(format!("{} loop", detail.load));
        }
        notes.extend(detail.figures.iter().map(|(name, value)| format!("{name} {value:.3}")));
    }
    notes.retain(|note| !note.is_empty());
    let head = [
        escape(name),
        bytes(usage.written_bytes as f64),
        over(usage.written_bytes, last.user_written_bytes),
        bytes(usage.read_bytes as f64),
        bytes(usage.disk_bytes as f64),
        over(usage.disk_bytes, last.live_bytes),
        bytes(usage.peak_rss_bytes as f64),
        bytes(usage.peak_anon_bytes as f64),
        seconds(usage.cpu_s),
        or_dash(value.syncs_per_commit.map(|syncs| format!("{syncs:.2}"))),
        or_dash(detail.and_then(|detail| detail.drain_s).map(seconds)),
        or_dash(
            detail
                .filter(|detail| detail.longest_stall_s > 0.0)
                .map(|detail| seconds(detail.longest_stall_s)),
        ),
    ];
    let head: String = head.iter().map(|text| format!("<td>{text}</td>")).collect();
    let note = format!("<td>{}</td>", escape(&notes.join("; ")));
    let latencies: Vec<_> = detail.into_iter().flat_map(|detail| &detail.latency).collect();
    if latencies.is_empty() {
        push(out, format_args!("<tr>{head}{}{note}</tr>", "<td>-</td>".repeat(10)));
    }
    for (n, (kind, latency)) in latencies.into_iter().enumerate() {
        let head = if n == 0 {
            head.clone()
        } else {
            format!("<td>{}</td>{}", escape(name), "<td></td>".repeat(11))
        };
        let figures = [
            latency.mean,
            latency.p50,
            latency.p90,
            latency.p95,
            latency.p99,
            latency.p999,
            latency.p9999,
            latency.max,
        ];
        let figures: String = figures.iter().map(|figure| format!("<td>{}</td>", seconds(*figure))).collect();
        push(
            out,
            format_args!(
                "<tr>{head}<td>{}</td><td>{}</td>{figures}{note}</tr>",
                escape(kind),
                count(latency.count as f64)
            ),
        );
    }
}
