//! What a store URL leads to, with the Cargo features that are on.

use std::time::Duration;

use distlock::{ErrorKind, connect, open};

#[tokio::test]
async fn memory_locks_work_without_any_feature() {
    let locks = connect("memory:").await.unwrap();
    let lock = locks
        .lock("job")
        .unwrap()
        .at_most_for(Duration::from_secs(1));
    assert!(lock.try_acquire().await.unwrap().acquired().is_some());
}

#[tokio::test]
async fn an_unknown_scheme_is_refused_and_the_url_is_not_repeated() {
    for url in [
        "mongodb://u:canary@host/",
        "canary",
        "memory:canary",
        "",
        ":canary",
        "PASSWORD=canary postgres://me@host/db",
        "canary@host:5432/db",
    ] {
        let error = open(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{url}");
        assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
    }
}

#[tokio::test]
async fn a_url_whose_feature_is_off_names_the_feature() {
    let urls = [
        (
            cfg!(feature = "postgres"),
            "postgres",
            "postgres://u:canary@localhost:1/",
        ),
        (
            cfg!(feature = "mysql"),
            "mysql",
            "mariadb://u:canary@localhost:1/",
        ),
        (
            cfg!(feature = "redis"),
            "redis",
            "redis://u:canary@localhost:1/",
        ),
        (
            cfg!(feature = "sqlite"),
            "sqlite",
            "sqlite:///nowhere/canary.db",
        ),
    ];
    for (_, feature, url) in urls.into_iter().filter(|(on, _, _)| !on) {
        let error = open(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        let text = error.to_string();
        assert!(text.contains(&format!("`{feature}`")), "{text}");
        assert!(!text.contains("canary"), "{text}");
    }
}
