//! The options of `esker serve`: from the command line, the environment and the configuration file.
//!
//! ```text
//!   ServeArgs, parameters of CONFIG --> table of options: `clap::Command`
//!   environment, file --check by the table--> default values of the table --> parse the command line
//! ```
//!
//! settings.1. The description of the command line is the only table. An option `--some-name` is `some-name`
//!     in the file and in `CONFIG`, and `ESKER_SOME_NAME` in the environment, unless the table names another
//!     variable. Other names of it are its aliases in the table.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches};
use esker_server::{
    Entry, Given, Kind, Origin, SYNONYMS, Setting, Written, check_parameter, is_secret_option, parameters,
    read_config,
};

use crate::args::{Args, Command as Chosen};
use crate::failure::{Failure, Result};
use crate::output;

/// The name of the command whose options may stand in the file.
const SERVE: &str = "serve";
/// Options of `esker serve` that choose the file, and do not stand in it.
const OUTSIDE: [&str; 2] = ["config", "check-config"];
/// The group of options of the whole tool that `serve` obeys, and the one in it that it does not obey.
const OPENING: (&str, &str) = ("Opening", "durability");

/// What the environment and the file give, by the ids of options.
type Found = BTreeMap<String, (Vec<String>, Origin)>;

/// Parses the command line. The options of `esker serve` may also come from elsewhere.
pub(crate) fn parse() -> Result<Args> {
    let table = table();
    let line = without_empty_variables(table.clone());
    let matches = line.clone().get_matches();
    let Some((SERVE, serve)) = matches.subcommand() else { return build(&matches) };
    let mut given = Found::new();
    if let Some(path) = serve.get_one::<PathBuf>("config") {
        let entries = read_config(path).map_err(Failure::message)?;
        read_entries(&table, path, entries, &mut given)?;
    }
    read_environment(&table, &mut given)?;
    let matches = with_defaults(line, &given).get_matches();
    let mut args = build(&matches)?;
    if let (Chosen::Serve(args), Some((_, serve))) = (&mut args.command, matches.subcommand()) {
        let settings = settings(&table, serve, &given);
        let pairs = settings.iter().map(|setting| (setting.name.clone(), setting.value.clone()));
        let parameters = pairs.filter(|(name, _)| is_parameter_only(&table, name)).collect();
        args.config.given = Given { parameters, settings, file: args.config.config.clone() };
    }
    Ok(args)
}

fn build(matches: &ArgMatches) -> Result<Args> {
    Ok(Args::from_arg_matches(matches).unwrap_or_else(|error| error.exit()))
}

/// Returns the table of all options (settings.1).
fn table() -> Command {
    let table = Args::command();
    let known: Vec<String> = options(&table).flat_map(names).collect();
    table.mut_subcommand(SERVE, |serve| {
        let missing = parameters().filter(|(name, _)| !known.iter().any(|known| known == name));
        let is_second = |name: &str| SYNONYMS.iter().any(|names| names[1] == name);
        let missing = missing.filter(|(name, _)| !is_second(name));
        missing.fold(serve, |serve, (name, kind)| serve.arg(parameter(name, kind)))
    })
}

/// Makes the table read no variable of the environment that is empty: an empty password would outrank the one
/// in the file.
fn without_empty_variables(table: Command) -> Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|text| text.is_empty());
    let set = |arg: Arg| match arg.get_env().is_some_and(is_empty) {
        true => arg.env(None::<&str>),
        false => arg,
    };
    table.mut_args(set).mut_subcommand(SERVE, |serve| serve.mut_args(set))
}

/// Returns the option for a parameter of `CONFIG` that has no other.
fn parameter(name: &'static str, kind: Kind) -> Arg {
    let value_name = match kind {
        Kind::Int(..) => "N",
        Kind::Bytes(_) => "BYTES",
        Kind::Switch => "yes|no",
        _ => "TEXT",
    };
    let check = move |text: &str| check_parameter(name, text).map(|()| text.to_owned());
    let synonym = SYNONYMS.iter().find(|names| names[0] == name).map(|names| names[1]);
    Arg::new(name).long(name).aliases(synonym).value_name(value_name).hide(true).value_parser(check)
}

/// Returns whether only `CONFIG` knows an option: [`parameter`] made it.
fn is_parameter_only(table: &Command, name: &str) -> bool {
    let parameter = options(table).find(|option| option.get_long() == Some(name));
    parameter.is_some_and(Arg::is_hide_set)
}

/// Returns the options that may stand in the file.
fn options(table: &Command) -> impl Iterator<Item = &Arg> {
    let opening = table.get_groups().find(|group| group.get_id() == OPENING.0);
    let ids: Vec<_> = opening.into_iter().flat_map(clap::ArgGroup::get_args).collect();
    let common = table.get_arguments().filter(move |arg| ids.contains(&arg.get_id()));
    let own = table.find_subcommand(SERVE).into_iter().flat_map(Command::get_arguments);
    let is_outside =
        |arg: &&Arg| arg.get_long().is_none_or(|name| name == OPENING.1 || OUTSIDE.contains(&name));
    common.chain(own).filter(move |arg| !is_outside(arg))
}

