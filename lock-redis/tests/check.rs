//! What a check finds on a badly set up server, word for word, and that a lock call says the same.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use common::{Server, Space, not_acquired, request};
use distlock_api::{ErrorKind, LockAdmin, Severity};
use distlock_redis::RedisBackend;

const AOF: [&str; 2] = ["--appendonly", "yes"];

/// Each finding as `severity kind what: fix`.
async fn found(backend: &RedisBackend) -> Vec<String> {
    let findings = backend.check().await.unwrap();
    let text = findings.iter().map(|finding| match finding.severity {
        Severity::Fault => format!("fault {} {finding}", finding.kind),
        severity => format!("{severity} {finding}"),
    });
    text.collect()
}

/// A server whose user `u` has what `rights` say.
async fn server_with(rights: &str) -> (Server, RedisBackend) {
    let server = Server::start(&AOF).await;
    let mut space = Space::at(&server.url()).await;
    let () = space.run(&format!("ACL SETUSER u on >x {rights}")).await;
    let url = format!("redis://u:x@127.0.0.1:{}", server.port);
    let backend = RedisBackend::connect(&url).await.unwrap();
    (server, backend)
}

#[tokio::test]
async fn a_server_that_is_set_up_well_gives_nothing_to_find() {
    let server = Server::start(&AOF).await;
    let backend = RedisBackend::connect(&server.url()).await.unwrap();
    assert!(found(&backend).await.is_empty());
}

#[tokio::test]
async fn all_missing_rights_are_told_at_once_with_what_grants_them() {
    let (_server, backend) =
        server_with("~other:* +evalsha +eval +set +get +info +pexpire +time").await;
    let expected = [
        "fault denied the user may not run pexpireat, del, incr, incrby, pttl: \
         ACL SETUSER u +pexpireat +del +incr +incrby +pttl\nthen make it last: ACL SAVE, or CONFIG REWRITE where no aclfile is set",
        "fault denied the user may not use the keys lock:*: \
         ACL SETUSER u ~lock:*\nthen make it last: ACL SAVE, or CONFIG REWRITE where no aclfile is set",
        "warning the user may not run pexpiretime, so that each grant adds to the ACL log: \
         ACL SETUSER u +pexpiretime\nthen make it last: ACL SAVE, or CONFIG REWRITE where no aclfile is set",
    ];
    assert_eq!(found(&backend).await, expected);
    let error = not_acquired(&backend).await;
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(expected[0].contains(error.message()), "{error}");
}

/// Whatever the prefix, what is advised ends it, as the server itself reads it; or it is said that nothing can.
#[tokio::test]
async fn the_right_to_the_keys_can_be_granted_as_advised() {
    let (server, _) = server_with("~other:* +@all").await;
    for prefix in ["lock:", "a*[b]?\\", "it's\"\\n:", "jöb:"] {
        let backend = backend_with(&server, prefix).await;
        let findings = backend.check().await.unwrap();
        let fix = &findings.iter().next().expect("a missing right").fix;
        let mut raw = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        writeln!(raw, "{}", fix.lines().next().unwrap()).unwrap();
        let mut answer = String::new();
        BufReader::new(raw).read_line(&mut answer).unwrap();
        assert_eq!(answer, "+OK\r\n", "{fix}");
        assert_eq!(found(&backend).await, [""; 0], "{prefix}");
    }
    let expected = "fault denied the user may not use the keys my locks:*: no right to keys can have a blank in it: \
                    choose a lock_prefix without blanks";
    let backend = backend_with(&server, "my locks:").await;
    assert_eq!(found(&backend).await, [expected]);
}

async fn backend_with(server: &Server, prefix: &str) -> RedisBackend {
    let url = format!("redis://u:x@127.0.0.1:{}", server.port);
    let builder = RedisBackend::builder().prefix(prefix);
    builder.connect(&url).await.unwrap()
}

/// Newer servers tell it in their refusals.
#[tokio::test]
async fn a_users_name_with_a_key_in_it_is_not_taken_for_a_missing_key() {
    let server = Server::start(&AOF).await;
    let mut space = Space::at(&server.url()).await;
    let user = "ACL SETUSER keycloak on >x ~lock:* +@all -get";
    let () = space.run(user).await;
    let url = format!("redis://keycloak:x@127.0.0.1:{}", server.port);
    let backend = RedisBackend::connect(&url).await.unwrap();
    let expected = "fault denied the user may not run get: ACL SETUSER keycloak +get\nthen make it last: ACL SAVE, or CONFIG \
                    REWRITE where no aclfile is set";
    assert_eq!(found(&backend).await, [expected]);
}

