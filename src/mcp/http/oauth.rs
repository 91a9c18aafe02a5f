//! Access tokens for a server by client credentials (RFC 6749, section 4.4), according to the authorization part of the
//! protocol's specification.
//!
//! After a rejected request, the metadata of the server is read (RFC 9728), which names its authorization server. The
//! metadata of the authorization server (RFC 8414, or of `OpenID` Connect) names the token endpoint. Tokens are for
//! this server alone (RFC 8707). The secret is sent to the token endpoint only: encrypted, and never after a redirect.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{ExchangeWatch, shorten};
use crate::mcp::connection::ReplyDeadline;
use crate::mcp::error::{Result, ServerError};
use crate::mcp::settings::ClientCredentials;
use crate::net::{
    Endpoint, HeaderMap, HeaderValue, HttpClient, HttpRequest, Method, NetError, RequestBody,
    Secret, Secrets, header,
};
use crate::port::lock;
use crate::types::strip_terminal_codes;

/// The access tokens for a server.
pub(in crate::mcp) struct TokenSource {
    credentials: ClientCredentials,
    /// The URL of the server.
    endpoint: Endpoint,
    state: Mutex<TokenState>,
}

#[derive(Default)]
struct TokenState {
    /// The issuer of tokens, once it is known.
    issuer: Option<TokenIssuer>,
    token: Option<AccessToken>,
}

/// A token endpoint, and the parameters of requests to it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TokenIssuer {
    url: String,
    method: ClientAuthentication,
    /// The server for which tokens are requested.
    resource: String,
    scopes: Vec<String>,
}

/// The method by which the client identifies itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientAuthentication {
    /// In a header.
    Header,
    /// In fields of the body.
    Body,
}

struct AccessToken {
    text: Secret,
    /// The time after which the token is not used; `None` if the issuer does not state its validity.
    expires_at: Option<Instant>,
    /// Whether the server has accepted the token.
    is_accepted: bool,
}

/// The metadata of a server.
#[derive(Deserialize)]
struct ResourceMetadata {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
}

/// The metadata of an authorization server.
#[derive(Deserialize)]
struct IssuerMetadata {
    issuer: String,
    token_endpoint: String,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

/// The answer of a token endpoint.
#[derive(Deserialize)]
struct TokenReply {
    access_token: String,
    token_type: String,
    /// The validity in seconds; some servers send it as text.
    expires_in: Option<Value>,
}

/// The error of a token endpoint.
#[derive(Default, Deserialize)]
struct TokenRefusal {
    #[serde(default)]
    error: String,
    #[serde(default)]
    error_description: String,
}

/// The maximum size of a document from an authorization server, in bytes.
const MAX_DOCUMENT: usize = 64 << 10;

/// The time before its expiry at which a token is replaced, limited to half of its validity.
const EXPIRY_MARGIN: Duration = Duration::from_secs(30);

/// The maximum time for which a token is used.
const MAX_TOKEN_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// All characters except those that a form leaves unchanged.
const FORM: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'*');

impl TokenSource {
    /// Returns the tokens for the server at a URL.
    pub(in crate::mcp) fn new(url: &str, credentials: ClientCredentials) -> Result<Self> {
        let endpoint = Endpoint::parse(url, true);
        let endpoint = endpoint.map_err(|error| ServerError::Start(error.to_string()))?;
        Ok(Self { credentials, endpoint, state: Mutex::default() })
    }

    /// Returns the token for a request: a new token if the last one has expired. `None` until the server has asked for
    /// a token, if the authorization server is known only from that.
    pub(super) fn current(&self, wait: &ReplyDeadline<'_>) -> Result<Option<Secret>> {
        let mut state = lock(&self.state);
        let is_valid = |token: &&AccessToken| token.expires_at.is_none_or(|at| Instant::now() < at);
        if let Some(token) = state.token.as_ref().filter(is_valid) {
            return Ok(Some(token.text.clone()));
        }
        if let (None, Some(url)) = (&state.issuer, &self.credentials.token_url) {
            state.issuer = Some(TokenIssuer {
                url: url.clone(),
                method: ClientAuthentication::Header,
                resource: self.endpoint.to_string(),
                scopes: self.credentials.scopes.clone(),
            });
        }
        let Some(issuer) = state.issuer.clone() else { return Ok(None) };
        state.token = Some(self.request_token(&issuer, wait)?);
        Ok(state.token.as_ref().map(|token| token.text.clone()))
    }

