//! Draws the HTML report: one page that loads nothing, for light and dark, wide and narrow screens.
//!
//! ```text
//! Summaries + Runs -> where Esker stands -> heat map of all rows
//!                  -> for each suite: table, and for each row: work, bars, lines over time, figures
//!                  -> machines, runs, commands, options
//! ```
//!
//! - Each chart states its number of bars or lines, which tests compare with what is drawn.
//! - All links lead to places in the page.
//! - The page never scrolls sideways. Its tables show every engine at 1,300 pixels, and Esker and the best
//!   other engine at 420.

use std::collections::BTreeMap;

use crate::context::EngineContext;
use crate::published;
use crate::report::async_commits::AsyncRows;
use crate::report::limits::Limits;
use crate::report::markup::{escape, place, push};
use crate::report::runs::Runs;
use crate::report::style::Looks;
use crate::report::summary::Summary;
use crate::report::units::date;
use crate::report::{bars, classes, columns, details, heat, limits, lines, standing, table, turns};
use crate::suites;

const STYLE: &str = "
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#5c6370;--line:#d8dde3;--page:#fff;--home:#0b7285;--peer:#adb5bd;--good:#2b8a3e;--bad:#c92a2a;--on:#fff;--behind:#b35900;
--h0:#2f9e4466;--h1:#74b81655;--h2:#f0c04055;--h3:#f59f0055;--h4:#f7670055;--h5:#f03e3e66;--h6:#c92a2a88}
@media(prefers-color-scheme:dark){:root{--ink:#e6e6e6;--soft:#9aa5b1;--line:#333a42;--page:#14171a;--home:#3bc9db;--peer:#5c666f;--good:#69db7c;--bad:#ff8787;--on:#14171a;--behind:#ffa94d}}
*{box-sizing:border-box}body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:82rem;margin:1rem auto;padding:0 1rem;overflow-wrap:break-word}
p,ul,.standing{max-width:60rem}table{border-collapse:collapse}.wide{overflow-x:auto}th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap;font-variant-numeric:tabular-nums}
th:first-child,td:first-child,td.key:nth-child(2),th.key:nth-child(2){text-align:left}td[colspan]{text-align:left}small,.soft{color:var(--soft)}.good{color:var(--good)}.bad{color:var(--bad)}
.engines{width:100%;font-size:12px;line-height:1.35}.engines th,.engines td{padding:.2rem .25rem}.engines small{font-size:11px;font-weight:normal;white-space:normal}.engines td.key{white-space:normal}
.heat tr.last-lost td{border-bottom:3px solid var(--ink)}.h0{background:var(--h0)}.h1{background:var(--h1)}.h2{background:var(--h2)}.h3{background:var(--h3)}.h4{background:var(--h4)}.h5{background:var(--h5)}.h6{background:var(--h6)}
.standing h3{display:inline;margin-right:1rem}.standing p{display:inline}.standing p b{font-weight:normal;white-space:nowrap;margin-right:1rem}.standing p b::before{content:\"\";display:inline-block;width:.8rem;height:.8rem;margin-right:.3rem;vertical-align:-.1rem;background:var(--part)}
.standing div{display:flex;line-height:1.3;margin:.15rem 0}.standing div>span:first-child{width:7.5rem}.bar{display:flex;flex:1;gap:2px}.bar i{font-style:normal;text-align:center;min-width:1.4rem;flex-basis:0;color:var(--on);background:var(--part)}
.led{--part:var(--home)}.close{--part:var(--peer)}.bar i.close{color:var(--ink)}.behind{--part:var(--behind)}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(19rem,100%),1fr));gap:1rem 2rem}.times{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(21rem,100%),1fr));gap:1rem 2rem}
figure{margin:0;min-width:0}svg{width:100%;height:auto}svg text{fill:var(--ink);font:12px system-ui,sans-serif}.time svg text{fill:var(--soft);font-size:22px}.time .y{text-anchor:end}.time .x{text-anchor:middle}figure svg text.soft{fill:var(--soft)}rect.home{fill:var(--home)}rect.peer{fill:var(--peer)}
.limit{stroke:var(--bad);stroke-width:1.5;stroke-dasharray:4 3}.grid{stroke:var(--line);stroke-width:2;fill:none}.line{fill:none;stroke-linejoin:round}figcaption b{font-weight:normal;font-size:.85rem;margin-right:.6rem;white-space:nowrap}figcaption b::before{content:\"\";display:inline-block;width:1.5rem;margin-right:.3rem;vertical-align:.25rem}
a{color:inherit}.row{border-bottom:1px solid var(--line)}.row>summary{padding:.3rem 0}.row>div{margin:.5rem 0 1rem}
h1{font-size:1.6rem;margin:.5rem 0}h3{margin:.5rem 0 0;font-size:1rem}code{overflow-wrap:anywhere}summary{cursor:pointer}details{margin:.2rem 0}";

/// Script that opens the row to which a link leads.
const SCRIPT: &str = "<script>
(function(){function show(){var d=document.getElementById(location.hash.slice(1));if(d&&d.tagName==='DETAILS'){d.open=true;d.scrollIntoView()}}
addEventListener('hashchange',show);show()})()
</script>";

/// Draws the page.
pub(crate) fn page(summaries: &[Summary], runs: &Runs) -> String {
    let suites: Vec<&str> = summaries.iter().map(|summary| summary.suite.as_str()).collect();
    let title = format!("Esker's lab: {}", suites.join(", "));
    let heading =
        if suites.len() > 3 { format!("Esker's lab: {} suites", suites.len()) } else { title.clone() };
    let looks = Looks::of(summaries);
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><style>{STYLE}\n{}{}</style></head><body><h1>{heading}</h1>",
        columns::style(columns::engines(summaries).len()),
        looks.style()
    );
    standing::draw(&mut out, summaries);
    out.push_str(
        "<p><a href=\"#options\">Machines, runs, commands and options</a> stand at the end of the page.</p>",
    );
    heat::draw(&mut out, summaries, runs);
    let limits = Limits::find(summaries, runs);
    for summary in summaries {
        suite(&mut out, summary, &limits, &looks, runs);
    }
    setting(&mut out, summaries, &limits, runs);
    out.push_str(SCRIPT);
    out.push_str("</body></html>\n");
    out
}

