//! Counts phrases that signal a sentence to rewrite, and lines of prose that are too wide.
//!
//! The phrases are those of the rules for prose in docs/style.md. The check counts them in Rust, Go and
//! Markdown files, in code too: a variable of such a name is a private word.

use crate::checks::limit::{Limit, Measured};
use crate::repo::{Repo, RepoFile};

pub(super) const WORDS: Limit = Limit { kind: "words", max: 0, unit: "signal words", measure: words };
pub(super) const WIDTHS: Limit =
    Limit { kind: "wide", max: 0, unit: "lines beyond 110 columns", measure: widths };

const COLUMNS_MAX: usize = 110;

const PHRASES: &[&str] = &[
    "so many",
    "so-manieth",
    "told",
    "nobody",
    "somebody",
    "whoever",
    "as wholes",
    "but for",
    "at the least",
    "anew",
    "one that",
    "its kin",
    "right of way",
];

/// These files quote the phrases.
const QUOTING: &[&str] = &["crates/xtask/src/checks/prose.rs", "docs/style.md"];

fn words(repo: &Repo) -> Vec<Measured> {
    measure(repo, |text, _| {
        let words: Vec<(usize, String)> = words_of(text).collect();
        let mut lines = Vec::new();
        for phrase in PHRASES {
            let phrase: Vec<&str> = phrase.split(' ').collect();
            for (at, found) in words.windows(phrase.len()).enumerate() {
                let is_named = at > 0 && phrase[0] == "one" && matches!(&*words[at - 1].1, "the" | "only");
                if found.iter().map(|(_, word)| word).eq(&phrase) && !is_named {
                    lines.push(found[0].0);
                }
            }
        }
        lines.sort_unstable();
        lines
    })
}

fn widths(repo: &Repo) -> Vec<Measured> {
    measure(repo, |text, is_markdown| {
        let mut is_fenced = false;
        let mut lines = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let start = line.trim_start();
            is_fenced ^= is_markdown && start.starts_with("```");
            let is_prose =
                if is_markdown { !is_fenced && !start.starts_with('|') } else { start.starts_with("//") };
            // A long link cannot be broken.
            let can_break = start.split_whitespace().all(|word| word.len() < COLUMNS_MAX - 20);
            if is_prose && can_break && line.chars().count() > COLUMNS_MAX {
                lines.push(number + 1);
            }
        }
        lines
    })
}

/// Counts the lines that `find` returns for each file. `find` gets the text and whether it is Markdown.
fn measure(repo: &Repo, find: impl Fn(&str, bool) -> Vec<usize>) -> Vec<Measured> {
    let mut found = Vec::new();
    for (RepoFile { path, .. }, text) in repo.texts(&[".rs", ".go", ".md"]) {
        if QUOTING.contains(&path.as_str()) {
            continue;
        }
        let lines = find(text, path.ends_with(".md"));
        let line = lines.first().copied().unwrap_or(1);
        found.push(Measured {
            path: path.clone(),
            line,
            item: "-".to_owned(),
            value: lines.len(),
            detail: String::new(),
        });
    }
    found
}

/// The words of a text in lower case, with their lines. The marks of comments separate words like spaces do. In
/// the name of a function, underscores separate words.
fn words_of(text: &str) -> impl Iterator<Item = (usize, String)> + '_ {
    text.lines().enumerate().flat_map(|(number, line)| {
        let is_function = line.split_whitespace().any(|word| word == "fn");
        let is_word =
            move |c: char| c.is_alphabetic() || matches!(c, '-' | '\'') || (c == '_' && !is_function);
        line.split(move |c| !is_word(c))
            .filter(|w| !w.is_empty())
            .map(move |w| (number + 1, w.to_lowercase()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(measure: fn(&Repo) -> Vec<Measured>, path: &str, text: &str) -> (usize, usize) {
        let found = measure(&Repo::of(&[(path, text)]));
        (found[0].line, found[0].value)
    }

    #[test]
    fn phrases_are_found_across_lines() {
        let text = "// It writes so\n// many bytes as are retold.\nlet told = 1;\n// But for one. one_that, the one that\n";
        assert_eq!(values(words, "a.rs", text), (1, 3));
    }

    #[test]
    fn words_of_function_names_are_found() {
        assert_eq!(values(words, "a.rs", "let is_told = 1;\nfn what_is_told_once() {}\n"), (2, 1));
    }

    #[test]
    fn wide_lines_are_found_in_prose_only() {
        let wide = "word ".repeat(23);
        let rust = format!("// {wide}\nlet s = \"{wide}\";\n// http://{}\n", "x".repeat(120));
        assert_eq!(values(widths, "a.rs", &rust), (1, 1));
        let markdown = format!("text\n| {wide} |\n```\n{wide}\n```\n{wide}\n");
        assert_eq!(values(widths, "a.md", &markdown), (6, 1));
    }
}
