//! The report to open: one page with nothing outside it, for light and dark screens, wide and narrow.
//!
//! ```text
//! Summaries + Runs -> contents -> heat map of all rows -> for each suite: its runs, table, and for each row: work, bars, lines over time, figures -> commands, options
//! ```
//!
//! bench_html.1. Each chart says how many bars or lines it has; a script of the page counts what the browser really made of it and
//!      writes `data-charts` and `data-broken` to the root element, where a test, or anybody, can read them. What has no extent or lies
//!      outside its chart does not count. Charts of rows that are shut are looked at, too.
//! bench_html.2. Links lead to places of the page alone.

use std::collections::BTreeMap;

use clap::ValueEnum as _;

use crate::context::EngineContext;
use crate::published;
use crate::report::async_commits::AsyncRows;
use crate::report::limits::Limits;
use crate::report::markup::{escape, place, push};
use crate::report::runs::Runs;
use crate::report::style::Looks;
use crate::report::summary::{Cell, FEW_RUNS_MARGIN, RowSummary, Summary, Verdict};
use crate::report::totals::TotalLines;
use crate::report::units::{date, seconds, show};
use crate::report::{bars, classes, details, heat, limits, lines, turns};
use crate::scale::Scale;
use crate::suites::{self, Suite};
use esker_bench_api::results::Unit;

const STYLE: &str = "
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#667;--line:#d8dde3;--page:#fff;--home:#0b7285;--peer:#adb5bd;--good:#2b8a3e;--bad:#c92a2a;
--h0:#2f9e4466;--h1:#74b81655;--h2:#f0c04055;--h3:#f59f0055;--h4:#f7670055;--h5:#f03e3e66;--h6:#c92a2a88}
@media(prefers-color-scheme:dark){:root{--ink:#e6e6e6;--soft:#9aa;--line:#333a42;--page:#14171a;--home:#3bc9db;--peer:#5c666f;--good:#69db7c;--bad:#ff8787}}
*{box-sizing:border-box}body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:72rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse}.wide{overflow-x:auto}th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap;font-variant-numeric:tabular-nums}
th:first-child,td:first-child,.heat td:nth-child(2),.heat th:nth-child(2){text-align:left}td[colspan]{text-align:left}small,.soft{color:var(--soft)}.good{color:var(--good)}.bad{color:var(--bad)}
.heat tr.last-lost td{border-bottom:3px solid var(--ink)}.h0{background:var(--h0)}.h1{background:var(--h1)}.h2{background:var(--h2)}.h3{background:var(--h3)}.h4{background:var(--h4)}.h5{background:var(--h5)}.h6{background:var(--h6)}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(19rem,100%),1fr));gap:1rem 2rem}.times{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(21rem,100%),1fr));gap:1rem 2rem}
figure{margin:0;min-width:0}svg{width:100%;height:auto}svg text{fill:var(--ink);font:12px system-ui,sans-serif}.time svg text{fill:var(--soft);font-size:22px}.time .y{text-anchor:end}.time .x{text-anchor:middle}figure svg text.soft{fill:var(--soft)}.home{fill:var(--home)}.peer{fill:var(--peer)}
.limit{stroke:var(--bad);stroke-width:1.5;stroke-dasharray:4 3}.grid{stroke:var(--line);stroke-width:2;fill:none}.line{fill:none;stroke-linejoin:round}figcaption b{font-weight:normal;font-size:.85rem;margin-right:.6rem;white-space:nowrap}figcaption b::before{content:\"\";display:inline-block;width:1.5rem;margin-right:.3rem;vertical-align:.25rem}
a{color:inherit}.row{border-bottom:1px solid var(--line)}.row>summary{padding:.3rem 0}.row>div{margin:.5rem 0 1rem}nav ul{padding-left:1.2rem}
@media(max-width:40rem){th,td{padding:.2rem .3rem}.heat td:nth-child(2){white-space:normal}}h3{margin:.5rem 0 0;font-size:1rem}code{overflow-wrap:anywhere}summary{cursor:pointer}details{margin:.2rem 0}#notice{color:var(--bad)}";

/// bench_html.1.
const CHECK: &str = "<p id=\"notice\"></p><script>
(function(){var charts=0,broken=[];
function shows(e,frame){var b=e.getBBox();if(![b.x,b.y,b.width,b.height].every(isFinite))return false;
var extent=e.tagName==='rect'?b.width>0&&b.height>0:b.width+b.height>0;
return extent&&b.x>=frame.x-1&&b.y>=frame.y-1&&b.x+b.width<=frame.x+frame.width+1&&b.y+b.height<=frame.y+frame.height+1}
function has(figure,wanted,selector){charts++;var n=0,frame=figure.querySelector('svg').viewBox.baseVal;
figure.querySelectorAll(selector).forEach(function(e){if(shows(e,frame))n++});
if(n!==wanted||figure.querySelector('svg').getBoundingClientRect().width<=0)broken.push(figure.querySelector('h3').textContent+': '+n+' of '+wanted)}
var shut=[].slice.call(document.querySelectorAll('details:not([open])'));shut.forEach(function(d){d.open=true});
document.querySelectorAll('figure[data-bars]').forEach(function(f){has(f,+f.dataset.bars,'rect.home,rect.peer')});
document.querySelectorAll('figure[data-lines]').forEach(function(f){has(f,+f.dataset.lines,'path.line')});
document.querySelectorAll('table[data-heat-rows]').forEach(function(t){if(t.tBodies[0].rows.length!==+t.dataset.heatRows)broken.push('heat map')});
shut.forEach(function(d){d.open=false});
document.documentElement.dataset.charts=charts;document.documentElement.dataset.broken=broken.join('; ');
if(broken.length)document.getElementById('notice').textContent='Charts without their data: '+broken.join('; ');
function show(){var d=document.getElementById(location.hash.slice(1));if(d&&d.tagName==='DETAILS'){d.open=true;d.scrollIntoView()}}
addEventListener('hashchange',show);show()})()
</script>";

/// Draws the page.
pub(crate) fn page(summaries: &[Summary], runs: &Runs) -> String {
    let suites: Vec<&str> = summaries.iter().map(|summary| summary.suite.as_str()).collect();
    let title = format!("Esker's lab: {}", suites.join(", "));
    let looks = Looks::of(summaries);
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><style>{STYLE}\n{}</style></head><body>\
         <h1>{title}</h1>{}<p class=\"soft\">Fresh processes and directories; answers were verified. What an engine cannot do says \
         why. Commit, date, time limit and how memory was limited stand under each suite's heading.</p><p class=\"soft\">{}</p>",
        looks.style(),
        machines(runs),
        escape(&how_often(summaries))
    );
    contents(&mut out, summaries);
    heat::draw(&mut out, summaries, runs);
    let limits = Limits::find(summaries, runs);
    if !limits.are_known() {
        out.push_str(
            "<p class=\"soft\">The suite <code>limits</code> is not among these results: no chart shows what the machine does without an engine.</p>",
        );
    }
    for summary in summaries {
        suite(&mut out, summary, &limits, &looks, runs);
    }
    setting(&mut out, runs);
    out.push_str(CHECK);
    out.push_str("</body></html>\n");
    out
}

