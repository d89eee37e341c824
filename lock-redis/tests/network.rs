//! Packets that vanish, and addresses that lead elsewhere.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Server, acquire, request};
use distlock_api::{Attempt, ErrorKind, LockBackend, clock};
use distlock_redis::RedisBackend;
use tokio::net::{TcpListener, TcpStream};

/// Passes bytes on to the server behind it. What it is told holds for connections to come; those of before go on.
struct Proxy {
    address: SocketAddr,
    port: Arc<AtomicU16>,
    blocked: Arc<Mutex<Arc<AtomicBool>>>,
}

impl Proxy {
    async fn to(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            port: Arc::new(AtomicU16::new(server.port)),
            blocked: Arc::default(),
        };
        let (port, blocked) = (Arc::clone(&proxy.port), Arc::clone(&proxy.blocked));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let port = port.load(Ordering::SeqCst);
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let blocked = Arc::clone(&blocked.lock().unwrap());
                tokio::spawn(pass(client, server, blocked));
            }
        });
        proxy
    }

    fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// What was connected until now hears and says nothing any more.
    fn block(&self) {
        let mut blocked = self.blocked.lock().unwrap();
        blocked.store(true, Ordering::SeqCst);
        *blocked = Arc::default();
    }

    fn lead_to(&self, server: &Server) {
        self.port.store(server.port, Ordering::SeqCst);
    }
}

async fn pass(client: TcpStream, server: TcpStream, blocked: Arc<AtomicBool>) {
    let mut buffer = [0; 4096];
    loop {
        let (from, to) = tokio::select! {
            _ = client.readable() => (&client, &server),
            _ = server.readable() => (&server, &client),
        };
        match from.try_read(&mut buffer) {
            Ok(0) => return,
            Ok(_) if blocked.load(Ordering::SeqCst) => std::future::pending().await,
            Ok(read) => assert_eq!(to.try_write(&buffer[..read]).unwrap(), read),
            Err(_) => {}
        }
    }
}

/// (D6) Callers with a shorter limit than the driver's give up before it does.
#[tokio::test]
async fn a_connection_that_fell_silent_is_left_behind() {
    let server = Server::start(&[]).await;
    let proxy = Proxy::to(&server).await;
    let limit = Duration::from_secs(600);
    let backend = RedisBackend::builder()
        .operation_limit(limit)
        .connect(&proxy.url())
        .await
        .unwrap();
    acquire(&backend, &request("a")).await;
    proxy.block();
    let request = request("b");
    let unanswered = backend.try_acquire(&request);
    assert!(
        clock::timeout(Duration::from_millis(100), unanswered)
            .await
            .is_none()
    );
    clock::sleep(Duration::from_secs(1)).await;
    let answered = clock::timeout(Duration::from_secs(60), backend.try_acquire(&request)).await;
    assert!(matches!(
        answered.unwrap().unwrap(),
        Attempt::Acquired { .. }
    ));
}

/// (D11) After a failover the name of the primary leads to another server, while the old one still answers.
#[tokio::test]
async fn a_server_that_is_no_primary_any_more_is_left_for_the_one_that_is() {
    let primary = Server::start(&[]).await;
    let old = Server::start(&["--replicaof", "127.0.0.1", &primary.port.to_string()]).await;
    let proxy = Proxy::to(&old).await;
    let backend = RedisBackend::connect(&proxy.url()).await.unwrap();
    proxy.lead_to(&primary);
    let error = backend.try_acquire(&request("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly);
    acquire(&backend, &request("a")).await;
}