/// Whatever is missing: INCR alone would make a key that stays.
#[tokio::test]
async fn a_check_leaves_no_key_without_an_end() {
    for right in ["+time", "+set", "+pexpire", "+pexpireat", "+del"] {
        let rights = format!("~lock:* +evalsha +eval +incr +incrby +info {right}");
        let (server, backend) = server_with(&rights).await;
        assert!(!found(&backend).await.is_empty());
        let mut space = Space::at(&server.url()).await;
        let ends_in: i64 = space.run("PTTL lock:{}").await;
        assert!(
            ends_in == -2 || (0..=1000).contains(&ends_in),
            "{right}: {ends_in}"
        );
    }
}

/// One of these rights is enough to try the others that make a key.
#[tokio::test]
async fn a_missing_right_to_count_is_told_wherever_it_can_be_tried() {
    for right in ["+set", "+pexpire", "+pexpireat", "+del"] {
        let (_server, backend) = server_with(&format!("~lock:* +evalsha +eval {right}")).await;
        let found = found(&backend).await;
        assert!(found[0].contains(" incr, incrby, "), "{right}: {found:?}");
    }
}

/// It would be missed when the server has forgotten the scripts.
#[tokio::test]
async fn the_right_to_send_scripts_is_missed_while_the_server_still_knows_them() {
    let (server, backend) = server_with("~lock:* +@all").await;
    common::acquire(&backend, &request("a")).await;
    let mut space = Space::at(&server.url()).await;
    for (missing, expected) in [
        ("eval", "the user may not run eval: ACL SETUSER u +eval\n"),
        (
            "evalsha",
            "the user may not run evalsha: ACL SETUSER u +evalsha\n",
        ),
    ] {
        let () = space.run(&format!("ACL SETUSER u +@all -{missing}")).await;
        let found = found(&backend).await;
        let expected = format!("fault denied {expected}");
        assert!(
            found.len() == 1 && found[0].starts_with(&expected),
            "{found:?}"
        );
    }
}

#[tokio::test]
async fn a_replica_is_told_and_nothing_else_of_it() {
    let primary = Server::start(&[]).await;
    let port = primary.port.to_string();
    let replica = ["--replicaof", "127.0.0.1", &port, "--appendonly", "yes"];
    let server = Server::start(&replica).await;
    let backend = RedisBackend::connect(&server.url()).await.unwrap();
    let expected = ["fault read_only the server is a replica: use the primary"];
    assert_eq!(found(&backend).await, expected);
}