    /// Returns the last token, even if it has expired.
    pub(super) fn last(&self) -> Option<Secret> {
        lock(&self.state).token.as_ref().map(|token| token.text.clone())
    }

    /// Records that the server has accepted a token.
    pub(super) fn accept(&self, used: Option<&Secret>) {
        if let Some(token) = &mut lock(&self.state).token {
            token.is_accepted |= Some(&token.text) == used;
        }
    }

    /// Requests a token to replace one that the server has rejected with this `WWW-Authenticate` header. Returns
    /// whether there is a token: a new token that is rejected at once is not replaced again.
    pub(super) fn renew(
        &self,
        rejected: Option<&Secret>,
        challenge: &str,
        wait: &ReplyDeadline<'_>,
    ) -> Result<bool> {
        let mut state = lock(&self.state);
        match &state.token {
            // Another call has replaced the token.
            Some(token) if Some(&token.text) != rejected => return Ok(true),
            Some(token) if !token.is_accepted => return Ok(false),
            Some(_) | None => {}
        }
        let issuer = match &state.issuer {
            Some(issuer) => issuer.clone(),
            None => self.discover(challenge, wait)?,
        };
        state.token = Some(self.request_token(&issuer, wait)?);
        state.issuer = Some(issuer);
        Ok(true)
    }

    /// Finds the token endpoint.
    fn discover(&self, challenge: &str, wait: &ReplyDeadline<'_>) -> Result<TokenIssuer> {
        let (own, fixed) = (&self.endpoint, &self.credentials.issuer);
        let origin = own.clone().with_path("").to_string();
        let metadata = match fixed {
            Some(_) => None,
            None => self.resource_metadata(challenge, wait)?,
        };
        let server = metadata.as_ref().and_then(|metadata| metadata.authorization_servers.first());
        let issuer = match (fixed, server, &metadata) {
            (Some(issuer), ..) | (None, Some(issuer), _) => issuer.clone(),
            (None, None, Some(_)) => {
                return Err(failed("its metadata names no authorization server"));
            }
            // Servers of version 2025-03-26 are their own authorization servers.
            (None, None, None) => origin,
        };
        let IssuerMetadata { token_endpoint: url, token_endpoint_auth_methods_supported, .. } =
            self.issuer_metadata(&issuer, wait)?;
        let method = choose_method(token_endpoint_auth_methods_supported.as_deref())?;
        let (resource, supported) = match metadata {
            Some(metadata) => (metadata.resource, metadata.scopes_supported),
            None => (own.to_string(), Vec::new()),
        };
        let asked = parameter(challenge, "scope");
        let scopes = match (&self.credentials.scopes, asked) {
            (own, _) if !own.is_empty() => own.clone(),
            (_, Some(asked)) => vec![asked],
            (_, None) => supported,
        };
        Ok(TokenIssuer { url, method, resource, scopes })
    }

    /// Returns the metadata of the server, from the URL in its answer or from the well-known URLs.
    fn resource_metadata(
        &self,
        challenge: &str,
        wait: &ReplyDeadline<'_>,
    ) -> Result<Option<ResourceMetadata>> {
        let own = &self.endpoint;
        let well_known = "/.well-known/oauth-protected-resource";
        let at = |path: String| own.clone().with_path(&path).to_string();
        let named = parameter(challenge, "resource_metadata");
        let is_named = named.is_some();
        let places = match named {
            Some(url) => vec![url],
            None => vec![at(format!("{well_known}{}", own.path())), at(well_known.to_owned())],
        };
        let Some(metadata) = self.first_document::<ResourceMetadata>(&places, wait)? else {
            return match is_named {
                true => {
                    Err(failed(&format!("it names metadata that is not at {}", quote(&places[0]))))
                }
                false => Ok(None),
            };
        };
        if !is_for(&metadata.resource, own) {
            let other = quote(&metadata.resource);
            return Err(failed(&format!(
                "its metadata is for {other}, not for {own}; check the `url` of the server"
            )));
        }
        Ok(Some(metadata))
    }

