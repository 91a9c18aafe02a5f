//! TLS: trusted certificates, and no key for other servers.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use architect::llm::ModelConnectionSettings;
use architect::types::{Fault, FaultClass, FaultKind, Reply};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tempfile::TempDir;

use super::caller::{KEY, WireCaller, env};
use crate::kit::chat::unstreamed_body;

/// A server with a certificate, and the file with its authority.
struct TlsServer {
    url: String,
    folder: TempDir,
    /// The requests that the server could decrypt.
    received: Arc<Mutex<String>>,
}

impl TlsServer {
    /// Returns a server with a certificate for this name, modified by `change`.
    fn new(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut authority = CertificateParams::new([]).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let root = authority.self_signed(&key).unwrap();
        let issuer = Issuer::new(authority, key);
        let mut leaf = CertificateParams::new([name.to_owned()]).unwrap();
        change(&mut leaf);
        let key = KeyPair::generate().unwrap();
        let certificate = leaf.signed_by(&key, &issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("root.pem"), root.pem()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}/v1", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(String::new()));
        let notes = Arc::clone(&received);
        thread::spawn(move || serve(&listener, &Arc::new(config), &notes));
        Self { url, folder, received }
    }

    /// Calls the server, trusting its authority or only those of the system.
    fn call(&self, trusts: bool) -> Result<Reply, Fault> {
        let settings = ModelConnectionSettings {
            api_base: Some(self.url.clone()),
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
            stream: false,
            ..ModelConnectionSettings::default()
        };
        let root = self.folder.path().join("root.pem").display().to_string();
        let env = |name: &str| match name {
            "SSL_CERT_FILE" if trusts => Some(root.clone()),
            name => env(name),
        };
        WireCaller::with_env("openai-chat/fake", &settings, &env).unwrap().call().reply
    }

    fn fault(&self, trusts: bool) -> Fault {
        let fault = self.call(trusts).unwrap_err();
        assert_eq!((fault.kind, fault.class()), (FaultKind::Tls, FaultClass::Fatal), "{fault:?}");
        assert_eq!(*self.received.lock().unwrap(), "", "nothing is sent to an untrusted server");
        fault
    }
}

/// Answers each connection once; one without a handshake is closed.
fn serve(listener: &TcpListener, config: &Arc<ServerConfig>, notes: &Mutex<String>) {
    for stream in listener.incoming().take(4) {
        let stream = stream.unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let connection = ServerConnection::new(Arc::clone(config)).unwrap();
        let mut reader = BufReader::new(StreamOwned::new(connection, stream));
        let (mut head, mut length) = (String::new(), 0);
        while let Ok(count @ 1..) = reader.read_line(&mut head) {
            let line = head[head.len() - count..].to_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        if head.is_empty() || reader.read_exact(&mut body).is_err() {
            continue;
        }
        notes.lock().unwrap().push_str(&head);
        let text = unstreamed_body("sealed");
        let stream = reader.get_mut();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{text}",
            text.len()
        );
        stream.write_all(answer.as_bytes()).unwrap();
        stream.conn.send_close_notify();
        let _ = stream.flush();
    }
}

#[test]
fn a_configured_authority_is_trusted() {
    let server = TlsServer::new("127.0.0.1", |_| {});
    assert_eq!(&*server.call(true).unwrap().text(), "sealed");
    assert!(server.received.lock().unwrap().contains(KEY));
}

/// Fault L5.
#[test]
fn an_unknown_authority_is_not_trusted() {
    let fault = TlsServer::new("127.0.0.1", |_| {}).fault(false);
    assert!(fault.message.contains("SSL_CERT_FILE"), "{}", fault.message);
}

/// Faults L5 and C3.
#[test]
fn an_expired_certificate_is_not_trusted() {
    let past = |leaf: &mut CertificateParams| leaf.not_after = date_time_ymd(2001, 1, 1);
    let fault = TlsServer::new("127.0.0.1", past).fault(true);
    assert!(fault.message.contains("clock"), "{}", fault.message);
}

/// Fault L5.
#[test]
fn a_certificate_for_another_host_is_not_trusted() {
    let fault = TlsServer::new("elsewhere.example", |_| {}).fault(true);
    assert!(fault.message.contains("127.0.0.1"), "{}", fault.message);
}
