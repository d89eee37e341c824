//! A wire between a client and its server that can be made a bad one.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock_api::clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What a link does with what passes through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Passes it on.
    Open,
    /// Keeps what goes this way, and passes it on when that is over, as TCP does when packets were lost.
    Held(Way),
    /// Passes it on so much later.
    Slow(Duration),
    /// Passes it on byte by byte.
    Sliced,
    /// Passes on so many bytes of what goes this way, and then breaks the connection.
    Cut(Way, usize),
    /// Ends this way of the connection in place of the next bytes, and leaves the other way open.
    HalfClosed(Way),
    /// Changes the first of the bytes that come together.
    Garbled(Way),
    /// Takes new connections, and does nothing with them.
    Deaf,
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToServer,
    ToClient,
    Both,
}

impl Way {
    fn includes(self, way: Self) -> bool {
        self == Self::Both || self == way
    }
}

/// A TCP proxy on this machine. It ends when it is dropped, and breaks its connections.
#[derive(Debug)]
pub(crate) struct Link {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    server: String,
    condition: watch::Sender<Condition>,
    /// Connections of an earlier age are broken, or silent.
    age: watch::Sender<Age>,
    /// What is left of a [`Condition::Cut`].
    bytes: AtomicUsize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Age {
    broken: usize,
    silent: usize,
}

impl Link {
    /// A link to a server, `host:port`.
    pub(crate) async fn to(server: &str) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            server: server.to_owned(),
            condition: watch::Sender::new(Condition::Open),
            age: watch::Sender::new(Age::default()),
            bytes: AtomicUsize::new(0),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self {
            address,
            shared,
            accepting,
        })
    }

    /// Where clients connect to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn set(&self, condition: Condition) {
        if let Condition::Cut(_, bytes) = condition {
            self.shared.bytes.store(bytes, Ordering::SeqCst);
        }
        self.shared.condition.send_replace(condition);
    }

    /// Breaks all connections, with a reset.
    pub(crate) fn reset(&self) {
        self.shared.age.send_modify(|age| age.broken += 1);
    }

    /// All connections stay, and nothing goes through them any more: a firewall has forgotten them.
    pub(crate) fn forget(&self) {
        self.shared.age.send_modify(|age| age.silent += 1);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.accepting.abort();
        self.reset();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(serve(client, Arc::clone(&shared)));
    }
}

