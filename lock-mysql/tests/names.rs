//! Names are compared byte for byte, stored whole, and listed in the order of their bytes.
#![allow(clippy::unwrap_used, reason = "test code")]

#[macro_use]
mod common;

use common::{Server, Store, acquire, granted, name, request};
use distlock_api::{Attempt, LockAdmin, LockBackend, Renewal};

async fn names_that_a_collation_would_fold_are_several_locks(server: Server) {
    // (trap 4)
    let store = Store::new(server, "fold").await;
    let backend = store.backend();
    let mut names = [
        "job",
        "Job",
        "JOB",
        "jöb",
        "jo\u{308}b",
        "ｊob",
        "jo b",
        "ß",
        "ss",
        "😀",
        "😁",
    ];
    for text in names {
        acquire(&backend, text).await;
    }
    names.sort();
    let listed = backend.list().await.unwrap();
    let listed: Vec<_> = listed.iter().map(|record| record.name.as_str()).collect();
    assert_eq!(listed, names);
    store.close().await;
}

async fn a_row_that_differs_by_a_blank_at_its_end_is_another(server: Server) {
    // (trap 4)
    let mut store = Store::new(server, "blank").await;
    let backend = store.backend();
    store
        .run("INSERT INTO {} VALUES ('job ', '9999-12-31', '2020-01-01', 'blank', 'x', 1, NULL, 0)")
        .await;
    let (held, _) = acquire(&backend, "job").await;
    let renewed = backend
        .renew(&[(held.lease_id(), common::LEASE)])
        .await
        .remove(0);
    renewed.unwrap();
    assert_eq!(store.value::<i64>("SELECT COUNT(*) FROM {}").await, 2);
    store.close().await;
}

async fn each_of_names_that_look_alike_or_need_escaping_is_renewed_by_itself(server: Server) {
    // (trap 4)
    let store = Store::new(server, "alike").await;
    let backend = store.backend();
    let long = "\\\"".repeat(127);
    let names = [
        "job",
        "Job",
        "jöb",
        "jo\u{308}b",
        "\"",
        "\\",
        "\\\"",
        "\\u0041",
        "A",
        "a\u{2028}x",
        "😀",
        "$[0]",
        &long,
    ];
    let mut leases = Vec::new();
    for (number, text) in (1..).zip(names) {
        let (held, _) = acquire(&backend, text).await;
        leases.push((held.lease_id(), common::LEASE * (10 * number)));
        leases.push((request(text).lease_id(), common::LEASE * 1000));
    }
    let answers = backend.renew(&leases).await;
    let mine = answers.iter().step_by(2);
    assert!(mine.flatten().all(|mine| *mine == Renewal::Renewed));
    for (text, other) in names.iter().zip(answers.iter().skip(1).step_by(2)) {
        let to = Some("test".to_owned());
        assert_eq!(other.as_ref().unwrap(), &Renewal::Lost { to }, "{text}");
    }
    for (number, text) in (1..).zip(names) {
        let record = backend.inspect(&name(text)).await.unwrap().unwrap();
        let left = record.remaining.as_secs();
        // Ten minutes more than the one before.
        assert!(
            (600 * number - 300..=600 * number).contains(&left),
            "{text}: {left}"
        );
    }
    store.close().await;
}

async fn the_longest_names_and_owners_are_stored_whole(server: Server) {
    // (trap 3)
    let store = Store::new(server, "long").await;
    let backend = store.backend();
    for last in ["a", "b"] {
        for text in [
            "x".repeat(254) + last,
            "ö".repeat(127) + last,
            "😀".repeat(63) + "xy" + last,
        ] {
            let mut request = request(&text);
            request.owner = "😀".repeat(63) + "xyz";
            assert!(granted(&backend.try_acquire(&request).await.unwrap()).is_some());
            let record = backend.inspect(&name(&text)).await.unwrap().unwrap();
            assert_eq!(record.owner.as_deref(), Some(&*request.owner));
        }
    }
    store.close().await;
}

async fn names_and_owners_full_of_sql_are_only_text(server: Server) {
    let store = Store::new(server, "sql").await;
    let backend = store.backend();
    for text in [r"\' OR 1=1; -- ?", "`?`", "a%_?", r"\\", "{table}"] {
        let text = text.trim();
        let mut request = request(text);
        request.owner = text.to_owned();
        assert!(granted(&backend.try_acquire(&request).await.unwrap()).is_some());
        let Attempt::Held(held) = backend.try_acquire(&common::request(text)).await.unwrap() else {
            panic!("granted twice");
        };
        assert_eq!(held.by.as_deref(), Some(text));
    }
    assert_eq!(backend.list().await.unwrap().len(), 5);
    store.close().await;
}

on_both![
    names_that_a_collation_would_fold_are_several_locks,
    a_row_that_differs_by_a_blank_at_its_end_is_another,
    each_of_names_that_look_alike_or_need_escaping_is_renewed_by_itself,
    the_longest_names_and_owners_are_stored_whole,
    names_and_owners_full_of_sql_are_only_text,
];
