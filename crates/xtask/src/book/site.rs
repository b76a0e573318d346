//! Builds the site of the book with mdbook.
//!
//! ```text
//!   docs/book/SUMMARY.md --names--> pages of the repository --copied in the same layout--> target/book/src
//!     --mdbook--> target/book/book --> every link leads to a file and an anchor
//! ```
//!
//! site.1. Pages are copied, not moved or included: a page has one source, and its relative links work in the
//!     repository and in the site. A link to a file that the site does not have becomes plain text.
//! site.2. The first page alone is moved, to the root of the site: mdbook copies it to `index.html` as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::{root, target_dir};

const FOLDER: &str = "docs/book";
/// The first page is also the index of the site, so the site has it at its root (site.2).
const FIRST: &str = "docs/book/introduction.md";

/// Builds the site. Returns whether this succeeds and all links are sound; true if mdbook is not installed.
pub(super) fn build(version: &str) -> Result<bool, String> {
    let dir = root().join(target_dir()).join("book");
    let _ = fs::remove_dir_all(&dir);
    stage(&dir)?;
    let mut mdbook = Command::new("mdbook");
    if mdbook.arg("--version").output().is_err() {
        println!(
            "there is no mdbook here, so the site is not built: cargo install mdbook --version {version} --locked"
        );
        return Ok(true);
    }
    let built = Command::new("mdbook").arg("build").arg(&dir).status().map_err(|e| format!("mdbook: {e}"))?;
    if !built.success() {
        return Ok(false);
    }
    let site = dir.join("book");
    let broken = broken_links(&site)?;
    for link in &broken {
        println!("{link}");
    }
    println!("the site is in {}", site.display());
    Ok(broken.is_empty())
}

/// Copies the configuration, the summary and its pages.
fn stage(dir: &Path) -> Result<(), String> {
    let summary = read(&root().join(FOLDER).join("SUMMARY.md"))?;
    let pages = pages(&summary);
    for name in ["book.toml", "book.css"] {
        write(&dir.join(name), &read(&root().join(FOLDER).join(name))?)?;
    }
    // In the site the summary is above all pages.
    write(
        &dir.join("src/SUMMARY.md"),
        &map_links(&summary, |target| Some(staged(&resolve(FOLDER, target)))),
    )?;
    for page in &pages {
        let text = map_links(&read(&root().join(page))?, |target| staged_link(page, target, &pages));
        write(&dir.join("src").join(staged(page)), &text)?;
    }
    Ok(())
}

/// Returns the path of a page in the site.
fn staged(page: &str) -> String {
    if page == FIRST { page.replace(&format!("{FOLDER}/"), "") } else { page.to_owned() }
}

/// Returns the target of a link in the site; none if the site does not have it.
fn staged_link(page: &str, target: &str, pages: &BTreeSet<String>) -> Option<String> {
    let path = target.split('#').next().unwrap_or_default();
    if path.is_empty() || target.contains("://") || target.starts_with("mailto:") {
        return Some(target.to_owned());
    }
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let to = resolve(folder, path);
    let anchor = &target[path.len()..];
    let link = if page == FIRST { format!("{to}{anchor}") } else { target.to_owned() };
    pages.contains(&to).then_some(link)
}

/// Returns the pages that the summary names, relative to the root of the repository.
fn pages(summary: &str) -> BTreeSet<String> {
    let targets = summary.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.is_empty()).map(|target| resolve(FOLDER, target)).collect()
}

