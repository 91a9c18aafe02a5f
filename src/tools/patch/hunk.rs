//! Hunks of a patch.

/// Adjacent lines with their changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::tools) struct Hunk {
    /// The line of the patch where the hunk begins, counted from 1.
    pub patch_line: usize,
    /// The position in the file.
    pub position: HunkPosition,
    /// The lines of the hunk.
    pub lines: Vec<HunkLine>,
    /// Whether the patch specifies the end of the last line.
    pub final_newline: FinalNewline,
}

/// The position of a hunk in the old file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tools) enum HunkPosition {
    /// A line number.
    Line {
        /// The first line, counted from 1; for a hunk without old lines, the line before the hunk.
        start: usize,
        /// The number of old lines in the header.
        count: usize,
    },
    /// Determined by the hunk's own lines, and by header lines before them, outermost first.
    Context {
        /// The header lines, in the order of the file.
        headers: Vec<String>,
        /// Whether the last line of the hunk is the last line of the file.
        is_at_end: bool,
    },
}

/// Whether a patch specifies the end of a hunk's last line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tools) enum FinalNewline {
    /// Specified by a line feed, or by a marker for its absence.
    #[default]
    Specified,
    /// Not specified, since the patch ends there, or its format cannot express it. The file's own end is kept.
    Unspecified,
}

/// The reason why hunks cannot be applied. Hunks are counted from zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tools) enum PatchError {
    /// The lines of this hunk do not occur.
    NotFound(usize),
    /// The lines of this hunk occur this number of times.
    Ambiguous(usize, usize),
    /// A header line of this hunk does not occur after the previous hunk.
    HeaderNotFound(usize, String),
    /// This hunk only adds lines, and has no position.
    NoPosition(usize),
    /// The content would not change.
    Unchanged,
}

impl Default for HunkPosition {
    fn default() -> Self {
        Self::Line { start: 0, count: 0 }
    }
}

/// A line of a hunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tools) struct HunkLine {
    /// The change of the line.
    pub kind: LineKind,
    /// The text with its line end, if any.
    pub text: String,
}

/// The change of a line by a hunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tools) enum LineKind {
    /// The line stays.
    Context,
    /// The line is removed.
    Removed,
    /// The line is added.
    Added,
}

impl HunkLine {
    /// Returns whether the line is an unchanged empty line.
    pub(super) fn is_blank(&self) -> bool {
        self.kind == LineKind::Context && self.text.trim().is_empty()
    }
}

impl Hunk {
    /// Returns the old lines: context and removed lines.
    pub(in crate::tools) fn old_lines(&self) -> Vec<&str> {
        self.lines_without(LineKind::Added).collect()
    }

    fn lines_without(&self, kind: LineKind) -> impl Iterator<Item = &str> {
        self.lines.iter().filter(move |line| line.kind != kind).map(|line| line.text.as_str())
    }

    /// Returns the first added line with non-ASCII characters.
    pub(in crate::tools) fn first_beyond_ascii(&self) -> Option<&str> {
        let mut added = self.lines.iter().filter(|line| line.kind == LineKind::Added);
        added.find(|line| !line.text.is_ascii()).map(|line| line.text.as_str())
    }

    /// Returns whether all line ends are the same.
    pub(super) fn has_one_end(&self) -> bool {
        // Before a marker, only the carriage return of a line end is left.
        let ended = self.lines.iter().filter(|line| line.text.ends_with(['\n', '\r']));
        let mut ends = ended.map(|line| line.text.trim_end_matches('\n').ends_with('\r'));
        let first = ends.next();
        ends.all(|end| Some(end) == first)
    }

    /// Returns whether the hunk changes any line.
    pub(super) fn has_changes(&self) -> bool {
        !self.lines_without(LineKind::Removed).eq(self.lines_without(LineKind::Added))
    }

    /// Returns whether a line begins with a byte order mark.
    pub(in crate::tools) fn has_byte_order_mark(&self) -> bool {
        self.lines.iter().any(|line| line.text.starts_with('\u{feff}'))
    }

    /// Returns the number of context lines at the beginning.
    pub(in crate::tools) fn leading_context(&self) -> usize {
        self.lines.iter().take_while(|line| line.kind == LineKind::Context).count()
    }

    /// Returns the number of context lines at the end.
    pub(in crate::tools) fn trailing_context(&self) -> usize {
        self.lines.iter().rev().take_while(|line| line.kind == LineKind::Context).count()
    }
}

/// The maximum line number; larger numbers in a header are reduced to it.
const MAX_LINE_NUMBER: usize = 1 << 31;

