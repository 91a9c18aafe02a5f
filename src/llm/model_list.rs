//! The models that are available with a key, as listed by the provider.

use std::collections::BTreeSet;

use serde_json::Value;

use super::exchange::RequestTarget;
use super::fault::{classify_response, network_fault};
use crate::net::{HeaderMap, HttpRequest, Method, RequestBody, mask_address};
use crate::port::CancellationToken;
use crate::types::{Fault, FaultKind};

/// The maximum size of a list, in bytes.
const MAX_BODY: usize = 16 << 20;

/// Returns the path of an API format's list below the base URL, with the maximum page size.
pub(super) fn list_path(format: &str) -> &'static str {
    match format {
        "Gemini" => "/models?pageSize=1000",
        "Messages" => "/models?limit=1000",
        _ => "/models",
    }
}

/// Requests the list from a target, and returns the names in it.
pub(super) fn request_list(
    target: &RequestTarget,
    cancel: &CancellationToken,
) -> Result<BTreeSet<String>, Fault> {
    let list = request_body(target, cancel).and_then(|body| parse_list(&body));
    list.map_err(|fault| target.describe(fault))
}

fn request_body(target: &RequestTarget, cancel: &CancellationToken) -> Result<Vec<u8>, Fault> {
    let (url, headers) = (target.url.clone(), target.headers.clone());
    let request = HttpRequest { method: Method::GET, url, headers, body: RequestBody::new() };
    let response = target.transport.send(&*target.sign(&request, cancel)?, cancel);
    let mut response = response.map_err(|error| network_fault(&error, 1))?;
    let (mut body, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let read = response.body.read(&mut buffer);
        match read.map_err(|error| network_fault(&error, 1))? {
            0 => break,
            count => body.extend_from_slice(&buffer[..count]),
        }
        if body.len() > MAX_BODY {
            let url = mask_address(&target.url);
            let text = format!("the list of models at {url} is too long");
            return Err(Fault::new(FaultKind::Protocol, text));
        }
    }
    let is_document = matches!(body.trim_ascii_start().first(), Some(b'{' | b'['));
    if (200..300).contains(&response.status) && is_document {
        return Ok(body);
    }
    let headers: &HeaderMap = &response.headers;
    Err(classify_response(response.status, headers, &body, &target.url, &target.masker))
}

/// Parses the names of a list: `{"data": [{"id"}]}`, `{"models": [{"name"}]}`, or the list alone. Gemini models that do
/// not generate text are left out.
fn parse_list(body: &[u8]) -> Result<BTreeSet<String>, Fault> {
    let invalid = || Fault::new(FaultKind::NotAnApi, "the response is not a list of models");
    let list: Value = serde_json::from_slice(body).map_err(|_| invalid())?;
    let items = [&list["data"], &list["models"], &list].into_iter().find_map(Value::as_array);
    let generates = |item: &&Value| {
        let methods = item["supportedGenerationMethods"].as_array();
        methods.is_none_or(|methods| methods.iter().any(|method| method == "generateContent"))
    };
    let name = |item: &Value| {
        let name = item["id"].as_str().or_else(|| item["name"].as_str())?;
        Some(name.strip_prefix("models/").unwrap_or(name).to_owned())
    };
    Ok(items.ok_or_else(invalid)?.iter().filter(generates).filter_map(name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_of_all_formats_are_read() {
        let names = |text: &str| {
            let names =
                parse_list(text.as_bytes()).map(|names| names.into_iter().collect::<Vec<_>>());
            names.map(|names| names.join(" ")).map_err(|fault| fault.kind)
        };
        assert_eq!(names(r#"{"object":"list","data":[{"id":"b"},{"id":"a"}]}"#).unwrap(), "a b");
        assert_eq!(names(r#"[{"id":"a/b"}]"#).unwrap(), "a/b");
        let gemini = r#"{"models":[
            {"name":"models/g","supportedGenerationMethods":["generateContent"]},
            {"name":"models/embed","supportedGenerationMethods":["embedContent"]}]}"#;
        assert_eq!(names(gemini).unwrap(), "g");
        for text in ["{}", "\"a\"", "<html>"] {
            assert_eq!(names(text), Err(FaultKind::NotAnApi), "{text}");
        }
    }
}
