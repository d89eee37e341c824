//! A wire between client and server that counts, and that can be made a bad one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

pub struct Proxy {
    pub options: PgConnectOptions,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    connections: AtomicU64,
    round_trips: AtomicU64,
    prepared: AtomicU64,
    loses_reply: AtomicBool,
    drops_options: AtomicBool,
    /// Connections of earlier generations are silent.
    generation: AtomicU64,
}

impl Proxy {
    /// Before the test server.
    pub async fn new() -> Self {
        Self::before(super::options()).await
    }

    pub async fn before(server: PgConnectOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let options = server.clone().host("127.0.0.1").port(address.port());
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let server = (server.get_host(), server.get_port());
                let server = TcpStream::connect(server).await.unwrap();
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                tokio::spawn(serve(client, server, Arc::clone(&shared)));
            }
        });
        Self {
            options: options.ssl_mode(PgSslMode::Disable),
            state,
        }
    }

    /// How many since the last call. A client ends each with Sync or Query.
    pub fn round_trips(&self) -> u64 {
        self.state.round_trips.swap(0, Ordering::SeqCst)
    }

    /// How many connections were opened since the last call.
    pub fn connections(&self) -> u64 {
        self.state.connections.swap(0, Ordering::SeqCst)
    }

    /// How many statements were prepared since the last call.
    pub fn prepared(&self) -> u64 {
        self.state.prepared.swap(0, Ordering::SeqCst)
    }

    /// The server's next answer is lost together with its connection.
    pub fn lose_reply(&self) {
        self.state.loses_reply.store(true, Ordering::SeqCst);
    }

    /// What is connected now stays so, and nothing goes through any more: a firewall has forgotten it.
    pub fn fall_silent(&self) {
        self.state.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// New connections lose their session settings, as behind some poolers.
    pub fn drop_options(&self) {
        self.state.drops_options.store(true, Ordering::SeqCst);
    }
}

/// Ends both directions as soon as one ends.
async fn serve(client: TcpStream, server: TcpStream, state: Arc<State>) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let born = state.generation.load(Ordering::SeqCst);
    tokio::select! {
        _ = requests(from_client, to_server, &state, born) => {}
        _ = replies(from_server, to_client, &state, born) => {}
    }
}

impl State {
    fn is_silent(&self, born: u64) -> bool {
        self.generation.load(Ordering::SeqCst) != born
    }
}

/// Message by message: a type, which the first has not, a length that counts itself, the rest.
async fn requests(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    state: &State,
    born: u64,
) -> std::io::Result<()> {
    let mut start = read(&mut client).await?;
    if state.drops_options.load(Ordering::SeqCst) {
        start = without_options(&start);
    }
    write(&mut server, &[], &start).await?;
    loop {
        let kind = client.read_u8().await?;
        let message = read(&mut client).await?;
        if state.is_silent(born) {
            continue;
        }
        if matches!(kind, b'S' | b'Q') {
            state.round_trips.fetch_add(1, Ordering::SeqCst);
        }
        if kind == b'P' {
            state.prepared.fetch_add(1, Ordering::SeqCst);
        }
        write(&mut server, &[kind], &message).await?;
    }
}

async fn replies(
    mut server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    state: &State,
    born: u64,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 8192];
    loop {
        let length = server.read(&mut buffer).await?;
        if length == 0 || state.loses_reply.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        if !state.is_silent(born) {
            client.write_all(&buffer[..length]).await?;
        }
    }
}

async fn read(from: &mut OwnedReadHalf) -> std::io::Result<Vec<u8>> {
    let length = from.read_u32().await? - 4;
    let mut message = vec![0; usize::try_from(length).unwrap()];
    from.read_exact(&mut message).await?;
    Ok(message)
}

/// In one piece: PgBouncer takes no start-up message in parts.
async fn write(to: &mut OwnedWriteHalf, kind: &[u8], message: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(message.len()).unwrap() + 4;
    let whole = [kind, &length.to_be_bytes(), message].concat();
    to.write_all(&whole).await
}

/// The start-up message: a version, then keys and values, each ended by a zero, then a zero.
fn without_options(start: &[u8]) -> Vec<u8> {
    let (version, texts) = start.split_at(4);
    let texts: Vec<_> = texts.split(|byte| *byte == 0).collect();
    let pairs = texts.chunks_exact(2).take_while(|pair| !pair[0].is_empty());
    let mut message = version.to_vec();
    for pair in pairs.filter(|pair| pair[0] != b"options") {
        message.extend([pair[0], b"\0", pair[1], b"\0"].concat());
    }
    message.push(0);
    message
}
