//! What many acquisitions that are dropped at random leave at the server and in the process (J1, promise 8). That they leave
//! no lock is a rule of the family.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use common::{Server, Space};
use distlock_api::Locks;
use distlock_conformance::{InProcess, leave_nothing_pending};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_at_the_server_or_in_the_process() {
    let server = Server::start(&[]).await;
    let mut space = Space::at(&server.url()).await;
    let before = InProcess::now();
    let locks = Locks::new(space.client().await);
    leave_nothing_pending(&locks, 1000).await.unwrap();
    // The counters of fencing tokens stay for a day.
    let keys: Vec<String> = space.run(&format!("KEYS {}*", space.prefix)).await;
    let locked = keys.iter().filter(|key| !key.ends_with(":f"));
    assert_eq!(locked.count(), 0, "{keys:?}");
    drop(locks);
    before.again().await.unwrap();
    let clients: String = space.run("CLIENT LIST TYPE normal").await;
    assert_eq!(clients.lines().count(), 1, "{clients}");
}
