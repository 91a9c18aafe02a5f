//! Whether and where to send traces and metrics, from the standard OpenTelemetry environment variables.

use std::fmt;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use thiserror::Error;

use super::ids::TraceParent;

/// Where traces are sent.
#[derive(Clone, PartialEq, Eq)]
pub struct OtelSettings {
    /// The URL for traces.
    pub url: String,
    /// The URL for metrics; `None` if they are off.
    pub metrics_url: Option<String>,
    /// Additional headers; may be secret.
    pub headers: Vec<(String, String)>,
    /// The name of the service and other attributes of this process.
    pub resource: Vec<(String, String)>,
    /// How long one request may take.
    pub timeout: Duration,
    /// The parent of the run's span.
    pub parent: Option<TraceParent>,
    /// Whether prompts, replies, and the arguments and results of tool calls are sent too.
    pub captures_content: bool,
}

/// Why traces cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name}: {problem}")]
pub struct OtelSettingsError {
    name: &'static str,
    problem: String,
}

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const METRICS_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT";
/// The variable of the instrumentations for generative AI that asks for content.
const CAPTURE_CONTENT: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
const TIMEOUTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];

/// The default timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

impl OtelSettings {
    /// Reads the environment; `None` if traces are off.
    ///
    /// # Errors
    ///
    /// Fails if a variable has an unsupported value.
    pub fn from_env(
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, OtelSettingsError> {
        let env = |name: &str| env(name).filter(|value| !value.trim().is_empty());
        let is_other = |name: &str| env(name).is_some_and(|exporter| exporter != "otlp");
        let is_off = env("OTEL_SDK_DISABLED").is_some_and(|off| off.eq_ignore_ascii_case("true"))
            || is_other("OTEL_TRACES_EXPORTER");
        let traces = find_url(&env, TRACES_ENDPOINT, "v1/traces");
        let Some((name, value)) = traces.filter(|_| !is_off) else { return Ok(None) };
        check_url(name, &value)?;
        let metrics = find_url(&env, METRICS_ENDPOINT, "v1/metrics");
        let metrics = metrics.filter(|_| !is_other("OTEL_METRICS_EXPORTER"));
        if let Some((name, value)) = &metrics {
            check_url(name, value)?;
        }
        let protocol = PROTOCOLS.into_iter().find_map(|name| Some((name, env(name)?)));
        // Collectors of the binary form over HTTP accept JSON at the same URL.
        if let Some((name, value)) = protocol.filter(|(_, value)| !value.starts_with("http/")) {
            let problem = format!("unsupported protocol '{value}'; supported: http/json");
            return Err(OtelSettingsError { name, problem });
        }
        let parent: Option<TraceParent> = env("TRACEPARENT").and_then(|parent| parent.parse().ok());
        if parent.is_some_and(|parent| !parent.is_sampled) {
            return Ok(None);
        }
        let headers = HEADERS.into_iter().find_map(&env).map(|list| parse_pairs(&list));
        let timeout = TIMEOUTS.into_iter().find_map(&env).and_then(|millis| millis.parse().ok());
        let list = env("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
        let (named, mut resource): (Vec<_>, Vec<_>) =
            parse_pairs(&list).into_iter().partition(|(name, _)| name == "service.name");
        let named = named.into_iter().next_back().map(|(_, name)| name);
        let service = env("OTEL_SERVICE_NAME").or(named).unwrap_or_else(|| "architect".to_owned());
        resource.push(("service.name".to_owned(), service));
        if resource.iter().all(|(name, _)| name != "service.version") {
            resource.push(("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
        }
        let captures_content = env(CAPTURE_CONTENT).is_some_and(|value| {
            let value = value.trim().to_ascii_lowercase();
            ["true", "span_only", "span_and_event"].contains(&value.as_str())
        });
        Ok(Some(Self {
            url: value,
            metrics_url: metrics.map(|(_, url)| url),
            headers: headers.unwrap_or_default(),
            resource,
            timeout: timeout.map_or(TIMEOUT, Duration::from_millis),
            parent,
            captures_content,
        }))
    }
}

/// Returns a URL, and the variable that it comes from: its own, or that of all with a path.
fn find_url(
    env: &impl Fn(&str) -> Option<String>,
    own: &'static str,
    path: &str,
) -> Option<(&'static str, String)> {
    let common =
        || env(ENDPOINT).map(|url| (ENDPOINT, format!("{}/{path}", url.trim_end_matches('/'))));
    env(own).map(|url| (own, url)).or_else(common)
}

fn check_url(name: &'static str, value: &str) -> Result<(), OtelSettingsError> {
    if value.starts_with("http://") || value.starts_with("https://") {
        return Ok(());
    }
    Err(OtelSettingsError { name, problem: format!("'{value}' is not an http URL") })
}

/// Parses `key=value,key=value`, with percent-encoded values.
fn parse_pairs(list: &str) -> Vec<(String, String)> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let value = percent_decode_str(value.trim()).decode_utf8_lossy();
        Some((name.trim().to_owned(), value.into_owned()))
    };
    list.split(',').filter_map(pair).filter(|(name, _)| !name.is_empty()).collect()
}

impl fmt::Debug for OtelSettings {
    /// Leaves the values of headers out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        let Self { url, resource, timeout, parent, .. } = self;
        write!(f, "{url} {headers:?} {resource:?} {timeout:?} {parent:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vars: &[(&str, &str)]) -> Result<Option<OtelSettings>, OtelSettingsError> {
        OtelSettings::from_env(|name| {
            vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn nothing_is_sent_without_an_endpoint() {
        let on = (ENDPOINT, "http://127.0.0.1:4318/");
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[on, ("OTEL_SDK_DISABLED", "true")]), Ok(None));
        assert_eq!(read(&[on, ("OTEL_TRACES_EXPORTER", "none")]), Ok(None));
        let unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        assert_eq!(read(&[on, ("TRACEPARENT", unsampled)]), Ok(None));
        let settings = read(&[on]).unwrap().unwrap();
        assert_eq!(settings.url, "http://127.0.0.1:4318/v1/traces");
        assert_eq!(settings.metrics_url.as_deref(), Some("http://127.0.0.1:4318/v1/metrics"));
        let version = env!("CARGO_PKG_VERSION");
        let expected = [("service.name", "architect"), ("service.version", version)];
        assert_eq!(
            settings.resource,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
        assert!(!settings.captures_content);
        assert!(read(&[on, (CAPTURE_CONTENT, "true")]).unwrap().unwrap().captures_content);
        let traces_only = read(&[on, ("OTEL_METRICS_EXPORTER", "none")]).unwrap().unwrap();
        assert_eq!(traces_only.metrics_url, None);
    }

    #[test]
    fn trace_variables_take_precedence() {
        let settings = read(&[
            (ENDPOINT, "http://127.0.0.1:1"),
            (TRACES_ENDPOINT, "http://127.0.0.1:2/in"),
            (HEADERS[1], "authorization=Bearer%20x, a = b"),
            ("OTEL_SERVICE_NAME", "ci"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,team=core,service.version=7"),
            (TIMEOUTS[1], "250"),
        ]);
        let settings = settings.unwrap().unwrap();
        assert_eq!(settings.url, "http://127.0.0.1:2/in");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(settings.headers, [pair("authorization", "Bearer x"), pair("a", "b")]);
        let resource = ["team=core", "service.version=7", "service.name=ci"];
        let resource = resource.map(|text| text.split_once('=').unwrap());
        assert_eq!(settings.resource, resource.map(|(name, value)| pair(name, value)));
        assert_eq!(settings.metrics_url.as_deref(), Some("http://127.0.0.1:1/v1/metrics"));
        assert_eq!(settings.timeout, Duration::from_millis(250));
        assert!(!format!("{settings:?}").contains("Bearer"));
    }

    #[test]
    fn an_unsupported_setting_is_an_error() {
        let error = |vars| read(vars).unwrap_err().to_string();
        assert_eq!(
            error(&[(ENDPOINT, "http://127.0.0.1:4317"), (PROTOCOLS[1], "grpc")]),
            "OTEL_EXPORTER_OTLP_PROTOCOL: unsupported protocol 'grpc'; supported: http/json"
        );
        assert_eq!(
            error(&[(TRACES_ENDPOINT, "127.0.0.1:4318")]),
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: '127.0.0.1:4318' is not an http URL"
        );
    }
}
