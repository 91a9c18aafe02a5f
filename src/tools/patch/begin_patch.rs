//! The format that begins with `*** Begin Patch`.
//!
//! Its headers name the operation on each file, and its hunks have context lines instead of line numbers:
//!
//! ```text
//! *** Begin Patch
//! *** Update File: src/app.py
//! *** Move to: src/main.py
//! @@ class Greeter:
//! @@     def greet(self):
//!  context
//! -old
//! +new
//! *** End of File
//! *** Add File: hello.txt
//! +Hello
//! *** Delete File: obsolete.txt
//! *** End Patch
//! ```
//!
//! The format cannot express whether the last line of a file has a line end, so the end is kept.

use super::file_patch::{FileOperation, FilePatch};
use super::hunk::{self, FinalNewline, Hunk, HunkLine, HunkPosition, LineKind};

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const ADD: &str = "*** Add File:";
const DELETE: &str = "*** Delete File:";
const UPDATE: &str = "*** Update File:";
const MOVE: &str = "*** Move to:";
const END_OF_FILE: &str = "*** End of File";

/// Returns whether a patch is in this format: one of its markers precedes any header of a unified diff.
pub(super) fn is_begin_patch(patch: &str) -> bool {
    let has = |words: &[&str], line: &str| words.iter().any(|word| line.starts_with(word));
    let mut words = patch.lines().map(str::trim).filter(|line| {
        has(&[BEGIN, ADD, DELETE, UPDATE], line) || has(&["diff --git ", "--- ", "@@"], line)
    });
    words.next().is_some_and(|line| line.starts_with("*** "))
}

/// Parses a line before a patch, as in Markdown and in shells. Returns the delimiter of its here-document; empty if the
/// line begins none. `None` if the line can't precede a patch.
fn parse_wrapper(line: &str) -> Option<&str> {
    let line = line.trim();
    match line.strip_prefix("apply_patch").unwrap_or(line).trim_start().strip_prefix("<<") {
        Some(word) => Some(word.trim_start_matches('-').trim().trim_matches(['\'', '"'])),
        None => (line.is_empty() || line.starts_with("```")).then_some(""),
    }
}

/// Parses a patch.
///
/// # Errors
///
/// Fails with the error and its position.
pub(super) fn parse(patch: &str) -> Result<Vec<FilePatch>, String> {
    let mut reader = PatchReader { lines: patch.lines().collect(), at: 0 };
    let mut terminator = "";
    while let Some(word) = reader.peek().and_then(parse_wrapper) {
        reader.at += 1;
        if !word.is_empty() {
            terminator = word;
        }
    }
    let is_wrapper_end = |line: &&str| {
        let line = line.trim();
        line.is_empty() || line.starts_with("```") || line == "EOF" || line == terminator
    };
    if reader.next().map(str::trim) != Some(BEGIN) {
        return Err(format!("line {} should be '{BEGIN}'", reader.at));
    }
    // The last line may be indented, although it could then be a line of the file.
    if let Some(last) = reader.lines.iter().rposition(|line| !is_wrapper_end(line))
        && reader.lines[last].trim() == END
    {
        reader.lines[last] = END;
    }
    let mut sections = Vec::new();
    loop {
        let number = reader.at + 1;
        let Some(line) = reader.next().map(str::trim) else {
            return Err(format!("it has no line '{END}' at its end; it may have been cut off"));
        };
        if line == END {
            break;
        }
        if let Some(name) = line.strip_prefix(ADD) {
            sections.push(parse_added_file(name, &mut reader)?);
        } else if let Some(name) = line.strip_prefix(DELETE) {
            let deleted = FileOperation::DeletedUnchecked;
            sections.push(parse_file(deleted, Some(name), None, Vec::new())?);
        } else if let Some(name) = line.strip_prefix(UPDATE) {
            sections.push(parse_updated_file(name, number, &mut reader)?);
        } else if !line.is_empty() {
            return Err(format!(
                "line {number} is '{line}', and should be like '{ADD} <path>', '{DELETE} <path>' or '{UPDATE} <path>'"
            ));
        }
    }
    let mut rest = reader.lines[reader.at..].iter();
    if let Some(line) = rest.find(|line| !is_wrapper_end(line)) {
        return Err(format!("'{line}' stands behind '{END}'"));
    }
    if sections.is_empty() {
        return Err("it changes no file".to_owned());
    }
    Ok(sections)
}

/// The lines of a patch.
struct PatchReader<'a> {
    lines: Vec<&'a str>,
    at: usize,
}

