//! Measures functions, their parameters, structs and files.

use crate::checks::limit::{Limit, Measured};
use crate::repo::{Repo, RepoFile};
use crate::source::{Source, is_name};

/// A function fits on a screen.
pub(super) const FUNCTIONS: Limit = Limit { kind: "function", max: 70, unit: "lines", measure: functions };
/// `self` is not counted. A function that implements a trait has the parameters that the trait declares.
pub(super) const PARAMETERS: Limit =
    Limit { kind: "parameters", max: 6, unit: "parameters", measure: parameters };
pub(super) const FIELDS: Limit = Limit { kind: "struct", max: 15, unit: "fields", measure: fields };
/// Lines that are compiled for tests only are not counted.
pub(super) const FILES: Limit = Limit { kind: "file", max: 500, unit: "lines without tests", measure: files };

/// The endings of the files whose sizes are limited.
const LANGUAGES: &[&str] =
    &[".rs", ".py", ".pyi", ".js", ".mjs", ".cjs", ".ts", ".java", ".c", ".h", ".hpp", ".cpp", ".go"];

fn functions(repo: &Repo) -> Vec<Measured> {
    each_item(repo, "fn ", |source, offset| {
        let item = source.item(offset);
        source.line_of(item.end.saturating_sub(1)) - source.line_of(offset) + 1
    })
}

fn parameters(repo: &Repo) -> Vec<Measured> {
    each_item(repo, "fn ", |source, offset| {
        if implements_trait(source, offset) {
            return 0;
        }
        let signature = &source.code[offset..];
        let names = Members::behind(signature, '(', ')');
        names.filter(|member| !is_self(member)).count()
    })
}

fn fields(repo: &Repo) -> Vec<Measured> {
    each_item(repo, "struct ", |source, offset| {
        let item = &source.code[source.item(offset)];
        // A tuple struct ends with its semicolon.
        if item.ends_with(';') { 0 } else { Members::behind(item, '{', '}').count() }
    })
}

fn files(repo: &Repo) -> Vec<Measured> {
    let mut found = Vec::new();
    for (file, text) in repo.texts(LANGUAGES) {
        let lines = text.lines().count();
        let value = match &file.source {
            Some(source) => (1..=lines).filter(|line| !source.is_test_line(*line)).count(),
            None if is_test_file(&file.path) => 0,
            None => lines,
        };
        found.push(Measured {
            path: file.path.clone(),
            line: 1,
            item: "-".to_owned(),
            value,
            detail: String::new(),
        });
    }
    found
}

/// Returns whether a file of another language than Rust has tests only.
fn is_test_file(path: &str) -> bool {
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    folders.split('/').any(|folder| matches!(folder, "test" | "tests"))
        || name.starts_with("test_")
        || name
            .split_once('.')
            .is_some_and(|(stem, ending)| stem.ends_with("_test") || ending.starts_with("test."))
}

/// Measures each named item that begins with `keyword`.
fn each_item(repo: &Repo, keyword: &str, measure: impl Fn(&Source, usize) -> usize) -> Vec<Measured> {
    let mut found = Vec::new();
    for (RepoFile { path, .. }, source) in repo.rust() {
        for offset in source.words(keyword) {
            let item: String =
                source.code[offset + keyword.len()..].chars().take_while(|c| is_name(*c)).collect();
            // `fn(u8)` and `fn (u8)` are types.
            if !item.is_empty() {
                let (path, line) = (path.clone(), source.line_of(offset));
                found.push(Measured {
                    path,
                    line,
                    item,
                    value: measure(source, offset),
                    detail: String::new(),
                });
            }
        }
    }
    found
}

/// Returns whether the function at `offset` is in an `impl Trait for Type`.
fn implements_trait(source: &Source, offset: usize) -> bool {
    let is_line_start = |at: usize| at == 0 || source.code[..at].ends_with('\n');
    let starts = source.words("impl").filter(|at| *at < offset && is_line_start(*at));
    let Some(start) = starts.last() else { return false };
    let item = source.item(start);
    item.contains(&offset) && source.code[item].split('{').next().is_some_and(|head| head.contains(" for "))
}

fn is_self(parameter: &str) -> bool {
    let name = parameter.split(':').next().unwrap_or_default();
    name.split(|c: char| !is_name(c)).any(|word| word == "self")
}

/// The members between the first `open` and its `close`, split at the commas of the outermost level.
struct Members<'a> {
    rest: &'a str,
}

