//! Defines the arguments and help texts of `esker keyspaces`.

use clap::Subcommand;

use crate::commands::past::Span;

/// The history that a keyspace keeps.
#[derive(Debug, clap::Args)]
pub(crate) struct HistoryArgs {
    /// Name of the keyspace
    pub(crate) name: String,
    /// Keep the newest N versions of each key, counting removals
    #[arg(long, value_name = "N", conflicts_with_all = ["span", "none"])]
    pub(crate) versions: Option<u32>,
    /// Keep every version visible at any time in this period: 90s, 15m, 12h, 7d
    #[arg(long = "for", value_name = "TIME", conflicts_with = "none")]
    pub(crate) span: Option<Span>,
    /// Keep no history
    #[arg(long)]
    pub(crate) none: bool,
}

/// The limits of a keyspace.
#[derive(Debug, clap::Args)]
pub(crate) struct LimitArgs {
    /// Name of the keyspace
    pub(crate) name: String,
    /// Remove the oldest entries beyond this many bytes
    #[arg(long, value_name = "BYTES", conflicts_with = "none")]
    pub(crate) size: Option<u64>,
    /// Entries put from here on expire after this time: 90s, 15m, 12h, 7d
    #[arg(long, value_name = "TIME", conflicts_with = "none")]
    pub(crate) age: Option<Span>,
    /// No limits
    #[arg(long)]
    pub(crate) none: bool,
}

/// The commands on keyspaces.
#[derive(Debug, Subcommand)]
pub(crate) enum Keyspaces {
    /// List keyspaces: NAME <tab> NUMBER OF KEYS
    #[command(after_help = "\
Examples:
  esker keyspaces list
  esker keyspaces list --json                  {\"keyspace\":\"users\",\"entries\":3}")]
    List,
    /// Create a keyspace, which must not exist, in an existing database
    #[command(after_help = "Examples:\n  esker keyspaces create users")]
    Create {
        /// Name of the keyspace
        name: String,
    },
    /// Drop a keyspace and its entries. Asks for confirmation on a terminal
    #[command(after_help = "\
Examples:
  esker keyspaces drop users
  esker keyspaces drop users --yes")]
    Drop {
        /// Name of the keyspace. `default` can only be cleared
        name: String,
        /// Do not ask for confirmation
        #[arg(short, long)]
        yes: bool,
    },
    /// Rename a keyspace
    #[command(after_help = "Examples:\n  esker keyspaces rename users people")]
    Rename {
        /// Current name; not `default`
        from: String,
        /// New name
        to: String,
    },
    /// Remove all keys of a keyspace. Asks for confirmation on a terminal
    #[command(after_help = "\
Examples:
  esker keyspaces clear default
  esker keyspaces clear users --yes")]
    Clear {
        /// Name of the keyspace
        name: String,
        /// Do not ask for confirmation
        #[arg(short, long)]
        yes: bool,
    },
    /// Print or set the history that a keyspace keeps
    #[command(after_help = "\
Examples:
  esker keyspaces history users
  esker keyspaces history users --versions 10
  esker keyspaces history users --for 7d
  esker keyspaces history users --none")]
    History(HistoryArgs),
    /// Print or set the size and the age beyond which a keyspace loses its oldest entries
    #[command(after_help = "\
The size counts the stored bytes of entries, without overwritten ones. The age is the default lifetime of entries.

Examples:
  esker keyspaces limit logs
  esker keyspaces limit logs --size 1000000000
  esker keyspaces limit logs --age 7d
  esker keyspaces limit logs --none")]
    Limit(LimitArgs),
    /// Print the merge operator of a keyspace, or set it permanently
    #[command(after_help = "\
Available are add-i64, add-u64, add-f64 (8-byte numbers, see `esker merge`), append, min, max,
bit-or, bit-and and set-union.

Examples:
  esker keyspaces operator counts
  esker keyspaces operator counts add-i64")]
    Operator {
        /// Name of the keyspace
        name: String,
        /// Name of the operator
        operator: Option<String>,
    },
    /// Copy all entries of a keyspace into another one, which must be missing or empty
    #[command(after_help = "\
Copies the entries as of one moment, in batches. If the copy fails, the copied entries are removed,
provided that the database can still be written.

Examples:
  esker keyspaces copy users users-before")]
    Copy {
        /// Name of the source
        from: String,
        /// Name of the copy
        to: String,
    },
}

impl Keyspaces {
    /// Returns whether the command changes nothing.
    pub(crate) fn only_prints(&self) -> bool {
        match self {
            Keyspaces::List => true,
            Keyspaces::History(args) => args.versions.is_none() && args.span.is_none() && !args.none,
            Keyspaces::Limit(args) => args.size.is_none() && args.age.is_none() && !args.none,
            Keyspaces::Operator { operator, .. } => operator.is_none(),
            _ => false,
        }
    }
}
