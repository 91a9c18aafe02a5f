//! One hunk of a patch.

/// Lines that stand together, with what becomes of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::tools) struct Hunk {
    /// The line of the patch where it begins, counted from 1.
    pub patch_line: usize,
    /// How its place in the file is named.
    pub position: HunkPosition,
    /// Its lines.
    pub lines: Vec<HunkLine>,
    /// Whether the patch says how the last one ends.
    pub final_newline: FinalNewline,
}

/// How a hunk names its place in the old file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tools) enum HunkPosition {
    /// By a line number.
    Line {
        /// The first line, counted from 1; the one before the hunk when it has no old lines.
        start: usize,
        /// How many old lines it has, as its header says.
        count: usize,
    },
    /// By its own lines, and by lines that stand before them, outermost first.
    Context {
        /// Lines of which each is behind the one before it.
        headers: Vec<String>,
        /// Whether its last line is the last one of the file.
        is_at_end: bool,
    },
}

/// Whether a patch says how the last line of a hunk ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tools) enum FinalNewline {
    /// It does, with a line feed or with a marker for its absence.
    #[default]
    Specified,
    /// It does not: the text of the patch ends there, or its format has no word for it. The file's own is kept.
    Unspecified,
}

impl Default for HunkPosition {
    fn default() -> Self {
        Self::Line { start: 0, count: 0 }
    }
}

/// A line of a hunk, with its end unless the file has none there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tools) enum HunkLine {
    /// It stays.
    Context(String),
    /// It goes.
    Removed(String),
    /// It comes.
    Added(String),
}

impl HunkLine {
    /// Returns its text, to be changed.
    pub(super) fn text_mut(&mut self) -> &mut String {
        match self {
            Self::Context(text) | Self::Removed(text) | Self::Added(text) => text,
        }
    }
}

impl Hunk {
    /// Returns the lines that have to be there before.
    pub(in crate::tools) fn old_lines(&self) -> Vec<&str> {
        let old = self.lines.iter().filter_map(|line| match line {
            HunkLine::Context(text) | HunkLine::Removed(text) => Some(text.as_str()),
            HunkLine::Added(_) => None,
        });
        old.collect()
    }

    /// Returns the first line that it adds and that has characters beyond ASCII.
    pub(in crate::tools) fn first_beyond_ascii(&self) -> Option<&str> {
        self.lines.iter().find_map(|line| match line {
            HunkLine::Added(text) => Some(text.as_str()).filter(|text| !text.is_ascii()),
            HunkLine::Context(_) | HunkLine::Removed(_) => None,
        })
    }

    /// Returns whether its lines all have the same end, as far as they have one.
    pub(super) fn has_one_end(&self) -> bool {
        let mut ends = self.lines.iter().filter_map(|line| match line {
            HunkLine::Context(text) | HunkLine::Removed(text) | HunkLine::Added(text) => {
                // Before a marker, the carriage return is all that is left of an end.
                text.ends_with(['\n', '\r']).then(|| text.ends_with("\r\n") || text.ends_with('\r'))
            }
        });
        let first = ends.next();
        ends.all(|end| Some(end) == first)
    }

    /// Returns whether its lines are others afterwards.
    pub(super) fn has_changes(&self) -> bool {
        let after = self.lines.iter().filter_map(|line| match line {
            HunkLine::Context(text) | HunkLine::Added(text) => Some(text.as_str()),
            HunkLine::Removed(_) => None,
        });
        !after.eq(self.old_lines())
    }

    /// Returns whether one of its lines begins with a byte order mark.
    pub(in crate::tools) fn has_byte_order_mark(&self) -> bool {
        self.lines.iter().any(|line| match line {
            HunkLine::Context(text) | HunkLine::Removed(text) | HunkLine::Added(text) => {
                text.starts_with('\u{feff}')
            }
        })
    }

    /// Returns how many lines at its beginning stay.
    pub(in crate::tools) fn leading_context(&self) -> usize {
        self.lines.iter().take_while(|line| matches!(line, HunkLine::Context(_))).count()
    }

    /// Returns how many lines at its end stay.
    pub(in crate::tools) fn trailing_context(&self) -> usize {
        self.lines.iter().rev().take_while(|line| matches!(line, HunkLine::Context(_))).count()
    }
}

/// No file has more lines; larger numbers of a header count as this one.
const MAX_LINE_NUMBER: usize = 1 << 31;

/// Reads the numbers of a header, `@@ -1,2 +3,4 @@`: start and length before, start and length after.
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

/// Reads the lines of a hunk, which begin behind its header. Returns them, and how many lines of the patch they are.
///
/// Where the numbers of the header don't fit, the hunk ends where the next one, or the next file, begins: models miscount.
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
        let (from_old, from_new) = match &line {
            HunkLine::Context(_) => (1, 1),
            HunkLine::Removed(_) => (1, 0),
            HunkLine::Added(_) => (0, 1),
        };
        old = old.checked_sub(from_old)?;
        new = new.checked_sub(from_new)?;
        body.push(line);
    }
    if lines.get(read).is_some_and(|line| line.starts_with('\\')) {
        remove_line_end(&mut body);
        read += 1;
    }
    // More of the same behind it shows that the numbers are wrong.
    let next = lines.get(read).copied().unwrap_or_default();
    let goes_on = next.starts_with([' ', '+', '-'])
        && !is_file_header(lines, read)
        && !is_mail_signature(lines, read);
    (!goes_on).then_some((body, read))
}

/// Reads up to the next header; fails with the line that does not belong to a hunk.
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
    // Blank lines at the end stand between this and what follows.
    while matches!(body.last(), Some(HunkLine::Context(text)) if text.trim().is_empty()) {
        body.pop();
    }
    Ok((body, read))
}

/// Returns whether the headers of the next file begin here.
fn is_file_header(lines: &[&str], at: usize) -> bool {
    lines[at].starts_with("--- ") && lines.get(at + 1).is_some_and(|next| next.starts_with("+++ "))
}

/// Returns whether this is where a mail ends: with two dashes, the version of git, and nothing more. A removed line may
/// look like it.
fn is_mail_signature(lines: &[&str], at: usize) -> bool {
    let mut rest = lines[at + 1..].iter().filter(|line| !line.trim().is_empty());
    lines[at].trim_end() == "--"
        && rest.next().is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
        && rest.next().is_none()
}

fn parse_line(text: &str) -> Option<HunkLine> {
    match text.chars().next() {
        Some(' ') => Some(HunkLine::Context(text[1..].to_owned())),
        Some('-') => Some(HunkLine::Removed(text[1..].to_owned())),
        Some('+') => Some(HunkLine::Added(text[1..].to_owned())),
        // The space of an empty line was stripped.
        Some('\n' | '\r') => Some(HunkLine::Context(text.to_owned())),
        Some(_) | None => None,
    }
}

/// `\ No newline at end of file` is about the line before it. What it has not is a line feed; a carriage return there is
/// content, as it is for `git apply` and GNU `patch`.
fn remove_line_end(body: &mut [HunkLine]) {
    if let Some(text) = body.last_mut().map(HunkLine::text_mut)
        && text.ends_with('\n')
    {
        text.pop();
    }
}
