//! TLS (D13): it works with a trusted certificate, and nothing else is ever taken instead.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::time::Duration;

use common::{Server, acquire, free_port, request};
use distlock_api::{Effect, Error, ErrorKind, LockBackend};
use distlock_redis::RedisBackend;
use distlock_redis::redis::{Client, TlsCertificates};
use rcgen::{CertifiedKey, generate_simple_self_signed};

/// A server with a certificate of its own for `localhost`, and the port for TLS.
struct TlsServer {
    _server: Server,
    port: u16,
    certificate: String,
    plain_port: u16,
}

impl TlsServer {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let write = |name: &str, text: String| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let cert_file = write("cert.pem", cert.pem());
        let key_file = write("key.pem", signing_key.serialize_pem());
        let port = free_port();
        let server = Server::start(&[
            "--tls-port",
            &port.to_string(),
            "--tls-cert-file",
            &cert_file,
            "--tls-key-file",
            &key_file,
            "--tls-auth-clients",
            "no",
        ])
        .await;
        Self {
            plain_port: server.port,
            _server: server,
            port,
            certificate: cert.pem(),
        }
    }

    /// A client that trusts the server's certificate.
    fn client(&self, host: &str) -> Client {
        let trusted = TlsCertificates {
            client_tls: None,
            root_cert: Some(self.certificate.clone().into_bytes()),
        };
        Client::build_with_tls(format!("rediss://{host}:{}", self.port), trusted).unwrap()
    }
}

async fn refused(url: &str) -> Error {
    // A plain server waits for the end of what it takes for a command.
    let builder = RedisBackend::builder().operation_limit(Duration::from_secs(2));
    let error = builder.connect(url).await.unwrap_err();
    assert_eq!(error.effect(), Effect::None, "{error}");
    error
}

#[tokio::test]
async fn a_trusted_certificate_is_taken() {
    let server = TlsServer::start().await;
    let backend = RedisBackend::from_client(server.client("localhost"));
    acquire(&backend, &request("a")).await;
}

#[tokio::test]
async fn an_untrusted_certificate_is_a_config_error() {
    let server = TlsServer::start().await;
    let error = refused(&format!("rediss://:s3cret@localhost:{}", server.port)).await;
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");
    assert!(!error.to_string().contains("s3cret"), "{error}");
}

#[tokio::test]
async fn a_certificate_for_another_host_is_a_config_error() {
    let server = TlsServer::start().await;
    let backend = RedisBackend::from_client(server.client("127.0.0.1"));
    let error = backend.try_acquire(&request("a")).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Config, Effect::None),
        "{error}"
    );
}

#[tokio::test]
async fn tls_and_plain_text_never_stand_in_for_each_other() {
    let server = TlsServer::start().await;
    refused(&format!("rediss://localhost:{}", server.plain_port)).await;
    refused(&format!("redis://localhost:{}", server.port)).await;
}