/// bench_html.2: where the parts of the page are.
fn contents(out: &mut String, summaries: &[Summary]) {
    out.push_str("<nav><p>On this page:</p><ul><li><a href=\"#all-rows\">All rows, those that Esker loses first</a></li>");
    for summary in summaries {
        let about = suites::find(&summary.suite).map_or("", Suite::summary);
        let name = escape(&summary.suite);
        push(out, format_args!("<li><a href=\"#{name}\">{name}</a>: {}</li>", escape(about)));
    }
    out.push_str("<li><a href=\"#options\">Commands, and the options of each engine</a></li></ul></nav>");
}

/// The work of each row, as its suite lists it.
fn work(summary: &Summary) -> BTreeMap<String, String> {
    let known = suites::find(&summary.suite).zip(Scale::from_str(&summary.scale, false).ok());
    let rows = known.map(|(suite, scale)| suite.rows(scale)).unwrap_or_default();
    rows.into_iter().map(|row| (row.name, row.work)).collect()
}

/// Each machine, with its suites where there are several.
fn machines(runs: &Runs) -> String {
    let machines = runs.machines();
    let several = machines.len() > 1;
    let told = machines.into_iter().map(|(machine, suites)| {
        let of = if several { format!("{}: ", suites.join(", ")) } else { String::new() };
        format!("<p>{}{}</p>", escape(&of), escape(&machine))
    });
    told.collect()
}

