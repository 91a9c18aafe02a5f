//! Reading a recording.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::line::{Headers, Line, VERSION};
use crate::net::NetError;

/// A recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    pub(super) exchanges: Vec<Exchange>,
}

/// What was asked once, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exchange {
    pub(super) model: String,
    pub(super) url: String,
    pub(super) headers: Headers,
    pub(super) body: String,
    /// Nothing where no answer began.
    pub(super) answer: Option<Answer>,
    pub(super) end: End,
}

/// The head of an answer, and what was read of its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Headers,
    pub(super) pieces: Vec<Vec<u8>>,
}

/// How an exchange ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The recording does not say; whoever recorded was gone, or did not read on.
    Open,
    /// Properly.
    Whole,
    /// With this failure.
    Failed(NetError),
}

/// Why a file cannot be played.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadRecording {
    /// The file cannot be read.
    #[error("could not read the recording {path}: {cause}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: String,
    },
    /// A line of it is wrong.
    #[error("{path}:{line}: {cause}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, counted from one.
        line: usize,
        /// What is wrong with it.
        cause: String,
    },
}

impl Recording {
    /// Reads a recording. A last line without its end was cut off by a crash and is left out.
    ///
    /// # Errors
    ///
    /// Fails when the file cannot be read, or a line of it is wrong.
    pub fn load(path: &Path) -> Result<Self, BadRecording> {
        let unreadable = |error: io::Error| BadRecording::Unreadable {
            path: path.to_owned(),
            cause: error.to_string(),
        };
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Self::read(&text).map_err(|(line, cause)| BadRecording::Malformed {
            path: path.to_owned(),
            line,
            cause,
        })
    }

    /// Returns who was asked first (`provider/name`), for whoever wants to know prices and windows.
    pub fn model(&self) -> &str {
        &self.exchanges[0].model
    }

    /// Returns how many requests were recorded.
    pub fn len(&self) -> usize {
        self.exchanges.len()
    }

    /// Returns whether nothing was recorded; what was read never is.
    pub fn is_empty(&self) -> bool {
        self.exchanges.is_empty()
    }

    pub(super) fn read(text: &str) -> Result<Self, (usize, String)> {
        let mut exchanges: Vec<Exchange> = Vec::new();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut last = 0;
        for (index, text) in whole.lines().enumerate() {
            last = index + 1;
            let wrong = |cause: String| (last, cause);
            let line = Line::read(text).map_err(|error| wrong(error.to_string()))?;
            let Some(line) = line else { continue };
            match (index, &line) {
                (0, Line::Recording { version: VERSION }) => continue,
                (0, Line::Recording { version }) => {
                    return Err(wrong(format!("version {version} is not known")));
                }
                (0, _) => return Err(wrong("a recording begins with its version".to_owned())),
                (_, _) => {}
            }
            let number = line.number();
            add(&mut exchanges, line, number).map_err(wrong)?;
        }
        if exchanges.is_empty() {
            return Err((last.max(1), "nothing was recorded".to_owned()));
        }
        Ok(Self { exchanges })
    }
}

/// Adds what a line says; exchanges may be under way beside each other.
fn add(exchanges: &mut Vec<Exchange>, line: Line, number: usize) -> Result<(), String> {
    if let Line::Request(request) = line {
        if number != exchanges.len() + 1 {
            return Err(format!("request {number} comes after {}", exchanges.len()));
        }
        let before = exchanges.last().map_or("", |exchange| &exchange.body);
        let same = before.get(..request.same);
        let same =
            same.ok_or_else(|| format!("request {number} begins with more than there was"))?;
        exchanges.push(Exchange {
            body: format!("{same}{}", request.body),
            model: request.model,
            url: request.url,
            headers: request.headers,
            answer: None,
            end: End::Open,
        });
        return Ok(());
    }
    let exchange = number.checked_sub(1).and_then(|at| exchanges.get_mut(at));
    let exchange = exchange.ok_or_else(|| format!("there is no request {number} before this"))?;
    let answer = exchange.answer.as_mut();
    let headless = || format!("the answer to request {number} has no head before this");
    match line {
        Line::Answer { status, headers, .. } => {
            exchange.answer = Some(Answer { status, headers, pieces: Vec::new() });
        }
        Line::Piece(piece) => {
            let bytes = piece.bytes().ok_or("a piece has either text or hex")?;
            answer.ok_or_else(headless)?.pieces.push(bytes);
        }
        Line::End { .. } => exchange.end = End::Whole,
        Line::Error { error, .. } => exchange.end = End::Failed(error),
        Line::Recording { .. } | Line::Request(_) => {
            return Err("a recording begins only once".to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#"{"type":"recording","version":1}"#;

    fn request(n: usize, same: usize, body: &str) -> String {
        format!(
            r#"{{"type":"request","n":{n},"model":"openai/m","method":"POST","url":"u","headers":{{}},"same":{same},"body":"{body}"}}"#
        )
    }

    fn read(lines: &[&str]) -> Result<Recording, (usize, String)> {
        Recording::read(&[lines, &[""]].concat().join("\n"))
    }

    #[test]
    fn a_body_begins_with_what_the_one_before_it_had() {
        let recording = read(&[HEAD, &request(1, 0, "abc"), &request(2, 2, "xyz")]).unwrap();
        let bodies: Vec<_> = recording.exchanges.iter().map(|exchange| &*exchange.body).collect();
        assert_eq!(bodies, ["abc", "abxyz"]);
        assert_eq!((recording.model(), recording.len()), ("openai/m", 2));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let first = request(1, 0, "abc");
        for (lines, line, cause) in [
            (vec![], 1, "nothing was recorded"),
            (vec![HEAD], 1, "nothing was recorded"),
            (vec![first.as_str()], 1, "begins with its version"),
            (vec![r#"{"type":"recording","version":9}"#], 1, "version 9"),
            (vec![HEAD, "nonsense"], 2, "expected"),
            (vec![HEAD, &first, r#"{"type":"end","n":7}"#], 3, "no request 7"),
            (vec![HEAD, &first, r#"{"type":"piece","n":1,"text":"a"}"#], 3, "no head"),
            (vec![HEAD, &first, &request(2, 9, "")], 3, "more than there was"),
            (vec![HEAD, &first, &request(3, 0, "")], 3, "comes after 1"),
        ] {
            let (at, said) = read(&lines).unwrap_err();
            assert!(at == line && said.contains(cause), "{at}: {said}");
        }
    }

    #[test]
    fn what_no_release_knows_is_passed_over() {
        let news = r#"{"type":"new_thing","n":"odd","text":[1],"headers":7}"#;
        let more = request(1, 0, "abc").replace(r#""n":1"#, r#""n":1,"new":[{}]"#);
        let recording = read(&[HEAD, news, &more]).unwrap();
        assert_eq!((recording.len(), &*recording.exchanges[0].body), (1, "abc"));
        let untyped = read(&[HEAD, &more, r#"{"n":1}"#]).unwrap_err();
        assert_eq!(untyped.0, 3);
    }

    #[test]
    fn a_line_that_a_crash_cut_off_is_left_out() {
        let text = format!("{HEAD}\n{}\n{{\"type\":\"ans", request(1, 0, "a"));
        assert_eq!(Recording::read(&text).unwrap().exchanges[0].end, End::Open);
    }
}
