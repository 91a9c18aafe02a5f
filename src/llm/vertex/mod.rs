//! Google Vertex AI: Gemini models in the Gemini format, Claude models in the Anthropic format.
//!
//! Without an access token, one is requested with the key of a service account (`service_account`).

mod service_account;

use super::wire::{ApiFormat, WireSetup};
use super::{anthropic, gemini};

pub(super) use service_account::{FILE_VARIABLE, ServiceAccount};

/// The base URL in a region.
pub(super) const BASE_URL: &str = "https://{GOOGLE_CLOUD_LOCATION}-aiplatform.googleapis.com/v1/projects/{GOOGLE_CLOUD_PROJECT}/locations/{GOOGLE_CLOUD_LOCATION}";

/// The path for a base URL without a path.
pub(super) const DEFAULT_PATH: &str =
    "/v1/projects/{GOOGLE_CLOUD_PROJECT}/locations/{GOOGLE_CLOUD_LOCATION}";

/// The variables of the location and of the project, each with an alternative name.
pub(super) const LOCATION_VARIABLES: [&str; 2] = ["GOOGLE_CLOUD_LOCATION", "CLOUD_ML_REGION"];
pub(super) const PROJECT_VARIABLES: [&str; 2] =
    ["GOOGLE_CLOUD_PROJECT", "ANTHROPIC_VERTEX_PROJECT_ID"];

/// Vertex AI.
pub(super) static FORMAT: ApiFormat = ApiFormat {
    name: "Gemini; Messages for Claude",
    base_path: |path, default| match path {
        "" => default.to_owned(),
        path if path.contains("/projects/") => path.to_owned(),
        path => format!("{path}{}", default.strip_prefix("/v1").unwrap_or(default)),
    },
    path: |WireSetup { model, is_streaming, .. }| {
        let (publisher, method) = match (is_claude(model), is_streaming) {
            (true, true) => ("anthropic", "streamRawPredict"),
            (true, false) => ("anthropic", "rawPredict"),
            (false, true) => ("google", "streamGenerateContent?alt=sse"),
            (false, false) => ("google", "generateContent"),
        };
        format!("/publishers/{publisher}/models/{model}:{method}")
    },
    wire: |setup| {
        let format = if is_claude(&setup.model) { &anthropic::FORMAT } else { &gemini::FORMAT };
        (format.wire)(setup)
    },
};

fn is_claude(model: &str) -> bool {
    model.starts_with("claude-")
}

/// Returns the base URL with its host adapted to locations that are not regions.
pub(super) fn with_location_host(url: &str) -> String {
    let host = |location: &str| format!("https://{location}-aiplatform.googleapis.com/");
    [
        ("global", "https://aiplatform.googleapis.com/"),
        ("us", "https://aiplatform.us.rep.googleapis.com/"),
        ("eu", "https://aiplatform.eu.rep.googleapis.com/"),
    ]
    .into_iter()
    .fold(url.to_owned(), |url, (location, other)| url.replacen(&host(location), other, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_follows_from_the_model() {
        let path = |model: &str, is_streaming| {
            let model = model.to_owned();
            (FORMAT.path)(&WireSetup { model, is_streaming, ..WireSetup::default() })
        };
        for (model, is_streaming, expected) in [
            ("claude-a@1", true, "/publishers/anthropic/models/claude-a@1:streamRawPredict"),
            ("claude-a@1", false, "/publishers/anthropic/models/claude-a@1:rawPredict"),
            ("gemini-x", true, "/publishers/google/models/gemini-x:streamGenerateContent?alt=sse"),
            ("gemini-x", false, "/publishers/google/models/gemini-x:generateContent"),
        ] {
            assert_eq!(path(model, is_streaming), expected);
        }
    }

    #[test]
    fn a_location_that_is_not_a_region_has_a_host_of_its_own() {
        let url = |location: &str| {
            with_location_host(&BASE_URL.replace("{GOOGLE_CLOUD_LOCATION}", location))
        };
        assert!(url("global").starts_with("https://aiplatform.googleapis.com/v1/projects/"));
        assert!(url("eu").starts_with("https://aiplatform.eu.rep.googleapis.com/v1/"));
        assert!(url("us-east5").starts_with("https://us-east5-aiplatform.googleapis.com/v1/"));
    }
}
