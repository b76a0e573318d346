//! Tests of the page, with a browser and without.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::*;
use crate::context::tests::{context, of_class};
use crate::context::{AsyncContext, Workload};
use crate::gate;
use crate::report::summary::tests::{counts, record, record_over_time};
use crate::scale::Scale;
use esker_bench_api::Isolation;
use esker_bench_api::results::{Counts, Record};

fn example() -> String {
    example_of(Vec::new())
}

fn example_of(engines: Vec<EngineContext>) -> String {
    let mut records = vec![
        record("esker", "bulk load", 1, Some(0.5)),
        record("lmdb", "bulk load", 1, Some(2.0)),
        record("esker", "batch writes", 1, Some(3.0)),
        record("lmdb", "batch writes", 1, Some(1.0)),
        record("esker", "len()", 1, None),
        record("lmdb", "len()", 1, Some(1e-6)),
    ];
    records.extend(["esker", "lmdb"].map(|engine| record_over_time(engine, "H rand", 1)));
    page(&Summary::all(&records), &runs(engines))
}

fn runs(engines: Vec<EngineContext>) -> Runs {
    Runs::new(vec![context("esker-bench run redb", engines)])
}

fn engine(name: &str, isolation: Isolation) -> EngineContext {
    EngineContext { suites: vec!["redb".to_owned()], ..of_class(name, isolation) }
}

/// A page whose engines are in two classes.
fn example_of_classes() -> String {
    example_of(vec![engine("esker", Isolation::Snapshot), engine("lmdb", Isolation::Serializable)])
}

#[test]
fn a_table_tells_what_a_row_left_to_do() {
    let mut load = record("esker", "bulk load", 1, Some(0.5));
    load.detail.get_or_insert_default().drain_s = Some(2.5);
    let records = [load, record("lmdb", "bulk load", 1, Some(2.0))];
    let page = page(&Summary::all(&records), &runs(Vec::new()));
    assert_eq!(page.matches("<br>+ 2.50 s</small>").count(), 1);
}

#[test]
fn lines_of_each_class_stand_in_a_chart_of_their_own() {
    let charts = example().matches("data-lines=\"2\"").count();
    let page = example_of_classes();
    assert_eq!(page.matches("data-lines=\"1\"").count(), 2 * charts);
    assert!(!page.contains("data-lines=\"2\""), "no chart has both");
    assert!(page.contains("over time (serializable)") && page.contains("over time (snapshot isolation)"));
    assert_eq!(broken(&page), Vec::<String>::new());
}

#[test]
fn the_page_says_what_the_work_is_made_of() {
    let of_work = |scale| {
        let mut context = context("esker-bench run redb", Vec::new());
        context.workloads = vec![Workload::of(suites::find("redb").unwrap(), scale)];
        page(&Summary::all(&[record("esker", "bulk load", 1, Some(1.0))]), &Runs::new(vec![context]))
    };
    assert!(of_work(Scale::Test).contains("items: items::Items, seed 3<br>order of reads: "));
    assert!(!of_work(Scale::Seed).contains("items::Items"), "of another scale");
}

#[test]
fn async_rows_say_what_their_commits_have_done() {
    let said = |name: &str| {
        let async_commits = Some(AsyncContext::of(crate::engines::find(name).unwrap()));
        EngineContext { async_commits, suites: vec!["ycsb".to_owned()], ..engine(name, Isolation::Snapshot) }
    };
    let of =
        |row: &str, engine: &str| Record { suite: "ycsb".to_owned(), ..record(engine, row, 1, Some(1.0)) };
    let rows = ["load (async)", "load (sync)"];
    let records: Vec<_> = rows.iter().flat_map(|row| [of(row, "esker"), of(row, "redb")]).collect();
    let mut of_ycsb = context("esker-bench run ycsb", vec![said("esker"), said("redb")]);
    of_ycsb.suites = vec!["ycsb".to_owned()];
    let page = page(&Summary::all(&records), &Runs::new(vec![of_ycsb]));
    let text = "An async commit is, when it returns, in the process alone: redb";
    assert_eq!(page.matches(&format!("{text} (synced with every 1,000th commit")).count(), 1, "{page}");
    assert_eq!(page.matches(&format!("<p class=\"soft\">{text}; handed to")).count(), 1, "at its row");
    assert_eq!(
        page.matches("<li>an async commit is, when it returns: handed to").count(),
        1,
        "with the options"
    );
}

