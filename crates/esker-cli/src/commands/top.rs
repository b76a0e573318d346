//! `esker top`: shows the activity of a server periodically.
//!
//! ```text
//!   INFO everything --> names and values --> a screen of text
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use clap::Args;

use crate::Answer;
use crate::failure::{Failure, Result};
use crate::output::{self, count, size};

/// A longer reply does not come from an Esker server.
const REPLY_BYTES_MAX: u64 = 4 << 20;
/// How long to wait for the server.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of commands shown.
const COMMANDS_SHOWN: usize = 15;

/// The options of `esker top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Address of the server
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:6379")]
    server: String,
    /// The user to log in as
    #[arg(long, value_name = "NAME", default_value = "default", requires = "password")]
    user: String,
    /// Password of the user
    #[arg(long, value_name = "PASSWORD", env = "ESKER_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// Seconds between updates
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    /// Print once and exit
    #[arg(long)]
    once: bool,
}

pub(super) fn run(args: &TopArgs) -> Result<Answer> {
    let failed = |error| Failure::message(format!("{}: {error}", args.server));
    let mut server = Connection::open(&args.server).map_err(failed)?;
    if let Some(password) = &args.password {
        server.ask(&["AUTH", &args.user, password]).map_err(failed)?;
    }
    let is_screen = std::io::stdout().is_terminal() && !args.once;
    loop {
        let info = server.ask(&["INFO", "everything"]).map_err(failed)?;
        let mut out = output::stdout();
        if is_screen {
            // Moves the cursor to the upper left corner and clears the rest of the screen.
            out.write_all(b"\x1b[H\x1b[J")?;
        }
        out.write_all(screen(&args.server, &figures(&info)).as_bytes())?;
        out.flush()?;
        drop(out);
        if args.once {
            return Ok(Answer::Yes);
        }
        #[expect(clippy::disallowed_methods, reason = "a program around the engine")]
        std::thread::sleep(Duration::from_secs(args.every));
    }
}

struct Connection(BufReader<TcpStream>);

impl Connection {
    fn open(address: &str) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Connection(BufReader::new(stream)))
    }

    /// Sends a request and returns the text of the reply.
    fn ask(&mut self, words: &[&str]) -> std::io::Result<String> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            let _ = write!(request, "${}\r\n{word}\r\n", word.len());
        }
        self.0.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        self.0.by_ref().take(64 << 10).read_line(&mut line)?;
        let wrong = |text: &str| std::io::Error::other(text.trim_end().to_owned());
        match (line.get(..1), line.get(1..).map(str::trim_end)) {
            (Some("+"), Some(text)) => Ok(text.to_owned()),
            (Some("$"), Some(len)) => {
                let len = len.parse::<u64>().ok().filter(|len| *len <= REPLY_BYTES_MAX);
                let len = len.ok_or_else(|| wrong("the reply is not that of an Esker server"))?;
                let mut text = vec![0; len as usize + 2];
                self.0.read_exact(&mut text)?;
                Ok(String::from_utf8_lossy(&text).into_owned())
            }
            (Some("-"), Some(text)) => Err(wrong(text)),
            _ => Err(wrong("the reply is not that of an Esker server")),
        }
    }
}

type Figures<'a> = BTreeMap<&'a str, &'a str>;

fn figures(info: &str) -> Figures<'_> {
    info.lines().filter_map(|line| line.trim_end().split_once(':')).collect()
}

/// Returns the number `name` of a value such as `calls=1,usec=2`.
fn part(value: &str, name: &str) -> u64 {
    let found = value.split(',').filter_map(|pair| pair.split_once('=')).find(|(known, _)| *known == name);
    found.and_then(|(_, n)| n.parse().ok()).unwrap_or(0)
}

