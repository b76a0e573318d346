//! Parses the arguments of `cargo xtask fuzz`.

use std::path::PathBuf;

/// The parsed arguments.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Per target.
    pub(super) seconds: u64,
    pub(super) targets: Vec<String>,
    /// Write a minimal corpus with the same coverage into the repository instead of fuzzing.
    pub(super) minimise: bool,
    /// Directory of found inputs, if not below `target`.
    pub(super) corpus: Option<PathBuf>,
}

const MINUTES: f64 = 10.0;

impl Plan {
    /// Parses the arguments. `all` are the names of the targets.
    pub(super) fn parse(args: &[&str], all: &[String]) -> Result<Plan, String> {
        let (mut minutes, mut targets, mut minimise, mut corpus) = (MINUTES, Vec::new(), false, None);
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            let mut value = || args.next().copied().ok_or(format!("{arg}: its value is missing"));
            match arg {
                "--minutes" => {
                    let text = value()?;
                    let number = text.parse().ok().filter(|n: &f64| *n > 0.0 && *n < 1e6);
                    minutes = number.ok_or(format!("--minutes: {text:?} is not a number of minutes"))?;
                }
                "--corpus" => {
                    let path = PathBuf::from(value()?);
                    corpus = Some(std::path::absolute(&path).unwrap_or(path));
                }
                "--minimise" => minimise = true,
                name if all.iter().any(|known| known == name) => targets.push(name.to_owned()),
                other => return Err(format!("no target {other:?}: there are {}", all.join(", "))),
            }
        }
        if targets.is_empty() {
            targets = all.to_vec();
        }
        Ok(Plan { seconds: (minutes * 60.0).ceil() as u64, targets, minimise, corpus })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Plan, String> {
        Plan::parse(args, &["one".to_owned(), "two".to_owned()])
    }

    #[test]
    fn without_names_all_targets_are_meant() {
        let plan = parse(&["--minutes", "0.5"]).unwrap();
        assert_eq!((plan.seconds, plan.targets.len(), plan.minimise), (30, 2, false));
        let plan = parse(&["two", "--minimise"]).unwrap();
        assert_eq!((plan.seconds, plan.targets, plan.minimise), (600, vec!["two".to_owned()], true));
    }

    #[test]
    fn mistakes_are_explained() {
        assert!(parse(&["three"]).unwrap_err().contains("one, two"));
        assert!(parse(&["--minutes"]).unwrap_err().contains("missing"));
        assert!(parse(&["--minutes", "ten"]).unwrap_err().contains("not a number"));
    }
}
