//! The sections of a patch, one per file.

use super::file_name;
use super::hunk::{self, FinalNewline, Hunk, HunkPosition};

/// The section of a patch for one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::tools) struct FilePatch {
    /// The operation on the file.
    pub operation: FileOperation,
    /// The old file; `None` for a new file, or without a name.
    pub old: Option<String>,
    /// The new file; `None` for a deleted file, or without a name.
    pub new: Option<String>,
    /// The new permissions, as git writes them.
    pub mode: Option<u32>,
    /// The changes in the file.
    pub hunks: Vec<Hunk>,
}

impl FilePatch {
    /// Returns whether the old file no longer exists afterwards.
    pub(in crate::tools) fn removes_old(&self) -> bool {
        match self.operation {
            FileOperation::Deleted | FileOperation::DeletedUnchecked => true,
            FileOperation::Renamed => self.old != self.new,
            FileOperation::Modified | FileOperation::Created | FileOperation::Copied => false,
        }
    }
}

/// An operation on a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tools) enum FileOperation {
    /// Changes the file.
    #[default]
    Modified,
    /// Creates the file.
    Created,
    /// Deletes the file; the patch contains all of its lines.
    Deleted,
    /// Deletes the file, whatever its content is.
    DeletedUnchecked,
    /// Renames the file.
    Renamed,
    /// Copies the file.
    Copied,
}

/// A section with uninterpreted names.
#[derive(Clone)]
pub(in crate::tools) struct UnresolvedFilePatch {
    pub(super) patch: FilePatch,
    /// The uninterpreted names in the line `diff --git`, or else in the lines `---` and `+++`.
    pub(super) git_names: Option<(String, String)>,
}

/// The headers of a section that were read so far.
#[derive(Default)]
struct GitHeaders {
    git: Option<(String, String)>,
    operation: Option<FileOperation>,
    mode: Option<u32>,
    from: Option<String>,
    to: Option<String>,
    is_binary: bool,
}

/// Parses a unified diff, without interpreting its names.
pub(super) fn parse_unified(patch: &str) -> Result<Vec<UnresolvedFilePatch>, String> {
    let lines: Vec<&str> = patch.split_inclusive('\n').collect();
    let mut sections: Vec<UnresolvedFilePatch> = Vec::new();
    let mut headers = GitHeaders::default();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let next = lines.get(at + 1).copied().unwrap_or_default();
        if let Some(names) = line.strip_prefix("diff --git ") {
            end_file(&mut headers, &mut sections)?;
            headers.git = file_name::parse_git_names(names);
            headers.operation = Some(FileOperation::Modified);
            at += 1;
        } else if line.starts_with("--- ") && next.starts_with("+++ ") {
            let (old, new) = (
                file_name::parse_header_name(&line[4..]),
                file_name::parse_header_name(&next[4..]),
            );
            at += 2;
            let (hunks, read) = parse_hunks(&lines, at)?;
            if hunks.is_empty() {
                // Without a hunk header, the lines would be ignored silently.
                return Err(format!(
                    "no hunk follows line {at}; a hunk begins with a line like '@@ -10,6 +10,8 @@'"
                ));
            }
            at += read;
            if headers.git.is_none() {
                headers.git =
                    Some((file_name::raw_name(&line[4..]), file_name::raw_name(&next[4..])));
            }
            sections.push(parse_file(std::mem::take(&mut headers), old, new, hunks)?);
        } else if line.starts_with("@@") {
            let (hunks, read) = parse_hunks(&lines, at)?;
            at += read;
            let names = headers.git.clone().unzip();
            let section = match headers.operation {
                Some(_) => parse_file(std::mem::take(&mut headers), names.0, names.1, hunks)?,
                None if sections.is_empty() => {
                    let patch = FilePatch { hunks, ..FilePatch::default() };
                    UnresolvedFilePatch { patch, git_names: None }
                }
                None => {
                    return Err(format!("the hunk before line {} belongs to no file", at + 1));
                }
            };
            sections.push(section);
        } else {
            headers.read_line(line);
            at += 1;
        }
    }
    end_file(&mut headers, &mut sections)?;
    if sections.is_empty() {
        return Err(
            "it has no hunks; a hunk begins with a line like '@@ -10,6 +10,8 @@'".to_owned()
        );
    }
    Ok(sections)
}

/// Ends a section without hunks.
fn end_file(
    headers: &mut GitHeaders,
    sections: &mut Vec<UnresolvedFilePatch>,
) -> Result<(), String> {
    let headers = std::mem::take(headers);
    let has_headers = headers.mode.is_some()
        || headers.is_binary
        || headers.operation.is_some_and(|what| what != FileOperation::Modified);
    if !has_headers {
        return Ok(());
    }
    let (old, new) = headers.git.clone().unzip();
    sections.push(parse_file(headers, old, new, Vec::new())?);
    Ok(())
}

