//! Settings of the export of traces and metrics, from the standard OpenTelemetry environment variables.

use std::fmt;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use thiserror::Error;

use super::ids::TraceParent;

/// Settings of the export of traces and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtelSettings {
    /// The destination of traces; `None` if they are off.
    pub traces: Option<SignalSettings>,
    /// The destination of metrics; `None` if they are off.
    pub metrics: Option<SignalSettings>,
    /// The name of the service and other attributes of this process.
    pub resource: Vec<(String, String)>,
    /// The parent of the run's span.
    pub parent: Option<TraceParent>,
    /// Whether prompts, replies, and the arguments and results of tool calls are sent, too.
    pub captures_content: bool,
}

/// The destination of traces or metrics.
#[derive(Clone, PartialEq, Eq)]
pub struct SignalSettings {
    /// The URL.
    pub url: String,
    /// Additional headers, which may be secret.
    pub headers: Vec<(String, String)>,
    /// The timeout of one request.
    pub timeout: Duration,
}

/// The reason why traces or metrics cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name}: {problem}")]
pub struct OtelSettingsError {
    name: String,
    problem: String,
}

/// The common endpoint, below which each signal has its own path.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// The variable that asks for content, common to instrumentations for generative AI.
const CAPTURE_CONTENT: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";

/// The default timeout of a request.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

