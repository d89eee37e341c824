//! Packets that vanish.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Server, acquire, request};
use distlock_api::{Attempt, LockBackend, clock};
use distlock_redis::RedisBackend;
use tokio::net::{TcpListener, TcpStream};

/// Passes bytes on until it is told that all connections of before are dead ends.
struct Proxy {
    address: SocketAddr,
    blocked: Arc<std::sync::Mutex<Arc<AtomicBool>>>,
}

impl Proxy {
    async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let blocked: Arc<std::sync::Mutex<Arc<AtomicBool>>> = Arc::default();
        let current = Arc::clone(&blocked);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let blocked = Arc::clone(&current.lock().unwrap());
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                tokio::spawn(pass(client, server, blocked));
            }
        });
        Self { address, blocked }
    }

    /// What was connected until now hears and says nothing any more; what comes later does.
    fn block(&self) {
        let mut blocked = self.blocked.lock().unwrap();
        blocked.store(true, Ordering::SeqCst);
        *blocked = Arc::default();
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
    let proxy = Proxy::to(server.port).await;
    let url = format!("redis://{}", proxy.address);
    let limit = Duration::from_secs(600);
    let backend = RedisBackend::builder()
        .operation_limit(limit)
        .connect(&url)
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
