//! `cargo xtask doc-links`: what the documents point to is there, and the table of contents is whole.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::progress::say;

const ROOT_DOCUMENTS: [&str; 3] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];
const CONTENTS: &str = "docs/SUMMARY.md";

pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    let faults = faults(root)?;
    if !faults.is_empty() {
        bail!("faults in the documents:\n  {}", faults.join("\n  "));
    }
    say("the documents' links and table of contents are right");
    Ok(ExitCode::SUCCESS)
}

fn faults(root: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let mut pages = pages(root, Path::new("docs"))?;
    // If it is missing, reading it says so.
    pages.insert(CONTENTS.into());
    let mut listed = BTreeSet::new();
    for document in ROOT_DOCUMENTS
        .iter()
        .map(PathBuf::from)
        .chain(pages.clone())
    {
        let file = root.join(&document);
        let text = fs::read_to_string(&file)
            .with_context(|| format!("cannot read {}", document.display()))?;
        let folder = document.parent().unwrap_or(Path::new(""));
        for link in relative_links(&text) {
            let target = normal(&folder.join(link));
            if !root.join(&target).exists() {
                faults.push(format!("{}: {link} does not exist", document.display()));
            }
            if document == Path::new(CONTENTS) {
                listed.insert(target);
            }
        }
    }
    for page in pages {
        if page != Path::new(CONTENTS) && !listed.contains(&page) {
            faults.push(format!("{CONTENTS}: {} is not listed", page.display()));
        }
    }
    Ok(faults)
}

/// Every Markdown file under `folder`, by its path from `root`.
fn pages(root: &Path, folder: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let entries = fs::read_dir(root.join(folder))
        .with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            found.extend(pages(root, &path)?);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.insert(path);
        }
    }
    Ok(found)
}

/// The targets of `[…](target)` and `[…]: target`, without anchors; code is not looked at.
fn relative_links(text: &str) -> Vec<&str> {
    let mut links = Vec::new();
    let mut in_fence = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
        } else if !in_fence {
            links.extend(definition(line));
            // Every second piece between back-ticks is code.
            links.extend(line.split('`').step_by(2).flat_map(inline));
        }
    }
    links.into_iter().filter_map(relative).collect()
}

fn definition(line: &str) -> Option<&str> {
    let (_, target) = line.strip_prefix('[')?.split_once("]:")?;
    target.split_whitespace().next()
}

fn inline(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| {
        let (target, _) = rest.split_once(')')?;
        // What follows a space is a title.
        target.split_whitespace().next()
    })
}

fn relative(target: &str) -> Option<&str> {
    let target = target.trim_start_matches('<').trim_end_matches('>');
    let path = target.split('#').next().unwrap_or_default();
    (!path.is_empty() && !path.contains(':')).then_some(path)
}

/// Takes `.` and `..` out of a path by its text alone.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if normal.file_name().is_some() => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPLETE: [(&str, &str); 6] = [
        (
            "README.md",
            "[docs](docs/intro.md#start) [site](https://example.org)",
        ),
        ("ARCHITECTURE.md", ""),
        ("CONTRIBUTING.md", "[code](docs)"),
        (
            "docs/SUMMARY.md",
            "- [Intro](intro.md)\n  - [One](./adr/0001.md)",
        ),
        ("docs/intro.md", "[up](../README.md)"),
        ("docs/adr/0001.md", "[back](../intro.md)"),
    ];

    /// The faults of the complete documents with some files written over.
    fn faults_with(changes: &[(&str, &str)]) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in COMPLETE.iter().chain(changes) {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        faults(root.path()).unwrap()
    }

    #[test]
    fn complete_documents_have_no_faults() {
        assert_eq!(faults_with(&[]), Vec::<String>::new());
    }

    #[test]
    fn a_dead_link_is_a_fault() {
        assert_eq!(
            faults_with(&[("docs/adr/0001.md", "[gone](../gone.md)")]),
            ["docs/adr/0001.md: ../gone.md does not exist"]
        );
    }

    #[test]
    fn a_page_outside_the_contents_is_a_fault() {
        assert_eq!(
            faults_with(&[("docs/adr/0002.md", "")]),
            ["docs/SUMMARY.md: docs/adr/0002.md is not listed"]
        );
    }

    #[test]
    fn contents_without_their_page_are_a_fault() {
        let summary = "[Intro](intro.md) [One](adr/0001.md) [Two](adr/0002.md)";
        assert_eq!(
            faults_with(&[("docs/SUMMARY.md", summary)]),
            ["docs/SUMMARY.md: adr/0002.md does not exist"]
        );
    }

    #[test]
    fn links_are_found_where_markdown_has_them() {
        let text = "[a](a.md) and [`b`](<b.md>) `[c](c.md)` [d](d.md \"title\")\n\
                    ```rust\n[e](e.md)\n```\n\
                    [f]: f.md\n[g](#anchor) [h](mailto:h@example.org)";
        assert_eq!(relative_links(text), ["a.md", "b.md", "d.md", "f.md"]);
    }
}
