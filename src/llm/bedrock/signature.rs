//! Signs requests to Amazon with Signature Version 4.

use std::fmt::Write as _;

use jiff::Timestamp;
use percent_encoding::{AsciiSet, utf8_percent_encode};
use ring::hmac;
use sha2::{Digest as _, Sha256};

use super::credentials::Credentials;
use crate::net::{HttpRequest, RESERVED_IN_ADDRESS, header};
use crate::types::hex;

/// The scope in which a signature is valid.
#[derive(Clone, Copy, Debug)]
pub(super) struct SigningScope<'a> {
    pub(super) region: &'a str,
    pub(super) service: &'a str,
    pub(super) at: Timestamp,
}

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

const RESERVED_IN_PATH: AsciiSet = RESERVED_IN_ADDRESS.remove(b'/');

/// Encodes a text as a part of a path.
pub(super) fn encode_uri(text: &str) -> String {
    utf8_percent_encode(text, &RESERVED_IN_ADDRESS).to_string()
}

/// Returns the headers of a signed request: the time, the session token, and the signature.
pub(super) fn sign(
    request: &HttpRequest,
    credentials: &Credentials,
    scope: SigningScope<'_>,
) -> Vec<(&'static str, String)> {
    let SigningScope { region, service, at } = scope;
    let time = at.strftime("%Y%m%dT%H%M%SZ").to_string();
    let date = at.strftime("%Y%m%d").to_string();
    let (host, path, query) = split_url(&request.url);
    let mut signed = Vec::new();
    if let Some(kind) = request.headers.get(header::CONTENT_TYPE) {
        signed.push(("content-type", kind.to_str().unwrap_or_default().trim().to_owned()));
    }
    signed.extend([("host", host.to_owned()), ("x-amz-date", time.clone())]);
    if let Some(token) = &credentials.session_token {
        signed.push(("x-amz-security-token", token.expose().to_owned()));
    }
    let names: Vec<&str> = signed.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let mut canonical = format!(
        "{}\n{}\n{}\n",
        request.method,
        utf8_percent_encode(path, &RESERVED_IN_PATH),
        canonical_query(query)
    );
    for (name, value) in &signed {
        let _ = writeln!(canonical, "{name}:{value}");
    }
    let mut body = Sha256::new();
    request.body.parts().for_each(|part| body.update(part));
    let _ = write!(canonical, "\n{names}\n{}", hex(&body.finalize()));
    let area = format!("{date}/{region}/{service}/aws4_request");
    let text = format!("{ALGORITHM}\n{time}\n{area}\n{}", hex(&Sha256::digest(&canonical)));
    let secret = format!("AWS4{}", credentials.secret_access_key.expose());
    let key =
        [&*date, region, service, "aws4_request"].iter().fold(secret.into_bytes(), |key, part| {
            authentication_code(&key, part.as_bytes()).as_ref().to_vec()
        });
    let signature = hex(authentication_code(&key, text.as_bytes()).as_ref());
    let id = &credentials.access_key_id;
    let authorization =
        format!("{ALGORITHM} Credential={id}/{area}, SignedHeaders={names}, Signature={signature}");
    signed.retain(|(name, _)| name.starts_with("x-amz-"));
    signed.push(("authorization", authorization));
    signed
}

/// Returns the host with its port, the path and the query of a URL.
fn split_url(url: &str) -> (&str, &str, &str) {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    match rest.find('/') {
        Some(at) => (&rest[..at], &rest[at..], query),
        None => (rest, "/", query),
    }
}

/// Returns an encoded query, with its fields sorted.
fn canonical_query(query: &str) -> String {
    let fields = query.split('&').filter(|field| !field.is_empty());
    let mut fields: Vec<_> =
        fields.map(|field| field.split_once('=').unwrap_or((field, ""))).collect();
    fields.sort_unstable();
    let fields: Vec<String> =
        fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
    fields.join("&")
}

/// Returns the authentication code of a text (RFC 2104).
fn authentication_code(key: &[u8], text: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{HeaderMap, HeaderValue, Method, RequestBody, Secret};

    const TOKEN: &str = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfI\
                         eoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0\
                         wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDry\
                         pNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";

    fn authorization(
        method: Method,
        path: &str,
        content_type: Option<&'static str>,
        body: &str,
        token: Option<&str>,
    ) -> String {
        let mut headers = HeaderMap::new();
        if let Some(kind) = content_type {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        let url = format!("https://example.amazonaws.com{path}");
        let body = RequestBody::new().with(body.as_bytes().to_vec());
        let request = HttpRequest { method, url, headers, body };
        let credentials = Credentials {
            access_key_id: "AKIDEXAMPLE".to_owned(),
            secret_access_key: Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY").unwrap(),
            session_token: token.map(|token| Secret::new(token).unwrap()),
            expires: None,
        };
        let at = "2015-08-30T12:36:00Z".parse().unwrap();
        let scope = SigningScope { region: "us-east-1", service: "service", at };
        let headers = sign(&request, &credentials, scope);
        assert_eq!(headers[0], ("x-amz-date", "20150830T123600Z".to_owned()));
        headers.last().unwrap().1.clone()
    }

    /// The expected signatures are those of Amazon's published test suite: paths, queries, a body, and a session token.
    #[test]
    fn published_signatures_are_equal() {
        let sent = Method::POST;
        for (method, path, form, token, signature) in [
            (
                Method::GET,
                "/",
                None,
                None,
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                Method::GET,
                "/?Param2=value2&Param1=value1",
                None,
                None,
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            ),
            (
                Method::GET,
                "/?Param1=value1",
                None,
                None,
                "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb",
            ),
            (
                Method::GET,
                "/example space/",
                None,
                None,
                "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741",
            ),
            (
                Method::GET,
                "/ሴ",
                None,
                None,
                "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
            ),
            (
                sent.clone(),
                "/",
                None,
                None,
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            (
                sent.clone(),
                "/",
                Some("Param1=value1"),
                None,
                "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
            (
                sent,
                "/",
                None,
                Some(TOKEN),
                "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
            ),
        ] {
            let names = [
                form.map(|_| "content-type;"),
                Some("host;x-amz-date"),
                token.map(|_| ";x-amz-security-token"),
            ];
            let names: String = names.into_iter().flatten().collect();
            let expected = format!(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
                 SignedHeaders={names}, Signature={signature}"
            );
            let kind = form.map(|_| "application/x-www-form-urlencoded");
            let body = form.unwrap_or_default();
            assert_eq!(authorization(method, path, kind, body, token), expected);
        }
    }

    /// RFC 4231, cases 2 and 6: a short key, and one longer than a block.
    #[test]
    fn published_authentication_codes_are_equal() {
        assert_eq!(
            hex(authentication_code(b"Jefe", b"what do ya want for nothing?").as_ref()),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        let text = b"Test Using Larger Than Block-Size Key - Hash Key First";
        assert_eq!(
            hex(authentication_code(&[0xaa; 131], text).as_ref()),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    /// The path is encoded once for sending, and again for signing.
    #[test]
    fn the_parts_of_a_url_are_found() {
        let url = "http://127.0.0.1:80/model/a%3A0/invoke?b=1";
        assert_eq!(split_url(url), ("127.0.0.1:80", "/model/a%3A0/invoke", "b=1"));
        assert_eq!(split_url("https://h"), ("h", "/", ""));
        assert_eq!(encode_uri("arn:aws/é~"), "arn%3Aaws%2F%C3%A9~");
    }
}
