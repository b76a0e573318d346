//! Defines the arguments of `esker import` and `esker export`.

use std::path::PathBuf;

use clap::ValueEnum;

use super::range::RangeArgs;
use crate::formats::{Column, Delimiter};

/// The format of a file of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileFormat {
    /// Tab-separated
    Tsv,
    /// Comma-separated, with quotes
    Csv,
    /// One JSON object per line
    Jsonl,
    /// One key per line
    Words,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum YesNo {
    Yes,
    No,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Import {
    /// The file; `-` is standard input
    #[arg(default_value = "-")]
    pub(crate) file: PathBuf,
    /// Format of the file [default: from its name]
    #[arg(short, long)]
    pub(crate) format: Option<FileFormat>,
    /// Column of the key: a number from 1, a name from the header, or a JSON field
    #[arg(long, value_name = "COLUMN")]
    pub(crate) key: Option<Column>,
    /// Column of the value
    #[arg(long, value_name = "COLUMN")]
    pub(crate) value: Option<Column>,
    /// Whether the first line names the columns [default: yes in CSV, no in TSV]
    #[arg(long, value_name = "YES_NO")]
    pub(crate) header: Option<YesNo>,
    /// Separator of TSV and CSV columns: one character, or `tab`
    #[arg(long, value_name = "CHAR", allow_hyphen_values = true)]
    pub(crate) delimiter: Option<Delimiter>,
    /// Report and skip bad lines
    #[arg(long)]
    pub(crate) skip_bad: bool,
    /// Rows per commit; 0 imports the whole file in one commit
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) batch: usize,
    /// The rows are sorted by key, without duplicates: load them faster, in one commit
    #[arg(long, conflicts_with = "batch")]
    pub(crate) sorted: bool,
    #[cfg(feature = "server")]
    #[command(flatten)]
    pub(crate) redis: super::RedisArgs,
    #[cfg(feature = "server")]
    #[command(flatten)]
    pub(crate) follow: super::FollowArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    /// The file; `-` is standard output
    #[arg(default_value = "-")]
    pub(crate) file: PathBuf,
    /// Format of the file [default: from its name]
    #[arg(short, long)]
    pub(crate) format: Option<FileFormat>,
    #[command(flatten)]
    pub(crate) range: RangeArgs,
    /// Whether the first line names the columns [default: yes in CSV, no in TSV]
    #[arg(long, value_name = "YES_NO")]
    pub(crate) header: Option<YesNo>,
    /// Separator of TSV and CSV columns: one character, or `tab`
    #[arg(long, value_name = "CHAR", allow_hyphen_values = true)]
    pub(crate) delimiter: Option<Delimiter>,
    #[cfg(feature = "server")]
    #[command(flatten)]
    pub(crate) redis: super::RedisArgs,
}