#[test]
fn syncs_that_were_not_counted_are_shown_at_their_row() {
    let page_of = |syncs_per_commit, commits| {
        let of_row = record("esker", "individual writes", 1, Some(1.0));
        let records = [Record { counts: Counts { syncs_per_commit, commits, ..counts() }, ..of_row }];
        page(&Summary::all(&records), &runs(Vec::new()))
    };
    assert!(page_of(None, 1000).contains("syncs/commit not traced"));
    assert!(page_of(Some(1.0), 1000).contains("syncs/commit 1.00"));
    assert!(!page_of(None, 0).contains("syncs/commit"), "the row does not commit");
}

#[test]
fn a_line_says_that_it_was_measured_apart() {
    let syncs = record("machine", "fdatasync, append 4 KiB, preallocated file", 1, Some(1e-3));
    let of_row = record("esker", "individual writes", 1, Some(2.0));
    let records = [
        Record { suite: "limits".to_owned(), ..syncs },
        Record { counts: Counts { commits: 1000, user_written_bytes: 1 << 20, ..counts() }, ..of_row },
    ];
    let page = page(&Summary::all(&records), &runs(Vec::new()));
    assert!(page.contains("suite limits: median fdatasync, 1.00 s"), "{page}");
    assert!(page.contains(&escape(limits::without("redb"))), "{page}");
}

#[test]
fn the_page_says_what_suites_and_rows_do() {
    let page = example();
    let redb = suites::find("redb").unwrap();
    assert_eq!(page.matches(&escape(redb.summary)).count(), 1, "under its heading");
    let work = |name: &str| {
        let rows = redb.rows(Scale::Test).into_iter();
        rows.filter(|row| row.name == name).map(|row| escape(&row.work)).next().unwrap()
    };
    for name in ["bulk load", "batch writes", "len()"] {
        let text = format!("<b>{name}</b> <span class=\"soft\">{}</span>", work(name));
        assert_eq!(page.matches(&text).count(), 1, "{text}");
    }
    assert!(!work("len()").is_empty() && page.contains("<b>H rand</b> <span class=\"soft\"></span>"));
    assert_eq!(page.matches("<details class=\"row\"").count(), 4);
    let shut = page.split("<details").skip(1).all(|rest| !rest.split('>').next().unwrap().contains("open"));
    assert!(shut, "rows open on demand");
}

#[test]
fn failed_rows_have_no_curves_and_curves_say_their_run() {
    let rows = |error: Option<&str>| {
        let mut records = Vec::new();
        for (engine, run) in [("esker", 1), ("lmdb", 1), ("esker", 2), ("lmdb", 2)] {
            records.push(record_over_time(engine, "H rand", run));
        }
        records[1].error = error.map(str::to_owned);
        page(&Summary::all(&records), &runs(Vec::new()))
    };
    let whole = rows(None);
    assert!(whole.contains("data-lines=\"2\"") && whole.contains("lmdb, run 2</b>"), "{whole}");
    let failed = rows(Some("wrong answer"));
    assert!(failed.contains("data-lines=\"1\"") && !failed.contains("data-lines=\"2\""));
    assert!(!failed.contains("lmdb, run"), "a failed row has no curve in any run");
    assert!(!example().contains(", run 1</b>"), "of a single run there is nothing to tell apart");
}

#[test]
fn sets_of_options_say_which_suites_they_were_for() {
    let options = vec![["cache", "2 GiB", "", ""].map(str::to_owned)];
    let suites = vec!["large".to_owned()];
    let other = EngineContext { suites, options, ..engine("esker", Isolation::Snapshot) };
    let one = example_of(vec![engine("esker", Isolation::Snapshot)]);
    let two = example_of(vec![engine("esker", Isolation::Snapshot), other]);
    assert!(!one.contains("suites redb"));
    assert!(two.contains("suites redb") && two.contains("suites large"));
}