impl<'a> PatchReader<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.lines.get(self.at).copied()
    }

    fn next(&mut self) -> Option<&'a str> {
        let line = self.peek()?;
        self.at += 1;
        Some(line)
    }

    /// Returns whether the section of a file ends here, with the next file or with the end of the patch. Blank lines
    /// before that belong to neither.
    fn is_at_header(&self) -> bool {
        let mut rest = self.lines[self.at..].iter();
        let line = rest.find(|line| !line.is_empty());
        line.is_none_or(|line| line.starts_with("*** ") && line.trim_end() != END_OF_FILE)
    }
}

fn parse_file(
    what: FileOperation,
    old: Option<&str>,
    new: Option<&str>,
    hunks: Vec<Hunk>,
) -> Result<FilePatch, String> {
    let names = [old, new].into_iter().flatten();
    if names.into_iter().any(|name| name.trim().is_empty()) {
        return Err("a file in it has no name".to_owned());
    }
    let name = |name: Option<&str>| name.map(|name| name.trim().to_owned());
    Ok(FilePatch { operation: what, old: name(old), new: name(new), mode: None, hunks })
}

fn parse_added_file(name: &str, reader: &mut PatchReader<'_>) -> Result<FilePatch, String> {
    let at = reader.at;
    let mut lines = Vec::new();
    while !reader.is_at_header() {
        let number = reader.at + 1;
        let Some(line) = reader.next() else { break };
        let Some(text) = line.strip_prefix('+') else {
            return Err(format!(
                "line {number} is '{line}'; each line of an added file begins with '+'"
            ));
        };
        lines.push(HunkLine { kind: LineKind::Added, text: format!("{text}\n") });
    }
    let hunk = Hunk { patch_line: at, lines, ..Hunk::default() };
    let hunks = if hunk.lines.is_empty() { Vec::new() } else { vec![hunk] };
    parse_file(FileOperation::Created, None, Some(name), hunks)
}

fn parse_updated_file(
    name: &str,
    number: usize,
    reader: &mut PatchReader<'_>,
) -> Result<FilePatch, String> {
    let to = reader.peek().and_then(|line| line.trim_end().strip_prefix(MOVE));
    reader.at += usize::from(to.is_some());
    let mut hunks = Vec::new();
    while !reader.is_at_header() {
        let hunk = parse_chunk(hunks.is_empty(), reader)?;
        hunks.push(hunk);
    }
    match to {
        Some(to) => parse_file(FileOperation::Renamed, Some(name), Some(to), hunks),
        None if hunks.is_empty() => {
            Err(format!("line {number} says that {name} changes, and no hunk follows"))
        }
        None => parse_file(FileOperation::Modified, Some(name), Some(name), hunks),
    }
}

/// Parses one hunk: its headers, its lines, and whether it is at the end of the file.
fn parse_chunk(is_first: bool, reader: &mut PatchReader<'_>) -> Result<Hunk, String> {
    let at = reader.at + 1;
    let mut headers = Vec::new();
    while let Some(text) = reader.peek().and_then(|line| line.strip_prefix("@@")) {
        // Line numbers are not part of this format and are ignored.
        let is_header =
            !text.trim().is_empty() && hunk::parse_header(&format!("@@{text}")).is_none();
        // Some headers are closed by @@, as in a unified diff.
        let text = text.trim_end();
        let text = text.strip_suffix(" @@").unwrap_or(text);
        headers.extend(
            is_header.then(|| text.strip_prefix(' ').unwrap_or(text).trim_end().to_owned()),
        );
        reader.at += 1;
    }
    if !is_first && at == reader.at + 1 {
        let line = reader.peek().unwrap_or_default();
        return Err(format!("line {at} is '{line}', and should be like '@@' or '*** End Patch'"));
    }
    let mut lines = Vec::new();
    let mut is_at_end = false;
    while !reader.is_at_header() {
        let Some(line) = reader.peek().filter(|line| !line.starts_with("@@")) else { break };
        reader.at += 1;
        if line.trim_end() == END_OF_FILE {
            is_at_end = true;
            break;
        }
        lines.push(hunk::parse_line(&format!("{line}\n")).ok_or_else(|| {
            let number = reader.at;
            format!(
                "line {number} is '{line}'; inside a hunk, a line begins with a space, '+' or '-'"
            )
        })?);
    }
    // Blank lines may separate hunks.
    let is_followed = reader.peek().is_none_or(|line| line.is_empty() || line.starts_with("@@"));
    let is_empty = |line: &HunkLine| line.kind == LineKind::Context && line.text == "\n";
    while is_followed && !is_at_end && lines.last().is_some_and(is_empty) {
        lines.pop();
    }
    while reader.peek().is_some_and(str::is_empty) {
        reader.at += 1;
    }
    if lines.is_empty() {
        return Err(format!("the hunk at line {at} has no lines"));
    }
    let place = HunkPosition::Context { headers, is_at_end };
    Ok(Hunk { patch_line: at, position: place, lines, final_newline: FinalNewline::Unspecified })
}