impl GitHeaders {
    /// Parses a header line of git. Other lines are ignored.
    fn read_line(&mut self, line: &str) {
        let line = line.trim_end_matches(['\r', '\n']);
        if line == "GIT binary patch" || line.starts_with("Binary files ") {
            self.is_binary = true;
        }
        if self.operation.is_none() {
            return;
        }
        let name = |text: &str| {
            file_name::parse_quoted(text).map_or_else(|| text.to_owned(), |(name, _)| name)
        };
        let mode = |text: &str| u32::from_str_radix(text.trim(), 8).ok();
        let first = |prefix: &str| line.strip_prefix(prefix);
        if let Some(text) = first("new file mode ") {
            (self.operation, self.mode) = (Some(FileOperation::Created), mode(text));
        } else if first("deleted file mode ").is_some() {
            self.operation = Some(FileOperation::Deleted);
        } else if let Some(text) = first("new mode ") {
            self.mode = mode(text);
        } else if let Some(text) = first("rename from ") {
            (self.operation, self.from) = (Some(FileOperation::Renamed), Some(name(text)));
        } else if let Some(text) = first("rename to ") {
            (self.operation, self.to) = (Some(FileOperation::Renamed), Some(name(text)));
        } else if let Some(text) = first("copy from ") {
            (self.operation, self.from) = (Some(FileOperation::Copied), Some(name(text)));
        } else if let Some(text) = first("copy to ") {
            (self.operation, self.to) = (Some(FileOperation::Copied), Some(name(text)));
        }
    }
}

fn parse_file(
    headers: GitHeaders,
    old: Option<String>,
    new: Option<String>,
    hunks: Vec<Hunk>,
) -> Result<UnresolvedFilePatch, String> {
    let what = match (headers.operation, &old, &new) {
        (Some(what), ..) if what != FileOperation::Modified => what,
        (_, None, Some(_)) => FileOperation::Created,
        (_, Some(_), None) => FileOperation::Deleted,
        _ => FileOperation::Modified,
    };
    let (old, new) = match what {
        FileOperation::Renamed | FileOperation::Copied
            if headers.from.is_none() || headers.to.is_none() =>
        {
            return Err("it renames or copies a file, but has only one of the two names".to_owned());
        }
        FileOperation::Renamed | FileOperation::Copied => (headers.from, headers.to),
        FileOperation::Created => (None, new),
        FileOperation::Deleted | FileOperation::DeletedUnchecked => (old, None),
        FileOperation::Modified => (old, new),
    };
    let named = new.as_ref().or(old.as_ref()).map_or("a file", String::as_str);
    if headers.is_binary {
        return Err(format!("it changes {named}, a binary file; only text can be patched"));
    }
    match headers.mode.map(|mode| mode & 0o170_000) {
        None | Some(0o100_000) => {}
        Some(_) => {
            return Err(format!(
                "{named} is a symbolic link or a submodule there; only files can be patched"
            ));
        }
    }
    if old.is_none() && new.is_none() {
        return Err("the names of a file are ambiguous".to_owned());
    }
    let mode = headers.mode.map(|mode| mode & 0o777);
    Ok(UnresolvedFilePatch {
        patch: FilePatch { operation: what, old, new, mode, hunks },
        git_names: headers.git,
    })
}

