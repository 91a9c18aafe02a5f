//! Unified diffs of file contents.

use super::is_binary;

/// The maximum size of contents that are compared line by line, in bytes.
const MAX_COMPARED_BYTES: usize = 1 << 20;

/// Returns the hunks of a unified diff. Above [`MAX_COMPARED_BYTES`], one hunk replaces everything.
pub(super) fn hunks(old: &[u8], new: &[u8]) -> Vec<u8> {
    if old.len().max(new.len()) > MAX_COMPARED_BYTES {
        return whole_hunk(old, new);
    }
    let diff = flickzeug::DiffOptions::new().create_patch_bytes(old, new).to_bytes();
    let start = diff.windows(3).position(|bytes| bytes == b"@@ ").unwrap_or(diff.len());
    diff[start..].to_vec()
}

/// Returns the change of a file as a unified diff, for display. `None` stands for a missing file.
pub fn unified_diff(path: &str, old: Option<&[u8]>, new: Option<&[u8]>) -> String {
    let name = |side: Option<&[u8]>, prefix: &str| match side {
        Some(_) => format!("{prefix}/{path}"),
        None => "/dev/null".to_owned(),
    };
    let head = format!("--- {}\n+++ {}\n", name(old, "a"), name(new, "b"));
    let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
    if is_binary(old) || is_binary(new) {
        return format!("{head}Binary content: {} → {} bytes\n", old.len(), new.len());
    }
    let hunks = hunks(old, new);
    let end = if hunks.is_empty() || hunks.ends_with(b"\n") { "" } else { "\n" };
    format!("{head}{}{end}", String::from_utf8_lossy(&hunks))
}

/// Returns a hunk that replaces a whole text.
fn whole_hunk(old: &[u8], new: &[u8]) -> Vec<u8> {
    let lines = |text: &[u8]| text.split_inclusive(|byte| *byte == b'\n').count();
    let range = |count: usize| format!("{},{count}", usize::from(count > 0));
    let mut out = format!("@@ -{} +{} @@\n", range(lines(old)), range(lines(new))).into_bytes();
    for (sign, text) in [(b'-', old), (b'+', new)] {
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            out.push(sign);
            out.extend_from_slice(line);
            if !line.ends_with(b"\n") {
                out.extend_from_slice(b"\n\\ No newline at end of file\n");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_created_changed_and_deleted() {
        let diff = |old: Option<&str>, new: Option<&str>| {
            unified_diff("d/a", old.map(str::as_bytes), new.map(str::as_bytes))
        };
        assert_eq!(diff(None, Some("x\n")), "--- /dev/null\n+++ b/d/a\n@@ -0,0 +1 @@\n+x\n");
        assert_eq!(
            diff(Some("1\n2\n"), Some("1\n3")),
            "--- a/d/a\n+++ b/d/a\n@@ -1,2 +1,2 @@\n 1\n-2\n+3\n\\ No newline at end of file\n"
        );
        assert_eq!(diff(Some("x\n"), None), "--- a/d/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n");
        assert!(diff(Some("a"), Some("\0")).contains("Binary content: 1 → 1 bytes"));
    }
}
