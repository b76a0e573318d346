//! Defines the arguments and the help text of `esker feed`.

use std::path::PathBuf;
use std::time::Duration;

use super::seconds;
use crate::commands::feed::Since;
use crate::commands::past::Span;

/// Examples, and what a sink needs.
pub(super) const FEED_HELP: &str = "\
`--keep BYTES` turns the feed of a directory on; `--keep 0` turns it off. A server keeps --backlog bytes.

`--to` sends the changes as JSON objects instead of printing them. Each arrives at least once, in order.
The position is stored in a file once the sink has confirmed, so a killed command goes on from there. It
follows a running server (--server), or sends what a directory retains and ends.

  jsonl:FILE, jsonl:-               a file, synced and rotated; standard output
  http://HOST/PATH, https://...     POST of JSON lines
  nats://HOST:PORT/SUBJECT          JetStream; a tool built with --features nats
  kafka://HOST:PORT,.../TOPIC       a tool built with --features kafka

Examples:
  esker feed --keep 1000000000 --for 7d      retain up to this many bytes of log, and 7 days
  esker feed                                 COMMIT <tab> put <tab> KEYSPACE <tab> KEY <tab> VALUE,
                                             merge, removed, expired, removed-range, named, unnamed; at the
                                             end COMMIT <tab> end
  esker feed --since 1200 --json             commits after 1200, one JSON object per line
  esker feed -k users --limit 100            the changes of 100 commits in `users`
  esker feed --server 127.0.0.1:6379 --to jsonl:changes.jsonl --set rotate=64mb
  esker feed --server 127.0.0.1:6379 -k r1 --to http://127.0.0.1:8080/changes --position r1.position";

#[derive(Debug, clap::Args)]
pub(crate) struct FeedArgs {
    /// Only commits after this one, as COMMIT or HISTORY:COMMIT. With --to, where to begin if no position is
    /// stored [default: all retained commits; with --server, the newest commit]
    #[arg(long, value_name = "COMMIT")]
    pub(crate) since: Option<Since>,
    /// Stop after this many commits
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "to")]
    pub(crate) limit: Option<usize>,
    /// Print nothing: retain commits from here on, up to this many bytes of log; 0 turns the feed off
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["since", "limit", "to"])]
    pub(crate) keep: Option<u64>,
    /// Retain commits for at most this long: 90s, 15m, 12h, 7d [default: as long as the bytes allow]
    #[arg(long = "for", value_name = "TIME", requires = "keep")]
    pub(crate) span: Option<Span>,
    #[command(flatten)]
    pub(crate) send: SendArgs,
}

/// Where changes come from and where they go.
#[derive(Debug, clap::Args)]
pub(crate) struct SendArgs {
    /// Send the changes to this sink: jsonl:FILE, http://..., nats://..., kafka://...
    #[arg(long, value_name = "SINK")]
    pub(crate) to: Option<String>,
    /// File that stores the position [default for jsonl:FILE: FILE.position; required for other sinks]
    #[arg(long, value_name = "FILE", requires = "to")]
    pub(crate) position: Option<PathBuf>,
    /// A setting of the sink, such as rotate=64mb; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE", requires = "to")]
    pub(crate) set: Vec<String>,
    /// File with settings of the sink, one per line: passwords do not belong on the command line
    #[arg(long, value_name = "FILE", requires = "to")]
    pub(crate) settings: Option<PathBuf>,
    /// Maximum number of changes delivered together
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "to", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch: u32,
    /// Give up when the sink or the server has failed for this long [default: try for ever]
    #[arg(long, value_name = "SECONDS", requires = "to", value_parser = seconds)]
    pub(crate) give_up: Option<Duration>,
    /// Follow this server instead of reading a directory: ADDRESS:PORT, or unix:PATH
    #[cfg(feature = "server")]
    #[arg(long, value_name = "ADDRESS", requires = "to")]
    pub(crate) server: Option<String>,
    /// End when all commits have been sent, instead of waiting for more
    #[cfg(feature = "server")]
    #[arg(long, requires = "server")]
    pub(crate) once: bool,
    /// The user to log in as
    #[cfg(feature = "server")]
    #[arg(long, value_name = "NAME", default_value = "default", requires = "server")]
    pub(crate) user: String,
    /// Password of the user
    #[cfg(feature = "server")]
    #[arg(long, value_name = "PASSWORD", env = "ESKER_PASSWORD", hide_env_values = true)]
    pub(crate) password: Option<String>,
}
