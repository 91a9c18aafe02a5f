//! The single request on a connection to the proxy: `CONNECT`, or a request for an `http:` address.

use std::io::{self, BufRead, Read, Write};

use super::hosts::{ConnectionRefusal, normalize_host};

/// The maximum length of a request's head, in bytes.
const MAX_HEAD_LENGTH: usize = 64 * 1024;

/// The maximum length of a host name; refused names are reported.
const LONGEST_HOST: usize = 253;

/// Header fields that apply to a single connection (RFC 9110 §7.6.1).
const HOP_BY_HOP: &str = "connection keep-alive proxy-connection proxy-authenticate proxy-authorization \
    te trailer upgrade";

/// A request of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProxyRequest {
    /// A tunnel to a port of a host.
    Tunnel { host: String, port: u16 },
    /// One request to forward.
    Forward { host: String, port: u16, head: Vec<u8>, body: BodyLength },
}

/// The length of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyLength {
    Bytes(u64),
    Chunked,
}

/// Reads the head of a request; `None` at the end of the connection.
pub(super) fn read(
    from: &mut impl BufRead,
) -> io::Result<Option<Result<ProxyRequest, ConnectionRefusal>>> {
    let mut head = Vec::new();
    loop {
        let before = head.len();
        let remaining = u64::try_from(MAX_HEAD_LENGTH - before).unwrap_or_default();
        from.by_ref().take(remaining).read_until(b'\n', &mut head)?;
        let is_cut = !head.ends_with(b"\n");
        if is_cut && head.len() < MAX_HEAD_LENGTH {
            return Ok(None);
        }
        if is_cut || head.len() == MAX_HEAD_LENGTH {
            return Ok(Some(Err(ConnectionRefusal::Malformed("its head is too long"))));
        }
        if matches!(&head[before..], b"\r\n" | b"\n") && before > 0 {
            return Ok(Some(parse(&head)));
        }
    }
}