/// How many runs there are of each suite, and whether its engines took turns.
fn how_often(summaries: &[Summary]) -> String {
    let runs: Vec<String> =
        summaries.iter().map(|summary| format!("{} {}", summary.suite, summary.runs)).collect();
    let apart: Vec<String> = summaries.iter().filter_map(turns::apart_text).collect();
    let unknown: Vec<&str> =
        summaries.iter().filter(|summary| !summary.has_times).map(|summary| summary.suite.as_str()).collect();
    let runs = runs.join(", ");
    let mut out = format!("Runs: {runs}. Values are medians over the runs; a single run is none.");
    if apart.is_empty() && unknown.is_empty() {
        out += " Engines took turns.";
    }
    if !apart.is_empty() {
        out += &format!(" Engines took turns but for those marked *: {}.", apart.join("; "));
    }
    if !unknown.is_empty() {
        out += &format!(" Whether they took turns is not known of {}.", unknown.join(", "));
    }
    out
}

fn suite(out: &mut String, summary: &Summary, limits: &Limits, looks: &Looks, runs: &Runs) {
    push(
        out,
        format_args!(
            "<h2 id=\"{0}\">Suite {0}, scale {1}</h2><p>{5}</p><p class=\"soft\">{2}; below it the time of one operation and the spread. \
             The last column is Esker's value over that of the best other engine; it has no colour where they differ by no more than the spread, \
             or, with fewer than three runs, by no more than a factor of {3}.</p><p class=\"soft\">{4}</p>",
            escape(&summary.suite),
            escape(&summary.scale),
            match summary.runs {
                1 => "One run, so no median and no spread".to_owned(),
                runs => format!("Median of {runs} runs"),
            },
            1.0 + FEW_RUNS_MARGIN,
            runs.lines(summary).iter().map(|line| escape(line)).collect::<Vec<_>>().join("<br>"),
            escape(suites::find(&summary.suite).map_or("", Suite::summary))
        ),
    );
    table(out, summary);
    let async_rows = AsyncRows::of(summary, runs);
    if let Some(rows) = &async_rows {
        push(out, format_args!("<p class=\"soft\">{}</p>", escape(&rows.full())));
    }
    failures(out, summary);
    let streams = runs.streams(summary);
    if !streams.is_empty() {
        let streams = streams.iter().map(|line| escape(line)).collect::<Vec<_>>().join("<br>");
        push(
            out,
            format_args!(
                "<details><summary class=\"soft\">What the work is made of: generators of crates/esker-bench-api/src/generate</summary>\
                 <p class=\"soft\">{streams}</p></details>"
            ),
        );
    }
    let without = match limits::without(&summary.suite) {
        "" => String::new(),
        why => format!("<p class=\"soft\">{}.</p>", escape(why)),
    };
    push(
        out,
        format_args!(
            "<h3>Row by row</h3>{}<p class=\"soft\">The thin line spans all runs; a dashed line is what suite limits measured \
             without an engine on this machine, in a process of its own at another time, so a row may lie a little beyond it. Engines stand under \
             what their transactions guarantee. Figures behind a row are medians of the runs that have them, each by itself. Resident memory counts the \
             file pages that a process has mapped: of engines that map their files it has what is page cache, and counts for nobody, with others. Anonymous \
             memory is the figure that ranks.</p><p class=\"soft\">To repeat them: <code>{}</code></p>",
            without,
            escape(&details::command(summary, runs))
        ),
    );
    let classes = classes::classes(summary, runs);
    let work = work(summary);
    for row in &summary.rows {
        push(
            out,
            format_args!(
                "<details class=\"row\" id=\"{}\"><summary><b>{}</b> <span class=\"soft\">{}</span></summary><div class=\"charts\">",
                place(&summary.suite, &row.name),
                escape(&row.name),
                escape(work.get(&row.name).map_or("", String::as_str))
            ),
        );
        bars::draw(out, row, summary, limits, &classes);
        out.push_str("</div>");
        if let Some(rows) = async_rows.as_ref().filter(|rows| rows.has(&row.name)) {
            push(out, format_args!("<p class=\"soft\">{}</p>", escape(&rows.short())));
        }
        out.push_str("<div class=\"times\">");
        lines::draw(out, row, summary, looks, &classes);
        out.push_str("</div>");
        details::draw(out, row, summary);
        out.push_str("</details>");
    }
}

fn failures(out: &mut String, summary: &Summary) {
    let mut failures = String::new();
    for (failure, rows) in summary.failures() {
        push(&mut failures, format_args!("<li>{} ({})</li>", escape(&failure), escape(&rows.join(", "))));
    }
    if !failures.is_empty() {
        push(out, format_args!("<h3>Rows without a value</h3><ul>{failures}</ul>"));
    }
    let mut elsewhere = String::new();
    for line in published::elsewhere(&summary.suite) {
        push(&mut elsewhere, format_args!("<li>{}</li>", escape(&line)));
    }
    if !elsewhere.is_empty() {
        push(out, format_args!("<h3>Published elsewhere, on other machines</h3><ul>{elsewhere}</ul>"));
    }
}

