//! The pages for users, and their parts: code blocks, links and headings.

use std::fs;
use std::path::{Path, PathBuf};

use crate::kit::sources::files;

/// A page: its path from the root of the repository, and its text.
pub(super) struct Page {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// A fenced block of code.
pub(super) struct CodeBlock<'a> {
    /// The number of the line that opens it.
    pub(super) line: usize,
    /// The first word behind the fence.
    pub(super) language: &'a str,
    /// The file that an example puts the block into: `file=NAME` behind the fence.
    pub(super) file: Option<&'a str>,
    pub(super) code: String,
}

pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the README and the pages of `docs/`.
pub(super) fn pages() -> Vec<Page> {
    let mut paths: Vec<PathBuf> = files(&root().join("docs"), &["md"]);
    paths.sort();
    paths.insert(0, root().join("README.md"));
    paths.iter().map(|path| Page::read(path)).collect()
}

/// Returns the pages and the others that link to them.
pub(super) fn linked_pages() -> Vec<Page> {
    let others = ["SECURITY.md", "CONTRIBUTING.md", "statecharts/README.md"];
    let others = others.iter().map(|path| Page::read(&root().join(path)));
    pages().into_iter().chain(others).collect()
}

impl Page {
    pub(super) fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        Self { path: path.strip_prefix(root()).unwrap().to_owned(), text }
    }

    pub(super) fn name(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// Returns the fenced blocks in order.
    pub(super) fn blocks(&self) -> Vec<CodeBlock<'_>> {
        let (mut blocks, mut is_open) = (Vec::<CodeBlock<'_>>::new(), false);
        for (line, text) in (1..).zip(self.text.lines()) {
            match (text.strip_prefix("```"), is_open) {
                (Some(info), false) => {
                    let mut words = info.split_whitespace();
                    let language = words.next().unwrap_or_default();
                    let file = words.find_map(|word| word.strip_prefix("file="));
                    blocks.push(CodeBlock { line, language, file, code: String::new() });
                    is_open = true;
                }
                (Some(_), true) => is_open = false,
                (None, true) => {
                    let code = &mut blocks.last_mut().unwrap().code;
                    code.push_str(text);
                    code.push('\n');
                }
                (None, false) => {}
            }
        }
        assert!(!is_open, "{}: the last block is not closed", self.name());
        blocks
    }

    /// Returns the lines outside of code blocks.
    pub(super) fn prose(&self) -> impl Iterator<Item = &str> {
        let mut is_code = false;
        self.text.lines().filter(move |line| {
            let is_fence = line.starts_with("```");
            is_code ^= is_fence;
            !is_code && !is_fence
        })
    }

    /// Returns the targets of the links in the prose.
    pub(super) fn links(&self) -> Vec<&str> {
        self.prose()
            .flat_map(|line| {
                line.match_indices("](").map(move |(at, mark)| &line[at + mark.len()..])
            })
            .filter_map(|rest| Some(&rest[..rest.find(')')?]))
            .collect()
    }

    /// Returns the anchors of the headings, as GitHub makes them: lower case, hyphens for spaces, without punctuation.
    pub(super) fn anchors(&self) -> Vec<String> {
        let headings =
            self.prose().filter_map(|line| Some(line.strip_prefix('#')?.trim_start_matches('#')));
        let is_kept = |c: &char| c.is_alphanumeric() || "-_ ".contains(*c);
        headings
            .filter_map(|heading| heading.strip_prefix(' '))
            .map(|heading| {
                heading.to_lowercase().chars().filter(is_kept).collect::<String>().replace(' ', "-")
            })
            .collect()
    }
}

#[test]
fn blocks_links_and_headings_are_found() {
    let text =
        "# A page, `x`\n[a](b.md#c) and [d](e)\n```toml file=a.toml\n# no heading\nx = 1\n```\n";
    let page = Page { path: "docs/x.md".into(), text: text.into() };
    assert_eq!((page.anchors(), page.links()), (vec!["a-page-x".to_owned()], vec!["b.md#c", "e"]));
    let blocks = page.blocks();
    let [block] = &blocks[..] else { panic!("{} blocks", blocks.len()) };
    assert_eq!((block.line, block.language, block.file), (3, "toml", Some("a.toml")));
    assert_eq!(block.code, "# no heading\nx = 1\n");
}