impl OtelSettings {
    /// Reads the environment. Returns `None` if traces and metrics are off.
    ///
    /// # Errors
    ///
    /// Fails if a variable has an unsupported value.
    pub fn from_env(
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, OtelSettingsError> {
        let env = |name: &str| env(name).filter(|value| !value.trim().is_empty());
        if env("OTEL_SDK_DISABLED").is_some_and(|off| off.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let parent: Option<TraceParent> = env("TRACEPARENT").and_then(|parent| parent.parse().ok());
        let is_sampled = parent.is_none_or(|parent| parent.is_sampled);
        let traces = SignalSettings::from_env(&env, "TRACES")?.filter(|_| is_sampled);
        let metrics = SignalSettings::from_env(&env, "METRICS")?;
        if traces.is_none() && metrics.is_none() {
            return Ok(None);
        }
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
        Ok(Some(Self { traces, metrics, resource, parent, captures_content }))
    }
}

impl SignalSettings {
    /// Reads the variables of a signal, `TRACES` or `METRICS`. Returns `None` if the signal is off.
    fn from_env(
        env: &impl Fn(&str) -> Option<String>,
        signal: &str,
    ) -> Result<Option<Self>, OtelSettingsError> {
        // The signal's own variable takes precedence over the common one, which has no signal in its name.
        let find = |setting: &str| {
            let own = format!("OTEL_EXPORTER_OTLP_{signal}_{setting}");
            let names = [own, format!("OTEL_EXPORTER_OTLP_{setting}")];
            names.into_iter().find_map(|name| env(&name).map(|value| (name, value)))
        };
        let exporter = env(&format!("OTEL_{signal}_EXPORTER"));
        let is_other = exporter.is_some_and(|exporter| exporter != "otlp");
        let endpoint = find("ENDPOINT").filter(|_| !is_other);
        let Some((name, value)) = endpoint else { return Ok(None) };
        if !value.starts_with("http://") && !value.starts_with("https://") {
            let problem = format!("'{value}' is not an http URL");
            return Err(OtelSettingsError { name, problem });
        }
        // Collectors with the binary HTTP protocol accept JSON at the same URL.
        let protocol = find("PROTOCOL");
        if let Some((name, value)) = protocol.filter(|(_, value)| !value.starts_with("http/")) {
            let problem = format!("unsupported protocol '{value}'; supported: http/json");
            return Err(OtelSettingsError { name, problem });
        }
        let headers = find("HEADERS").map(|(_, list)| parse_pairs(&list));
        let timeout = find("TIMEOUT").and_then(|(_, millis)| millis.parse().ok());
        Ok(Some(Self {
            url: match name == ENDPOINT {
                true => {
                    let base = value.trim_end_matches('/');
                    format!("{base}/v1/{}", signal.to_ascii_lowercase())
                }
                false => value,
            },
            headers: headers.unwrap_or_default(),
            timeout: timeout.map_or(DEFAULT_TIMEOUT, Duration::from_millis),
        }))
    }
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

impl fmt::Debug for SignalSettings {
    /// Omits the values of headers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        let Self { url, timeout, .. } = self;
        write!(f, "{url} {headers:?} {timeout:?}")
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
        let none = ["OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER"].map(|name| (name, "none"));
        assert_eq!(read(&[on, none[0], none[1]]), Ok(None));
        let unsampled = ("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00");
        assert_eq!(read(&[on, unsampled, none[1]]), Ok(None));
        let settings = read(&[on]).unwrap().unwrap();
        let urls = |settings: &OtelSettings| {
            let url = |signal: &Option<SignalSettings>| signal.as_ref().map(|it| it.url.clone());
            (url(&settings.traces), url(&settings.metrics))
        };
        let traces = Some("http://127.0.0.1:4318/v1/traces".to_owned());
        let metrics = Some("http://127.0.0.1:4318/v1/metrics".to_owned());
        assert_eq!(urls(&settings), (traces.clone(), metrics.clone()));
        let version = env!("CARGO_PKG_VERSION");
        let expected = [("service.name", "architect"), ("service.version", version)];
        assert_eq!(
            settings.resource,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
        assert!(!settings.captures_content);
        assert!(read(&[on, (CAPTURE_CONTENT, "true")]).unwrap().unwrap().captures_content);
        assert_eq!(urls(&read(&[on, none[1]]).unwrap().unwrap()), (traces, None));
        // Turning traces on does not turn metrics on.
        for vars in [
            &[on, none[0]][..],
            &[on, unsampled],
            &[("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", &*metrics.clone().unwrap())],
        ] {
            assert_eq!(urls(&read(vars).unwrap().unwrap()), (None, metrics.clone()), "{vars:?}");
        }
    }

    #[test]
    fn trace_variables_take_precedence() {
        let settings = read(&[
            (ENDPOINT, "http://127.0.0.1:1"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:2/in"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x, a = b"),
            ("OTEL_SERVICE_NAME", "ci"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,team=core,service.version=7"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
        ]);
        let settings = settings.unwrap().unwrap();
        let (traces, metrics) =
            (settings.traces.clone().unwrap(), settings.metrics.clone().unwrap());
        assert_eq!(traces.url, "http://127.0.0.1:2/in");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(traces.headers, [pair("authorization", "Bearer x"), pair("a", "b")]);
        let resource = ["team=core", "service.version=7", "service.name=ci"];
        let resource = resource.map(|text| text.split_once('=').unwrap());
        assert_eq!(settings.resource, resource.map(|(name, value)| pair(name, value)));
        assert_eq!(metrics.url, "http://127.0.0.1:1/v1/metrics");
        assert_eq!(traces.timeout, Duration::from_millis(250));
        assert!(!format!("{settings:?}").contains("Bearer"));
    }

    /// Traces and metrics may go to different hosts, with different keys.
    #[test]
    fn each_signal_has_its_own_headers_and_timeout() {
        let settings = read(&[
            (ENDPOINT, "http://127.0.0.1:1"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-key=traces"),
            ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "7"),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "x-key=metrics"),
        ]);
        let OtelSettings { traces, metrics, .. } = settings.unwrap().unwrap();
        let (traces, metrics) = (traces.unwrap(), metrics.unwrap());
        let key = |value: &str| [("x-key".to_owned(), value.to_owned())];
        assert_eq!((&*traces.headers, traces.timeout), (&key("traces")[..], DEFAULT_TIMEOUT));
        let timeout = Duration::from_millis(7);
        assert_eq!((&*metrics.headers, metrics.timeout), (&key("metrics")[..], timeout));
        let only = [
            (ENDPOINT, "http://127.0.0.1:1"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-key=traces"),
        ];
        assert_eq!(read(&only).unwrap().unwrap().metrics.unwrap().headers, []);
    }

    #[test]
    fn an_unsupported_setting_is_an_error() {
        let error = |vars| read(vars).unwrap_err().to_string();
        assert_eq!(
            error(&[(ENDPOINT, "http://127.0.0.1:4317"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]),
            "OTEL_EXPORTER_OTLP_PROTOCOL: unsupported protocol 'grpc'; supported: http/json"
        );
        assert_eq!(
            error(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "127.0.0.1:4318")]),
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: '127.0.0.1:4318' is not an http URL"
        );
    }
}
