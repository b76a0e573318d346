//! What stands behind each row: latencies, bytes, memory, processor, syncs, notes, and the command that repeats it.
//!
//! D1. Write amplification is of what the device wrote, the wait for background work included. What Linux counts for the process counts a
//!     page each time that it is made dirty: forty times as much where small commits append to one page.
//! D2. Processor time of an operation is all that the process used in the row, over the operations of all its passes: the lab's own work and
//!     the engine's in the background are in it, which clocks around calls do not see.

use crate::machine::Context;
use crate::report::markup::{escape, push};
use crate::report::summary::{Cell, RowSummary, Summary};
use crate::report::units::{bytes, count, figure, known_bytes, seconds};

/// The command that repeats a suite as it was run: a row runs with the rows of its suite.
pub(super) fn command(summary: &Summary, context: &Context) -> String {
    let engines: Vec<&str> = summary.engines.iter().map(|(engine, _)| engine.as_str()).collect();
    let features = if engines.contains(&"rocksdb") { " --features rocksdb" } else { "" };
    let mut command = format!(
        "cargo run --release -p esker-bench{features} -- run {} --scale {} --runs {}",
        summary.suite, summary.scale, summary.runs
    );
    // The suite that measures the machine takes no engine.
    if engines != ["machine"] {
        engines.iter().for_each(|engine| command += &format!(" --engine {engine}"));
    }
    let ran_it = |line: &&str| suites(line).any(|suite| suite == summary.suite || suite == "all");
    let mut words = context.command.lines().find(ran_it).unwrap_or_default().split_whitespace();
    if words.any(|word| word == "--timeout")
        && let Some(seconds) = words.next()
    {
        command += &format!(" --timeout {seconds}");
    }
    command
}

/// The suites that a command of the lab ran: its words that are neither options nor their values.
fn suites(command: &str) -> impl Iterator<Item = &str> {
    const WITHOUT_VALUE: [&str; 2] = ["--resume", "--no-trace"];
    let run = command.rsplit(" run ").next().unwrap_or_default();
    let mut is_value = false;
    run.split_whitespace().filter(move |word| {
        let is_option = word.starts_with("--");
        let was_value = std::mem::replace(
            &mut is_value,
            is_option && !WITHOUT_VALUE.contains(word) && !word.contains('='),
        );
        !is_option && !was_value
    })
}

