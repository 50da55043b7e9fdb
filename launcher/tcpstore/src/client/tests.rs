//! Tests against the real server, and against listeners that are not stores.

use tokio::net::TcpListener;

use super::*;
use crate::server::StoreServer;
use crate::server::tests::{LONG, host, join};

const SHORT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn every_request_is_answered() {
    let store = host();
    let mut client = join(&store).await;
    client.set("k", b"v").await.unwrap();
    assert_eq!(client.get("k").await.unwrap(), b"v");
    assert_eq!(client.add("n", 5).await.unwrap(), 5);
    assert_eq!(client.add("n", -7).await.unwrap(), -2);
    assert_eq!(client.compare_set("c", b"", b"x").await.unwrap(), b"x");
    assert_eq!(client.compare_set("c", b"", b"y").await.unwrap(), b"x");
    client
        .multi_set(&[("a", &b"1"[..]), ("b", b"22")])
        .await
        .unwrap();
    assert_eq!(client.peek(&["a", "b"]).await.unwrap(), [&b"1"[..], b"22"]);
    assert!(client.check(&["a", "b"]).await.unwrap());
    assert!(!client.check(&["a", "zz"]).await.unwrap());
}

#[tokio::test]
async fn a_wait_that_times_out_names_its_keys_and_leaves_the_connection_usable() {
    let store = host();
    let mut client = join(&store).await;
    let err = client
        .wait(&["torchelastic/role_info/1"], SHORT)
        .await
        .unwrap_err();
    assert!(
        matches!(&err, StoreError::Missing { keys, .. } if keys == "`torchelastic/role_info/1`"),
        "{err}"
    );
    assert_eq!(client.add("n", 1).await.unwrap(), 1);
}

#[tokio::test]
async fn a_request_given_up_half_way_spoils_the_connection() {
    let store = host();
    let mut client = join(&store).await;
    assert!(timeout(SHORT, client.wait(&["never"], LONG)).await.is_err());
    let err = client.add("n", 1).await.unwrap_err();
    assert!(
        err.to_string().ends_with("a request was given up half way"),
        "{err}"
    );
}

#[tokio::test]
async fn a_client_that_comes_first_waits_for_the_store() {
    let port = rig::net::port();
    let early = tokio::spawn(async move { StoreClient::connect("127.0.0.1", port, LONG).await });
    tokio::task::yield_now().await;
    let _store = StoreServer::bind("127.0.0.1", Some(port)).unwrap().spawn();
    assert_eq!(early.await.unwrap().unwrap().add("n", 1).await.unwrap(), 1);
}

/// Returns why no store is reached at this port, by a client that would wait longer for replies.
async fn refused(port: u16, patience: Duration) -> String {
    let connected = StoreClient::connect_within("127.0.0.1", port, patience, 2 * LONG).await;
    connected.unwrap_err().to_string()
}

/// Returns a port, and what listens there and is no store.
async fn stranger() -> (u16, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    (listener.local_addr().unwrap().port(), listener)
}

#[tokio::test]
async fn a_store_that_never_comes_is_an_error_in_time_with_the_address() {
    let port = rig::net::port();
    let err = refused(port, SHORT).await;
    let wanted = format!(
        "cannot reach the store at 127.0.0.1:{port} within 0.05 s: 127.0.0.1:{port}: Connection \
         refused (os error 111) (nothing listens there: is the first node up, and is this its \
         address and port?)"
    );
    assert_eq!(err, wanted);
}

#[tokio::test]
async fn a_listener_that_is_no_store_is_named_by_its_answer() {
    let (port, listener) = stranger().await;
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"SSH-2.0-").await.unwrap();
        stream.read_to_end(&mut Vec::new()).await
    });
    let err = refused(port, LONG).await;
    assert!(
        err.contains("is not a store: it answered \"SSH-\""),
        "{err}"
    );
}

#[tokio::test]
async fn a_listener_that_says_nothing_is_named_when_the_patience_is_over() {
    let (port, _listener) = stranger().await;
    let err = refused(port, 2 * SHORT).await;
    let listens = format!("what listens at 127.0.0.1:{port}, `");
    let waits = format!("(pid {}), has not answered for 0.1 s", std::process::id());
    assert!(err.starts_with(&listens) && err.contains(&waits), "{err}");
}

#[tokio::test]
async fn a_listener_that_hangs_up_is_tried_again_and_said_to() {
    let (port, listener) = stranger().await;
    let hangs_up = async {
        loop {
            drop(listener.accept().await);
        }
    };
    let err = tokio::select! {
        err = refused(port, 2 * SHORT) => err,
        () = hangs_up => String::new(),
    };
    let told = format!("127.0.0.1:{port}: it closed the connection: ");
    let asks = "(is that a store, and is the port right?)";
    assert!(err.contains(&told) && err.ends_with(asks), "{err}");
}

#[tokio::test]
async fn many_keys_are_deleted_together() {
    let store = host();
    let mut client = join(&store).await;
    let names: Vec<String> = (0..1000).map(|at| format!("k{at}")).collect();
    let pairs: Vec<(&str, &[u8])> = names.iter().map(|key| (key.as_str(), &b"v"[..])).collect();
    client.multi_set(&pairs).await.unwrap();
    client.set("kept", b"v").await.unwrap();
    let mut keys = client.keys().await.unwrap();
    keys.retain(|key| key != b"/kept");
    client.delete_all(&keys).await.unwrap();
    assert_eq!(client.keys().await.unwrap(), [b"/kept"]);
}
