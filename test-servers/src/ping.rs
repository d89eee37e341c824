//! Whether a server answers, asked with its own protocol and without a password.
//!
//! A connection alone says nothing: the proxy of a container accepts it before the server is up.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(2);

/// How to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Redis and Valkey.
    Redis,
    /// MySQL and MariaDB.
    MySql,
    /// PostgreSQL and what stands before it.
    Postgres,
}

impl Protocol {
    /// Whether a server on this port of 127.0.0.1 lets clients in.
    pub async fn answers(self, port: u16) -> bool {
        match self {
            Self::Redis => redis(port).await,
            Self::MySql => mysql(port).await,
            Self::Postgres => postgres(port).await,
        }
    }
}

/// A PING gets its PONG.
async fn redis(port: u16) -> bool {
    matches!(talk::<7>(port, b"PING\r\n").await, Some(reply) if reply == *b"+PONG\r\n")
}

/// A MySQL or MariaDB greets by itself; the fifth byte is the version of its protocol, or 255 for an error.
async fn mysql(port: u16) -> bool {
    matches!(talk::<5>(port, b"").await, Some([.., 10]))
}

/// A start-up packet is answered with a question for the password (`R`), or with an error (`E`) while sessions are
/// not let in yet.
async fn postgres(port: u16) -> bool {
    let mut packet = vec![0, 0, 0, 0, 0, 3, 0, 0];
    packet.extend_from_slice(b"user\0distlock\0database\0distlock\0\0");
    packet[3] = packet.len() as u8;
    matches!(talk::<1>(port, &packet).await, Some([b'R']))
}

/// Sends the bytes on a connection of its own and reads the first bytes of the answer.
async fn talk<const N: usize>(port: u16, bytes: &[u8]) -> Option<[u8; N]> {
    let exchange = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.write_all(bytes).await?;
        let mut reply = [0; N];
        stream.read_exact(&mut reply).await?;
        io::Result::Ok(reply)
    };
    timeout(LIMIT, exchange).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// The port of a server that says one thing to whoever comes first.
    async fn server(says: &'static [u8]) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(says).await.unwrap();
        });
        port
    }

    #[tokio::test]
    async fn a_server_that_answers_is_up() {
        assert!(redis(server(b"+PONG\r\n").await).await);
        assert!(mysql(server(b"\x4a\0\0\0\x0a9.7.4\0").await).await);
        assert!(postgres(server(b"R\0\0\0\x17").await).await);
    }

    #[tokio::test]
    async fn one_that_refuses_is_not_up_yet() {
        assert!(!redis(server(b"-LOADING").await).await);
        assert!(!mysql(server(b"\x17\0\0\0\xff\x10\x04Too many connections").await).await);
        assert!(!postgres(server(b"E\0\0\0\x45SFATAL").await).await);
    }

    #[tokio::test]
    async fn a_connection_alone_is_no_answer() {
        assert!(!redis(server(b"").await).await);
        assert!(!mysql(server(b"").await).await);
        assert!(!postgres(server(b"").await).await);
    }
}
