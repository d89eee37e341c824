//! A wire between client and server that counts, and that can be made a bad one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

pub struct Proxy {
    pub options: MySqlConnectOptions,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    round_trips: AtomicU64,
    /// Counts down to the answer that is lost; 0: none is.
    loses_reply: AtomicU64,
    drops_found_rows: AtomicBool,
    /// Connections of earlier generations are silent.
    generation: AtomicU64,
}

impl Proxy {
    /// In front of where the options lead. Without TLS, which would hide what goes through; so the password must be
    /// known to the server by a first connection that had TLS.
    pub async fn new(server: MySqlConnectOptions) -> Self {
        sqlx::Connection::close(super::connect(&server).await)
            .await
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let options = server.clone().host("127.0.0.1").port(address.port());
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = (server.get_host(), server.get_port());
                let server = TcpStream::connect(server).await.unwrap();
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                tokio::spawn(serve(client, server, Arc::clone(&shared)));
            }
        });
        Self {
            options: options.ssl_mode(MySqlSslMode::Disabled),
            state,
        }
    }

    /// How many since the last call.
    pub fn round_trips(&self) -> u64 {
        self.state.round_trips.swap(0, Ordering::SeqCst)
    }

    /// The server's next answer is lost together with its connection.
    pub fn lose_reply(&self) {
        self.lose_reply_after(0);
    }

    /// As [`lose_reply`](Self::lose_reply), after so many that come through.
    pub fn lose_reply_after(&self, replies: u64) {
        self.state.loses_reply.store(replies + 1, Ordering::SeqCst);
    }

    /// New connections count changed rows, as those of most other drivers do.
    pub fn drop_found_rows(&self) {
        self.state.drops_found_rows.store(true, Ordering::SeqCst);
    }

    /// What is connected now stays so, and nothing goes through any more: a firewall has forgotten it.
    pub fn fall_silent(&self) {
        self.state.generation.fetch_add(1, Ordering::SeqCst);
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
    /// Whether this answer is the one to be lost.
    fn is_lost(&self) -> bool {
        let count = self.loses_reply.load(Ordering::SeqCst);
        self.loses_reply
            .store(count.saturating_sub(1), Ordering::SeqCst);
        count == 1
    }

    fn is_silent(&self, born: u64) -> bool {
        self.generation.load(Ordering::SeqCst) != born
    }
}

/// Packet by packet: a length of three bytes, a number that is 0 for each command, the rest.
async fn requests(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    state: &State,
    born: u64,
) -> std::io::Result<()> {
    loop {
        let mut header = [0; 4];
        client.read_exact(&mut header).await?;
        let length = u32::from_le_bytes([header[0], header[1], header[2], 0]);
        let mut packet = vec![0; usize::try_from(length).unwrap()];
        client.read_exact(&mut packet).await?;
        if state.is_silent(born) {
            continue;
        }
        // COM_QUERY, COM_STMT_PREPARE, COM_STMT_EXECUTE
        if header[3] == 0 && matches!(packet.first(), Some(0x03 | 0x16 | 0x17)) {
            state.round_trips.fetch_add(1, Ordering::SeqCst);
        }
        // The client's half of the handshake begins with its flags, of which CLIENT_FOUND_ROWS is the second.
        if header[3] == 1 && state.drops_found_rows.load(Ordering::SeqCst) {
            packet[0] &= !2;
        }
        server.write_all(&[&header, &*packet].concat()).await?;
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
        if length == 0 || state.is_lost() {
            return Ok(());
        }
        if !state.is_silent(born) {
            client.write_all(&buffer[..length]).await?;
        }
    }
}