    fn issuer_metadata(&self, issuer: &str, wait: &ReplyDeadline<'_>) -> Result<IssuerMetadata> {
        let at = self.checked(issuer)?;
        let place = |path: String| at.clone().with_path(&path).to_string();
        let own = at.path();
        let mut places = vec![
            place(format!("/.well-known/oauth-authorization-server{own}")),
            place(format!("/.well-known/openid-configuration{own}")),
            place(format!("{own}/.well-known/openid-configuration")),
        ];
        places.dedup();
        let Some(metadata) = self.first_document::<IssuerMetadata>(&places, wait)? else {
            return Err(failed(&format!(
                "its authorization server {at} has no metadata; give `oauth.token_url` if you know the address"
            )));
        };
        // Otherwise, one authorization server could impersonate another.
        if metadata.issuer.trim_end_matches('/') != issuer.trim_end_matches('/') {
            let other = quote(&metadata.issuer);
            return Err(failed(&format!(
                "the metadata of its authorization server {at} is that of {other}"
            )));
        }
        Ok(metadata)
    }

    /// Returns the first of these documents that exists.
    fn first_document<T: DeserializeOwned>(
        &self,
        places: &[String],
        wait: &ReplyDeadline<'_>,
    ) -> Result<Option<T>> {
        for url in places {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
            let (status, body) =
                self.exchange(Method::GET, url, headers, RequestBody::new(), wait)?;
            let document = (status == 200).then(|| serde_json::from_slice(&body).ok()).flatten();
            if document.is_some() {
                return Ok(document);
            }
        }
        Ok(None)
    }

