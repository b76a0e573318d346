//! Serves the statistics of a database to Prometheus, in its text format.
//!
//! ```text
//! cargo run --release -p esker --example prometheus -- DIRECTORY [127.0.0.1:9464]
//! ```

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use esker::{Db, FigureKind, FigureValue, Stats};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("name the directory of a database")?;
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:9464".to_owned());
    let db = Db::open(directory)?;
    for stream in TcpListener::bind(address)?.incoming() {
        // A monitor that leaves early is no failure.
        let _ = answer(stream?, &text(&db.stats()));
    }
    Ok(())
}

/// All figures in the text format.
fn text(stats: &Stats) -> String {
    let mut text = String::new();
    stats.each(|figure| {
        let unit = match figure.value {
            FigureValue::Time(_) | FigureValue::Latency(_) => "_seconds",
            _ => "",
        };
        let name = format!("esker_{}{unit}", figure.name);
        let kind = match (&figure.value, figure.kind) {
            (FigureValue::Latency(_), _) => "summary",
            (_, FigureKind::Counter) => "counter",
            (_, FigureKind::Gauge) => "gauge",
        };
        let head = format!("# HELP {name} {}\n# TYPE {name} {kind}\n", figure.help);
        if let FigureValue::Latency(latency) = &figure.value {
            text += &head;
            for (quantile, time) in latency.quantiles() {
                let _ = writeln!(text, "{name}{{quantile=\"{quantile}\"}} {}", time.as_secs_f64());
            }
            let _ = writeln!(text, "{name}_count {}", latency.samples);
        } else if figure.value.number().is_some() {
            let _ = writeln!(text, "{head}{name} {}", figure.value);
        }
    });
    text
}

/// Answers any request with this text.
fn answer(mut stream: TcpStream, text: &str) -> std::io::Result<()> {
    let _ = stream.read(&mut [0; 4096])?;
    let length = text.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {length}\r\nConnection: \
         close\r\n\r\n{text}"
    )
}
