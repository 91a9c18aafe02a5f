//! Reads recordings.

use std::path::Path;

use super::record::{CassetteRecord, FORMAT_VERSION, RecordedHeaders, RequestRecord};
use crate::llm::PlaybackError;
use crate::net::NetError;
use crate::workspace::read_input;

/// A recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    pub(super) exchanges: Vec<RecordedExchange>,
}

/// A request and its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordedExchange {
    /// The request, with its whole body.
    pub(super) request: RequestRecord,
    /// The response; `None` if none began.
    pub(super) response: Option<RecordedResponse>,
    pub(super) end: ExchangeEnd,
}

/// The head of a response, and the chunks of its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordedResponse {
    pub(super) status: u16,
    pub(super) headers: RecordedHeaders,
    pub(super) chunks: Vec<Vec<u8>>,
}

/// The end of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExchangeEnd {
    /// The end is not recorded: the process ended, or stopped reading.
    Unrecorded,
    /// The response is complete.
    Complete,
    /// The exchange failed.
    Failed(NetError),
}

impl Recording {
    /// Reads a recording. A last line without a line feed, as a crash leaves it, is ignored.
    ///
    /// # Errors
    ///
    /// Fails if the file can't be read, or has an invalid line.
    pub fn load(path: &Path) -> Result<Self, PlaybackError> {
        let owned = || path.to_owned();
        let text = read_input(path).map_err(|error| PlaybackError::Unreadable {
            kind: "recording",
            path: owned(),
            cause: error.to_string(),
        })?;
        let malformed = |(line, cause)| PlaybackError::Malformed { path: owned(), line, cause };
        Self::parse(&text).map_err(malformed)
    }

    /// Returns the model of the first request, as `provider/name`.
    pub fn first_model(&self) -> &str {
        &self.exchanges[0].request.model
    }

    /// Returns the number of recorded requests.
    pub fn len(&self) -> usize {
        self.exchanges.len()
    }

    /// Returns whether there are no requests; a loaded recording has at least one.
    pub fn is_empty(&self) -> bool {
        self.exchanges.is_empty()
    }

    pub(super) fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut exchanges: Vec<RecordedExchange> = Vec::new();
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut last = 0;
        for (index, text) in complete.lines().enumerate() {
            last = index + 1;
            let invalid = |cause: String| (last, cause);
            let record: CassetteRecord =
                serde_json::from_str(text).map_err(|error| invalid(error.to_string()))?;
            match (index, record) {
                (_, CassetteRecord::Unknown)
                | (0, CassetteRecord::Recording { version: FORMAT_VERSION }) => {}
                (0, CassetteRecord::Recording { version }) => {
                    return Err(invalid(format!("unknown version {version}")));
                }
                (0, _) => return Err(invalid("the version record is missing".to_owned())),
                (_, record) => add_record(&mut exchanges, record).map_err(invalid)?,
            }
        }
        if exchanges.is_empty() {
            return Err((last.max(1), "nothing was recorded".to_owned()));
        }
        Ok(Self { exchanges })
    }
}

/// Adds a record; exchanges may overlap.
fn add_record(exchanges: &mut Vec<RecordedExchange>, record: CassetteRecord) -> Result<(), String> {
    let number = record.number();
    if let CassetteRecord::Request(mut request) = record {
        if number != exchanges.len() + 1 {
            return Err(format!("request {number} comes after {}", exchanges.len()));
        }
        let before = exchanges.last().map_or("", |exchange| &exchange.request.body);
        let same = before.get(..request.shared_bytes);
        let same =
            same.ok_or_else(|| format!("`same` of request {number} exceeds the previous body"))?;
        request.body.insert_str(0, same);
        exchanges.push(RecordedExchange { request, response: None, end: ExchangeEnd::Unrecorded });
        return Ok(());
    }
    let exchange = number.checked_sub(1).and_then(|at| exchanges.get_mut(at));
    let exchange =
        exchange.ok_or_else(|| format!("there is no request {number} before this record"))?;
    let response = exchange.response.as_mut();
    let missing = || format!("request {number} has no response before this record");
    match record {
        CassetteRecord::Response { status, headers, .. } => {
            exchange.response = Some(RecordedResponse { status, headers, chunks: Vec::new() });
        }
        CassetteRecord::Chunk(chunk) => {
            let bytes = chunk.bytes().ok_or("a piece needs either text or hex")?;
            response.ok_or_else(missing)?.chunks.push(bytes);
        }
        CassetteRecord::End { .. } => exchange.end = ExchangeEnd::Complete,
        CassetteRecord::Error { error, .. } => exchange.end = ExchangeEnd::Failed(error),
        CassetteRecord::Recording { .. } | CassetteRecord::Request(_) | CassetteRecord::Unknown => {
            return Err("a recording has only one version record".to_owned());
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
        Recording::parse(&[lines, &[""]].concat().join("\n"))
    }

    #[test]
    fn a_body_reuses_the_prefix_of_the_previous_one() {
        let recording = read(&[HEAD, &request(1, 0, "abc"), &request(2, 2, "xyz")]).unwrap();
        let bodies: Vec<_> =
            recording.exchanges.iter().map(|exchange| &*exchange.request.body).collect();
        assert_eq!(bodies, ["abc", "abxyz"]);
        assert_eq!((recording.first_model(), recording.len()), ("openai/m", 2));
    }

    #[test]
    fn an_error_names_its_line() {
        let first = request(1, 0, "abc");
        for (lines, line, cause) in [
            (vec![], 1, "nothing was recorded"),
            (vec![HEAD], 1, "nothing was recorded"),
            (vec![first.as_str()], 1, "version record is missing"),
            (vec![r#"{"type":"recording","version":9}"#], 1, "version 9"),
            (vec![HEAD, "nonsense"], 2, "expected"),
            (vec![HEAD, &first, r#"{"type":"end","n":7}"#], 3, "no request 7"),
            (vec![HEAD, &first, r#"{"type":"piece","n":1,"text":"a"}"#], 3, "no response before"),
            (vec![HEAD, &first, &request(2, 9, "")], 3, "exceeds the previous body"),
            (vec![HEAD, &first, &request(3, 0, "")], 3, "comes after 1"),
        ] {
            let (at, error) = read(&lines).unwrap_err();
            assert!(at == line && error.contains(cause), "{at}: {error}");
        }
    }

    #[test]
    fn unknown_records_are_skipped() {
        let news = r#"{"type":"new_thing","n":"odd","text":[1],"headers":7}"#;
        let more = request(1, 0, "abc").replace(r#""n":1"#, r#""n":1,"new":[{}]"#);
        let recording = read(&[HEAD, news, &more]).unwrap();
        assert_eq!((recording.len(), &*recording.exchanges[0].request.body), (1, "abc"));
        let untyped = read(&[HEAD, &more, r#"{"n":1}"#]).unwrap_err();
        assert_eq!(untyped.0, 3);
    }

    #[test]
    fn an_incomplete_last_line_is_ignored() {
        let text = format!("{HEAD}\n{}\n{{\"type\":\"ans", request(1, 0, "a"));
        assert_eq!(Recording::parse(&text).unwrap().exchanges[0].end, ExchangeEnd::Unrecorded);
    }
}
