//! Properties of patches, and comparisons with git and GNU patch.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use proptest::prelude::*;

use super::{FilePatch, ParsedPatch, PatchError, apply_hunks};

pub(super) fn parse_patch(
    patch: &str,
    exists: &dyn Fn(&str) -> bool,
) -> Result<Vec<FilePatch>, String> {
    ParsedPatch::parse(patch)?.resolve(exists)
}

fn apply(file: &str, patch: &str) -> Result<String, String> {
    let sections = parse_patch(patch, &|_| true)?;
    let new = apply_hunks(file.as_bytes(), &sections[0].hunks).map_err(|why| format!("{why:?}"))?;
    String::from_utf8(new).map_err(|error| error.to_string())
}

fn unified(file: &str, hunks: &str) -> Result<String, String> {
    apply(file, &format!("--- a/f\n+++ b/f\n{hunks}"))
}

fn begin(file: &str, chunks: &str) -> Result<String, String> {
    apply(file, &format!("*** Begin Patch\n*** Update File: f\n{chunks}*** End Patch\n"))
}

const NO_END: &str = "\\ No newline at end of file\n";

/// The header counts one line more, so the blank line counts as a separator.
#[test]
fn a_blank_line_at_the_end_of_a_patch_adds_nothing() {
    for (hunk, expected) in [(" a\n-b\n+c\n ", "a\nc\nd\ne\n"), ("-a\n+c\n b\n ", "c\nb\nd\ne\n")] {
        let hunk = format!("@@ -1,9 +1,9 @@\n{hunk}");
        assert_eq!(unified("a\nb\nd\ne\n", &hunk).unwrap(), expected);
    }
}

/// `git apply` and GNU `patch` keep the carriage return, too.
#[test]
fn a_carriage_return_before_a_marker_is_content() {
    let none = NO_END;
    for (file, hunks, expected) in [
        ("a\n", format!("@@ -1 +1,2 @@\n a\n+b\r\n{none}"), "a\nb\r"),
        ("a\nb\r", format!("@@ -1,2 +1,2 @@\n a\n-b\r\n{none}+c\n"), "a\nc\n"),
        ("a\r\nb\r", format!("@@ -1,2 +1,2 @@\n a\r\n-b\r\n{none}+c\r\n{none}"), "a\r\nc\r"),
        // If all line ends of the patch have a carriage return that the file does not have, it is removed.
        ("a\nb", format!("@@ -1,2 +1,2 @@\r\n a\r\n-b\r\n{none}+c\r\n{none}"), "a\nc"),
        // With a line after it, the carriage return is part of the line end.
        ("a\r\nb\r\n", format!("@@ -1,2 +1,3 @@\n a\r\n+c\r\n{none} b\r\n"), "a\r\nc\r\nb\r\n"),
    ] {
        assert_eq!(unified(file, &hunks).as_deref(), Ok(expected), "{file:?} {hunks}");
    }
}

/// Lines after the names of a file are not a change without a hunk header.
#[test]
fn lines_without_a_header_are_refused() {
    for patch in
        ["--- a/f\n+++ b/f\n-a\n+b\n", "--- /dev/null\n+++ b/f\n+b\n", "--- a/f\n+++ b/f\n"]
    {
        assert!(apply("a\n", patch).unwrap_err().contains("no hunk follows line 2"), "{patch}");
    }
}

#[test]
fn lines_are_never_joined() {
    for (file, hunks, expected) in [
        ("1\n2", "@@ -1,2 +1,3 @@\n 1\n 2\n+3\n".to_owned(), "1\n2\n3\n"),
        ("1\n2", format!("@@ -1,2 +1,3 @@\n 1\n 2\n+3\n{NO_END}"), "1\n2\n3"),
        ("1\n2", format!("@@ -1,2 +1,3 @@\n 1\n 2\n{NO_END}+3\n"), "1\n2\n3\n"),
        ("1\r\n2", "@@ -1,2 +1,3 @@\n 1\n 2\n+3\n".to_owned(), "1\r\n2\r\n3\r\n"),
        (
            "0\n1\n2",
            "@@ -1 +1 @@\n-0\n+zero\n@@ -2,2 +2,3 @@\n 1\n 2\n+3\n".to_owned(),
            "zero\n1\n2\n3\n",
        ),
        ("1\n2", "@@ -2,0 +3 @@\n+3\n".to_owned(), "1\n2\n3\n"),
        ("1\n2\n", format!("@@ -1,2 +1,3 @@\n 1\n+x\n{NO_END} 2\n"), "1\nx\n2\n"),
        ("1\n2", "@@ -1,2 +1,3 @@\n 1\n+x\n 2\n".to_owned(), "1\nx\n2"),
    ] {
        assert_eq!(unified(file, &hunks).as_deref(), Ok(expected), "{file:?} {hunks}");
    }
}