fn parse(bytes: &[u8]) -> Result<ProxyRequest, ConnectionRefusal> {
    let malformed = ConnectionRefusal::Malformed;
    let mut fields = [httparse::EMPTY_HEADER; 128];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) | Err(_) => return Err(malformed("it is not HTTP/1.1")),
    }
    let (Some(method), Some(target)) = (request.method, request.path) else {
        return Err(malformed("it is not HTTP/1.1"));
    };
    if method == "CONNECT" {
        let (host, port) = parse_authority(target, None)?;
        return Ok(ProxyRequest::Tunnel { host, port });
    }
    let rest = strip_scheme(target).ok_or(malformed("its URL does not begin with http://"))?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, port) = parse_authority(&rest[..end], Some(80))?;
    let path = match &rest[end..] {
        path if path.starts_with('/') => path.to_owned(),
        rest => format!("/{rest}"),
    };
    let text = |value: &[u8]| String::from_utf8_lossy(value).trim().to_ascii_lowercase();
    let fields = &*request.headers;
    let named = |name: &'static str| {
        fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name))
    };
    let body = match (named("transfer-encoding").count(), named("content-length").count()) {
        (0, 0) => BodyLength::Bytes(0),
        (0, 1) => {
            let length = named("content-length").find_map(|field| {
                let digits = std::str::from_utf8(field.value).ok()?;
                digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
            });
            BodyLength::Bytes(length.ok_or(malformed("its length is not a number"))?)
        }
        (1, 0) if named("transfer-encoding").all(|field| text(field.value) == "chunked") => {
            BodyLength::Chunked
        }
        // Two parsers could disagree about the end of the body.
        _ => return Err(malformed("its length is ambiguous")),
    };
    let also: Vec<String> = named("connection")
        .flat_map(|field| {
            text(field.value).split(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>()
        })
        .collect();
    let mut head =
        format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", format_authority(&host, port))
            .into_bytes();
    for field in fields {
        let name = field.name.to_ascii_lowercase();
        let is_needed = matches!(name.as_str(), "content-length" | "transfer-encoding");
        let is_dropped =
            name == "host" || HOP_BY_HOP.split(' ').any(|own| own == name) || also.contains(&name);
        if is_needed || !is_dropped {
            head.extend_from_slice(field.name.as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(field.value);
            head.extend_from_slice(b"\r\n");
        }
    }
    head.extend_from_slice(b"Connection: close\r\n\r\n");
    Ok(ProxyRequest::Forward { host, port, head, body })
}

fn strip_scheme(target: &str) -> Option<&str> {
    let (scheme, rest) = target.split_at_checked("http://".len())?;
    scheme.eq_ignore_ascii_case("http://").then_some(rest)
}

fn format_authority(host: &str, port: u16) -> String {
    if port == 80 { host.to_owned() } else { format!("{host}:{port}") }
}

/// Parses `host:port`.
fn parse_authority(text: &str, default: Option<u16>) -> Result<(String, u16), ConnectionRefusal> {
    let malformed = Err(ConnectionRefusal::Malformed("its host is invalid"));
    if text.contains('@') {
        return malformed;
    }
    let is_bare_address = text.ends_with(']');
    let (host, port) = match text.rsplit_once(':').filter(|_| !is_bare_address) {
        Some((host, port)) => (host, port.parse().ok()),
        None => (text, default),
    };
    let host = &*normalize_host(host);
    // The next comparison would remove a second final dot.
    match port.filter(|_| !host.ends_with('.')) {
        Some(port) if !host.is_empty() && host.len() <= LONGEST_HOST && port != 0 => {
            Ok((host.to_owned(), port))
        }
        _ => malformed,
    }
}

impl BodyLength {
    /// Copies the body, and nothing after it.
    pub(super) fn copy(self, from: &mut impl BufRead, to: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Bytes(length) => {
                if io::copy(&mut from.take(length), to)? != length {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Self::Chunked => loop {
                let line = read_line(from)?;
                let digits = line.split(|byte| matches!(byte, b';' | b'\r' | b'\n')).next();
                let size = digits
                    .and_then(|digits| std::str::from_utf8(digits.trim_ascii()).ok())
                    .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
                    .and_then(|digits| u64::from_str_radix(digits, 16).ok())
                    .ok_or(io::ErrorKind::InvalidData)?;
                // Chunk extensions are dropped, since parsers treat them differently.
                write!(to, "{size:x}\r\n")?;
                if size == 0 {
                    // Trailers are dropped, too.
                    to.write_all(b"\r\n")?;
                    break;
                }
                if io::copy(&mut from.take(size), to)? != size || has_more_lines(from)? {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                to.write_all(b"\r\n")?;
            },
        }
        to.flush()
    }
}

fn read_line(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    from.take(1024).read_until(b'\n', &mut line)?;
    if line.ends_with(b"\n") { Ok(line) } else { Err(io::ErrorKind::InvalidData.into()) }
}

fn has_more_lines(from: &mut impl BufRead) -> io::Result<bool> {
    Ok(!matches!(read_line(from)?.as_slice(), b"\r\n" | b"\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Result<ProxyRequest, ConnectionRefusal> {
        read(&mut text.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn a_request_is_forwarded_with_the_host_of_its_url() {
        let text = "GET http://A.example:8080/x?y HTTP/1.1\r\nHost: other.example\r\nProxy-Authorization: x\r\n\
                    Connection: keep-alive, x-secret\r\nX-Secret: 1\r\nAccept: */*\r\n\r\n";
        let Ok(ProxyRequest::Forward { host, port, head, body }) = request(text) else { panic!() };
        assert_eq!((host.as_str(), port, body), ("a.example", 8080, BodyLength::Bytes(0)));
        let head = String::from_utf8(head).unwrap();
        let expected =
            "GET /x?y HTTP/1.1\r\nHost: a.example:8080\r\nAccept: */*\r\nConnection: close\r\n\r\n";
        assert_eq!(head, expected);
    }

    #[test]
    fn a_tunnel_names_its_port() {
        let tunnel = |target: &str| request(&format!("CONNECT {target} HTTP/1.1\r\n\r\n"));
        let expected = ProxyRequest::Tunnel { host: "a.example".to_owned(), port: 443 };
        assert_eq!(tunnel("a.example:443"), Ok(expected));
        for target in
            ["a.example", "a.example:0", ":443", "u@a.example:443", "a.example:x", "a.example:443:"]
        {
            assert!(tunnel(target).is_err(), "{target}");
        }
        assert!(tunnel("a.example..:443").is_err());
        // A refused host is reported, so its length is limited.
        assert!(tunnel(&format!("{}.1:443", "1".repeat(300))).is_err());
    }

    #[test]
    fn ambiguous_requests_are_refused() {
        for fields in [
            "Content-Length: 1\r\nContent-Length: 2",
            "Content-Length: +1",
            "Content-Length: 1\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        ] {
            let text = format!("POST http://a.example/ HTTP/1.1\r\n{fields}\r\n\r\n");
            assert!(matches!(request(&text), Err(ConnectionRefusal::Malformed(_))), "{fields}");
        }
        for target in ["/", "https://a.example/", "ftp://a.example/", "*"] {
            assert!(request(&format!("GET {target} HTTP/1.1\r\n\r\n")).is_err(), "{target}");
        }
    }

    #[test]
    fn nothing_after_a_body_is_forwarded() {
        let copied = |body: BodyLength, text: &str| {
            let (mut from, mut to) = (text.as_bytes(), Vec::new());
            let is_whole = body.copy(&mut from, &mut to).is_ok();
            (is_whole, String::from_utf8(to).unwrap(), from.len())
        };
        let rest = "GET http://b.example/";
        let chunked = format!("3;x=y\r\nabc\r\n0\r\n\r\n{rest}");
        assert_eq!(copied(BodyLength::Bytes(3), "abcdef"), (true, "abc".to_owned(), 3));
        let (is_whole, text, _) = copied(BodyLength::Chunked, &chunked);
        assert_eq!((is_whole, text.as_str()), (true, "3\r\nabc\r\n0\r\n\r\n"));
        assert!(!copied(BodyLength::Bytes(3), "ab").0);
        for text in ["+3\r\nabc\r\n", "3\r\nabcd\r\n", "x\r\n", "3\r\nab", ""] {
            assert!(!copied(BodyLength::Chunked, text).0, "{text:?}");
        }
    }

    #[test]
    fn a_head_has_a_limit() {
        let text =
            format!("GET http://a.example/ HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(MAX_HEAD_LENGTH));
        assert_eq!(request(&text), Err(ConnectionRefusal::Malformed("its head is too long")));
        assert!(read(&mut &b"GET http://a"[..]).unwrap().is_none());
    }
}