    fn request_token(&self, issuer: &TokenIssuer, wait: &ReplyDeadline<'_>) -> Result<AccessToken> {
        let ClientCredentials { client_id, secret, .. } = &self.credentials;
        let secret = secret(wait.cancel).map_err(|error| failed(&error))?;
        Secrets::mask_everywhere(&secret);
        let scope = issuer.scopes.join(" ");
        let mut fields = vec![("grant_type", "client_credentials"), ("resource", &issuer.resource)];
        if !scope.is_empty() {
            fields.push(("scope", &scope));
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(header::CONTENT_TYPE, form);
        match issuer.method {
            ClientAuthentication::Header => {
                let pair = format!("{}:{}", encode(client_id), encode(secret.expose()));
                let value = format!("Basic {}", BASE64_STANDARD.encode(pair));
                let value = HeaderValue::from_str(&value);
                let mut value = value.map_err(|_| failed("the client ID cannot be sent"))?;
                value.set_sensitive(true);
                headers.insert(header::AUTHORIZATION, value);
            }
            ClientAuthentication::Body => {
                fields.extend([("client_id", &**client_id), ("client_secret", secret.expose())]);
            }
        }
        let fields = fields.iter().map(|(name, value)| format!("{name}={}", encode(value)));
        let body = RequestBody::new().with(fields.collect::<Vec<_>>().join("&").into_bytes());
        let asked_at = Instant::now();
        let (status, body) = self.exchange(Method::POST, &issuer.url, headers, body, wait)?;
        if status != 200 {
            return Err(Self::refusal(status, &body));
        }
        let malformed = |what: &str| failed(&format!("its authorization server gives {what}"));
        let reply: TokenReply =
            serde_json::from_slice(&body).map_err(|_| malformed("no token in its answer"))?;
        if !reply.token_type.eq_ignore_ascii_case("bearer") {
            let kind = quote(&reply.token_type);
            return Err(malformed(&format!("a token of the type {kind}, which is not supported")));
        }
        let text = Secret::new(&reply.access_token)
            .map_err(|error| malformed(&format!("a token that {error}")))?;
        Secrets::mask_everywhere(&text);
        let seconds = reply.expires_in.as_ref();
        let seconds = seconds.and_then(|it| it.as_f64().or_else(|| it.as_str()?.parse().ok()));
        let valid = seconds.map(|seconds: f64| {
            let all = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(MAX_TOKEN_AGE);
            all.min(MAX_TOKEN_AGE)
        });
        let expires_at =
            valid.map(|valid| asked_at + valid.saturating_sub(EXPIRY_MARGIN).max(valid / 2));
        Ok(AccessToken { text, expires_at, is_accepted: false })
    }

    /// Returns the error for a refusal by the token endpoint, with advice for the user or administrator.
    fn refusal(status: u16, body: &[u8]) -> ServerError {
        let refusal: TokenRefusal = serde_json::from_slice(body).unwrap_or_default();
        let advice = match refusal.error.as_str() {
            "invalid_client" | "unauthorized_client" => {
                "; check `oauth.client_id`, its secret, and whether the client is registered there"
            }
            "invalid_scope" => "; check `oauth.scopes`",
            "unsupported_grant_type" => {
                "; it has to allow client credentials, which is for its operator to set"
            }
            _ => "",
        };
        let about = [refusal.error.as_str(), &refusal.error_description].map(quote);
        let about: Vec<&str> =
            about.iter().map(|text| &**text).filter(|text| !text.is_empty()).collect();
        let about =
            if about.is_empty() { String::new() } else { format!(" ({})", about.join(": ")) };
        failed(&format!("its authorization server answers {status}{about}{advice}"))
    }

    /// Exchanges a message with an authorization server, or requests metadata.
    fn exchange(
        &self,
        method: Method,
        url: &str,
        headers: HeaderMap,
        body: RequestBody,
        wait: &ReplyDeadline<'_>,
    ) -> Result<(u16, Vec<u8>)> {
        let endpoint = self.checked(url)?;
        let lost = |error: NetError| match error {
            NetError::Cancelled if wait.cancel.is_cancelled() => ServerError::Cancelled,
            NetError::Cancelled => wait.timed_out(),
            error => failed(&quote(&error.to_string())),
        };
        let client = HttpClient::new(&(self.credentials.options)(&endpoint)).map_err(lost)?;
        let watch = ExchangeWatch::start(wait).map_err(|error| failed(&error.to_string()))?;
        let request = HttpRequest { method, url: url.to_owned(), headers, body };
        let mut response = client.send(&request, &watch.exchange).map_err(lost)?;
        let body = response.read_all(MAX_DOCUMENT + 1).map_err(lost)?;
        if body.len() > MAX_DOCUMENT {
            return Err(failed(&format!("{endpoint} answers with more than {MAX_DOCUMENT} bytes")));
        }
        if (300..400).contains(&response.status) {
            return Err(failed(&format!("{endpoint} redirects, which is not followed")));
        }
        Ok((response.status, body))
    }

    /// Parses a URL that the server may name: it must be encrypted, or on this machine if the server is.
    fn checked(&self, url: &str) -> Result<Endpoint> {
        let endpoint = Endpoint::parse(url, false);
        let endpoint = endpoint.map_err(|error| failed(&quote(&error.to_string())))?;
        if endpoint.is_loopback() && !self.endpoint.is_loopback() {
            return Err(failed(&format!("{endpoint} is an address of this machine")));
        }
        Ok(endpoint)
    }
}

fn failed(why: &str) -> ServerError {
    ServerError::SignIn(why.to_owned())
}

fn quote(text: &str) -> String {
    shorten(Secrets::default().mask_all(&strip_terminal_codes(text)).trim())
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, FORM).to_string()
}

