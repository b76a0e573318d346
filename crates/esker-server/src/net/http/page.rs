//! The status page: statistics and small charts in one document without scripts.

use std::fmt::Write;
use std::sync::Arc;

use esker::FigureValue;

use crate::observe::rates::{Rate, WINDOWS};
use crate::run::server::Server;

const POINTS: usize = 90;
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 60.0;

const STYLE: &str = "
:root { color-scheme: light dark; --line: #2563eb; --well: #15803d; --ill: #dc2626; --soft: #8885; }
@media (prefers-color-scheme: dark) { :root { --line: #60a5fa; --well: #4ade80; --ill: #f87171; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 1.5rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; } p { overflow-wrap: anywhere; }
.well { color: var(--well); } .ill { color: var(--ill); font-weight: 600; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(20rem, 100%), 1fr)); gap: 1rem; }
figure { margin: 0; border: 1px solid var(--soft); border-radius: .4rem; padding: .6rem .8rem; }
figcaption { display: flex; justify-content: space-between; } figcaption b { font-variant-numeric: tabular-nums; }
svg { width: 100%; height: 60px; display: block; } polyline { fill: none; stroke: var(--line); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
small { opacity: .7; } table { border-collapse: collapse; width: 100%; max-width: 48rem; }
th, td { text-align: right; padding: .15rem .6rem; border-bottom: 1px solid var(--soft); font-variant-numeric: tabular-nums; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
@media (max-width: 40rem) { table { font-size: .8rem; } th, td { padding: .15rem 0 .15rem .4rem; } }
";

/// Renders the current page. The browser reloads it every five seconds.
pub fn page(server: &Arc<Server>) -> String {
    let mut html =
        String::from("<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=5>");
    let _ = write!(
        html,
        "<meta name=viewport content='width=device-width'><title>Esker</title><style>{STYLE}</style><h1>Esker</h1><p>"
    );
    match server.health_problem() {
        None => html.push_str("<span class=well>All is well.</span>"),
        Some(trouble) => {
            let _ = write!(html, "<span class=ill>{}</span>", escaped(&trouble));
        }
    }
    let _ = write!(
        html,
        " Version {}, up {}, {} connections, {} of memory, directory {}.</p>",
        env!("CARGO_PKG_VERSION"),
        span(server.life.started.elapsed().as_secs()),
        server.clients.len(),
        bytes(crate::observe::process::memory() as f64),
        escaped(&server.options.dir.display().to_string()),
    );
    html.push_str("<div class=charts>");
    for (title, rate) in [
        ("Commands", Rate::Commands),
        ("Commits", Rate::Commits),
        ("Changes of keys", Rate::Changes),
        ("Received", Rate::BytesIn),
        ("Sent", Rate::BytesOut),
        ("Errors", Rate::Errors),
    ] {
        chart(server, &mut html, title, rate);
    }
    html.push_str("</div>");
    averages(server, &mut html);
    commands(server, &mut html);
    databases(server, &mut html);
    engine(server, &mut html);
    html
}

fn is_bytes(rate: Rate) -> bool {
    matches!(rate, Rate::BytesIn | Rate::BytesOut)
}

fn shown(rate: Rate, value: f64) -> String {
    if is_bytes(rate) { bytes(value) } else { short(value) }
}

fn chart(server: &Server, html: &mut String, title: &str, rate: Rate) {
    let series = server.observed.rates.series(rate, POINTS);
    let max = series.iter().copied().fold(0.0, f64::max);
    let now = server.observed.rates.average(rate, 1);
    let past = span(server.observed.rates.seconds());
    let _ = write!(
        html,
        "<figure><figcaption>{title}<b>{}/s</b></figcaption><svg viewBox='0 0 {WIDTH} {HEIGHT}' preserveAspectRatio=none \
         role=img aria-label='{title} in the last {past}'><polyline points='",
        shown(rate, now)
    );
    for (at, value) in series.iter().enumerate() {
        let x = WIDTH * at as f64 / (series.len().max(2) - 1) as f64;
        let y = HEIGHT - 2.0 - (HEIGHT - 4.0) * value / max.max(f64::MIN_POSITIVE);
        let _ = write!(html, "{x:.1},{y:.1} ");
    }
    let _ = write!(html, "'/></svg><small>last {past}, at most {}/s</small></figure>", shown(rate, max));
}

fn averages(server: &Server, html: &mut String) {
    html.push_str("<h2>Averages in a second</h2><table><tr><th>over</th>");
    for window in WINDOWS {
        let _ = write!(html, "<th>{}</th>", span(window));
    }
    html.push_str("</tr>");
    for rate in Rate::ALL {
        let _ = write!(html, "<tr><td>{}</td>", rate.name().replace('_', " "));
        for window in WINDOWS {
            let _ = write!(html, "<td>{}</td>", shown(rate, server.observed.rates.average(rate, window)));
        }
        html.push_str("</tr>");
    }
    html.push_str("</table>");
}

fn commands(server: &Server, html: &mut String) {
    let mut called: Vec<_> = server.commands.stats().filter(|(_, stats)| stats.calls.get() > 0).collect();
    called.sort_by_key(|(_, stats)| std::cmp::Reverse(stats.calls.get()));
    html.push_str("<h2>Commands</h2><table><tr><th>command</th><th>calls</th><th>failed</th><th>p50</th><th>p99</th><th>p99.9</th></tr>");
    for (name, stats) in called.iter().take(20) {
        let _ = write!(
            html,
            "<tr><td>{name}</td><td>{}</td><td>{}</td>",
            short(stats.calls.get() as f64),
            stats.failed.get()
        );
        for percent in [50.0, 99.0, 99.9] {
            let micros = stats.latency.percentile(percent);
            let _ = write!(html, "<td>{}</td>", micros.map_or("-".to_owned(), duration));
        }
        html.push_str("</tr>");
    }
    html.push_str("</table>");
}

fn databases(server: &Server, html: &mut String) {
    html.push_str("<h2>Databases</h2><table><tr><th>number</th><th>keys</th><th>that expire</th></tr>");
    for data in server.open_databases() {
        let (Ok(keys), Ok(expire)) = (server.store.len(&data.main), server.store.len(&data.ttl)) else {
            continue;
        };
        let _ = write!(html, "<tr><td>{}</td><td>{keys}</td><td>{expire}</td></tr>", data.number);
    }
    html.push_str("</table>");
}

fn engine(server: &Server, html: &mut String) {
    html.push_str("<h2>Engine</h2><table>");
    for figure in server.store.figures() {
        let value = match figure.value {
            FigureValue::Bytes(number) => bytes(number as f64),
            other => other.to_string(),
        };
        let name = figure.name.replace('_', " ");
        let _ = write!(html, "<tr><td>{}</td><td>{}</td></tr>", escaped(&name), escaped(&value));
    }
    html.push_str("</table>");
}

fn duration(micros: u64) -> String {
    match micros {
        0 => "&lt; 1 us".to_owned(),
        _ => scaled(micros as f64, 1000.0, &[" us", " ms", " s"]),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('\'', "&#39;")
        .replace('"', "&quot;")
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = 0;
    while value >= step && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let digits = usize::from(value < 100.0 && (value * 10.0).round() % 10.0 != 0.0);
    format!("{value:.digits$}{}", units[unit])
}

fn bytes(value: f64) -> String {
    scaled(value, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"])
}

fn short(value: f64) -> String {
    scaled(value, 1000.0, &["", " k", " M", " G"])
}

fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            (bytes(0.0), bytes(1024.0), bytes(1536.0), bytes(2e9)),
            ("0 B".into(), "1 KiB".into(), "1.5 KiB".into(), "1.9 GiB".into())
        );
        assert_eq!(
            (short(999.0), short(12_340.0), short(20_001.0)),
            ("999".into(), "12.3 k".into(), "20 k".into())
        );
        assert_eq!(
            (duration(0), duration(5119), duration(51_190)),
            ("&lt; 1 us".into(), "5.1 ms".into(), "51.2 ms".into())
        );
        assert_eq!((span(59), span(900), span(90_061)), ("59 s".into(), "15 min".into(), "1 d 1 h".into()));
        assert_eq!(escaped("<a href='b'>&\""), "&lt;a href=&#39;b&#39;&gt;&amp;&quot;");
    }
}