/// Returns the name of an option and its aliases.
fn names(option: &Arg) -> Vec<String> {
    let names = option.get_long().into_iter().chain(option.get_all_aliases().unwrap_or_default());
    names.map(str::to_owned).collect()
}

/// Returns the variable of the environment that gives an option.
fn variable(option: &Arg) -> String {
    let derived = || {
        let name = option.get_long().unwrap_or_default();
        format!("ESKER_{}", name.to_ascii_uppercase().replace('-', "_"))
    };
    option.get_env().map_or_else(derived, |name| name.to_string_lossy().into_owned())
}

/// Checks the entries of the file, and adds them to what is given.
fn read_entries(table: &Command, path: &Path, entries: Vec<Entry>, given: &mut Found) -> Result<()> {
    for Entry { name, line, value } in entries {
        let wrong = |why: String| Failure::message(format!("{}:{line}: {why}", path.display()));
        let option = options(table).find(|option| names(option).contains(&name));
        let option = option.ok_or_else(|| wrong(unknown(table, &name)))?;
        let texts = texts_of(option, &value).and_then(|texts| check(table, option, &texts).map(|()| texts));
        // `CONFIG REWRITE` writes an empty text for what was given and is not any more.
        if value == Written::Text(String::new())
            && option.get_default_values().is_empty()
            && !option.is_hide_set()
        {
            continue;
        }
        let texts = texts.map_err(|why| wrong(format!("{name}: {why}")))?;
        if given.insert(option.get_id().to_string(), (texts, Origin::File(line))).is_some() {
            return Err(wrong(format!("{name}: the option is there twice, under different names")));
        }
    }
    Ok(())
}

/// Describes a name that no option has, with the nearest name that one has.
fn unknown(table: &Command, name: &str) -> String {
    let hint = match try_line(table, &format!("--{name}=x")) {
        Err(error) if error.kind() == ErrorKind::UnknownArgument => {
            match error.get(ContextKind::SuggestedArg) {
                Some(ContextValue::String(near)) => near.trim_start_matches('-').to_owned(),
                _ => return format!("unknown option {name}"),
            }
        }
        _ => return format!("{name} cannot be set in the file"),
    };
    format!("unknown option {name}: did you mean {hint}?")
}

fn try_line(table: &Command, option: &str) -> std::result::Result<ArgMatches, clap::Error> {
    table.clone().try_get_matches_from(["esker", SERVE, option])
}

/// Converts a value of the file to those of the command line.
fn texts_of(option: &Arg, value: &Written) -> std::result::Result<Vec<String>, String> {
    let is_flag = matches!(option.get_action(), ArgAction::SetTrue);
    let value_name = option.get_value_names().and_then(<[_]>::first).map_or("", |name| name.as_str());
    let wanted = match value_name {
        _ if is_flag => "true or false",
        "yes|no" => "true, false, \"yes\" or \"no\"",
        "BYTES" => "a number, or a string such as \"512mb\"",
        "PORT" | "N" | "SECONDS" | "MILLISECONDS" | "PERCENT" => "a whole number, without quotes",
        _ if matches!(option.get_action(), ArgAction::Append) => "a string, or an array of strings",
        _ => "a string in quotes",
    };
    let takes = |word: &str| wanted.contains(word);
    let texts = match value {
        Written::Switch(is) if is_flag => vec![is.to_string()],
        Written::Switch(is) if takes("true") => vec![if *is { "yes" } else { "no" }.to_owned()],
        Written::Number(number) if takes("number") => vec![number.to_string()],
        Written::Text(text) if takes("string") || takes("\"yes\"") => vec![text.clone()],
        Written::Texts(texts) if takes("array") && !texts.is_empty() => texts.clone(),
        Written::Other(what) => return Err(format!("the value must be {wanted}, not a {what}")),
        _ => return Err(format!("the value must be {wanted}")),
    };
    Ok(texts)
}

/// Checks values of an option by the table.
fn check(table: &Command, option: &Arg, texts: &[String]) -> std::result::Result<(), String> {
    let name = option.get_long().unwrap_or_default();
    if matches!(option.get_action(), ArgAction::SetTrue) {
        return Ok(());
    }
    for text in texts {
        if let Err(error) = try_line(table, &format!("--{name}={text}")) {
            let shown = if is_secret_option(name) { String::new() } else { format!("'{text}': ") };
            return Err(format!("{shown}{}", why(&error)));
        }
    }
    Ok(())
}

/// Returns what is wrong with a value.
fn why(error: &clap::Error) -> String {
    if let Some(source) = error.source() {
        return source.to_string();
    }
    match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(valid)) if !valid.is_empty() => format!("use one of {}", valid.join(", ")),
        _ => error.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned(),
    }
}