#[test]
fn a_page_has_every_row_and_shows_failures() {
    let page = example();
    assert_eq!(page.matches("<figure data-bars").count(), 4);
    assert_eq!(page.matches("<rect class").count(), 7);
    assert!(page.contains("<b>500 ms</b>") && page.contains("50.0 ms/op"));
    assert!(page.contains("it broke &lt;here&gt;") && !page.contains("<here>"));
    assert!(page.contains("2 lost, 1 won, 1 too close to call"), "a row without a value is lost too");
    assert!(page.contains("Runs: redb 1. "), "the number of runs is shown");
    let end = page.split("<h2 id=\"options\">").nth(1).unwrap();
    assert!(end.contains("not known of redb") && !end.contains("took turns."), "no record has its time");
    assert!(page.contains("no totals of esker: they lack rows that others have"));
    let (lost, won) = (page.find(">batch writes<").unwrap(), page.find(">bulk load<").unwrap());
    assert!(lost < won);
    for outside in ["src=", "@import", "url("] {
        assert!(!page.contains(outside), "the page loads nothing: {outside}");
    }
    for link in page.split("href=").skip(1) {
        let place = link.strip_prefix("\"#").and_then(|link| link.split('"').next());
        let place = place.unwrap_or_else(|| panic!("a link out of the page: {}", &link[..20]));
        assert_eq!(page.matches(&format!("id=\"{place}\"")).count(), 1, "{place}");
    }
}

fn has_width(rect: &&str) -> bool {
    let width = rect.split("width=\"").nth(1).and_then(|rest| rest.split('"').next()?.parse().ok());
    width.is_some_and(|width: f64| width > 0.0)
}

/// Returns the charts that lack a part of their data: figures whose marks do not match their contents. Needs
/// no browser.
fn broken(page: &str) -> Vec<String> {
    let figures = page.split("<figure").skip(1).map(|rest| rest.split("</figure>").next().unwrap_or(rest));
    figures
        .filter_map(|figure| {
            let wanted =
                |mark: &str| -> Option<usize> { figure.split(mark).nth(1)?.split('"').next()?.parse().ok() };
            if let Some(parts) = wanted("data-parts=\"") {
                let got = figure.matches("<i class=").count();
                return (parts != got).then(|| format!("{got} of {parts}"));
            }
            let (wanted, got) = match (wanted("data-bars=\""), wanted("data-lines=\"")) {
                (Some(bars), _) => (bars, figure.split("<rect class=").skip(1).filter(has_width).count()),
                (_, Some(lines)) => {
                    let steps = |rest: &&str| rest.split('>').next().is_some_and(|line| line.contains('l'));
                    (lines, figure.split("<path class=\"line ").skip(1).filter(steps).count())
                }
                _ => return Some("a figure without a mark".to_owned()),
            };
            (wanted != got).then(|| format!("{got} of {wanted}"))
        })
        .collect()
}

#[test]
fn each_chart_has_its_data() {
    assert_eq!(broken(&example()), Vec::<String>::new());
    assert!(example().matches("data-lines=\"2\"").count() >= 3);
    let page = example();
    let line = &page[page.find("<path class=\"line k\"").unwrap()..];
    let without_line = page.replacen(line.split_inclusive('>').next().unwrap(), "", 1);
    assert_eq!(broken(&without_line).len(), 1, "a chart that lost a line is found");
}

/// Widths of the page in pixels: all engines fit, or only Esker and the best other one.
const WIDE: u32 = 1300;
const NARROW: u32 = 420;

fn browser() -> Option<PathBuf> {
    if let Some(browser) = std::env::var_os("ESKER_BROWSER") {
        return Some(browser.into());
    }
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
    std::env::split_paths(&path).flat_map(|dir| names.map(|name| dir.join(name))).find(|file| file.is_file())
}