/// Returns the best method that a token endpoint supports.
fn choose_method(supported: Option<&[String]>) -> Result<ClientAuthentication> {
    let Some(supported) = supported else { return Ok(ClientAuthentication::Header) };
    let has = |method: &str| supported.iter().any(|known| known == method);
    if has("client_secret_basic") {
        Ok(ClientAuthentication::Header)
    } else if has("client_secret_post") {
        Ok(ClientAuthentication::Body)
    } else {
        let known = quote(&supported.join(", "));
        Err(failed(&format!(
            "its authorization server takes no client secret, only {known}, which is not supported"
        )))
    }
}

/// Returns whether a resource's metadata applies to a server: it has the same host, and the same path or a path above.
fn is_for(resource: &str, server: &Endpoint) -> bool {
    let Ok(resource) = Endpoint::parse(resource, true) else { return false };
    let rest = server.path().strip_prefix(resource.path());
    resource.has_same_origin(server)
        && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns a parameter of a `WWW-Authenticate` header.
pub(super) fn parameter(header: &str, name: &str) -> Option<String> {
    let (mut parts, mut is_quoted, mut is_escaped) = (vec![String::new()], false, false);
    for c in header.chars() {
        match c {
            ',' if !is_quoted => parts.push(String::new()),
            _ => parts.last_mut()?.push(c),
        }
        is_quoted ^= c == '"' && !is_escaped;
        is_escaped = is_quoted && c == '\\' && !is_escaped;
    }
    parts.iter().find_map(|part| {
        let (before, value) = part.split_once('=')?;
        // The name of a scheme precedes the first parameter.
        let key = before.split_whitespace().last()?;
        if !key.eq_ignore_ascii_case(name) {
            return None;
        }
        let value = value.trim();
        let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        let Some(quoted) = quoted else { return Some(value.to_owned()) };
        let mut chars = quoted.chars();
        let next = || match chars.next() {
            Some('\\') => chars.next(),
            other => other,
        };
        Some(std::iter::from_fn(next).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_of_a_challenge_is_found() {
        let header = r#"Basic realm="a, b=c", Bearer Realm="say \"hi\"", resource_metadata="https://h/x?a=1,2", scope=one"#;
        for (name, expected) in [
            ("realm", Some("a, b=c")),
            ("resource_metadata", Some("https://h/x?a=1,2")),
            ("scope", Some("one")),
            ("b", None),
            ("error", None),
        ] {
            assert_eq!(parameter(header, name).as_deref(), expected, "{name}");
        }
        assert_eq!(
            parameter(r#"Bearer realm="say \"hi\"""#, "realm").as_deref(),
            Some("say \"hi\"")
        );
        assert_eq!(parameter("", "realm"), None);
        assert_eq!(parameter("\"", "realm"), None);
    }

    #[test]
    fn metadata_is_for_the_same_host_and_a_path_above() {
        let server = Endpoint::parse("https://h.example/team/mcp", false).unwrap();
        for resource in
            ["https://h.example", "https://H.example/team/", "https://h.example/team/mcp"]
        {
            assert!(is_for(resource, &server), "{resource}");
        }
        for other in [
            "https://h.example/te",
            "https://h.example/other",
            "https://x.example/team/mcp",
            "http://h.example/team",
            "https://h.example:8443/team",
            "urn:x",
            "",
        ] {
            assert!(!is_for(other, &server), "{other}");
        }
    }

    #[test]
    fn the_method_is_one_that_both_know() {
        let choose = |methods: &[&str]| {
            let methods: Vec<String> = methods.iter().map(|text| (*text).to_owned()).collect();
            choose_method(Some(&methods))
        };
        assert_eq!(choose_method(None), Ok(ClientAuthentication::Header));
        assert_eq!(choose(&["none", "client_secret_post"]), Ok(ClientAuthentication::Body));
        let both = ["client_secret_post", "client_secret_basic"];
        assert_eq!(choose(&both), Ok(ClientAuthentication::Header));
        let error = choose(&["private_key_jwt"]).unwrap_err().to_string();
        assert!(error.contains("takes no client secret, only private_key_jwt"), "{error}");
    }
}