/// Returns the work of each row, as its suite lists it.
fn work(summary: &Summary) -> BTreeMap<String, String> {
    let rows = suites::rows_of(&summary.suite, &summary.scale);
    rows.into_iter().map(|row| (row.name, row.work)).collect()
}

/// Lists the machines, with their suites if there are several.
fn machines(runs: &Runs) -> String {
    let machines = runs.machines();
    let several = machines.len() > 1;
    let lines = machines.into_iter().map(|(machine, suites)| {
        let of = if several { format!("{}: ", suites.join(", ")) } else { String::new() };
        format!("<p>{}{}</p>", escape(&of), escape(&machine))
    });
    lines.collect()
}

/// States the number of runs of each suite, and whether its engines took turns.
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
        out += &format!(" Engines took turns, except those marked *: {}.", apart.join("; "));
    }
    if !unknown.is_empty() {
        out += &format!(" Whether they took turns is not known of {}.", unknown.join(", "));
    }
    out
}

fn suite(out: &mut String, summary: &Summary, limits: &Limits, looks: &Looks, runs: &Runs) {
    push!(
        out,
        "<h2 id=\"{0}\">Suite {0}, scale {1}</h2><p>{2}</p><p class=\"soft\">{3}. After a +: background work that \
             followed the row.</p>",
        escape(&summary.suite),
        escape(&summary.scale),
        escape(suites::find(&summary.suite).map_or("", |suite| suite.summary)),
        match summary.runs {
            1 => "One run, so no median and no spread".to_owned(),
            runs => format!("Median of {runs} runs; below it the spread"),
        }
    );
    table::draw(out, summary);
    let async_rows = AsyncRows::of(summary, runs);
    if let Some(rows) = &async_rows {
        push!(out, "<p class=\"soft\">{}</p>", escape(&rows.full()));
    }
    failures(out, summary);
    let streams = runs.streams(summary);
    if !streams.is_empty() {
        let streams = streams.iter().map(|line| escape(line)).collect::<Vec<_>>().join("<br>");
        push!(
            out,
            "<details><summary class=\"soft\">What the work is made of: generators of crates/esker-bench-api/src/generate</summary>\
                 <p class=\"soft\">{streams}</p></details>"
        );
    }
    let without = match limits::without(&summary.suite) {
        "" => String::new(),
        why => format!("<p class=\"soft\">{}.</p>", escape(why)),
    };
    push!(
        out,
        "<h3>Row by row</h3>{}<p class=\"soft\">To repeat them: <code>{}</code></p>",
        without,
        escape(&details::command(summary, runs))
    );
    let classes = classes::classes(summary, runs);
    let work = work(summary);
    for row in &summary.rows {
        push!(
            out,
            "<details class=\"row\" id=\"{}\"><summary><b>{}</b> <span class=\"soft\">{}</span></summary><div class=\"charts\">",
            place(&summary.suite, &row.name),
            escape(&row.name),
            escape(work.get(&row.name).map_or("", String::as_str))
        );
        bars::draw(out, row, summary, limits, &classes);
        out.push_str("</div>");
        if let Some(rows) = async_rows.as_ref().filter(|rows| rows.has(&row.name)) {
            push!(out, "<p class=\"soft\">{}</p>", escape(&rows.short()));
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
        push!(&mut failures, "<li>{} ({})</li>", escape(&failure), escape(&rows.join("; ")));
    }
    if !failures.is_empty() {
        push!(out, "<h3>Rows without a value</h3><ul>{failures}</ul>");
    }
    let mut elsewhere = String::new();
    for line in published::elsewhere(&summary.suite) {
        push!(&mut elsewhere, "<li>{}</li>", escape(&line));
    }
    if !elsewhere.is_empty() {
        push!(out, "<h3>Published elsewhere, on other machines</h3><ul>{elsewhere}</ul>");
    }
}

/// Draws the end of the page: machines, runs, how to read a row, commands, and the options of each engine.
fn setting(out: &mut String, summaries: &[Summary], limits: &Limits, runs: &Runs) {
    push!(
        out,
        "<h2 id=\"options\">Machines, runs, commands and options</h2><h3>Machines</h3>{}<h3>Runs</h3><p>{} Each engine of each run has a process \
             and a directory of its own.</p>",
        machines(runs),
        escape(&how_often(summaries))
    );
    for summary in summaries {
        let lines = runs.lines(summary).iter().map(|line| escape(line)).collect::<Vec<_>>().join("<br>");
        push!(out, "<p class=\"soft\">Suite {}<br>{lines}</p>", escape(&summary.suite));
    }
    out.push_str(
        "<h3>Reading a row</h3><p>In a bar chart the thin line spans all runs. A dashed line is what suite limits measured without an engine on this machine, in \
         a process of its own at another time, so a row may lie a little beyond it. Engines stand under what their transactions guarantee. Each figure is the median \
         of the runs that have it. Resident memory counts the file pages that a process has mapped. That is page cache, which other engines use without \
         its being counted, so anonymous memory is the figure that ranks.</p>",
    );
    if !limits.are_known() {
        out.push_str(
            "<p>The suite <code>limits</code> is not among these results: no chart shows what the machine does without an engine.</p>",
        );
    }
    out.push_str("<h3>Commands</h3>");
    for context in runs.all() {
        for call in context.calls() {
            let (date, commit) = (date(call.started_unix_s), escape(&context.commit));
            let command = escape(&call.command);
            push!(out, "<p>{date}, commit {commit}<br><code>{command}</code></p>");
        }
    }
    let engines = runs.engines();
    engines.iter().for_each(|engine| options(out, engine, &engines));
}

/// Lists the options of an engine.
fn options(out: &mut String, engine: &EngineContext, engines: &[EngineContext]) {
    push!(
        out,
        "<h3>{} {}</h3><p class=\"soft\">{}{}</p><ul>",
        escape(&engine.name),
        escape(&engine.version),
        escape(&engine.isolation),
        escape(&of_suites(engine, engines))
    );
    let in_brackets = |pointer: &str| match pointer {
        "" => String::new(),
        pointer => format!(" [{}]", escape(pointer)),
    };
    let mut item = |option: &str, value: &str, reason: &str, pointer: &str| {
        let (option, value, reason) = (escape(option), escape(value), escape(reason));
        let pointer = in_brackets(pointer);
        push!(out, "<li>{option}: {value} <span class=\"soft\">- {reason}{pointer}</span></li>");
    };
    if let Some(said) = &engine.async_commits {
        item("an async commit is, when it returns", &said.reached, &said.then, &said.pointer);
    }
    for [option, value, reason, pointer] in &engine.options {
        item(option, value, reason, pointer);
    }
    out.push_str("</ul>");
}

/// Names the suites that ran with these options, if an engine has several sets of them.
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