#[test]
fn a_final_newline_is_kept_unless_the_patch_changes_it() {
    let two = |one: &str, other: &str| format!("@@ -1,2 +1,2 @@\n a\n-b\n{one}+c\n{other}");
    for (file, hunks, expected) in [
        // The patch does not specify the final line end.
        ("a\nb", two("", ""), "a\nc"),
        ("a\r\nb", two("", ""), "a\r\nc"),
        ("a\nb\n", two(NO_END, NO_END), "a\nc\n"),
        // The patch changes the final line end.
        ("a\nb", two(NO_END, ""), "a\nc\n"),
        ("a\nb\n", two("", NO_END), "a\nc"),
        ("a\r\nb", two(NO_END, ""), "a\r\nc\r\n"),
        // The text of the patch itself ends within the line.
        ("a\n", "@@ -1 +1,2 @@\n a\n+b".to_owned(), "a\nb\n"),
        ("a", "@@ -1 +1,2 @@\n a\n+b".to_owned(), "a\nb"),
        ("a\nb\n", "@@ -1,2 +1 @@\n a\n-b".to_owned(), "a\n"),
        ("a\nb", "@@ -1,2 +1 @@\n a\n-b".to_owned(), "a\n"),
        ("a\nb\nc\n", "@@ -1,3 +1,3 @@\n-a\n+x\n b\n c".to_owned(), "x\nb\nc\n"),
    ] {
        assert_eq!(unified(file, &hunks).as_deref(), Ok(expected), "{file:?} {hunks}");
    }
    let new = parse_patch("--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+a", &|_| false).unwrap();
    assert_eq!(apply_hunks(b"", &new[0].hunks).unwrap(), b"a\n");
}

#[test]
fn each_line_keeps_its_own_end() {
    let hunk = "@@ -1,3 +1,3 @@\n-a\n-b\n+A\n+B\n c\n";
    assert_eq!(unified("a\r\nb\nc\n", hunk).as_deref(), Ok("A\r\nB\nc\n"));
    assert_eq!(unified("a\r\nb\r\n", "@@ -1,0 +2 @@\n+x\n").as_deref(), Ok("a\r\nx\r\nb\r\n"));
    // One hunk changes a line end, another one does not specify the final line end.
    let hunks = "@@ -1 +1 @@\n-a\n+a\r\n@@ -3 +3 @@\n-c\n+C\n";
    assert_eq!(unified("a\nb\nc", hunks).as_deref(), Ok("a\r\nb\nC"));
}

#[test]
fn hunks_that_match_nowhere_are_rejected() {
    let two = format!("{:?}", PatchError::NotFound(0));
    for (file, hunks) in [
        // No line matches.
        ("x\ny\n", "@@ -1,2 +1,3 @@\n a\n b\n+c\n"),
        // The header counts old lines, but the hunk has none.
        ("x\ny\n", "@@ -1,2 +1,3 @@\n+c\n"),
        ("x\n", "@@ -7,0 +8 @@\n+c\n"),
        ("x\n", "@@ -99999999999999999999999,0 +8 @@\n+c\n"),
    ] {
        let why = unified(file, hunks).unwrap_err();
        assert!(why == two || why.contains("should be like"), "{why}");
    }
}

