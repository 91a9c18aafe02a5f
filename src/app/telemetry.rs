//! Spans and metrics of a run for the user's collector; off unless the environment names a collector.

use std::collections::HashMap;
use std::time::Duration;

use super::process_env::ProcessEnv;
use crate::net::{
    Endpoint, HeaderMap, HeaderName, HeaderValue, HttpClient, HttpOptions, HttpRequest,
    HttpTimeouts, Method, RequestBody,
};
use crate::port::CancellationToken;
use crate::view::otel::{ExportRequest, OtelSettings, OtelSink, SignalSettings};
use crate::view::{Reporter, RunInfo};

/// The maximum number of bytes read of a collector's response.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// Adds a sink that exports the spans of a run, if a collector is configured. An unusable collector is only a warning,
/// since no run depends on its observers.
pub fn start_telemetry(world: &ProcessEnv, about: &RunInfo, reporter: &Reporter) {
    let env = |name: &str| world.variable(name).map(str::to_owned);
    let started =
        OtelSettings::from_env(env).map_err(|error| error.to_string()).and_then(|settings| {
            let Some(settings) = settings else { return Ok(None) };
            let signals = settings.traces.iter().chain(&settings.metrics);
            let client = |signal: &SignalSettings| {
                build_client(signal, world).map(|client| (signal.url.clone(), client))
            };
            let clients = signals.map(client).collect::<Result<HashMap<_, _>, _>>()?;
            let send = move |export: &ExportRequest<'_>| match clients.get(export.url) {
                Some(client) => send_export(client, export),
                None => Err("its address is unknown".to_owned()),
            };
            OtelSink::new(settings, about, send).map(Some).map_err(|error| error.to_string())
        });
    match started {
        Ok(Some(telemetry)) => reporter.add_sink(Box::new(telemetry)),
        Ok(None) => {}
        Err(why) => log::warn!("no traces are sent: {why}"),
    }
}

fn build_client(settings: &SignalSettings, world: &ProcessEnv) -> Result<HttpClient, String> {
    let endpoint = Endpoint::parse(&settings.url, true).map_err(|error| error.to_string())?;
    let limits = HttpTimeouts {
        connect: settings.timeout.min(Duration::from_secs(5)),
        first_byte: settings.timeout,
        idle: settings.timeout,
    };
    let env = |name: &str| world.variable(name).map(str::to_owned);
    let options = HttpOptions::from_env(&endpoint, limits, &env);
    HttpClient::new(&options).map_err(|error| error.to_string())
}

fn send_export(client: &HttpClient, export: &ExportRequest<'_>) -> Result<(), String> {
    let mut headers = HeaderMap::new();
    for (name, value) in export.headers {
        let name = HeaderName::try_from(name).map_err(|error| error.to_string())?;
        headers.insert(name, HeaderValue::try_from(value).map_err(|error| error.to_string())?);
    }
    let request = HttpRequest {
        method: Method::POST,
        url: export.url.to_owned(),
        headers,
        body: RequestBody::new().with(export.body.to_vec()),
    };
    let mut answer =
        client.send(&request, &CancellationToken::new()).map_err(|error| error.to_string())?;
    let status = answer.status;
    let _ = answer.read_all(MAX_RESPONSE_BYTES);
    let is_ok = (200..300).contains(&status);
    if is_ok { Ok(()) } else { Err(format!("the collector answered {status}")) }
}
