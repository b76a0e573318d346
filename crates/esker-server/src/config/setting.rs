//! Where the value of an option comes from.

use std::fmt;
use std::path::PathBuf;

/// Where the value of an option comes from, first what outranks the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command line.
    CommandLine,
    /// This variable of the environment.
    Environment(String),
    /// This line of the configuration file.
    File(usize),
    /// The default value.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::CommandLine => f.write_str("command line"),
            Origin::Environment(name) => write!(f, "environment, {name}"),
            Origin::File(line) => write!(f, "file, line {line}"),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// An option with its value.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Its name on the command line and in the configuration file.
    pub name: String,
    /// Its name in `CONFIG`. Nearly always the same.
    pub parameter: String,
    /// The value; empty: none.
    pub value: String,
    /// Where the value comes from.
    pub origin: Origin,
}

/// What the operator gave, beside the fields of the options.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// First values of parameters of `CONFIG SET` that have no field in the options.
    pub parameters: Vec<(String, String)>,
    /// All options, for `CONFIG GET` and `CONFIG REWRITE`.
    pub settings: Vec<Setting>,
    /// The configuration file, which `CONFIG REWRITE` changes.
    pub file: Option<PathBuf>,
}