#[test]
fn a_removed_dash_is_not_a_signature() {
    let hunk = "@@ -1,9 +1,9 @@\n a\n--\n+x\n c\n";
    assert_eq!(unified("a\n-\nc\n", hunk).as_deref(), Ok("a\nx\nc\n"));
    let mail = "@@ -1,2 +1,2 @@\n a\n-b\n+x\n-- \n2.40.1\n\n";
    assert_eq!(unified("a\nb\n", mail).as_deref(), Ok("a\nx\n"));
}

#[test]
fn hunks_of_a_file_may_have_empty_lines_between_them() {
    let hunks = "@@ -1 +1 @@\n-a\n+x\n\n@@ -3 +3 @@\n-c\n+y\n";
    assert_eq!(unified("a\nb\nc\n", hunks).as_deref(), Ok("x\nb\ny\n"));
}

#[test]
fn hunks_are_located_by_their_lines() {
    let file = "class A:\n    def run(self):\n        return 1\n\nclass B:\n    def run(self):\n        return 1\n";
    let change = "-        return 1\n+        return 2\n";
    let at = |headers: &str| begin(file, &format!("{headers}{change}"));
    let changed = |n: usize| {
        let mut lines: Vec<&str> = file.lines().collect();
        lines[n] = "        return 2";
        Ok(lines.join("\n") + "\n")
    };
    assert_eq!(at("@@ class A:\n"), changed(2));
    assert_eq!(at("@@ class B:\n"), changed(6));
    assert_eq!(at("@@ class B:\n@@     def run(self):\n"), changed(6));
    assert_eq!(at("@@ class B:\n     def run(self):\n"), changed(6));
    assert_eq!(at("@@\n"), Err("Ambiguous(0, 2)".to_owned()));
    assert_eq!(at("@@ -3,1 +3,1 @@\n"), Err("Ambiguous(0, 2)".to_owned()));
    assert_eq!(at("@@ def run(self):\n"), Err("Ambiguous(0, 2)".to_owned()));
    assert_eq!(at("@@ class C:\n"), Err("HeaderNotFound(0, \"class C:\")".to_owned()));
    let both = format!("@@ class A:\n{change}@@ class B:\n{change}");
    assert_eq!(begin(file, &both).unwrap().matches("return 2").count(), 2);
    assert_eq!(begin("a\nb\na\n", "@@\n-a\n+x\n*** End of File\n").as_deref(), Ok("a\nb\nx\n"));
    assert_eq!(begin("a\nb\n", "@@\n-a\n+x\n*** End of File\n"), Err("NotFound(0)".to_owned()));
    assert_eq!(begin("a\nb\n", "@@\n+x\n*** End of File\n").as_deref(), Ok("a\nb\nx\n"));
    assert_eq!(begin("a\nb\n", "@@ a\n+x\n"), Err("NoPosition(0)".to_owned()));
    assert_eq!(begin("a\nb\nc\n", "@@\n-c\n+C\n@@\n-a\n+A\n"), Err("NotFound(1)".to_owned()));
    assert_eq!(begin("a\nb\nc\n", "-a\n+A\n\n@@\n b\n-c\n+C\n\n").as_deref(), Ok("A\nb\nC\n"));
}

#[test]
fn line_ends_and_the_end_of_the_file_are_kept() {
    assert_eq!(begin("a\r\nb", "@@\n a\n-b\n+c\n+d\n").as_deref(), Ok("a\r\nc\r\nd"));
    assert_eq!(begin("a\nb", "@@\n b\n+c\n").as_deref(), Ok("a\nb\nc"));
    assert_eq!(begin("a", "@@\n+c\n*** End of File\n").as_deref(), Ok("a\nc"));
}

#[test]
fn white_space_may_differ_if_the_position_is_unique() {
    assert_eq!(begin("\ta  \n\tb\n", "@@\n a\n-b\n+\tc\n").as_deref(), Ok("\ta  \n\tc\n"));
    assert_eq!(begin("\ta\nx\n  a\n", "@@\n-a\n+b\n"), Err("Ambiguous(0, 2)".to_owned()));
    // An exact match takes precedence.
    assert_eq!(begin("\ta\nx\na\n", "@@\n-a\n+b\n").as_deref(), Ok("\ta\nx\nb\n"));
}

