//! Lock names: compared byte for byte, taken whole, refused where they are too long.

use distlock_api::{ErrorKind, LockName};

use crate::client::{Client, Grant};
use crate::context::Context;
use crate::failure::{Checked, ensure, ensure_while, must_be};
use crate::request::Like as _;
use crate::rule::rules;

rules! {
    "N.1" alike_but_not_the_same []
        "Names that differ in case, accents, spelling, spaces or signs are different locks.";
    "N.2" longest_name []
        "Names of the greatest length that differ in their last byte only are different locks.";
    "N.3" too_long []
        "A name that is longer than the backend allows is refused, and never cut.";
    "N.4" listed_as_given [Admin]
        "The list of locks gives every name back as it was.";
}

/// Names that some store somewhere takes for each other, for a pattern, for a separator or for a statement.
const NAMES: &[&str] = &[
    "Job",
    "job",
    "JOB",
    "j\u{f6}b",
    "jo\u{308}b",
    "j\u{f3}b",
    "job.",
    "job x",
    "job  x",
    "job\u{a0}x",
    "job_x",
    "job-x",
    "job%x",
    "jobx",
    "job\u{200b}x",
    "i",
    "I",
    "ı",
    "İ",
    "i\u{307}",
    "ß",
    "ss",
    "ẞ",
    "SS",
    "a",
    "\u{430}",
    "\u{ff41}",
    "\u{e5}",
    "a\u{30a}",
    "\u{c5}",
    "\u{212b}",
    "\u{fb01}",
    "fi",
    "😀",
    "😁",
    "👩\u{200d}🚀",
    "👩",
    "{}",
    "{a}",
    "{a}b",
    "{b}a",
    "}{",
    ":",
    "::",
    "a:b",
    "a::b",
    "%",
    "%25",
    "%s",
    "'",
    "''",
    "\"",
    "\"\"",
    "`",
    "*",
    "?",
    "[a]",
    "[^a]",
    "\\",
    "\\\\",
    "\\'",
    "/",
    "//",
    "a/b",
    "..",
    "--",
    "; DROP TABLE locks; --",
    "' OR '1'='1",
    "$1",
    "?1",
    ":name",
    "@a",
    "#",
    "&",
    "=",
    "+",
    "null",
    "NULL",
    "true",
    "0",
    "00",
    "0.0",
    "1e1",
    "10",
    "-1",
    "\u{10ffff}",
    "\u{fffd}",
    "\u{e000}",
];

/// All names behind a beginning that nobody used before, as far as the backend takes names so long.
fn names(cx: &Context, client: &Client) -> Checked<Vec<LockName>> {
    let beginning = cx.name()?;
    let most = client.capabilities().max_name_bytes;
    let mut names = Vec::new();
    for ending in NAMES {
        let name = format!("{beginning}{ending}");
        if name.len() <= most {
            names.push(LockName::new(name)?);
        }
    }
    Ok(names)
}

/// Takes each name's lock by an owner of its own.
async fn take_all(cx: &Context, client: &Client, names: &[LockName]) -> Checked<Vec<Grant>> {
    let mut grants = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let request = cx.request(name, cx.lease(20_000));
        let request = request.with_owner(&format!("holder {index}"));
        let grant = client.take(&request).await;
        grants.push(grant.map_err(|failure| failure.context(format!("{name:?}")))?);
    }
    Ok(grants)
}

async fn alike_but_not_the_same(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let names = names(&cx, &one)?;
    let grants = take_all(&cx, &one, &names).await?;
    for grant in &grants {
        let held = two
            .refused(&cx.request(grant.name(), cx.lease(1000)), grant)
            .await?;
        ensure_while!(
            grant,
            held.by.as_ref() == Some(&grant.request.owner),
            "{:?} is held by {:?}, and said to be held by {:?}",
            grant.name(),
            grant.request.owner,
            held.by
        );
    }
    for grant in &grants {
        one.free(grant).await?;
    }
    Ok(())
}

async fn longest_name(cx: Context) -> Checked {
    let client = cx.client().await?;
    let most = client.capabilities().max_name_bytes;
    let mut stem = cx.name()?.to_string();
    while stem.len() + 1 < most {
        stem.push('x');
    }
    let names = ["a", "b"].map(|last| LockName::new(format!("{stem}{last}")));
    let [a, b] = names;
    let grants = take_all(&cx, &client, &[a?, b?]).await?;
    for grant in &grants {
        client.free(grant).await?;
    }
    Ok(())
}

async fn too_long(cx: Context) -> Checked {
    let client = cx.client().await?;
    let most = client.capabilities().max_name_bytes;
    let name = "x".repeat(most + 1);
    let error = must_be!(client.locks().lock(&name), Err(error) => error, "{} bytes", most + 1);
    ensure!(
        error.kind() == ErrorKind::InvalidName,
        "{} bytes: {error}",
        most + 1
    );
    if let Ok(name) = LockName::new(name) {
        let answer = client
            .backend
            .try_acquire(&cx.request(&name, cx.lease(100)))
            .await;
        let error = must_be!(answer, Err(error) => error, "{} bytes", most + 1);
        ensure!(
            error.kind() == ErrorKind::InvalidName,
            "{} bytes: {error}",
            most + 1
        );
    }
    Ok(())
}

async fn listed_as_given(cx: Context) -> Checked {
    let client = cx.client().await?;
    let names = names(&cx, &client)?;
    let grants = take_all(&cx, &client, &names).await?;
    let listed = client.admin()?.list().await?;
    for grant in &grants {
        let record = listed.iter().find(|record| record.name == *grant.name());
        let owner = record.and_then(|record| record.owner.as_ref());
        ensure_while!(
            grant,
            owner == Some(&grant.request.owner),
            "{:?} is held by {:?}, and listed as {record:?}",
            grant.name(),
            grant.request.owner
        );
    }
    for grant in &grants {
        client.free(grant).await?;
    }
    Ok(())
}
