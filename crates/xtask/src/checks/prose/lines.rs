//! The lines of prose in a file: comments, docstrings and Markdown text.

/// How a kind of file marks prose.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    /// Everything but fenced code and tables.
    Markdown,
    /// `//` and `/* .. */`.
    Slashes,
    /// `#` and docstrings.
    Python,
}

impl Language {
    /// Returns the language of a file of the project, by the ending of its name.
    pub(super) fn of(path: &str) -> Option<Language> {
        match path.rsplit_once('.')?.1 {
            "md" => Some(Language::Markdown),
            "rs" | "go" | "js" | "mjs" | "cjs" | "ts" | "java" | "c" | "h" | "hpp" | "cpp" => {
                Some(Language::Slashes)
            }
            "py" | "pyi" => Some(Language::Python),
            _ => None,
        }
    }

    /// Returns the lines of prose with their numbers, from 1. A comment behind code does not count.
    pub(super) fn prose(self, text: &str) -> impl Iterator<Item = (usize, &str)> {
        let mut is_inside = false;
        text.lines().enumerate().map(|(at, line)| (at + 1, line)).filter(move |(_, line)| {
            let start = line.trim_start();
            match self {
                Language::Markdown => {
                    is_inside ^= start.starts_with("```");
                    !is_inside && !start.starts_with('|')
                }
                Language::Slashes => {
                    let was_inside = is_inside;
                    is_inside =
                        if was_inside || start.starts_with("/*") { !start.contains("*/") } else { false };
                    was_inside || start.starts_with("//") || start.starts_with("/*")
                }
                Language::Python => {
                    let was_inside = is_inside;
                    let quotes = start.matches("\"\"\"").count();
                    is_inside ^= quotes % 2 == 1;
                    was_inside || start.starts_with('#') || start.starts_with("\"\"\"")
                }
            }
        })
    }
}
