//! Finds circles of files: files that reach each other through their imports.
//!
//! ```text
//!   use crate::a::{b, C}    super::d::f()    child::g()
//!        `--modules, re-exports--> file --> graph --> strongly connected components
//! ```
//!
//! Not counted: imports of tests, and a module's use of its own children, which it dispatches to or
//! re-exports. A name that a module re-exports from a child counts as the child's. Calls of methods are not
//! seen.

use std::collections::{BTreeMap, BTreeSet};

use crate::checks::limit::{Limit, Measured};
use crate::repo::Repo;
use crate::source::{Source, is_name};

/// The limit holds for each circle.
pub(super) const CIRCLES: Limit = Limit { kind: "circle", max: 3, unit: "files", measure: circles };

fn circles(repo: &Repo) -> Vec<Measured> {
    let mut found = Vec::new();
    for root in crate_roots(repo) {
        for circle in Graph::of(repo, &root).circles() {
            let names: Vec<&str> =
                circle.iter().map(|name| if name.is_empty() { "lib" } else { name.as_str() }).collect();
            let (path, item) = (root.clone(), names[0].to_owned());
            let detail = format!(": {}", names.join(" "));
            found.push(Measured { path, line: 1, item, value: names.len(), detail });
        }
    }
    found
}

/// The folders `src` that hold a `lib.rs` or a `main.rs`.
fn crate_roots(repo: &Repo) -> BTreeSet<String> {
    let roots = repo.rust().filter_map(|(file, _)| {
        file.path.strip_suffix("src/lib.rs").or_else(|| file.path.strip_suffix("src/main.rs"))
    });
    roots.map(|root| format!("{root}src")).collect()
}

/// The files of a crate by module path, and the modules that each imports from.
struct Graph<'a> {
    /// `engine::disk` to its source. The root is the empty path.
    modules: BTreeMap<String, &'a Source>,
    /// Of each module: names that it re-exports, with the paths that they come from.
    reexports: BTreeMap<String, BTreeMap<String, String>>,
}

impl<'a> Graph<'a> {
    fn of(repo: &'a Repo, root: &str) -> Graph<'a> {
        let mut modules = BTreeMap::new();
        for (file, source) in repo.rust() {
            let Some(inside) = file.path.strip_prefix(root).and_then(|p| p.strip_prefix('/')) else {
                continue;
            };
            if source.is_test_line(1) {
                continue;
            }
            let stem = inside.trim_end_matches(".rs");
            let stem = stem.strip_suffix("mod").map_or(stem, |folder| folder.trim_end_matches('/'));
            let stem = if matches!(stem, "lib" | "main") { "" } else { stem };
            modules.insert(stem.replace('/', "::"), source);
        }
        let reexports =
            modules.iter().map(|(module, source)| (module.clone(), reexports(module, source))).collect();
        Graph { modules, reexports }
    }

    /// The circles, each once.
    fn circles(&self) -> BTreeSet<BTreeSet<String>> {
        let edges: BTreeMap<&str, BTreeSet<String>> = self
            .modules
            .iter()
            .map(|(module, source)| (module.as_str(), self.imports(module, source)))
            .collect();
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            edges.keys().map(|module| (*module, reachable(&edges, module))).collect();
        let circle = |module: &str| -> BTreeSet<String> {
            let others = reached[module].iter().filter(|other| reached[*other].contains(module));
            others.map(|other| (*other).to_owned()).collect()
        };
        edges.keys().map(|module| circle(module)).filter(|c| c.len() > 1).collect()
    }

    /// The modules that `module` imports from.
    fn imports(&self, module: &str, source: &Source) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for path in paths(source) {
            let target = self.absolute(module, &path).and_then(|path| self.resolve(&path, 0));
            found.extend(target.filter(|target| target != module && !is_inside(target, module)));
        }
        found
    }

    /// A path from the root of the crate, without `crate`. `None` if it names something else.
    fn absolute(&self, module: &str, path: &str) -> Option<String> {
        let (mut base, mut rest) = (module.to_owned(), path);
        if let Some(inside) = path.strip_prefix("crate::") {
            return Some(inside.to_owned());
        }
        let mut is_relative = false;
        loop {
            if let Some(inside) = rest.strip_prefix("super::") {
                base = base.rsplit_once("::").map_or(String::new(), |(parent, _)| parent.to_owned());
                rest = inside;
            } else if let Some(inside) = rest.strip_prefix("self::") {
                rest = inside;
            } else {
                break;
            }
            is_relative = true;
        }
        let absolute = join(&base, rest);
        let first = join(&base, rest.split("::").next().unwrap_or(rest));
        (is_relative || self.modules.contains_key(&first)).then_some(absolute)
    }

