//! Access tokens for a service account, whose key is in the file named by `GOOGLE_APPLICATION_CREDENTIALS`.
//!
//! The token endpoint issues a token in exchange for an assertion: claims that are signed with the key (RFC 7523).

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::llm::exchange::RequestSigner;
use crate::llm::fault;
use crate::llm::wire::Result;
use crate::net::{
    Endpoint, HeaderMap, HeaderValue, HttpClient, HttpOptions, HttpRequest, HttpTimeouts, Method,
    RequestBody, Secret, Secrets, header,
};
use crate::port::{CancellationToken, WallClock, lock};
use crate::types::{Fault, FaultKind};
use crate::workspace::read_input;

/// The variable that names the file.
pub(in crate::llm) const FILE_VARIABLE: &str = "GOOGLE_APPLICATION_CREDENTIALS";

/// The scope of a token.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// The validity of an assertion, in seconds; the API accepts at most an hour.
const ASSERTION_AGE: u64 = 3_600;

/// The time before its expiry at which a token is replaced.
const EXPIRY_MARGIN: Duration = Duration::from_secs(60);

/// The maximum time for which a token is used, and the default if the answer gives none.
const MAX_TOKEN_AGE: Duration = Duration::from_secs(3_600);

/// The maximum size of a token endpoint's answer, in bytes.
const MAX_ANSWER: usize = 64 << 10;

/// The tokens in use, by account. A token is requested once per process: sub-agents and the runs of a batch share it.
static TOKENS: Mutex<Vec<(String, AccountToken)>> = Mutex::new(Vec::new());

/// A service account.
pub(in crate::llm) struct ServiceAccount {
    email: String,
    key_id: Option<String>,
    key: RsaKeyPair,
    token_endpoint: Endpoint,
    client: HttpClient,
    clock: WallClock,
    /// The token of the last request.
    last: Mutex<Option<Secret>>,
}

#[derive(Clone)]
struct AccountToken {
    text: Secret,
    /// The time at which the token is replaced.
    expires_at: Instant,
}

/// The file of an account.
#[derive(Deserialize)]
struct AccountFile {
    #[serde(rename = "type")]
    kind: Option<String>,
    client_email: Option<String>,
    private_key_id: Option<String>,
    private_key: Option<String>,
    token_uri: Option<String>,
}

/// The answer of a token endpoint: a token, or an error.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenAnswer {
    access_token: Option<String>,
    /// The validity in seconds.
    expires_in: Option<u64>,
    error: Value,
    error_description: Option<String>,
}