#[test]
fn invalid_begin_patches_are_rejected() {
    let why = |patch: &str| parse_patch(patch, &|_| true).unwrap_err();
    for (patch, part) in [
        ("*** Begin Patch\n*** Update File: f\n@@\n-a\n+b\n", "cut off"),
        ("*** Update File: f\n@@\n-a\n+b\n*** End Patch", "should be '*** Begin Patch'"),
        ("*** Begin Patch\n*** End Patch", "changes no file"),
        ("*** Begin Patch\n*** Update File: f\n*** End Patch", "no hunk follows"),
        ("*** Begin Patch\n*** Update File: f\n@@\n*** End Patch", "has no lines"),
        ("*** Begin Patch\n*** Update File: f\n@@\nx\n*** End Patch", "line 4 is 'x'"),
        ("*** Begin Patch\n*** Add File: f\nx\n*** End Patch", "begins with '+'"),
        ("*** Begin Patch\n*** Add File: \n+x\n*** End Patch", "no name"),
        ("*** Begin Patch\n*** Delete File: f\n+x\n*** End Patch", "line 3 is '+x'"),
        ("*** Begin Patch\n*** Delete File: f\n*** End Patch\n+x\n", "stands behind"),
        ("*** Begin Patch\n*** Rename File: f\n*** End Patch", "and should be like"),
    ] {
        assert!(why(patch).contains(part), "{patch}\n{}", why(patch));
    }
    for (before, behind) in [
        ("apply_patch <<'EOF'\n", "EOF\n"),
        ("<<\"PATCH\"\n", "PATCH\n"),
        ("apply_patch << 'END'\n", "END"),
        ("```diff\n", "```"),
        ("  ", "  "),
    ] {
        let patch = format!("{before}*** Begin Patch\n*** Delete File: f\n*** End Patch\n{behind}");
        assert_eq!(parse_patch(&patch, &|_| true).map(|sections| sections.len()), Ok(1), "{patch}");
    }
    let patch =
        "cd x && apply_patch <<'EOF'\n*** Begin Patch\n*** Delete File: f\n*** End Patch\nEOF\n";
    assert!(why(patch).contains("line 1 should be '*** Begin Patch'"), "{}", why(patch));
}

/// Each of these has one position, whatever its punctuation.
#[test]
fn punctuation_and_indented_markers_are_understood() {
    for (file, patch, expected) in [
        ("x – “a” it’s\u{a0}b\nz\n", "@@\n-x - \"a\" it's b\n+y\n z\n*** End Patch", Ok("y\nz\n")),
        ("a–b\nx\n", "@@\n a-b\n-x\n+y\n*** End Patch", Ok("a–b\ny\n")),
        ("a–b\na—b\n", "@@\n-a-b\n+y\n*** End Patch", Err("Ambiguous(0, 2)")),
        ("a\n", "@@\n-a\n+b\n  *** End Patch  \n", Ok("b\n")),
        ("fn x()\na\n", "@@ fn x() @@\n-a\n+b\n*** End Patch", Ok("fn x()\nb\n")),
    ] {
        let patch = format!("  *** Begin Patch\n  *** Update File: f\n{patch}");
        assert_eq!(apply(file, &patch).as_deref().map_err(String::as_str), expected, "{patch}");
    }
}

/// A file, and a change of some lines in its middle.
fn edits() -> impl Strategy<Value = (Vec<String>, Vec<(char, String)>, usize)> {
    let line = "[ab]{1,2}";
    let op = (prop_oneof![3 => Just(' '), 1 => Just('-'), 1 => Just('+')], line);
    (prop::collection::vec(line, 0..4), prop::collection::vec(op, 1..6), 0..3_usize)
}