fn table(out: &mut String, summary: &Summary) {
    out.push_str("<div class=\"wide\"><table><thead><tr><th>row</th>");
    for (name, version) in &summary.engines {
        push(out, format_args!("<th>{}<br><small>{}</small></th>", escape(name), escape(version)));
    }
    out.push_str("<th>esker / best peer</th></tr></thead><tbody>");
    for row in &summary.rows {
        push(out, format_args!("<tr><td>{}</td>", escape(&row.name)));
        for (i, cell) in row.cells.iter().enumerate() {
            out.push_str(&table_cell(row, cell, row.best == Some(i), summary.is_apart(row, i)));
        }
        let class = match row.verdict {
            Verdict::Won => "good",
            Verdict::Lost => "bad",
            Verdict::Neither | Verdict::Unknown => "soft",
        };
        let ratio = row.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        push(out, format_args!("<td class=\"{class}\">{ratio}</td></tr>"));
    }
    let totals = TotalLines::of(summary);
    for (name, texts) in totals.lines {
        let texts: String = texts.iter().map(|text| format!("<td>{text}</td>")).collect();
        push(out, format_args!("<tr class=\"soft\"><td>{name}</td>{texts}<td></td></tr>"));
    }
    out.push_str("</tbody></table></div>");
    for note in totals.notes {
        push(out, format_args!("<p class=\"soft\">{}</p>", escape(&note)));
    }
}

fn table_cell(row: &RowSummary, cell: &Cell, is_best: bool, is_apart: bool) -> String {
    let Some(value) = cell.value() else {
        let Cell::Error(error) = cell else { return String::new() };
        return format!("<td class=\"bad\" title=\"{}\">no value</td>", escape(error));
    };
    let text = show(value.median, row.unit);
    let text = if is_best { format!("<b>{text}</b>") } else { text };
    let mark = if is_apart { "*" } else { "" };
    let mut details = Vec::new();
    if row.unit == Unit::Seconds && row.ops > 1 {
        details.push(format!("{}/op", seconds(value.median / row.ops as f64)));
    }
    details.push(value.spread_text());
    if let Some(drain) = value.drain() {
        details.push(format!("+ {} of drain", seconds(drain)));
    }
    if let Some(syncs) = value.syncs_text() {
        details.push(format!("syncs/commit {syncs}"));
    }
    format!("<td>{text}{mark}<br><small>{}</small></td>", details.join(", "))
}

fn setting(out: &mut String, runs: &Runs) {
    out.push_str("<h2 id=\"options\">Commands and options</h2>");
    for context in runs.all() {
        for call in context.calls() {
            push(
                out,
                format_args!(
                    "<p>{}, commit {}<br><code>{}</code></p>",
                    date(call.started_unix_s),
                    escape(&context.commit),
                    escape(&call.command)
                ),
            );
        }
    }
    let engines = runs.engines();
    for engine in &engines {
        push(
            out,
            format_args!(
                "<h3>{} {}</h3><p class=\"soft\">{}{}</p><ul>",
                escape(&engine.name),
                escape(&engine.version),
                escape(&engine.isolation),
                escape(&of_suites(engine, &engines))
            ),
        );
        let in_brackets = |pointer: &str| match pointer {
            "" => String::new(),
            pointer => format!(" [{}]", escape(pointer)),
        };
        if let Some(said) = &engine.async_commits {
            push(
                out,
                format_args!(
                    "<li>an async commit is, when it returns: {} <span class=\"soft\">- {}{}</span></li>",
                    escape(&said.reached),
                    escape(&said.then),
                    in_brackets(&said.pointer)
                ),
            );
        }
        for [option, value, reason, pointer] in &engine.options {
            let pointer = in_brackets(pointer);
            push(
                out,
                format_args!(
                    "<li>{}: {} <span class=\"soft\">- {}{pointer}</span></li>",
                    escape(option),
                    escape(value),
                    escape(reason)
                ),
            );
        }
        out.push_str("</ul>");
    }
}

/// Which suites ran with these options, where an engine has several sets of them.
fn of_suites(engine: &EngineContext, engines: &[EngineContext]) -> String {
    let sets = engines.iter().filter(|other| other.name == engine.name).count();
    match engine.suites.join(", ") {
        _ if sets == 1 => String::new(),
        suites if suites.is_empty() => "; no suite of these results".to_owned(),
        suites => format!("; suites {suites}"),
    }
}

#[cfg(test)]
mod tests;