impl ServiceAccount {
    /// Reads the file of an account.
    ///
    /// # Errors
    ///
    /// Fails with a description of the problem.
    pub(in crate::llm) fn load(
        path: &str,
        clock: WallClock,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> std::result::Result<Self, String> {
        let text =
            read_input(Path::new(path)).map_err(|error| format!("can't be read: {error}"))?;
        // An error of the parser would show the content of the file.
        let file: AccountFile =
            serde_json::from_str(&text).map_err(|_| "is not a JSON object".to_owned())?;
        let AccountFile { kind, client_email, private_key_id, private_key, token_uri } = file;
        match kind.as_deref() {
            Some("service_account") => {}
            Some(other) => {
                let other = fault::readable(other);
                return Err(format!(
                    "has credentials of the type '{other}'; only service_account is supported"
                ));
            }
            None => return Err("has no `type`; it has to be service_account".to_owned()),
        }
        let missing = |name: &str| format!("has no `{name}`");
        let email = client_email.ok_or_else(|| missing("client_email"))?;
        let pem = private_key.ok_or_else(|| missing("private_key"))?;
        let url = token_uri.ok_or_else(|| missing("token_uri"))?;
        let key = read_key(&pem).ok_or("has no valid `private_key` (PKCS #8, RSA)")?;
        let token_endpoint = Endpoint::parse(&url, false)
            .map_err(|error| format!("has an invalid `token_uri`: {error}"))?;
        let timeouts = HttpTimeouts::default();
        let client = HttpClient::new(&HttpOptions::from_env(&token_endpoint, timeouts, env))
            .map_err(|error| error.to_string())?;
        Ok(Self {
            email,
            key_id: private_key_id,
            key,
            token_endpoint,
            client,
            clock,
            last: Mutex::default(),
        })
    }

    /// Returns a description of the account, for messages.
    pub(in crate::llm) fn describe(&self) -> String {
        let email = fault::readable(&self.email);
        format!("those of the service account {email} in {FILE_VARIABLE}")
    }

    /// Returns a token other than the rejected one.
    fn token(&self, rejected: Option<&Secret>, cancel: &CancellationToken) -> Result<Secret> {
        let account = format!("{} {} {:?}", self.token_endpoint.join(""), self.email, self.key_id);
        // Another run that needs a token waits for it here.
        let mut tokens = lock(&TOKENS);
        let known = tokens.iter().position(|(known, _)| *known == account);
        if let Some(known) = known {
            let token = &tokens[known].1;
            if Instant::now() < token.expires_at && Some(&token.text) != rejected {
                return Ok(token.text.clone());
            }
            tokens.remove(known);
        }
        let token = self.request_token(cancel)?;
        tokens.push((account, token.clone()));
        Ok(token.text)
    }

    fn request_token(&self, cancel: &CancellationToken) -> Result<AccountToken> {
        let grant = "urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer";
        let body = format!("grant_type={grant}&assertion={}", self.assertion()?);
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(header::CONTENT_TYPE, form);
        let body = RequestBody::new().with(body.into_bytes());
        let url = self.token_endpoint.join("");
        let request = HttpRequest { method: Method::POST, url, headers, body };
        let asked_at = Instant::now();
        let lost = |error| Fault { billed: false, ..fault::network_fault(&error, 1) };
        let mut response = self.client.send(&request, cancel).map_err(lost)?;
        let body = response.read_all(MAX_ANSWER).map_err(lost)?;
        let answer: TokenAnswer = serde_json::from_slice(&body).unwrap_or_default();
        let valid = answer.expires_in.map_or(MAX_TOKEN_AGE, Duration::from_secs);
        let valid = valid.min(MAX_TOKEN_AGE);
        let token = answer.access_token.as_deref().and_then(|text| Secret::new(text).ok());
        match token.filter(|_| response.status == 200) {
            Some(text) => {
                Secrets::mask_everywhere(&text);
                let valid = valid.checked_sub(EXPIRY_MARGIN).unwrap_or(valid / 2);
                Ok(AccountToken { text, expires_at: asked_at + valid })
            }
            None => Err(self.refusal(response.status, &answer)),
        }
    }

    /// Returns the fault for an answer without a token.
    fn refusal(&self, status: u16, answer: &TokenAnswer) -> Fault {
        let kind = match status {
            429 | 500.. => FaultKind::Server,
            _ => FaultKind::Auth,
        };
        let causes = answer.error.as_str().into_iter().chain(answer.error_description.as_deref());
        let causes: Vec<String> = causes.map(fault::readable).collect();
        let causes =
            if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(": ")) };
        let host = self.token_endpoint.host();
        Fault::new(kind, format!("{host} answers {status} and gives no access token{causes}"))
    }

    /// Returns the signed claims.
    fn assertion(&self) -> Result<String> {
        let wrong_clock = |_| Fault::new(FaultKind::Request, "the clock of this machine is wrong");
        let now = self.clock.now().duration_since(UNIX_EPOCH).map_err(wrong_clock)?.as_secs();
        let head = json!({"alg": "RS256", "typ": "JWT", "kid": self.key_id});
        let claims = json!({
            "iss": self.email,
            "scope": SCOPE,
            "aud": self.token_endpoint.join(""),
            "iat": now,
            "exp": now + ASSERTION_AGE,
        });
        let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let signed = format!("{}.{}", encode(&head), encode(&claims));
        let mut signature = vec![0; self.key.public().modulus_len()];
        let random = SystemRandom::new();
        let made = self.key.sign(&RSA_PKCS1_SHA256, &random, signed.as_bytes(), &mut signature);
        made.map_err(|_| Fault::new(FaultKind::Auth, "the key of the service account can't sign"))?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

/// Returns the key in a PEM text.
fn read_key(pem: &str) -> Option<RsaKeyPair> {
    let (_, rest) = pem.split_once("-----BEGIN PRIVATE KEY-----")?;
    let (body, _) = rest.split_once("-----END PRIVATE KEY-----")?;
    let body: String = body.split_whitespace().collect();
    RsaKeyPair::from_pkcs8(&STANDARD.decode(body).ok()?).ok()
}

impl RequestSigner for ServiceAccount {
    fn sign(&self, request: &HttpRequest, cancel: &CancellationToken) -> Result<HttpRequest> {
        let token = self.token(None, cancel)?;
        let malformed = |_| Fault::new(FaultKind::Auth, "the token can't be sent in a header");
        let value = HeaderValue::from_str(&format!("Bearer {}", token.expose()));
        let mut value = value.map_err(malformed)?;
        value.set_sensitive(true);
        *lock(&self.last) = Some(token);
        let mut signed = request.clone();
        signed.headers.insert(header::AUTHORIZATION, value);
        Ok(signed)
    }

    fn has_new_keys(&self, cancel: &CancellationToken) -> bool {
        let rejected = lock(&self.last).clone();
        match self.token(rejected.as_ref(), cancel) {
            Ok(token) => Some(token) != rejected,
            Err(fault) => {
                log::warn!("the access token was rejected, and {}", fault.message);
                false
            }
        }
    }

    fn secrets(&self) -> Secrets {
        Secrets::from_keys(lock(&self.last).clone())
    }
}