fn opened(browser: &Path, page: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.html");
    std::fs::write(&file, page).unwrap();
    let mut command = Command::new(browser);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
        .arg(format!("file://{}", file.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let started = {
        let _shut = gate::no_database_is_open();
        command.spawn()
    };
    let output = started.unwrap().wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The engines of a page of results, with RocksDB even if it is not built in.
fn all_engines() -> Vec<EngineContext> {
    let mut all: Vec<_> =
        crate::engines::shown().map(|known| engine(known.name(), known.isolation())).collect();
    if crate::engines::find("rocksdb").is_none() {
        all.push(engine("rocksdb", Isolation::Snapshot));
    }
    all
}

/// Rows of several suites with every engine; the first row of each has charts over time.
fn whole_page() -> String {
    let mut records = Vec::new();
    for suite in ["redb", "sizes", "storage-bench"].map(|name| suites::find(name).unwrap()) {
        for (at, row) in suite.rows(Scale::Seed).iter().enumerate() {
            for (n, engine) in all_engines().iter().enumerate() {
                let value = Some(123.4 / (n as f64 + 0.5));
                let of_row = match at {
                    0 => record_over_time(&engine.name, &row.name, 1),
                    _ => record(&engine.name, &row.name, 1, value),
                };
                records.push(Record { suite: suite.name.to_owned(), unit: row.unit, value, ..of_row });
            }
        }
    }
    page(&Summary::all(&records), &runs(all_engines()))
}

/// Returns the width of the window and the faults of its layout, which a script of this test finds. The
/// script expects this number of cells in each line of a table.
fn layout(browser: &Path, page: &str, width: u32, cells: usize) -> String {
    const SCRIPT: &str = "<script>(function(){var root=document.documentElement,wrong=[],right=root.clientWidth;
var head=document.querySelector('.heat th.home').getBoundingClientRect();
if(head.right>right||innerWidth>=1300&&head.bottom>innerHeight)wrong.push('Esker is not on the first screen');
document.querySelectorAll('table.engines tr').forEach(function(row){
var seen=[].filter.call(row.cells,function(cell){var at=cell.getBoundingClientRect();return at.width>0&&at.right<=right});
if(seen.length!==+root.dataset.cells||!seen.some(function(cell){return cell.matches('.home')}))wrong.push(seen.length+' cells: '+row.textContent)});
document.querySelectorAll('details').forEach(function(details){details.open=true});
if(root.scrollWidth>right)wrong.push('the page scrolls');
parent.document.documentElement.dataset.layout=innerWidth+': '+wrong.slice(0,3).join('; ')})()</script></body>";
    let marked = page.replacen("<html ", &format!("<html data-cells=\"{cells}\" "), 1);
    // A window cannot be this narrow, but a frame can.
    let framed = escape(&marked.replacen("</body>", SCRIPT, 1));
    let frame = format!(
        "<!doctype html><iframe width={width} height=1000 style=\"border:0\" srcdoc=\"{framed}\"></iframe>"
    );
    let dom = opened(browser, &frame);
    let text = dom.split("data-layout=\"").nth(1).and_then(|rest| rest.split('"').next());
    text.unwrap_or("no answer").to_owned()
}

#[test]
fn esker_is_seen_first_at_any_width() {
    let Some(browser) = browser() else {
        println!("no browser in ESKER_BROWSER or PATH: the layout was not looked at");
        return;
    };
    let page = whole_page();
    // Wide: suite and row, or row and ratio. Narrow: row, Esker, the best other engine, ratio.
    assert_eq!(layout(&browser, &page, WIDE, all_engines().len() + 2), format!("{WIDE}: "));
    assert_eq!(layout(&browser, &page, NARROW, 4), format!("{NARROW}: "));
    let never_narrow = page.replace("@media(max-width:", "@media(max-width:0px) and (min-width:");
    assert!(layout(&browser, &never_narrow, NARROW, 4).contains(" cells: "), "what does not fit is found");
    let long_word =
        page.replacen("<p>", &format!("<p style=\"overflow-wrap:normal\">{}", "x".repeat(400)), 1);
    assert!(layout(&browser, &long_word, NARROW, 4).contains("the page scrolls"));
}