async fn serve(client: TcpStream, shared: Arc<Shared>) {
    let age = *shared.age.borrow();
    let mut conditions = shared.condition.subscribe();
    // What is not heard is not connected on either.
    let heard = conditions.wait_for(|condition| *condition != Condition::Deaf);
    if heard.await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect(&shared.server).await else {
        return;
    };
    for stream in [&client, &server] {
        let _ = stream.set_nodelay(true);
        // Dropped with a reset.
        let _ = stream.set_zero_linger();
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut ages = shared.age.subscribe();
    tokio::select! {
        _ = ages.wait_for(|now| now.broken != age.broken) => {}
        _ = pass(from_client, to_server, Way::ToServer, &shared, age) => {}
        _ = pass(from_server, to_client, Way::ToClient, &shared, age) => {}
    }
}

/// Passes bytes on until an end breaks.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    way: Way,
    shared: &Shared,
    born: Age,
) -> io::Result<()> {
    let mut conditions = shared.condition.subscribe();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        let held =
            |condition: &Condition| matches!(condition, Condition::Held(of) if of.includes(way));
        let open = conditions.wait_for(|condition| !held(condition)).await;
        let condition = *open.map_err(io::Error::other)?;
        if shared.age.borrow().silent != born.silent {
            std::future::pending::<()>().await;
        }
        let bytes = &mut buffer[..length];
        match condition {
            Condition::Slow(delay) => clock::sleep(delay).await,
            Condition::Sliced => {
                for byte in &*bytes {
                    to.write_all(&[*byte]).await?;
                    tokio::task::yield_now().await;
                }
                continue;
            }
            Condition::Cut(of, _) if of.includes(way) => {
                let left = shared.bytes.load(Ordering::SeqCst);
                let part = left.min(length);
                to.write_all(&bytes[..part]).await?;
                if part == left {
                    return Ok(());
                }
                shared.bytes.store(left - part, Ordering::SeqCst);
                continue;
            }
            Condition::HalfClosed(of) if of.includes(way) => {
                to.shutdown().await?;
                return std::future::pending().await;
            }
            Condition::Garbled(of) if of.includes(way) => bytes[0] ^= 0x80,
            _ => {}
        }
        to.write_all(bytes).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An echo server, a link to it, and a client.
    async fn echo() -> (Link, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        let link = Link::to(&server).await.unwrap();
        let client = TcpStream::connect(link.address()).await.unwrap();
        (link, client)
    }

    async fn says(client: &mut TcpStream, text: &str) -> io::Result<String> {
        client.write_all(text.as_bytes()).await?;
        hears(client, text.len()).await
    }

    async fn hears(client: &mut TcpStream, length: usize) -> io::Result<String> {
        let mut heard = vec![0; length];
        client.read_exact(&mut heard).await?;
        Ok(String::from_utf8(heard).unwrap())
    }

    const SHORT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn what_is_held_comes_later() {
        let (link, mut client) = echo().await;
        for way in [Way::ToServer, Way::ToClient, Way::Both] {
            assert_eq!(says(&mut client, "open").await.unwrap(), "open");
            link.set(Condition::Held(way));
            client.write_all(b"held").await.unwrap();
            let early = clock::timeout(SHORT, hears(&mut client, 4)).await;
            assert!(early.is_none(), "{way:?}");
            link.set(Condition::Open);
            assert_eq!(hears(&mut client, 4).await.unwrap(), "held");
        }
    }

    #[tokio::test]
    async fn slices_and_delays_change_nothing_but_the_time() {
        let (link, mut client) = echo().await;
        link.set(Condition::Sliced);
        assert_eq!(says(&mut client, "sliced").await.unwrap(), "sliced");
        link.set(Condition::Slow(SHORT));
        let sent = clock::Instant::now();
        assert_eq!(says(&mut client, "slow").await.unwrap(), "slow");
        assert!(sent.elapsed() >= 2 * SHORT);
    }

    #[tokio::test]
    async fn a_cut_comes_after_so_many_bytes() {
        let (link, mut client) = echo().await;
        link.set(Condition::Cut(Way::ToClient, 3));
        client.write_all(b"abcdef").await.unwrap();
        let mut heard = Vec::new();
        let end = client.read_to_end(&mut heard).await;
        assert!(heard == b"abc" || end.is_err(), "{heard:?}");
    }

    #[tokio::test]
    async fn one_way_can_be_closed_and_the_other_stays() {
        let (link, mut client) = echo().await;
        link.set(Condition::HalfClosed(Way::ToClient));
        client.write_all(b"hello").await.unwrap();
        let mut heard = Vec::new();
        let end = client.read_to_end(&mut heard).await;
        assert!(end.is_ok() && heard.is_empty(), "{heard:?}");
        client.write_all(b"hello").await.unwrap();
    }

    #[tokio::test]
    async fn what_is_garbled_is_not_what_was_sent() {
        let (link, mut client) = echo().await;
        link.set(Condition::Garbled(Way::ToClient));
        client.write_all(b"abc").await.unwrap();
        let mut heard = [0; 3];
        client.read_exact(&mut heard).await.unwrap();
        assert_eq!(heard, [b'a' ^ 0x80, b'b', b'c']);
    }

    #[tokio::test]
    async fn a_reset_breaks_and_new_connections_work() {
        let (link, mut client) = echo().await;
        assert_eq!(says(&mut client, "hello").await.unwrap(), "hello");
        link.reset();
        assert!(hears(&mut client, 1).await.is_err());
        let mut next = TcpStream::connect(link.address()).await.unwrap();
        assert_eq!(says(&mut next, "hello").await.unwrap(), "hello");
    }

    #[tokio::test]
    async fn a_forgotten_connection_is_silent_for_ever_and_new_ones_work() {
        let (link, mut client) = echo().await;
        assert_eq!(says(&mut client, "hello").await.unwrap(), "hello");
        link.forget();
        let silent = clock::timeout(SHORT, says(&mut client, "hello")).await;
        assert!(silent.is_none());
        let mut next = TcpStream::connect(link.address()).await.unwrap();
        assert_eq!(says(&mut next, "hello").await.unwrap(), "hello");
    }

    #[tokio::test]
    async fn a_deaf_link_takes_connections_and_nothing_more() {
        let (link, _client) = echo().await;
        link.set(Condition::Deaf);
        let mut client = TcpStream::connect(link.address()).await.unwrap();
        let silent = clock::timeout(SHORT, says(&mut client, "hello")).await;
        assert!(silent.is_none());
    }
}