fn screen(address: &str, figures: &Figures<'_>) -> String {
    let text = |name: &str| figures.get(name).copied().unwrap_or("-");
    let number = |name: &str| text(name).parse::<f64>().unwrap_or(0.0) as u64;
    let mut out = format!(
        "Esker {} at {address}, up {} s, {} connections, {} waiting, memory {}\n\n{:16}",
        text("esker_version"),
        count(number("uptime_in_seconds")),
        count(number("connected_clients")),
        count(number("blocked_clients")),
        size(number("used_memory")),
        "in a second"
    );
    let windows = [1, 60, 300, 900];
    windows.iter().for_each(|seconds| {
        let _ = write!(out, "{:>14}", format!("{seconds} s"));
    });
    for rate in ["ops", "commits", "changes", "input_bytes", "output_bytes", "errors"] {
        let _ = write!(out, "\n{:16}", rate.replace('_', " "));
        for seconds in windows {
            let n = number(&format!("{rate}_per_sec_{seconds}s"));
            let shown = if rate.ends_with("_bytes") { size(n) } else { count(n) };
            let _ = write!(out, "{shown:>14}");
        }
    }
    out.push_str("\n\n");
    commands(&mut out, figures);
    for (name, value) in figures {
        let is_database = name.strip_prefix("db").is_some_and(|n| n.parse::<u32>().is_ok());
        if is_database {
            let (keys, expire) = (count(part(value, "keys")), count(part(value, "expires")));
            let _ = writeln!(out, "{name:16}{keys:>14} keys, {expire} expire");
        }
    }
    for (name, value) in figures.iter().filter(|(name, _)| name.starts_with("engine_")) {
        let shown = match value.parse::<u64>() {
            Ok(bytes) if name.ends_with("_bytes") => size(bytes),
            Ok(number) => count(number),
            Err(_) => (*value).to_owned(),
        };
        let _ = writeln!(out, "{:30}{shown:>14}", name["engine_".len()..].replace('_', " "));
    }
    out
}

/// Appends the most frequent commands.
fn commands(out: &mut String, figures: &Figures<'_>) {
    let mut all: Vec<_> = figures
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix("cmdstat_")?, part(value, "calls"), *value)))
        .collect();
    all.sort_by_key(|(_, calls, _)| std::cmp::Reverse(*calls));
    let _ = writeln!(
        out,
        "{:16}{:>14}{:>10}{:>10}{:>10}{:>10}",
        "command", "calls", "failed", "p50 us", "p99 us", "p99.9 us"
    );
    for (name, calls, value) in all.into_iter().take(COMMANDS_SHOWN) {
        let latency = figures.get(format!("latency_percentiles_usec_{name}").as_str()).copied().unwrap_or("");
        let [p50, p99, p999] = ["p50", "p99", "p99.9"].map(|name| count(part(latency, name)));
        let (calls, failed) = (count(calls), count(part(value, "failed_calls")));
        let _ = writeln!(out, "{name:16}{calls:>14}{failed:>10}{p50:>10}{p99:>10}{p999:>10}");
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_has_rates_commands_and_the_engine() {
        let info = "# Server\r\nesker_version:0.1.0\r\nops_per_sec_60s:1234.5\r\nused_memory:1048576\r\n\
                    cmdstat_get:calls=12,usec=3,failed_calls=1\r\nlatency_percentiles_usec_get:p50=2,p99=40,p99.9=900\r\n\
                    db0:keys=7,expires=2,avg_ttl=0\r\nengine_table_bytes:2048\r\n";
        let text = screen("here", &figures(info));
        for shown in ["memory 1.0 MiB", "1,234", "p99.9 us", "7 keys, 2 expire", "table bytes", "2.0 KiB"] {
            assert!(text.contains(shown), "{shown} in {text}");
        }
        let get = text.lines().find(|line| line.starts_with("get ")).unwrap();
        assert_eq!(get.split_whitespace().collect::<Vec<_>>(), ["get", "12", "1", "2", "40", "900"]);
        assert_eq!(figures("no figures"), Figures::new());
        assert!(screen("here", &Figures::new()).contains("Esker -"));
    }
}