proptest! {
    /// The result has the lines of the file and of the hunk, whatever the line ends of file and patch are.
    #[test]
    fn the_lines_of_the_result_are_the_lines_of_the_hunk(
        (before, ops, tail) in edits(), crlf: bool, ended: bool, marks in prop::collection::vec(any::<bool>(), 6),
        is_wide: bool, cut: bool, is_begin: bool,
    ) {
        // All lines differ, so that the hunk has only one position.
        let name = |kind: &str, n: usize, text: &str| format!("{kind}{n}{text}");
        let before: Vec<String> = before.iter().enumerate().map(|(n, t)| name("x", n, t)).collect();
        let ops: Vec<(char, String)> =
            ops.iter().enumerate().map(|(n, (op, t))| (*op, name("y", n, t))).collect();
        let behind: Vec<String> = (0..tail).map(|n| name("z", n, "")).collect();
        let old: Vec<&String> = ops.iter().filter(|(op, _)| *op != '+').map(|(_, t)| t).collect();
        let new: Vec<&String> = ops.iter().filter(|(op, _)| *op != '-').map(|(_, t)| t).collect();
        prop_assume!(ops.iter().any(|(op, _)| *op != ' ') && !old.is_empty());
        let end = if crlf { "\r\n" } else { "\n" };
        let all: Vec<&String> = before.iter().chain(old.iter().copied()).chain(&behind).collect();
        let mut file: String = all.iter().map(|line| format!("{line}{end}")).collect();
        if !ended {
            file.truncate(file.len() - end.len());
        }
        // All lines behind the change are context: a hunk with missing context belongs to the end of the file.
        let lines: Vec<(char, String)> =
            ops.iter().cloned().chain(behind.iter().map(|line| (' ', line.clone()))).collect();
        let patch_end = if is_wide { "\r\n" } else { "\n" };
        let mut hunk = String::new();
        for (index, (op, text)) in lines.iter().enumerate() {
            if marks[index % marks.len()] && !is_begin {
                // Before a marker, a carriage return would be content.
                hunk += &format!("{op}{text}\n{NO_END}");
            } else {
                hunk += &format!("{op}{text}{patch_end}");
            }
        }
        let patch = if is_begin {
            format!("*** Begin Patch\n*** Update File: f\n@@\n{hunk}*** End Patch")
        } else {
            let (from, count) = (before.len() + 1, old.len() + behind.len());
            let head = format!("--- a/f\n+++ b/f\n@@ -{from},{count} +{from},{} @@\n", new.len() + behind.len());
            let whole = head + &hunk;
            if cut { whole.trim_end().to_owned() } else { whole }
        };
        let wanted: Vec<&String> = before.iter().chain(new.iter().copied()).chain(&behind).collect();
        match apply(&file, &patch) {
            Ok(made) => {
                let lines: Vec<String> = made.lines().map(str::to_owned).collect();
                prop_assert_eq!(lines, wanted.into_iter().cloned().collect::<Vec<_>>(), "{:?} {}", file, patch);
                if crlf && file.contains('\n') && !marks.contains(&true) {
                    prop_assert_eq!(made.matches('\n').count(), made.matches("\r\n").count());
                }
            }
            // A hunk that matches must not be refused.
            Err(why) => prop_assert!(false, "{}: {:?} {}", why, file, patch),
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }

    fn is(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    /// Returns lines with few different contents, so that positions are easily confused.
    fn lines(&mut self) -> Vec<String> {
        let count = self.below(14);
        let words = ["a", "b", "c", "}", "", "é😀", "-", "--", "+x", "\\ y", " z"];
        let ends = self.below(4);
        let mut lines: Vec<String> = (0..count)
            .map(|_| {
                let is_wide = ends == 1 || (ends == 2 && self.is(3));
                words[self.below(words.len())].to_owned() + if is_wide { "\r\n" } else { "\n" }
            })
            .collect();
        if self.is(3)
            && let Some(last) = lines.last_mut()
        {
            last.truncate(last.trim_end().len());
            if last.is_empty() {
                lines.pop();
            }
        }
        lines
    }

    /// Returns the same lines with some changes.
    fn changed(&mut self, lines: &[String]) -> Vec<String> {
        let mut lines = lines.to_vec();
        for _ in 0..=self.below(3) {
            let at = self.below(lines.len() + 1);
            match self.below(4) {
                0 if at < lines.len() => drop(lines.remove(at)),
                1 if at < lines.len() => lines[at] = format!("new {}\n", self.below(3)),
                2 if at < lines.len() => lines[at] = lines[at].trim_end().to_owned() + "\r\n",
                _ => lines.insert(at, format!("added {}\n", self.below(3))),
            }
        }
        if self.is(4)
            && let Some(last) = lines.last_mut()
        {
            *last =
                last.trim_end_matches(['\r', '\n']).to_owned() + if self.is(2) { "" } else { "\n" };
        }
        let last = lines.len().saturating_sub(1);
        for line in &mut lines[..last] {
            if !line.ends_with('\n') {
                line.push('\n');
            }
        }
        lines.retain(|line| !line.is_empty());
        lines
    }

    /// Returns a patch with an unusual change.
    fn odd(&mut self, patch: &str) -> String {
        let mut lines: Vec<String> = patch.split_inclusive('\n').map(str::to_owned).collect();
        let at = 2 + self.below(lines.len() - 2);
        match self.below(9) {
            0 => lines.insert(at, NO_END.to_owned()),
            1 => lines.retain(|line| !line.starts_with('\\')),
            2 => drop(lines.remove(at)),
            3 => lines[at] = lines[at].replace("\r\n", "\n"),
            4 => lines[at] = lines[at].trim_end().to_owned() + "\r\n",
            5 => lines = lines.iter().map(|line| line.trim_end().to_owned() + "\r\n").collect(),
            6 => lines[2] = lines[2].replace(" @@", "1 @@"),
            7 => {
                lines[2] = format!(
                    "@@ -{}{}",
                    self.below(9),
                    lines[2].trim_start_matches(|c| c != ',' && c != '+')
                );
            }
            _ => lines.insert(at, lines[at].clone()),
        }
        lines.concat()
    }
}

/// Returns the output of a program for a file; `None` if it rejects the patch.
fn theirs(folder: &Path, file: &str, program: &str, args: &[&str]) -> Option<String> {
    fs::write(folder.join("f"), file).unwrap();
    let mut command = Command::new(program);
    command.args(args).current_dir(folder).stdin(Stdio::null());
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CEILING_DIRECTORIES", folder);
    let done = command.output().unwrap();
    done.status.success().then(|| fs::read_to_string(folder.join("f")).unwrap_or_default())
}

/// Applies random patches, some of them unusual, to files that may have changed. The result must be that of git or GNU
/// patch, or the patch must be rejected. `ARCHITECT_TEST_PATCHES` is the number of patches.
#[test]
#[allow(clippy::too_many_lines)] // one class of difference after the other
fn odd_patches_give_what_git_and_patch_give_or_are_refused() {
    if ["git", "patch", "diff"]
        .iter()
        .any(|name| Command::new(name).arg("--version").output().is_err())
    {
        eprintln!("skipped: git, patch or diff is missing");
        return;
    }
    let count = std::env::var("ARCHITECT_TEST_PATCHES").ok().and_then(|count| count.parse().ok());
    let seed = std::env::var("ARCHITECT_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut random = Random(seed.unwrap_or(5));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let show = std::env::var("ARCHITECT_TEST_SHOW").ok();
    let mut classes: BTreeMap<&str, usize> = BTreeMap::new();
    let mut shown = Vec::new();
    for _ in 0..count.unwrap_or(60) {
        let old = random.lines();
        let new = random.changed(&old);
        let (old, new) = (old, new.concat());
        fs::write(folder.join("old"), old.concat()).unwrap();
        fs::write(folder.join("new"), &new).unwrap();
        let context = ["-U0", "-U1", "-U3"][random.below(3)];
        let diff =
            Command::new("diff").args(["-a", context, "old", "new"]).current_dir(folder).output();
        let diff = String::from_utf8(diff.unwrap().stdout).unwrap();
        let Some((_, hunks)) = diff.split_once("\n@@") else { continue };
        let mut patch = format!("--- a/f\n+++ b/f\n@@{hunks}");
        let is_odd = random.is(2);
        if is_odd {
            patch = random.odd(&patch);
        }
        let has_moved = random.is(3);
        let file = if has_moved { random.changed(&old).concat() } else { old.concat() };
        fs::write(folder.join("p"), &patch).unwrap();
        let zero = ["apply", "--unidiff-zero", "--whitespace=nowarn", "p"];
        let args =
            if context == "-U0" { &zero[..] } else { &["apply", "--whitespace=nowarn", "p"] };
        let git = theirs(folder, &file, "git", args);
        let quiet =
            ["-p1", "-s", "-f", "--binary", "--no-backup-if-mismatch", "-r", "-", "-i", "p"];
        let gnu = theirs(folder, &file, "patch", &quiet);
        let ours = unified_or(&file, &patch);
        // Added lines without neighbors get the line ends of the file; the programs mix line ends.
        let has_old = patch.lines().skip(2).any(|line| line.starts_with([' ', '-']));
        let unix = |text: &str| text.replace("\r\n", "\n");
        if !is_odd && !has_moved && has_old {
            assert_eq!(ours.as_deref(), Ok(&*new), "{file:?}\n{patch}");
        } else if !is_odd && !has_moved {
            assert_eq!(ours.as_deref().map(unix), Ok(unix(&new)), "{file:?}\n{patch}");
        }
        let described =
            || format!("{file:?}\n{patch}\nours: {ours:?}\ngit:  {git:?}\ngnu:  {gnu:?}");
        let class = match &ours {
            Err(_) => "refused",
            Ok(ours) if git.as_ref() == Some(ours) => "like git",
            Ok(ours) if gnu.as_ref() == Some(ours) => "like patch",
            // Whatever the programs do, only the changes of the hunks may be made.
            Ok(ours) if !is_explained(&file, &patch, ours) => "unexplained",
            Ok(_) if git.is_none() && gnu.is_none() => "refused by both",
            // The programs count lines by the header.
            Ok(_) if !is_sound(&patch) => "counted otherwise",
            // The programs join lines at a marker in the middle of a hunk.
            Ok(_) if has_marker_within(&patch) => "marker within",
            Ok(ours) => {
                let has_same_lines = |theirs: &String| {
                    // Before a marker, a carriage return is dropped if the file has none of the patch's line ends.
                    let is_foreign = patch.contains("\r\n\\ ") && !file.contains('\r');
                    let theirs = if is_foreign { theirs.trim_end_matches('\r') } else { theirs };
                    theirs.lines().eq(ours.lines())
                };
                // The programs join lines where a line without an end is added before others.
                let is_joined = |theirs: &String| {
                    ours.match_indices('\n').any(|(at, _)| {
                        let (before, after) = (&ours[..at], &ours[at + 1..]);
                        let before = before.strip_suffix('\r').unwrap_or(before);
                        theirs.strip_prefix(before) == Some(after)
                    })
                };
                // With unspecified line ends, the programs find the position that we find by ignoring line ends.
                let is_found = || {
                    let file = unix(&file)
                        + if file.ends_with('\n') || file.is_empty() { "" } else { "\n" };
                    fs::write(folder.join("p"), unix(&patch).replace(NO_END, "")).unwrap();
                    let git = theirs(folder, &file, "git", args);
                    let gnu = theirs(folder, &file, "patch", &quiet);
                    git.or(gnu).is_some_and(|theirs| theirs.lines().eq(unix(ours).lines()))
                };
                if git.iter().chain(&gnu).any(has_same_lines) {
                    // If the patch has other line ends, the file keeps its own.
                    "ends of the file"
                } else if patch.contains(NO_END) && git.iter().chain(&gnu).any(is_joined) {
                    "joined by them"
                } else if patch.contains('\r') != file.contains('\r') && is_found() {
                    "ends left out"
                } else if is_found() {
                    "ends mixed"
                } else {
                    "other"
                }
            }
        };
        *classes.entry(class).or_default() += 1;
        if matches!(class, "unexplained" | "other") || show.as_deref() == Some(class) {
            shown.push(format!("[{class}] {}", described()));
        }
    }
    println!("{classes:?}");
    if show.is_some() {
        println!("{}", shown.join("\n\n"));
    }
    let count = |class: &str| classes.get(class).copied().unwrap_or(0);
    assert!(count("like git") > 0 && count("like patch") > 0);
    assert!(count("unexplained") + count("other") == 0, "{}", shown.join("\n\n"));
}

/// Returns whether a result is a correct application of a patch at some position: all removed lines existed, all added
/// lines exist, and at most two context lines at each end differ. Line ends are ignored.
fn is_explained(file: &str, patch: &str, result: &str) -> bool {
    let lines = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.trim_end_matches('\r').to_owned()).collect()
    };
    let mut hunks: Vec<Vec<(char, String)>> = Vec::new();
    for line in lines(patch).into_iter().skip(2).filter(|line| !line.starts_with('\\')) {
        match (line.starts_with("@@ "), hunks.last_mut()) {
            (true, _) => hunks.push(Vec::new()),
            (false, Some(hunk)) => {
                let op = line.chars().next().unwrap_or(' ');
                hunk.push((op, line.get(1..).unwrap_or_default().to_owned()));
            }
            (false, None) => return false,
        }
    }
    explains(&lines(file), &hunks, &lines(result))
}

fn explains(file: &[String], hunks: &[Vec<(char, String)>], result: &[String]) -> bool {
    let Some((hunk, rest)) = hunks.split_first() else { return file == result };
    let is_other = |(op, _): &(char, String)| *op != ' ';
    let first = hunk.iter().position(is_other).unwrap_or(hunk.len());
    let last = hunk.iter().rposition(is_other).map_or(0, |last| last + 1);
    (0..=file.len()).any(|at| {
        let (mut old, mut new, mut settled) = (at, at, (at, at));
        let mut differing = [0, 0];
        let is_there = hunk.iter().enumerate().all(|(index, (op, text))| match op {
            '-' => {
                old += 1;
                settled = (old, new);
                file.get(old - 1) == Some(text)
            }
            '+' => {
                new += 1;
                settled = (old, new);
                result.get(new - 1) == Some(text)
            }
            _ => {
                (old, new) = (old + 1, new + 1);
                let is_same = file.get(old - 1) == Some(text);
                differing[usize::from(index >= last)] += usize::from(!is_same);
                let is_kept = index >= last || file.get(old - 1) == result.get(new - 1);
                is_kept && (is_same || index < first || index >= last)
            }
        });
        is_there
            && differing.iter().all(|differing| *differing <= 2)
            && file.get(..at) == result.get(..at)
            && explains(&file[settled.0..], rest, &result[settled.1..])
    })
}

/// Returns whether the numbers in the headers of all hunks are consistent.
fn is_sound(patch: &str) -> bool {
    let mut hunks: Vec<([usize; 4], [usize; 2])> = Vec::new();
    for line in patch.lines().skip(2) {
        match (super::hunk::parse_header(line), hunks.last_mut()) {
            (Some(header), _) => hunks.push((header, [0, 0])),
            (None, Some((_, [old, new]))) => {
                *old += usize::from(line.starts_with([' ', '-']) || line.is_empty());
                *new += usize::from(line.starts_with([' ', '+']) || line.is_empty());
            }
            (None, None) => return false,
        }
    }
    let mut moved = 0_isize;
    hunks.iter().all(|([old_start, old, new_start, new], counted)| {
        let begin = |start: usize, count: usize| start.cast_signed() + isize::from(count == 0);
        let is_there = begin(*new_start, *new) == begin(*old_start, *old) + moved;
        moved += new.cast_signed() - old.cast_signed();
        is_there && [*old, *new] == *counted
    })
}

/// Returns whether a line without a line end is not the last line of its side.
fn has_marker_within(patch: &str) -> bool {
    let lines: Vec<&str> = patch.lines().skip(2).collect();
    (1..lines.len()).any(|at| {
        let rest = lines[at + 1..].iter().take_while(|line| !line.starts_with("@@ "));
        let mut rest = rest.filter(|line| !line.starts_with('\\'));
        lines[at].starts_with('\\')
            && match lines[at - 1].chars().next() {
                Some('-') => rest.any(|line| !line.starts_with('+')),
                Some('+') => rest.any(|line| !line.starts_with('-')),
                _ => rest.next().is_some(),
            }
            || lines[at].starts_with('\\')
                && lines[at + 1..].iter().any(|line| line.starts_with("@@ "))
    })
}

fn unified_or(file: &str, patch: &str) -> Result<String, String> {
    let made = apply(file, patch);
    // A change without effect is reported, which is harmless.
    if made == Err("Unchanged".to_owned()) { Ok(file.to_owned()) } else { made }
}