/// Draws a table that opens on demand.
pub(super) fn draw(out: &mut String, row: &RowSummary, summary: &Summary) {
    push(
        out,
        format_args!(
            "<details><summary>{}</summary>\
             <div class=\"wide\"><table><thead><tr><th>engine</th><th>written to the device</th><th>write amp. (device)</th>\
             <th>written by the process</th><th>read by the process</th><th>on disk</th><th>at most</th><th>space amp.</th><th>peak anonymous memory</th><th>mapped file pages</th><th>processor</th>\
             <th>processor/op</th><th>syncs per commit</th><th>drain</th>\
             <th>longest stall</th><th>latency of</th><th>count</th><th>mean</th><th>50</th><th>90</th><th>95</th><th>99</th><th>99.9</th>\
             <th>99.99</th><th>max</th><th>notes</th></tr></thead><tbody>",
            escape(&row.name)
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
            format_args!("<tr><td>{}</td><td colspan=\"25\">{}</td></tr>", escape(name), escape(error)),
        );
        return;
    };
    let last = &value.last;
    let usage = &last.usage;
    let over = |part: u64, whole: u64| {
        if part == 0 || whole == 0 { "-".to_owned() } else { format!("{:.2}", part as f64 / whole as f64) }
    };
    let detail = row.details[at].as_deref();
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let mut notes = vec![last.memory_limit.clone(), last.note.clone()];
    if let Some(detail) = detail {
        if !detail.load.is_empty() {
            notes.push(format!("{} loop", detail.load));
        }
        notes.extend(detail.figures.iter().map(|(name, value)| format!("{name} {}", figure(name, *value))));
    }
    notes.retain(|note| !note.is_empty());
    let head = [
        escape(name),
        known_bytes(usage.device_written_bytes as f64),
        // D1
        over(usage.device_written_bytes, last.user_written_bytes),
        bytes(usage.written_bytes as f64),
        bytes(usage.read_bytes as f64),
        bytes(usage.disk_allocated_bytes as f64),
        known_bytes(usage.peak_disk_bytes as f64),
        over(usage.disk_allocated_bytes, last.live_bytes),
        bytes(usage.peak_anon_bytes as f64),
        bytes(usage.rss_file_bytes as f64),
        seconds(usage.cpu_s),
        or_dash((value.operations() > 1).then(|| seconds(usage.cpu_s / value.operations() as f64))),
        or_dash(value.syncs_text()),
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
            format!("<td>{}</td>{}", escape(name), "<td></td>".repeat(14))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::report::summary::tests::record;
    use esker_bench_api::results::{Record, Usage};

    fn context(command: &str) -> Context {
        Context {
            machine: Machine::describe(&std::env::temp_dir()),
            device: String::new(),
            commit: String::new(),
            started_unix_s: 0,
            command: command.to_owned(),
            engines: Vec::new(),
        }
    }

    #[test]
    fn the_command_names_all_that_a_repetition_needs() {
        let of = |engine: &str, suite: &str| Record {
            suite: suite.to_owned(),
            ..record(engine, "r", 5, Some(1.0))
        };
        let both = Summary::new(&[of("esker", "redb"), of("rocksdb", "redb")]);
        // `cargo run` is not the lab's own `run`, and an engine is no suite.
        let ran = context(
            "cargo run --release -p esker-bench -- run --resume ycsb --timeout 7 --engine redb\ncargo run -p esker-bench -- run redb int --timeout 900 --dir /x",
        );
        assert_eq!(
            command(&both, &ran),
            "cargo run --release -p esker-bench --features rocksdb -- run redb --scale test --runs 5 --engine esker --engine rocksdb --timeout 900"
        );
        let machine = Summary::new(&[of("machine", "limits")]);
        assert_eq!(
            command(&machine, &ran),
            "cargo run --release -p esker-bench -- run limits --scale test --runs 5"
        );
    }

    #[test]
    fn d1_amplification_is_of_the_device() {
        let mut record = record("esker", "individual writes", 1, Some(1.0));
        record.user_written_bytes = 1000;
        record.live_bytes = 1000;
        record.usage = Usage {
            written_bytes: 263_000,
            device_written_bytes: 6_500,
            disk_bytes: 9_000,
            disk_allocated_bytes: 3_000,
            peak_disk_bytes: 5_000,
            cpu_s: 1.0,
            ..Usage::default()
        };
        let summary = Summary::new(&[record]);
        let mut page = String::new();
        draw(&mut page, &summary.rows[0], &summary);
        assert!(page.contains("<td>6.35 KiB</td><td>6.50</td><td>257 KiB</td>"), "{page}");
        assert!(page.contains("<td>2.93 KiB</td><td>4.88 KiB</td><td>3.00</td>"), "{page}");
        // The operations are the record's 10.
        assert!(page.contains("<td>1.00 s</td><td>100 ms</td><td>1.00</td>"), "D2: {page}");
        let (head, rows) = page.split_once("</thead>").unwrap();
        assert_eq!(head.matches("<th>").count(), rows.matches("<td>").count());
    }

    #[test]
    fn d2_processor_time_is_of_all_passes_and_operations() {
        let mut record = record("esker", "random reads", 1, Some(1.0));
        record.usage.cpu_s = 2.0;
        let per_operation = |record: &Record| {
            let summary = Summary::new(std::slice::from_ref(record));
            let mut page = String::new();
            draw(&mut page, &summary.rows[0], &summary);
            page.split("<td>2.00 s</td><td>").nth(1).unwrap().split('<').next().unwrap().to_owned()
        };
        assert_eq!(per_operation(&record), "200 ms");
        record.passes = vec![1.0; 2];
        assert_eq!(per_operation(&record), "100 ms");
        record.passes.clear();
        record.ops = 1;
        assert_eq!(per_operation(&record), "-");
    }

    #[test]
    fn syncs_that_were_not_counted_are_not_told_as_none() {
        let untraced = |commits| Record {
            commits,
            syncs_per_commit: None,
            ..record("esker", "individual writes", 1, Some(1.0))
        };
        for (commits, is_told) in [(10, true), (0, false)] {
            let summary = Summary::new(&[untraced(commits)]);
            let mut page = String::new();
            draw(&mut page, &summary.rows[0], &summary);
            assert_eq!(page.contains("<td>not traced</td>"), is_told);
        }
    }
}