/// Parses hunks beginning at a line. Returns them with their number of lines.
fn parse_hunks(lines: &[&str], from: usize) -> Result<(Vec<Hunk>, usize), String> {
    let mut hunks = Vec::new();
    let mut at = from;
    loop {
        // Blank lines may separate hunks.
        let empty = lines[at..].iter().take_while(|line| line.trim_end().is_empty()).count();
        let Some(line) = lines.get(at + empty).filter(|line| line.starts_with("@@")) else { break };
        at += empty;
        let [start, count, _, new] = hunk::parse_header(line).ok_or_else(|| {
            let line = line.trim_end();
            format!("line {} is '{line}', and should be like '@@ -10,6 +10,8 @@'", at + 1)
        })?;
        let (mut body, read) = hunk::parse_body(&lines[at + 1..], count, new).map_err(|wrong| {
            let line = lines[at + 1 + wrong].trim_end();
            let number = at + wrong + 2;
            format!(
                "line {number} is '{line}'; inside a hunk, a line begins with a space, '+' or '-'"
            )
        })?;
        if body.is_empty() {
            return Err(format!("the hunk at line {} has no lines", at + 1));
        }
        let number = at + 1;
        at += 1 + read;
        // A patch that ends without a line feed does not specify the end of its last line.
        let is_whole = at < lines.len() || lines.last().is_none_or(|line| line.ends_with('\n'));
        let is_marker = lines.last().is_some_and(|line| line.starts_with('\\'));
        let last =
            if is_whole || is_marker { FinalNewline::Specified } else { FinalNewline::Unspecified };
        if last == FinalNewline::Unspecified {
            // The line is assumed to end like the other lines of the hunk. Blank lines after it may be missing.
            let is_wide = body.iter().any(|line| line.text.ends_with("\r\n"));
            if let Some(line) = body.last_mut().filter(|line| !line.text.ends_with('\n')) {
                line.text.push_str(if is_wide { "\r\n" } else { "\n" });
            }
        }
        hunks.push(Hunk {
            patch_line: number,
            position: HunkPosition::Line { start, count },
            lines: body,
            final_newline: last,
        });
    }
    Ok((hunks, at - from))
}

#[cfg(test)]
mod tests {
    use super::super::hunk::{HunkLine, LineKind};
    use crate::tools::patch::tests::parse_patch;

    #[test]
    fn the_format_of_git_is_parsed() {
        let patch = "From x\nSubject: y\n---\n a | 2 +-\n\ndiff --git a/a b/a\nindex 1..2 100644\n--- a/a\n+++ b/a\n\
                     @@ -1 +1 @@\n-1\n+2\ndiff --git a/new b/new\nnew file mode 100755\nindex 0..1\n--- /dev/null\n\
                     +++ b/new\n@@ -0,0 +1,2 @@\n+--- x\n++++ y\ndiff --git a/old b/old\ndeleted file mode 100644\n\
                     --- a/old\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n\\ No newline at end of file\n\
                     diff --git a/from b/to\nsimilarity index 100%\nrename from from\nrename to to\n\
                     diff --git a/empty b/empty\nnew file mode 100644\nindex 0..0\n\
                     diff --git a/run b/run\nold mode 100644\nnew mode 100755\n-- \n2.40\n";
        let found = parse_patch(patch, &|_| false).unwrap();
        let parsed: Vec<String> = found
            .iter()
            .map(|s| {
                let (old, new) = (s.old.as_deref().unwrap_or("-"), s.new.as_deref().unwrap_or("-"));
                format!("{:?} {old} {new} {:?} {}", s.operation, s.mode, s.hunks.len())
            })
            .collect();
        let expected = [
            "Modified a a None 1",
            "Created - new Some(493) 1",
            "Deleted old - None 1",
            "Renamed from to None 0",
            "Created - empty Some(420) 0",
            "Modified run run Some(493) 0",
        ];
        assert_eq!(parsed, expected);
        let added = ["--- x\n", "+++ y\n"]
            .map(|line| HunkLine { kind: LineKind::Added, text: line.to_owned() });
        assert_eq!(found[1].hunks[0].lines, added);
        assert_eq!(found[2].hunks[0].old_lines(), ["x"]);
    }

    #[test]
    fn wrong_line_counts_are_corrected() {
        let patch = "--- a\n+++ b\n@@ -1,9 +1,9 @@\n 1\n-2\n+3\n@@ -8 +8 @@\n-8\n+9\n";
        let found = parse_patch(patch, &|_| false).unwrap();
        assert_eq!(found[0].hunks.len(), 2);
        assert_eq!(found[0].hunks[0].old_lines(), ["1\n", "2\n"]);
        let short = "--- a\n+++ b\n@@ -1 +1 @@\n 1\n-2\n+3\n";
        assert_eq!(parse_patch(short, &|_| false).unwrap()[0].hunks[0].old_lines(), ["1\n", "2\n"]);
    }

    /// Fault T24.
    #[test]
    fn invalid_patches_are_rejected() {
        let why = |patch: &str| parse_patch(patch, &|_| false).unwrap_err();
        assert!(why("").contains("no hunks"));
        assert!(why("--- a\n+++ b\n@@\n-a\n+b\n").contains("line 3 is '@@', and should be like"));
        assert!(
            why("--- a\n+++ b\n@@ -1,3 +1,3 @@\n-a\nb\n").contains("line 5 is 'b'; inside a hunk")
        );
        assert!(why("diff --git a/x b/x\nBinary files a/x and b/x differ\n").contains("binary"));
        assert!(why("diff --git a/x b/x\nnew file mode 120000\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+y\n").contains("symbolic link"));
    }
}