/// Checks the variables of the environment, and lets them outrank the file.
fn read_environment(table: &Command, given: &mut Found) -> Result<()> {
    // The table itself reads the variables that it names.
    for option in options(table).filter(|option| option.get_env().is_none()) {
        let name = variable(option);
        let Some(text) = std::env::var_os(&name).filter(|text| !text.is_empty()) else { continue };
        let text = text.into_string().map_err(|_| Failure::message(format!("{name}: not UTF-8")))?;
        // Kubernetes sets ESKER_PORT to such an address in each pod beside a service named `esker`.
        if name == "ESKER_PORT" && (text.starts_with("tcp://") || text.starts_with("udp://")) {
            continue;
        }
        let wrong = |why: String| Failure::message(format!("{name}: {why}"));
        let texts = match option.get_action() {
            ArgAction::Append => text.split([',', ' ']).map(str::to_owned).collect(),
            ArgAction::SetTrue => match text.as_str() {
                "true" | "yes" => vec!["true".to_owned()],
                "false" | "no" => vec!["false".to_owned()],
                _ => return Err(wrong(format!("'{text}': use true or false"))),
            },
            _ => vec![text],
        };
        check(table, option, &texts).map_err(wrong)?;
        given.insert(option.get_id().to_string(), (texts, Origin::Environment(name)));
    }
    Ok(())
}

/// Makes what is given the defaults of the table, which the command line outranks.
fn with_defaults(table: Command, given: &Found) -> Command {
    let set = |arg: Arg| match given.get(arg.get_id().as_str()) {
        Some((texts, _)) => arg.default_values(texts.clone()),
        None => arg,
    };
    table.mut_args(set).mut_subcommand(SERVE, |serve| serve.mut_args(set))
}

/// Returns all options with where they come from. A parameter that only `CONFIG` knows is among them if it
/// was given.
fn settings(table: &Command, serve: &ArgMatches, given: &Found) -> Vec<Setting> {
    let mut settings = Vec::new();
    for option in options(table) {
        let id = option.get_id().as_str();
        let origin = match serve.value_source(id) {
            Some(ValueSource::CommandLine) => Origin::CommandLine,
            Some(ValueSource::EnvVariable) => Origin::Environment(variable(option)),
            _ => given.get(id).map_or(Origin::Default, |(_, origin)| origin.clone()),
        };
        if origin == Origin::Default && option.is_hide_set() {
            continue;
        }
        let raw = serve.get_raw(id).map(|raw| raw.map(|text| text.to_string_lossy().into_owned()));
        let value = match option.get_action() {
            ArgAction::SetTrue => serve.get_flag(id).to_string(),
            _ => raw.map(|raw| raw.collect::<Vec<_>>().join(" ")).unwrap_or_default(),
        };
        let names = names(option);
        let name = names.first().cloned().unwrap_or_default();
        let parameter = names.into_iter().find(|name| parameters().any(|(known, _)| known == name));
        settings.push(Setting { parameter: parameter.unwrap_or_else(|| name.clone()), name, value, origin });
    }
    settings
}

/// Prints the options as a configuration file, each with where it comes from.
pub(super) fn print(settings: &[Setting]) -> Result<()> {
    let table = table();
    for Setting { name, value, origin, .. } in settings {
        let option = options(&table).find(|option| option.get_long() == Some(name));
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let takes = |value: Written| option.is_some_and(|option| texts_of(option, &value).is_ok());
        let shown = match value {
            _ if is_secret_option(name) && !value.is_empty() => quoted("(hidden)"),
            value if value.is_empty() && *origin == Origin::Default => {
                output::print_line(format_args!("# {name} is not set"))?;
                continue;
            }
            value if takes(Written::Texts(vec![String::new()])) => {
                let words: Vec<_> = value.split(' ').map(quoted).collect();
                format!("[{}]", words.join(", "))
            }
            value if value.parse::<i64>().is_ok() && takes(Written::Number(0)) => value.clone(),
            value if matches!(value.as_str(), "true" | "false") && takes(Written::Switch(true)) => {
                value.clone()
            }
            value => quoted(value),
        };
        output::print_line(format_args!("{:<40} # {origin}", format!("{name} = {shown}")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_has_names_of_its_own_everywhere() {
        let table = table();
        table.clone().debug_assert();
        let mut seen = BTreeMap::new();
        let options: Vec<_> = options(&table).collect();
        assert!(options.len() > 100, "{}", options.len());
        for option in options {
            let all = names(option).into_iter().chain([variable(option)]);
            for name in all {
                assert_eq!(seen.insert(name.clone(), option.get_id().clone()), None, "{name}");
            }
        }
        // Each parameter of CONFIG has an option.
        for (name, _) in parameters() {
            assert!(seen.contains_key(name), "{name}");
        }
        for name in ["db", "key-file", "fsync", "appendfsync", "ESKER_PORT", "ESKER_PASSWORD", "hz"] {
            assert!(cfg!(not(feature = "encryption")) || seen.contains_key(name), "{name}");
        }
        for name in ["config", "check-config", "durability", "json", "help"] {
            assert!(!seen.contains_key(name), "{name}");
        }
    }
}
