//! The links between pages lead to files and headings that exist, and every page can be reached.

use std::path::{Component, Path, PathBuf};

use super::pages::{Page, linked_pages, pages, root};

/// The greatest length of the README: three screens.
const MAX_README_LINES: usize = 155;

/// Resolves a link of a page: the file from the root of the repository.
fn resolve(page: &Path, target: &str) -> PathBuf {
    let mut path = page.parent().unwrap().to_owned();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => assert!(path.pop(), "{}: {target}", page.display()),
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

#[test]
fn links_in_the_readme_and_the_pages_lead_somewhere() {
    let pages = linked_pages();
    let mut broken = Vec::new();
    for page in &pages {
        for link in page.links().into_iter().filter(|link| !link.contains("://")) {
            let (file, anchor) =
                link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
            let path = if file.is_empty() { page.path.clone() } else { resolve(&page.path, file) };
            let target = pages.iter().find(|page| page.path == path);
            let has_anchor = |anchor: &str| {
                target.is_some_and(|page| page.anchors().iter().any(|one| one == anchor))
            };
            if !root().join(&path).exists() || anchor.is_some_and(|anchor| !has_anchor(anchor)) {
                broken.push(format!("{}: {link}", page.name()));
            }
        }
    }
    assert!(broken.is_empty(), "these links lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn the_readme_leads_to_every_page_and_is_short() {
    let pages = pages();
    let [readme, rest @ ..] = &pages[..] else { panic!("no pages") };
    let links: Vec<PathBuf> =
        readme.links().iter().map(|link| resolve(&readme.path, link)).collect();
    let missing: Vec<_> =
        rest.iter().map(Page::name).filter(|name| !links.contains(&name.into())).collect();
    assert!(missing.is_empty(), "the README has no link to {missing:?}");
    let lines = readme.text.lines().count();
    assert!(
        lines <= MAX_README_LINES,
        "the README has {lines} lines; move what is for one task into a page"
    );
}
