//! Promise 1: at most one holder per name.

use distlock_api::Attempt;

use crate::context::Context;
use crate::crowd::{count_under_lock, race};
use crate::failure::{Checked, ensure, ensure_while, must_be};
use crate::process::Setting;
use crate::request::Like as _;
use crate::rule::rules;

rules! {
    "1.1" two_clients []
        "While one client holds a lock, another is refused and told who holds it.";
    "1.2" twenty_tasks_of_one_client []
        "Twenty tasks that share one client are under a lock one at a time.";
    "1.3" twenty_clients_and_a_new_name []
        "Of twenty clients that ask at once for a lock that nobody took before, one gets it.";
    "1.4" twenty_clients_and_a_released_lock []
        "Of twenty clients that ask at once for a released lock, one gets it.";
    "1.5" twenty_clients_and_an_expired_lock []
        "Of twenty clients that ask at once for a lock whose lease is over, one gets it.";
    "1.6" between_processes [Processes]
        "Eight processes are under a lock one at a time.";
    "1.7" one_client_twice []
        "A client that holds a lock and asks for it again with another token is refused.";
    "1.8" same_token_again []
        "The token that holds a lock is granted it again, with a lease from that moment.";
    "1.9" same_token_never_shortens []
        "The token that holds a lock and asks for a shorter lease keeps the longer one.";
    "1.10" used_up_token [Records]
        "A token whose lease was released or has run out is not granted the lock again.";
}

async fn two_clients(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let request = cx.request(&cx.name()?, cx.lease(2000));
    let grant = one.take(&request).await?;
    let held = two.refused(&request.with_new_token(), &grant).await?;
    ensure_while!(
        grant,
        held.by.as_ref() == Some(&request.owner),
        "{:?} holds the lock, and {:?} is said to",
        request.owner,
        held.by
    );
    ensure_while!(grant, !held.resting, "a held lock is said to be resting");
    one.free(&grant).await
}

async fn twenty_tasks_of_one_client(cx: Context) -> Checked {
    let clients = vec![cx.client().await?; 20];
    let request = cx.request(&cx.name()?, cx.lease(10_000));
    count_under_lock(clients, request, 3).await
}

async fn twenty_clients_and_a_new_name(cx: Context) -> Checked {
    let clients = cx.clients(20).await?;
    for _ in 0..25 {
        let request = cx.request(&cx.name()?, cx.lease(5000));
        let grant = race(&clients, &request).await?;
        clients[0].free(&grant).await?;
    }
    Ok(())
}

async fn twenty_clients_and_a_released_lock(cx: Context) -> Checked {
    let clients = cx.clients(20).await?;
    let request = cx.request(&cx.name()?, cx.lease(5000));
    for _ in 0..25 {
        let grant = race(&clients, &request).await?;
        clients[0].free(&grant).await?;
    }
    Ok(())
}

async fn twenty_clients_and_an_expired_lock(cx: Context) -> Checked {
    let clients = cx.clients(20).await?;
    for _ in 0..5 {
        let name = cx.name()?;
        let dead = clients[0].take(&cx.request(&name, cx.lease(50))).await?;
        dead.run_out().await;
        race(&clients, &cx.request(&name, cx.lease(5000))).await?;
    }
    Ok(())
}

async fn between_processes(cx: Context) -> Checked {
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(cx.process(Setting::default()).await?.0);
    }
    let request = cx.request(&cx.name()?, cx.lease(10_000));
    count_under_lock(clients, request, 8).await
}

async fn one_client_twice(cx: Context) -> Checked {
    let client = cx.client().await?;
    let request = cx.request(&cx.name()?, cx.lease(2000));
    let grant = client.take(&request).await?;
    client.refused(&request.with_new_token(), &grant).await?;
    client.free(&grant).await
}

async fn same_token_again(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let first = one.take(&cx.request(&cx.name()?, cx.lease(400))).await?;
    let request = first.request.with_lease(cx.lease(800));
    let (attempt, again) = one.ask(&request).await?;
    ensure_while!(
        first,
        matches!(attempt, Attempt::Acquired { .. }),
        "the token that holds the lock was refused: {attempt:?}"
    );
    ensure!(
        again.fence >= first.fence,
        "the fencing token was {:?}, and {:?} when it was granted again",
        first.fence,
        again.fence
    );
    let later = two.take_when_free(&request.with_new_token()).await?;
    again.kept_others_out(&later, request.lease)
}

async fn same_token_never_shortens(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let first = one.take(&cx.request(&cx.name()?, cx.lease(800))).await?;
    let request = first.request.with_lease(cx.lease(20));
    let attempt = one.attempt(&request).await?;
    must_be!(attempt, Attempt::Acquired { .. } => (), "the same token was refused");
    let later = two.take_when_free(&request.with_new_token()).await?;
    first.kept_others_out(&later, first.request.lease)
}

async fn used_up_token(cx: Context) -> Checked {
    let client = cx.client().await?;
    let released = client
        .take(&cx.request(&cx.name()?, cx.lease(2000)))
        .await?;
    client.free(&released).await?;
    let run_out = client.take(&cx.request(&cx.name()?, cx.lease(50))).await?;
    run_out.run_out().await;
    for grant in [released, run_out] {
        let late = client.attempt(&grant.request).await?;
        must_be!(late, Attempt::Held(_) => (), "a lease that is over came back");
    }
    Ok(())
}
