//! Promise 3: a dead holder's lock is free at the end of its lease.

use crate::context::Context;
use crate::failure::Checked;
use crate::process::Setting;
use crate::request::Like as _;
use crate::rule::rules;

rules! {
    "3.1" killed_process [Processes]
        "The lock of a killed process is free at the end of its lease, and not before.";
    "3.2" vanished_client []
        "The lock of a client whose connections are closed is free at the end of its lease, and not before.";
}

async fn killed_process(cx: Context) -> Checked {
    let waiter = cx.client().await?;
    let (holder, process) = cx.process(Setting::default()).await?;
    let request = cx.request(&cx.name()?, cx.lease(1000));
    let grant = holder.take(&request).await?;
    process.kill().await?;
    let later = waiter.take_when_free(&request.with_new_token()).await?;
    grant.kept_others_out(&later, request.lease)
}

async fn vanished_client(cx: Context) -> Checked {
    let (holder, waiter) = (cx.client().await?, cx.client().await?);
    let request = cx.request(&cx.name()?, cx.lease(500));
    let grant = holder.take(&request).await?;
    drop(holder);
    let later = waiter.take_when_free(&request.with_new_token()).await?;
    grant.kept_others_out(&later, request.lease)
}