impl<'a> Members<'a> {
    fn behind(code: &'a str, open: char, close: char) -> impl Iterator<Item = &'a str> {
        let generic = if open == '(' { skip_generics(code) } else { code };
        let rest = generic.find(open).map_or("", |at| &generic[at + 1..]);
        let end = end_of(rest, |c, depth| depth == 0 && c == close);
        Members { rest: &rest[..end] }.filter(|member| !member.trim().is_empty())
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        if self.rest.is_empty() {
            return None;
        }
        let end = end_of(self.rest, |c, depth| depth == 0 && c == ',');
        let member = &self.rest[..end];
        self.rest = self.rest.get(end + 1..).unwrap_or_default();
        Some(member)
    }
}

/// The code behind `fn name<..>`, so that a bound such as `F: Fn(u8)` is not taken for the parameters.
fn skip_generics(code: &str) -> &str {
    let from = code.find(['<', '(']).unwrap_or(0);
    if !code[from..].starts_with('<') {
        return code;
    }
    let inside = &code[from + 1..];
    &inside[end_of(inside, |c, depth| depth == 0 && c == '>')..]
}

/// The offset of the first character for which `stop` holds, given the depth of brackets before it.
fn end_of(code: &str, stop: impl Fn(char, usize) -> bool) -> usize {
    let (mut depth, mut before) = (0usize, ' ');
    for (at, c) in code.char_indices() {
        if stop(c, depth) && !(c == '>' && matches!(before, '-' | '=')) {
            return at;
        }
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            '>' if matches!(before, '-' | '=') => {}
            ')' | ']' | '}' | '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        before = c;
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(measure: fn(&Repo) -> Vec<Measured>, text: &str) -> Vec<(String, usize)> {
        measure(&Repo::of(&[("a.rs", text)])).into_iter().map(|m| (m.item, m.value)).collect()
    }

    #[test]
    fn functions_and_parameters_are_measured() {
        let text = "fn a(&mut self, x: u8) -> Vec<u8> {\n    f();\n}\ntrait T {\n    fn b<F: Fn(u8, u8) -> u8>(f: F, g: \
                    fn(u8, u8), m: Map<u8, u8>);\n}\nfn c() {}\n";
        let expected = [("a", 3), ("b", 1), ("c", 1)].map(|(name, n)| (name.to_owned(), n));
        assert_eq!(values(functions, text), expected);
        let expected = [("a", 1), ("b", 3), ("c", 0)].map(|(name, n)| (name.to_owned(), n));
        assert_eq!(values(parameters, text), expected);
    }

    #[test]
    fn parameters_that_a_trait_prescribes_are_not_counted() {
        let text = "impl T for A {\n    fn a(x: u8) {}\n}\nimpl A {\n    fn b(x: u8) {}\n}\nfn c(x: u8) {}\n";
        let expected = [("a", 0), ("b", 1), ("c", 1)].map(|(name, n)| (name.to_owned(), n));
        assert_eq!(values(parameters, text), expected);
    }

    #[test]
    fn fields_and_files_are_measured() {
        let text = "struct A<T: Fn(u8)> {\n    // a, b\n    pub(crate) x: Map<u8, T>,\n    y: (u8, u8),\n}\nstruct B(u8, \
                    u8);\n#[cfg(test)]\nmod tests {\n}\n";
        let expected = [("A", 2), ("B", 0)].map(|(name, n)| (name.to_owned(), n));
        assert_eq!(values(fields, text), expected);
        assert_eq!(values(files, text), [("-".to_owned(), 6)]);
    }

    #[test]
    fn files_of_each_language_are_measured_without_tests() {
        let sizes = |paths: &[&str]| {
            let files: Vec<_> = paths.iter().map(|path| (*path, "x\n\ny\n")).collect();
            files_of(&Repo::of(&files))
        };
        let code = ["a.py", "a.pyi", "a/b.js", "a.ts", "A.java", "a.c", "a.h", "a.hpp", "a.cpp", "a.go"];
        assert_eq!(sizes(&code), [3; 10]);
        let tests = ["a/tests/b.c", "src/test/A.java", "a/test_b.py", "b_test.go", "lib/a.test.js"];
        assert_eq!(sizes(&tests), [0; 5]);
        assert_eq!(sizes(&["package-lock.json", "a.svg"]), [0; 0]);
    }

    #[test]
    fn a_large_file_of_each_language_exceeds_the_limit() {
        let large = "x\n".repeat(FILES.max + 1);
        for path in ["a.py", "a.js", "a.ts", "A.java", "a.c", "a.go"] {
            assert!(files_of(&Repo::of(&[(path, &large)]))[0] > FILES.max, "{path}");
        }
    }

    fn files_of(repo: &Repo) -> Vec<usize> {
        files(repo).into_iter().map(|measured| measured.value).collect()
    }
}
