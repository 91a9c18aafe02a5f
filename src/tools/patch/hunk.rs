//! One hunk of a patch.

/// Lines that stand together, with what becomes of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::tools) struct Hunk {
    /// The line of the patch where it begins, counted from 1.
    pub at: usize,
    /// The line of the old file where it begins, counted from 1; zero for an empty file.
    pub old_start: usize,
    /// Its lines.
    pub lines: Vec<Line>,
}

/// A line of a hunk, with its end unless the file has none there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tools) enum Line {
    /// It stays.
    Same(String),
    /// It goes.
    Removed(String),
    /// It comes.
    Added(String),
}

impl Hunk {
    /// Returns the lines that have to be there before.
    pub(in crate::tools) fn before(&self) -> Vec<&str> {
        let old = self.lines.iter().filter_map(|line| match line {
            Line::Same(text) | Line::Removed(text) => Some(text.as_str()),
            Line::Added(_) => None,
        });
        old.collect()
    }

    /// Returns how many lines at its beginning stay.
    pub(super) fn lead(&self) -> usize {
        self.lines.iter().take_while(|line| matches!(line, Line::Same(_))).count()
    }

    /// Returns how many lines at its end stay.
    pub(super) fn tail(&self) -> usize {
        self.lines.iter().rev().take_while(|line| matches!(line, Line::Same(_))).count()
    }
}

/// Reads the numbers of a header, `@@ -1,2 +3,4 @@`: start and length before, start and length after.
pub(super) fn header(line: &str) -> Option<[usize; 4]> {
    let rest = line.strip_prefix("@@ -")?;
    let (ranges, _) = rest.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let range = |text: &str| {
        let (start, length) = text.split_once(',').unwrap_or((text, "1"));
        Some((start.parse().ok()?, length.trim().parse().ok()?))
    };
    let ((old_start, old_length), (new_start, new_length)) = (range(old)?, range(new)?);
    Some([old_start, old_length, new_start, new_length])
}

/// Reads the lines of a hunk, which begin behind its header. Returns them, and how many lines of the patch they are.
///
/// Where the numbers of the header don't fit, the hunk ends where the next one, or the next file, begins: models miscount.
pub(super) fn body(lines: &[&str], old: usize, new: usize) -> Result<(Vec<Line>, usize), usize> {
    counted(lines, old, new).map_or_else(|| until_next(lines), Ok)
}

fn counted(lines: &[&str], mut old: usize, mut new: usize) -> Option<(Vec<Line>, usize)> {
    let mut body = Vec::new();
    let mut read = 0;
    while old > 0 || new > 0 {
        let line = lines.get(read)?;
        read += 1;
        if line.starts_with('\\') {
            without_end(&mut body);
            continue;
        }
        let line = self::line(line)?;
        let (from_old, from_new) = match &line {
            Line::Same(_) => (1, 1),
            Line::Removed(_) => (1, 0),
            Line::Added(_) => (0, 1),
        };
        old = old.checked_sub(from_old)?;
        new = new.checked_sub(from_new)?;
        body.push(line);
    }
    if lines.get(read).is_some_and(|line| line.starts_with('\\')) {
        without_end(&mut body);
        read += 1;
    }
    // More of the same behind it shows that the numbers are wrong.
    let next = lines.get(read).map_or("", |line| line.trim_end_matches(['\r', '\n']));
    let goes_on = next.starts_with([' ', '+']) && !next.starts_with("+++ ");
    let goes_on = goes_on
        || (next.starts_with('-') && !next.starts_with("--- ") && next != "--" && next != "-- ");
    (!goes_on).then_some((body, read))
}

/// Reads up to the next header; fails with the line that is none of a hunk.
fn until_next(lines: &[&str]) -> Result<(Vec<Line>, usize), usize> {
    let mut body = Vec::new();
    let mut read = 0;
    while let Some(text) = lines.get(read) {
        let is_file = text.starts_with("--- ")
            && lines.get(read + 1).is_some_and(|next| next.starts_with("+++ "));
        let is_signature = text.trim_end() == "--";
        if is_file || is_signature || text.starts_with("@@ ") || text.starts_with("diff --git ") {
            break;
        }
        if text.starts_with('\\') {
            without_end(&mut body);
        } else {
            body.push(line(text).ok_or(read)?);
        }
        read += 1;
    }
    // Blank lines at the end stand between this and what follows.
    while matches!(body.last(), Some(Line::Same(text)) if text.trim().is_empty()) {
        body.pop();
    }
    Ok((body, read))
}

fn line(text: &str) -> Option<Line> {
    match text.chars().next() {
        Some(' ') => Some(Line::Same(text[1..].to_owned())),
        Some('-') => Some(Line::Removed(text[1..].to_owned())),
        Some('+') => Some(Line::Added(text[1..].to_owned())),
        // Somebody has taken away the space of an empty line.
        Some('\n' | '\r') => Some(Line::Same(text.to_owned())),
        Some(_) | None => None,
    }
}

/// `\ No newline at end of file` is about the line before it.
fn without_end(body: &mut [Line]) {
    if let Some(Line::Same(text) | Line::Removed(text) | Line::Added(text)) = body.last_mut()
        && text.ends_with('\n')
    {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
}
