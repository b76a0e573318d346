//! Counts phrases that signal a sentence to rewrite, and lines of prose that are too wide.
//!
//! The phrases are those of the rules for prose in docs/style.md. The check counts them in Markdown and in
//! the sources of all languages of the project, in code too: a variable of such a name is a private word.

use crate::checks::limit::{Limit, Measured};
use crate::repo::{Repo, RepoFile};

mod lines;
use lines::Language;

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

/// Words after which "who" is right.
const PERSONS: &[&str] = &[
    "anyone",
    "attacker",
    "attackers",
    "caller",
    "callers",
    "people",
    "person",
    "someone",
    "those",
    "user",
    "users",
];

/// These files quote the phrases.
const QUOTING: &[&str] = &["crates/xtask/src/checks/prose.rs", "docs/style.md"];

fn words(repo: &Repo) -> Vec<Measured> {
    measure(repo, |text, _| {
        let words: Vec<(usize, &str)> = words_of(text).collect();
        let lower: Vec<String> = words.iter().map(|(_, word)| word.to_lowercase()).collect();
        let before = |at: usize| at.checked_sub(1).map_or("", |at| &lower[at]);
        let mut lines = Vec::new();
        for phrase in PHRASES {
            let phrase: Vec<&str> = phrase.split(' ').collect();
            for (at, found) in lower.windows(phrase.len()).enumerate() {
                let is_named = phrase[0] == "one" && matches!(before(at), "the" | "only");
                if *found == *phrase && !is_named {
                    lines.push(words[at].0);
                }
            }
        }
        for (at, (line, word)) in words.iter().enumerate() {
            // The capital marks the start of a sentence.
            let starts_with_of = *word == "Of" && lower.get(at + 1).is_some_and(|next| next == "which");
            let has_no_person = lower[at] == "who" && !PERSONS.contains(&before(at));
            if starts_with_of || has_no_person {
                lines.push(*line);
            }
        }
        lines.sort_unstable();
        lines
    })
}

fn widths(repo: &Repo) -> Vec<Measured> {
    measure(repo, |text, language| {
        let lines = language.prose(text).filter(|(_, line)| {
            // A long link cannot be broken.
            let can_break = line.split_whitespace().all(|word| word.len() < COLUMNS_MAX - 20);
            can_break && line.chars().count() > COLUMNS_MAX
        });
        lines.map(|(number, _)| number).collect()
    })
}

/// Counts the lines that `find` returns for each file.
fn measure(repo: &Repo, find: impl Fn(&str, Language) -> Vec<usize>) -> Vec<Measured> {
    let mut found = Vec::new();
    for (RepoFile { path, .. }, text) in repo.texts(&[""]) {
        let Some(language) = Language::of(path).filter(|_| !QUOTING.contains(&path.as_str())) else {
            continue;
        };
        let lines = find(text, language);
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

/// The words of a text with their lines. The marks of comments separate words like spaces do. In the name of
/// a function, underscores separate words.
fn words_of(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().flat_map(|(number, line)| {
        let is_function = line.split_whitespace().any(|word| matches!(word, "fn" | "def"));
        let is_word =
            move |c: char| c.is_alphabetic() || matches!(c, '-' | '\'') || (c == '_' && !is_function);
        line.split(move |c| !is_word(c)).filter(|w| !w.is_empty()).map(move |w| (number + 1, w))
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
    fn a_who_without_a_person_and_a_starting_of_which_are_found() {
        let text = "A user who reads.\nWho writes?\nOf which one. Two, of which one is free.\nthe lock who\n";
        assert_eq!(values(words, "a.md", text), (2, 3));
    }

    /// A comment of one line in each language, with room for a text.
    const COMMENTS: &[(&str, &str)] = &[
        ("a.rs", "/// {}\n"),
        ("a.go", "// {}\n"),
        ("a.py", "# {}\n"),
        ("b.py", "def f():\n    \"\"\"First line.\n\n    {}\n    \"\"\"\n"),
        ("a.pyi", "def f() -> int:\n    \"\"\"{}\"\"\"\n"),
        ("a.js", "/**\n * {}\n */\n"),
        ("a.ts", "/** {} */\n"),
        ("a.java", "    // {}\n"),
        ("a.c", "/* First line.\n   {}\n*/\n"),
        ("a.h", "/* {} */\n"),
        ("a.hpp", "// {}\n"),
        ("a.cpp", "// {}\n"),
        ("a.md", "{}\n"),
    ];

    #[test]
    fn each_language_is_read() {
        let wide = "word ".repeat(23);
        for (path, form) in COMMENTS {
            assert_eq!(values(words, path, &form.replace("{}", PHRASES[0])).1, 1, "{path}");
            assert_eq!(values(widths, path, &form.replace("{}", &wide)).1, 1, "{path}");
            assert_eq!(values(widths, path, &form.replace("{}", "short")).1, 0, "{path}");
        }
    }

    #[test]
    fn wide_lines_are_found_in_prose_only() {
        let wide = "word ".repeat(23);
        let rust = format!("// {wide}\nlet s = \"{wide}\";\n// http://{}\n", "x".repeat(120));
        assert_eq!(values(widths, "a.rs", &rust), (1, 1));
        let markdown = format!("text\n| {wide} |\n```\n{wide}\n```\n{wide}\n");
        assert_eq!(values(widths, "a.md", &markdown), (6, 1));
        for path in ["a.py", "a.js", "a.java", "a.c"] {
            assert_eq!(values(widths, path, &format!("s = f(\"{wide}\") * 2\n")).1, 0, "{path}");
        }
        assert_eq!(values(widths, "a.js", &format!("/* short */\nf(`{wide}`)\n")).1, 0);
        assert_eq!(values(widths, "a.py", &format!("\"\"\"Short.\"\"\"\ns = \"{wide}\"\n")).1, 0);
    }

    #[test]
    fn other_files_are_not_read() {
        let repo = Repo::of(&["package-lock.json", "Cargo.lock", "a.csv"].map(|path| (path, PHRASES[0])));
        assert!(words(&repo).is_empty());
    }
}