/// (E6, E8)
#[tokio::test]
async fn a_server_that_forgets_is_warned_of_and_gives_locks() {
    let server = Server::start(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let server = server.await;
    let backend = RedisBackend::connect(&server.url()).await.unwrap();
    let expected = [
        "warning the server throws keys away when its memory is full, locks too (maxmemory-policy allkeys-lru): \
         CONFIG SET maxmemory-policy noeviction\nand set the same in redis.conf",
        "warning the server logs no writes, so that a crash makes it forget the locks granted since its last \
         snapshot, if it makes any (appendonly no): CONFIG SET appendonly yes\nand set the same in redis.conf",
    ];
    assert_eq!(found(&backend).await, expected);
    common::acquire(&backend, &request("a")).await;
}

/// The statements that are advised are what helps.
#[tokio::test]
async fn what_the_warnings_advise_ends_them() {
    let server = Server::start(&["--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"]);
    let server = server.await;
    let mut space = Space::at(&server.url()).await;
    let backend = space.client().await;
    for finding in &backend.check().await.unwrap() {
        let (statement, _) = finding.fix.split_once('\n').unwrap();
        let () = space.run(statement).await;
    }
    assert!(found(&backend).await.is_empty());
}

/// As on a hosted server: nothing is made up (U28).
#[tokio::test]
async fn settings_that_are_not_shown_are_told_as_such_and_locks_are_given() {
    let (_server, backend) = server_with("~lock:* +@all -info").await;
    let found = found(&backend).await;
    let [warning] = found.as_slice() else {
        panic!("{found:?}");
    };
    let begins = "warning the server does not show its settings (";
    let ends = "): ACL SETUSER u +info\nthen make it last: ACL SAVE, or CONFIG REWRITE where no aclfile is set\nor see for yourself \
                that it is a primary with appendonly yes and maxmemory-policy noeviction";
    assert!(
        warning.starts_with(begins) && warning.ends_with(ends),
        "{warning}"
    );
    let reason = &warning[begins.len()..warning.len() - ends.len()];
    assert!(reason.contains(" run "), "{reason}");
    common::acquire(&backend, &request("a")).await;
}

/// No right helps there.
#[tokio::test]
async fn settings_that_nobody_is_shown_are_told_without_a_right_to_grant() {
    let server = Server::start(&["--appendonly", "yes", "--rename-command", "INFO", ""]).await;
    let backend = RedisBackend::connect(&server.url()).await.unwrap();
    let found = found(&backend).await;
    assert_eq!(found.len(), 1);
    let (_, fix) = found[0].split_once("): ").unwrap();
    let expected =
        "see for yourself that it is a primary with appendonly yes and maxmemory-policy noeviction";
    assert_eq!(fix, expected);
}

/// As Redis 6.2 does.
#[tokio::test]
async fn a_server_may_lack_the_command_that_is_not_needed() {
    let server = Server::start(&["--appendonly", "yes", "--rename-command", "PEXPIRETIME", ""]);
    let server = server.await;
    let backend = RedisBackend::connect(&server.url()).await.unwrap();
    assert!(found(&backend).await.is_empty());
    common::acquire(&backend, &request("a")).await;
}

#[tokio::test]
async fn a_command_that_the_server_lacks_is_told() {
    let server = Server::start(&["--appendonly", "yes", "--rename-command", "INCRBY", ""]).await;
    let backend = RedisBackend::connect(&server.url()).await.unwrap();
    let found = found(&backend).await;
    let [fault] = found.as_slice() else {
        panic!("{found:?}");
    };
    let begins = "fault config the server lacks a command that locks need (";
    let ends = "): enable it, or use another server";
    assert!(
        fault.starts_with(begins) && fault.ends_with(ends),
        "{fault}"
    );
    assert_eq!(not_acquired(&backend).await.kind(), ErrorKind::Config);
}

#[tokio::test]
async fn a_full_server_is_one_fault() {
    let server = Server::start(&["--maxmemory", "1", "--appendonly", "yes"]).await;
    let backend = RedisBackend::connect(&server.url()).await.unwrap();
    let expected = "fault unavailable the server is out of memory (OOM command not allowed when used memory > \
                    'maxmemory'.): raise maxmemory";
    assert_eq!(found(&backend).await, [expected]);
}

/// Whose user is not known, as with a connection of the caller's own.
#[tokio::test]
async fn where_the_user_is_not_known_the_right_is_told_in_words() {
    let (server, _) = server_with("~lock:* +@all -del").await;
    let raw = common::connection(&format!("redis://u:x@127.0.0.1:{}", server.port)).await;
    let backend = RedisBackend::from_connection(raw);
    let expected = "fault denied the user may not run del: grant the connection's user +del, by ACL SETUSER\nthen \
                    make it last: ACL SAVE, or CONFIG REWRITE where no aclfile is set";
    assert_eq!(found(&backend).await, [expected]);
}

#[tokio::test]
async fn a_node_of_a_cluster_is_warned_of() {
    let server = Server::start(&["--cluster-enabled", "yes", "--appendonly", "yes"]).await;
    let mut space = Space::at(&server.url()).await;
    common::give_all_slots(&mut space).await;
    let expected = "warning the server is a node of a cluster, and locks whose keys live on other nodes fail unless \
                    a cluster proxy stands before it: connect through a cluster proxy, or give the locks a server \
                    of their own";
    assert_eq!(found(&space.client().await).await, [expected]);
}

/// Nothing is known of the server then.
#[tokio::test]
async fn a_server_that_does_not_let_us_in_is_an_error_and_no_finding() {
    let server = Server::start(&["--requirepass", "x"]).await;
    let stranger = common::connection(&server.url()).await;
    let error = RedisBackend::from_connection(stranger).check().await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    let text = "redis check: the server wants a password: give it one (key \"lock:{}\"): NOAUTH \
                Authentication required. (denied)";
    assert_eq!(error.to_string(), text);
}