    /// The module that defines what `path` names.
    fn resolve(&self, path: &str, depth: usize) -> Option<String> {
        let mut module = String::new();
        let mut names = path.split("::").peekable();
        while let Some(inner) =
            names.peek().map(|name| join(&module, name)).filter(|m| self.modules.contains_key(m))
        {
            module = inner;
            names.next();
        }
        let Some(name) = names.next() else { return Some(module) };
        let source = self.reexports.get(&module).and_then(|names| names.get(name));
        match source.filter(|_| depth < 8) {
            Some(origin) => {
                let rest: Vec<&str> = names.collect();
                let origin = self.absolute(&module, origin)?;
                let full = std::iter::once(origin.as_str()).chain(rest).collect::<Vec<_>>().join("::");
                self.resolve(&full, depth + 1)
            }
            None => Some(module),
        }
    }
}

fn reachable<'g>(edges: &'g BTreeMap<&str, BTreeSet<String>>, from: &str) -> BTreeSet<&'g str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = edges[from].iter().map(String::as_str).collect();
    while let Some(module) = open.pop() {
        if reached.insert(module) {
            open.extend(edges[module].iter().map(String::as_str));
        }
    }
    reached
}

fn is_inside(module: &str, parent: &str) -> bool {
    parent.is_empty() || module.strip_prefix(parent).is_some_and(|rest| rest.starts_with("::"))
}

fn join(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

/// The names that a module re-exports with `pub use`, each with its path.
fn reexports(_module: &str, source: &Source) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (offset, path) in use_leaves(source) {
        let line_start = source.code[..offset].rfind('\n').map_or(0, |at| at + 1);
        if source.code[line_start..offset].trim_start().starts_with("pub") {
            let (path, name) =
                path.split_once(" as ").unwrap_or((&path, path.rsplit("::").next().unwrap_or_default()));
            found.insert(name.trim().to_owned(), path.trim().to_owned());
        }
    }
    found
}

/// All paths of a file outside tests: the leaves of `use`, and paths with `::` in the code.
fn paths(source: &Source) -> Vec<String> {
    let mut found: Vec<String> = use_leaves(source)
        .into_iter()
        .filter(|(offset, _)| !source.is_test_line(source.line_of(*offset)))
        .map(|(_, path)| path.split(" as ").next().unwrap_or_default().trim().to_owned())
        .collect();
    for (number, line) in source.code_lines() {
        let start = line.trim_start();
        let is_use = start.starts_with("use ") || start.starts_with("pub");
        if source.is_test_line(number) || (is_use && start.contains("use ")) {
            continue;
        }
        let words = line.split(|c: char| !is_name(c) && c != ':').map(|word| word.trim_matches(':'));
        found.extend(words.filter(|word| word.contains("::")).map(str::to_owned));
    }
    found
}

/// Each name of each `use` statement as a full path, with the offset of the statement.
fn use_leaves(source: &Source) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for offset in source.words("use ") {
        let statement = source.code[offset + "use ".len()..].split(';').next().unwrap_or_default();
        let mut leaves = Vec::new();
        expand("", statement, &mut leaves);
        found.extend(leaves.into_iter().map(|leaf| (offset, leaf)));
    }
    found
}

/// Expands the groups of a `use` tree into paths.
fn expand(prefix: &str, tree: &str, leaves: &mut Vec<String>) {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        let leaf = format!("{prefix}{tree}");
        leaves.push(leaf.trim_end_matches("::self").trim_end_matches("::*").to_owned());
        return;
    };
    let prefix = format!("{prefix}{}", tree[..open].trim());
    let inside = &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())];
    let (mut depth, mut start) = (0usize, 0);
    for (at, c) in inside.char_indices().chain([(inside.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                let member = inside[start..at].trim();
                if !member.is_empty() {
                    expand(&prefix, member, leaves);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_found_through_reexports_and_paths() {
        let files = [
            ("crates/x/src/lib.rs", "mod a;\nmod b;\nmod c;\npub use a::A;\n"),
            ("crates/x/src/a/mod.rs", "mod inner;\npub(crate) use inner::{A, B as C};\n"),
            ("crates/x/src/a/inner.rs", "use crate::{\n    b::{self, D},\n};\n"),
            ("crates/x/src/b.rs", "fn f() {\n    super::a::C::new()\n}\n"),
            ("crates/x/src/c.rs", "use crate::a::A;\n#[cfg(test)]\nuse crate::c::d;\n"),
            ("crates/x/src/d.rs", "#[cfg(test)]\nmod tests {\n    use crate::e;\n}\n"),
            ("crates/x/src/e.rs", "use crate::d::X;\nuse crate::f::X;\n"),
            ("crates/x/src/f.rs", "use crate::e::X;\n"),
        ];
        let found = circles(&Repo::of(&files));
        let found: Vec<_> = found.iter().map(|m| (m.path.as_str(), m.item.as_str(), m.value)).collect();
        assert_eq!(found, [("crates/x/src", "a::inner", 2), ("crates/x/src", "e", 2)]);
    }
}