/// Parses the numbers of a header, `@@ -1,2 +3,4 @@`: old start and length, new start and length.
pub(super) fn parse_header(line: &str) -> Option<[usize; 4]> {
    let rest = line.strip_prefix("@@ -")?;
    let (ranges, _) = rest.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let number = |text: &str| text.parse::<usize>().ok().map(|number| number.min(MAX_LINE_NUMBER));
    let range = |text: &str| {
        let (start, length) = text.split_once(',').unwrap_or((text, "1"));
        Some((number(start)?, number(length.trim())?))
    };
    let ((old_start, old_length), (new_start, new_length)) = (range(old)?, range(new)?);
    Some([old_start, old_length, new_start, new_length])
}

/// Parses the lines of a hunk after its header. Returns them with the number of lines read from the patch.
///
/// Models miscount lines: if the numbers in the header are wrong, the hunk ends where the next hunk or file begins.
pub(super) fn parse_body(
    lines: &[&str],
    old: usize,
    new: usize,
) -> Result<(Vec<HunkLine>, usize), usize> {
    parse_counted(lines, old, new).map_or_else(|| parse_until_next(lines), Ok)
}

fn parse_counted(lines: &[&str], mut old: usize, mut new: usize) -> Option<(Vec<HunkLine>, usize)> {
    let mut body = Vec::new();
    let mut read = 0;
    while old > 0 || new > 0 {
        let line = lines.get(read)?;
        read += 1;
        if line.starts_with('\\') {
            remove_line_end(&mut body);
            continue;
        }
        let line = parse_line(line)?;
        old = old.checked_sub(usize::from(line.kind != LineKind::Added))?;
        new = new.checked_sub(usize::from(line.kind != LineKind::Removed))?;
        body.push(line);
    }
    if lines.get(read).is_some_and(|line| line.starts_with('\\')) {
        remove_line_end(&mut body);
        read += 1;
    }
    // If further hunk lines follow, the numbers are wrong.
    let next = lines.get(read).copied().unwrap_or_default();
    let goes_on = next.starts_with([' ', '+', '-'])
        && !is_file_header(lines, read)
        && !is_mail_signature(lines, read);
    (!goes_on).then_some((body, read))
}

/// Parses up to the next header; fails with the index of the first line that cannot belong to a hunk.
fn parse_until_next(lines: &[&str]) -> Result<(Vec<HunkLine>, usize), usize> {
    let mut body = Vec::new();
    let mut read = 0;
    while let Some(text) = lines.get(read) {
        let is_next = text.starts_with("@@ ") || text.starts_with("diff --git ");
        if is_next || is_file_header(lines, read) || is_mail_signature(lines, read) {
            break;
        }
        if text.starts_with('\\') {
            remove_line_end(&mut body);
        } else {
            body.push(parse_line(text).ok_or(read)?);
        }
        read += 1;
    }
    // Trailing blank lines separate this hunk from the next one.
    while body.last().is_some_and(HunkLine::is_blank) {
        body.pop();
    }
    Ok((body, read))
}

/// Returns whether the headers of another file begin at a line.
fn is_file_header(lines: &[&str], at: usize) -> bool {
    lines[at].starts_with("--- ") && lines.get(at + 1).is_some_and(|next| next.starts_with("+++ "))
}

/// Returns whether a line begins the signature of `git format-patch`: two dashes, the version of git, and nothing more.
/// A removed line may look the same.
fn is_mail_signature(lines: &[&str], at: usize) -> bool {
    let mut rest = lines[at + 1..].iter().filter(|line| !line.trim().is_empty());
    lines[at].trim_end() == "--"
        && rest.next().is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
        && rest.next().is_none()
}

/// Returns a line without its line end.
pub(super) fn without_line_end(line: &[u8]) -> &[u8] {
    match line.strip_suffix(b"\n") {
        Some(line) => line.strip_suffix(b"\r").unwrap_or(line),
        None => line,
    }
}

/// Parses a line of a hunk with its line end.
pub(super) fn parse_line(text: &str) -> Option<HunkLine> {
    let kind = match text.chars().next()? {
        // The leading space of an empty line may be missing.
        ' ' | '\n' | '\r' => LineKind::Context,
        '-' => LineKind::Removed,
        '+' => LineKind::Added,
        _ => return None,
    };
    let text = text.strip_prefix([' ', '-', '+']).unwrap_or(text).to_owned();
    Some(HunkLine { kind, text })
}

/// Handles `\ No newline at end of file`: the previous line has no line feed. A carriage return there is content, as in
/// `git apply` and GNU `patch`.
fn remove_line_end(body: &mut [HunkLine]) {
    if let Some(HunkLine { text, .. }) = body.last_mut()
        && text.ends_with('\n')
    {
        text.pop();
    }
}
