//! Reads the server name from the first message of a TLS client, without taking part in the handshake.

/// The first bytes of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ClientHello {
    /// More bytes are needed.
    Unfinished,
    /// A TLS client hello for this server name.
    Name(String),
    /// A TLS client hello without a server name, or in an unsupported form.
    Unnamed,
    /// Not TLS.
    NotTls,
}

/// The maximum length of the first message, in bytes.
pub(super) const MAX_LENGTH: usize = 64 * 1024;

/// Parses the first bytes of a client (RFC 8446 §4.1.2, RFC 6066 §3).
pub(super) fn parse(bytes: &[u8]) -> ClientHello {
    const HANDSHAKE: u8 = 22;
    const CLIENT_HELLO: u8 = 1;

    let mut message = Vec::new();
    let mut records = ByteReader(bytes);
    loop {
        let Some(kind) = records.byte() else { return ClientHello::Unfinished };
        if kind != HANDSHAKE {
            return if message.is_empty() { ClientHello::NotTls } else { ClientHello::Unnamed };
        }
        let Some(version) = records.take(2) else { return ClientHello::Unfinished };
        if version[0] != 3 {
            return ClientHello::NotTls;
        }
        let Some(length) = records.number(2) else { return ClientHello::Unfinished };
        let Some(fragment) = records.take(length) else { return ClientHello::Unfinished };
        message.extend_from_slice(fragment);
        if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return ClientHello::Unnamed;
        }
        let mut hello = ByteReader(message.get(1..).unwrap_or_default());
        if let Some(body) = hello.number(3).and_then(|length| hello.take(length)) {
            return server_name(body).map_or(ClientHello::Unnamed, ClientHello::Name);
        }
        if message.len() > MAX_LENGTH {
            return ClientHello::Unnamed;
        }
    }
}

/// Returns the server name in the body of a client hello.
fn server_name(body: &[u8]) -> Option<String> {
    const SERVER_NAME: usize = 0;
    const HOST_NAME: u8 = 0;

    let mut body = ByteReader(body);
    // The body begins with version and random bytes; session ID, cipher suites and compression methods follow.
    body.take(2 + 32)?;
    for width in [1, 2, 1] {
        let length = body.number(width)?;
        body.take(length)?;
    }
    let length = body.number(2)?;
    let mut extensions = ByteReader(body.take(length)?);
    let mut found = None;
    while let Some(kind) = extensions.number(2) {
        let length = extensions.number(2)?;
        let content = extensions.take(length)?;
        if kind != SERVER_NAME {
            continue;
        }
        let mut content = ByteReader(content);
        let length = content.number(2)?;
        let mut names = ByteReader(content.take(length)?);
        if names.byte()? != HOST_NAME {
            return None;
        }
        let length = names.number(2)?;
        let name = std::str::from_utf8(names.take(length)?).ok()?;
        // Exactly one name is allowed: given two, servers differ in which one they use.
        if !names.0.is_empty() || found.replace(name.to_owned()).is_some() {
            return None;
        }
    }
    found
}

struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    /// Reads a big-endian number of `width` bytes.
    fn number(&mut self, width: usize) -> Option<usize> {
        Some(self.take(width)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a client hello with these names.
    pub(in crate::exec::egress) fn hello(names: &[&str]) -> Vec<u8> {
        let with_length = |width: usize, bytes: &[u8]| {
            let mut all = (bytes.len() as u64).to_be_bytes()[8 - width..].to_vec();
            all.extend_from_slice(bytes);
            all
        };
        let mut extensions = vec![0xfe, 0x0d, 0, 2, 1, 2];
        for name in names {
            let entry = [&[0][..], &with_length(2, name.as_bytes())].concat();
            extensions.extend([0, 0]);
            extensions.extend(with_length(2, &with_length(2, &entry)));
        }
        let body = [
            &[3, 3][..],
            &[7; 32],
            &with_length(1, &[1; 32]),
            &with_length(2, &[0x13, 1]),
            &with_length(1, &[0]),
            &with_length(2, &extensions),
        ]
        .concat();
        let message = [&[1][..], &with_length(3, &body)].concat();
        // Split into two records, as a client may.
        let (first, second) = message.split_at(20);
        [&[22, 3, 1][..], &with_length(2, first), &[22, 3, 1], &with_length(2, second)].concat()
    }

    #[test]
    fn the_name_is_found_with_the_last_byte_only() {
        let bytes = hello(&["a.example"]);
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes[..end]), ClientHello::Unfinished, "{end}");
        }
        assert_eq!(parse(&bytes), ClientHello::Name("a.example".to_owned()));
    }

    #[test]
    fn other_first_messages_are_distinguished() {
        assert_eq!(parse(&hello(&[])), ClientHello::Unnamed);
        assert_eq!(parse(&hello(&["a.example", "b.example"])), ClientHello::Unnamed);
        assert_eq!(parse(b"SSH-2.0-x"), ClientHello::NotTls);
        assert_eq!(parse(b"GET / HTTP/1.1"), ClientHello::NotTls);
        assert_eq!(parse(&[22, 2, 0]), ClientHello::NotTls);
    }
}
