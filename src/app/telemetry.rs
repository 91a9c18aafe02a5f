//! Spans of a run, for a collector of the user's: off unless the environment names one.

use std::sync::Arc;
use std::time::Duration;

use super::world::World;
use crate::net::{
    Body, Client, Endpoint, HeaderMap, HeaderName, HeaderValue, Limits, Method, Options, Request,
};
use crate::port::Cancel;
use crate::view::About;
use crate::view::Output;
use crate::view::otel::{Export, Settings, Telemetry};

/// The most that is read of a collector's answer, in bytes.
const ANSWER: usize = 64 << 10;

/// Returns who exports the spans of a run; none when no collector is named. A collector that can't be used is a warning:
/// no run depends on who watches it.
pub fn telemetry(world: &World, about: &About) -> Option<Box<dyn Output>> {
    let env = |name: &str| world.variable(name).map(str::to_owned);
    let started = Settings::from_env(env).map_err(|error| error.to_string()).and_then(|settings| {
        let Some(settings) = settings else { return Ok(None) };
        let client = client(&settings, world)?;
        let post = move |export: &Export<'_>| post(&client, export);
        Telemetry::new(settings, about, post).map(Some).map_err(|error| error.to_string())
    });
    match started {
        Ok(telemetry) => telemetry.map(|telemetry| Box::new(telemetry) as Box<dyn Output>),
        Err(why) => {
            log::warn!("no traces are sent: {why}");
            None
        }
    }
}

fn client(settings: &Settings, world: &World) -> Result<Arc<Client>, String> {
    let endpoint = Endpoint::parse(&settings.url, true).map_err(|error| error.to_string())?;
    let limits = Limits {
        connect: settings.timeout.min(Duration::from_secs(5)),
        first_byte: settings.timeout,
        idle: settings.timeout,
    };
    let env = |name: &str| world.variable(name).map(str::to_owned);
    let client = Client::new(&Options::of_environment(&endpoint, limits, &env));
    client.map(Arc::new).map_err(|error| error.to_string())
}

fn post(client: &Client, export: &Export<'_>) -> Result<(), String> {
    let mut headers = HeaderMap::new();
    for (name, value) in export.headers {
        let name = HeaderName::try_from(name).map_err(|error| error.to_string())?;
        headers.insert(name, HeaderValue::try_from(value).map_err(|error| error.to_string())?);
    }
    let request = Request {
        method: Method::POST,
        url: export.url.to_owned(),
        headers,
        body: Body::new().and(export.body.to_vec()),
    };
    let mut answer = client.send(&request, &Cancel::new()).map_err(|error| error.to_string())?;
    let status = answer.status;
    let _ = answer.read_all(ANSWER);
    if (200..300).contains(&status) {
        Ok(())
    } else {
        Err(format!("the collector answered {status}"))
    }
}