/// Returns the path of a target from the root.
fn resolve(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// Replaces the targets of links outside of code. A link whose target becomes none is left as its text.
fn map_links(text: &str, map: impl Fn(&str) -> Option<String>) -> String {
    let mut made = String::new();
    let mut in_code = false;
    let mut prose = String::new();
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```");
        if is_fence || in_code {
            made += &map_prose(&std::mem::take(&mut prose), &map);
            made += line;
            in_code ^= is_fence;
        } else {
            prose += line;
        }
    }
    made + &map_prose(&prose, &map)
}

fn map_prose(text: &str, map: impl Fn(&str) -> Option<String>) -> String {
    let mut made = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let Some((target, behind)) = after.split_once(')') else { break };
        made += before;
        match map(target) {
            Some(target) => made += &format!("]({target})"),
            None => {
                // An image is left out; of a link the text remains.
                let open = made.rfind('[').unwrap_or(made.len());
                let words = made.split_off(open);
                let is_image = made.ends_with('!');
                made.truncate(made.len() - usize::from(is_image));
                made += if is_image { "" } else { words.strip_prefix('[').unwrap_or(&words) };
            }
        }
        rest = behind;
    }
    made + rest
}

/// Returns the links of the site that lead nowhere, as text.
fn broken_links(site: &Path) -> Result<Vec<String>, String> {
    let mut pages = BTreeMap::new();
    let mut folders = vec![site.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?.flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "html") {
                let text = read(&path)?;
                pages.insert(path, text);
            }
        }
    }
    let mut broken = BTreeSet::new();
    for (path, text) in &pages {
        let folder = path.parent().unwrap_or(site);
        for target in values(text, "href").filter(|target| !target.contains(':')) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let to = if file.is_empty() { path.clone() } else { normal(&folder.join(file)) };
            let has_anchor = || pages.get(&to).is_some_and(|text| values(text, "id").any(|id| id == anchor));
            if !(to.exists() && (anchor.is_empty() || has_anchor())) {
                broken.insert(format!("{}: link to nowhere: {target}", path.display()));
            }
        }
    }
    Ok(broken.into_iter().collect())
}

/// Returns the values of an attribute.
fn values<'a>(html: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let opening = format!(" {name}=\"");
    let starts: Vec<usize> = html.match_indices(&opening).map(|(at, _)| at + opening.len()).collect();
    starts.into_iter().filter_map(|at| html[at..].split('"').next())
}

/// Removes `..` and `.`: the folder that a `..` leaves need not exist.
fn normal(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                parts.pop();
            }
            std::path::Component::CurDir => {}
            other => parts.push(other),
        }
    }
    parts
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let folder = path.parent().ok_or("a path without a folder")?;
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, text))
        .map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_out_of_the_site_become_text() {
        let text = "[a](b.md#x) [`c`](../d.rs)!\n![e](f.svg)\n```\n[g](h.rs)\n```\n[two\nlines](i.rs)\n";
        let mapped = map_links(text, |target| target.contains(".md").then(|| target.to_owned()));
        assert_eq!(mapped, "[a](b.md#x) `c`!\n\n```\n[g](h.rs)\n```\ntwo\nlines\n");
    }

    #[test]
    fn links_of_the_first_page_begin_at_the_root() {
        let pages = ["docs/a.md".to_owned()].into();
        assert_eq!(staged_link(FIRST, "../a.md#b", &pages).as_deref(), Some("docs/a.md#b"));
        assert_eq!(staged_link("docs/book/c.md", "../a.md#b", &pages).as_deref(), Some("../a.md#b"));
        assert_eq!(staged_link(FIRST, "../d.md", &pages), None);
        assert_eq!(staged(FIRST), "introduction.md");
    }

    #[test]
    fn the_summary_names_pages_from_the_root() {
        let found = pages("- [A](a.md)\n- [B](../b.md)\n  - [C](../../C.md)\n- [Draft]()\n");
        assert_eq!(found, ["C.md", "docs/b.md", "docs/book/a.md"].map(str::to_owned).into());
    }

    #[test]
    fn links_without_file_or_anchor_are_found() {
        let dir = std::env::temp_dir().join(format!("esker-links-{}", std::process::id()));
        write(&dir.join("a/b.html"), "<a href=\"../c.html#d\"></a><a href=\"#e\"></a><a href=\"x.html\">")
            .unwrap();
        write(&dir.join("c.html"), "<h1 id=\"d\"></h1><a href=\"https://x.y\"></a>").unwrap();
        let broken = broken_links(&dir).unwrap();
        let targets: Vec<&str> = broken.iter().filter_map(|line| line.rsplit(' ').next()).collect();
        assert_eq!(targets, ["#e", "x.html"]);
        fs::remove_dir_all(&dir).unwrap();
    }
}
