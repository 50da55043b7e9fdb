//! Tests over real sockets on one thread, as in the launcher.

mod crowded;

use std::future::Future;
use std::io::{Read as _, Write as _};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::client::StoreClient;
use crate::limits::{MAX_KEYS, MAX_VALUE, TURN};

pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) fn host() -> ServerHandle {
    StoreServer::bind("127.0.0.1", None).unwrap().spawn()
}

pub(crate) async fn join(store: &ServerHandle) -> StoreClient {
    StoreClient::connect("127.0.0.1", store.port(), LONG)
        .await
        .unwrap()
}

async fn connect(store: &ServerHandle) -> TcpStream {
    TcpStream::connect(("127.0.0.1", store.port()))
        .await
        .unwrap()
}

async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, what)
        .await
        .expect("it happens in 30 s")
}

/// Returns the first bytes of a client, and these requests.
fn greeted(requests: &[StoreRequest]) -> Vec<u8> {
    [&bytes(&[StoreRequest::Validate])[..], &bytes(requests)].concat()
}

fn bytes(requests: &[StoreRequest]) -> Vec<u8> {
    let mut out = Vec::new();
    requests.iter().for_each(|request| request.encode(&mut out));
    out
}

async fn is_closed(mut stream: TcpStream) -> bool {
    !matches!(within(stream.read(&mut [0; 64])).await, Ok(read) if read > 0)
}

#[tokio::test]
async fn ranks_meet() {
    let store = host();
    let ranks: Vec<_> = (0..4)
        .map(|rank: u8| {
            let port = store.port();
            tokio::spawn(async move {
                let mut client = StoreClient::connect("localhost", port, LONG).await.unwrap();
                client.set(&format!("addr/{rank}"), &[rank]).await.unwrap();
                let addrs = ["addr/0", "addr/1", "addr/2", "addr/3"];
                client.wait(&addrs, LONG).await.unwrap();
                client.peek(&addrs).await.unwrap()
            })
        })
        .collect();
    for rank in ranks {
        assert_eq!(within(rank).await.unwrap(), [[0], [1], [2], [3]]);
    }
}

#[tokio::test]
async fn what_the_launcher_sets_is_seen_by_those_who_wait_for_it() {
    let store = host();
    let mut client = join(&store).await;
    let waiting = tokio::spawn(async move { client.get("none/torchelastic/role_info/0").await });
    tokio::task::yield_now().await;
    store.set("none/torchelastic/role_info/0", b"{}").unwrap();
    assert_eq!(within(waiting).await.unwrap().unwrap(), b"{}");
}

#[tokio::test]
async fn a_greeting_in_pieces_is_taken() {
    let store = host();
    let mut stream = connect(&store).await;
    stream.set_nodelay(true).unwrap();
    for byte in greeted(&[StoreRequest::Ping { nonce: 7 }]) {
        stream.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(within(stream.read_u32_le()).await.unwrap(), 7);
}

#[tokio::test]
async fn strangers_are_closed_and_harm_nobody() {
    let store = host();
    let mut friend = join(&store).await;
    let sent = |rest: &[u8]| [&greeted(&[])[..], rest].concat();
    let (key, value) = (&b"n"[..], &b"text"[..]);
    let waits = || StoreRequest::Wait {
        keys: vec![b"never"],
    };
    let table = [
        b"GET / HTTP/1.0\r\n\r\n".to_vec(),
        b"\x00\xde\xad\xbe\xef".to_vec(),
        bytes(&[StoreRequest::Ping { nonce: 1 }]),
        bytes(&[StoreRequest::NumKeys]),
        sent(b"\xff"),
        sent(b"\x03\xff\xff\xff\xff\xff\xff\xff\xff"),
        sent(b"\x06\xff\xff\xff\xff\xff\xff\xff\x7f"),
        greeted(&[
            StoreRequest::Set { key, value },
            StoreRequest::Add { key, delta: 1 },
        ]),
        greeted(&[waits(), waits()]),
    ];
    for junk in table {
        let mut stream = connect(&store).await;
        stream.write_all(&junk).await.unwrap();
        assert!(is_closed(stream).await, "{junk:?}");
        friend.set("k", b"v").await.unwrap();
        assert_eq!(friend.get("k").await.unwrap(), b"v");
    }
}

#[tokio::test]
async fn half_a_request_holds_nobody_up_and_leaves_nothing() {
    let store = host();
    let mut friend = join(&store).await;
    let (key, value) = (b"/half", &[7; 1 << 20]);
    let whole = greeted(&[StoreRequest::Set { key, value }]);
    let mut halves = Vec::new();
    for _ in 0..64 {
        let mut stream = connect(&store).await;
        stream.write_all(&whole[..whole.len() / 2]).await.unwrap();
        halves.push(stream);
    }
    friend.set("k", b"v").await.unwrap();
    assert_eq!(friend.get("k").await.unwrap(), b"v");
    halves
        .pop()
        .unwrap()
        .write_all(&whole[whole.len() / 2..])
        .await
        .unwrap();
    assert_eq!(
        friend.get("half").await.unwrap().len(),
        1 << 20,
        "one of them ends its request"
    );
    friend.delete_all(&["/half"]).await.unwrap();
    drop(halves);
    friend.set("k", b"w").await.unwrap();
    assert!(
        !friend.check(&["half"]).await.unwrap(),
        "the others went without"
    );
}

#[tokio::test]
async fn who_reads_slowly_gets_all_and_keeps_nobody_waiting() {
    let store = host();
    let mut friend = join(&store).await;
    friend.set("big", &vec![1; MAX_VALUE]).await.unwrap();
    // A SET has no reply: other clients may ask before it has arrived.
    assert_eq!(friend.get("big").await.unwrap().len(), MAX_VALUE);
    let mut slow = connect(&store).await;
    let gets = vec![StoreRequest::Get { key: b"/big" }; 3];
    slow.write_all(&greeted(&gets)).await.unwrap();
    let (mut got, mut sip) = (0, vec![0; 100_000]);
    while got < 3 * (8 + MAX_VALUE) {
        got += within(slow.read(&mut sip)).await.unwrap();
        friend.add("n", 1).await.unwrap();
    }
    assert_eq!(got, 3 * (8 + MAX_VALUE));
}

#[tokio::test]
async fn who_does_not_read_is_not_read_from_and_others_are_served() {
    let store = host();
    let mut friend = join(&store).await;
    friend.set("big", &vec![1; MAX_VALUE]).await.unwrap();
    // A SET has no reply: other clients may ask before it has arrived.
    assert_eq!(friend.get("big").await.unwrap().len(), MAX_VALUE);
    let mut deaf = connect(&store).await;
    deaf.write_all(&greeted(&[])).await.unwrap();
    let flood = bytes(&vec![StoreRequest::Get { key: b"/big" }; 4096]);
    let is_refused = async {
        while tokio::time::timeout(Duration::from_millis(500), deaf.write_all(&flood))
            .await
            .is_ok()
        {}
    };
    within(is_refused).await; // the kernel's buffers are full: the store has stopped reading
    assert_eq!(friend.get("big").await.unwrap().len(), MAX_VALUE);
    assert_eq!(friend.add("n", 1).await.unwrap(), 1);
}

#[test]
fn who_sends_requests_that_fill_the_buffer_keeps_nobody_waiting() {
    let (told, port) = std::sync::mpsc::channel();
    // The store spins if this fails, so it has a thread of its own, and deadlines are the peers'.
    std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(async {
            let store = host();
            told.send(store.port()).unwrap();
            pending::<()>().await;
        });
    });
    let port = port.recv().unwrap();
    let ping = bytes(&[StoreRequest::Ping { nonce: 7 }]);
    let connect = || {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
            .write_all(&[&greeted(&[]), &ping[..]].concat())
            .unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
        stream
    };
    // The key has one byte, so that a request is as long as a read.
    let value = vec![0; 4096 - 18];
    let set = || StoreRequest::Set {
        key: b"k",
        value: &value,
    };
    let many = bytes(&std::iter::repeat_with(set).take(4096).collect::<Vec<_>>());
    let mut greedy = connect();
    std::thread::spawn(move || greedy.write_all(&many));
    let mut honest = connect();
    for _ in 0..100 {
        honest.write_all(&ping).unwrap();
        honest.read_exact(&mut [0; 4]).unwrap();
    }
}

#[tokio::test]
async fn a_reply_larger_than_all_buffers_arrives_whole() {
    let store = host();
    let mut client = join(&store).await;
    let value: Vec<u8> = (0..MAX_VALUE).map(|i| (i % 251) as u8).collect();
    client.set("big", &value).await.unwrap();
    let values = client.peek(&["big", "big", "big"]).await.unwrap();
    assert!(values.len() == 3 && values.iter().all(|got| *got == value));
}

#[tokio::test]
async fn requests_sent_at_once_are_answered_in_order() {
    let store = host();
    let mut stream = connect(&store).await;
    let (key, delta) = (&b"n"[..], 1);
    let adds: Vec<_> = (0..20_000)
        .map(|_| StoreRequest::Add { key, delta })
        .collect();
    let all = greeted(&adds);
    let (mut from, mut to) = stream.split();
    let write = async { to.write_all(&all).await.unwrap() };
    let read = async {
        for wanted in 1..=20_000 {
            assert_eq!(from.read_i64_le().await.unwrap(), wanted);
        }
    };
    within(async { tokio::join!(write, read) }).await;
}

#[tokio::test]
async fn a_client_that_goes_is_forgotten() {
    let store = host();
    let mut gone = connect(&store).await;
    let waits = greeted(&[StoreRequest::Wait { keys: vec![b"/k"] }]);
    gone.write_all(&waits).await.unwrap();
    drop(gone);
    let mut client = join(&store).await;
    client.set("k", b"v").await.unwrap();
    assert_eq!(client.get("k").await.unwrap(), b"v");
}

#[tokio::test]
async fn a_busy_port_is_named_with_its_holder_and_the_way_out() {
    let store = host();
    let err = StoreServer::bind("node7", Some(store.port()))
        .unwrap_err()
        .with_owner()
        .to_string();
    assert!(
        err.starts_with(&format!(
            "cannot host the store at node7:{}: the port is in use by `",
            store.port()
        )),
        "{err}"
    );
    assert!(
        err.contains(&format!("(pid {})", std::process::id())),
        "{err}"
    );
    assert!(
        err.contains("`--master-port`") && err.contains("`--standalone`"),
        "{err}"
    );
}

#[tokio::test]
async fn a_port_busy_on_one_family_only_is_busy() {
    for addr in ["127.0.0.1:0", "0.0.0.0:0"] {
        let other = StdListener::bind(addr).unwrap();
        let err =
            StoreServer::bind("localhost", Some(other.local_addr().unwrap().port())).unwrap_err();
        assert!(matches!(err, StoreError::PortInUse { .. }), "{addr}: {err}");
    }
}

#[tokio::test]
async fn a_dropped_store_frees_its_port_at_once_and_closes_its_clients() {
    let store = host();
    let (port, mut client) = (store.port(), join(&store).await);
    drop(store);
    let next = StoreServer::bind("127.0.0.1", Some(port)).unwrap();
    assert_eq!(next.port(), port);
    assert!(matches!(
        within(client.add("n", 1)).await,
        Err(StoreError::Lost { .. })
    ));
}

#[tokio::test]
async fn a_renewed_store_is_empty_and_keeps_its_port() {
    let mut store = host();
    let (port, mut client) = (store.port(), join(&store).await);
    client.set("k", b"old").await.unwrap();
    store.renew();
    assert!(matches!(
        within(client.add("n", 1)).await,
        Err(StoreError::Lost { .. })
    ));
    let mut client = join(&store).await;
    assert!(!client.check(&["k"]).await.unwrap());
    assert_eq!(store.port(), port);
}

#[tokio::test]
async fn a_store_of_this_machine_listens_nowhere_else() {
    for host in ["127.0.0.1", "localhost", "::1"] {
        let server = StoreServer::bind(host, None).unwrap();
        let addrs: Vec<_> = server
            .listeners
            .iter()
            .map(|listener| listener.local_addr().unwrap().ip())
            .collect();
        assert!(addrs.iter().all(IpAddr::is_loopback), "{host}: {addrs:?}");
    }
    for host in ["node7", "10.0.0.1", "127.0.0.2", "0.0.0.0"] {
        assert_eq!(Scope::of(host), Scope::Everybody, "{host}");
    }
}

#[tokio::test]
async fn a_store_of_this_machine_is_found_at_both_loopback_addresses() {
    let store = StoreServer::bind("localhost", None).unwrap().spawn();
    for host in ["127.0.0.1", "::1", "localhost"] {
        if host == "::1" && StdListener::bind("[::1]:0").is_err() {
            continue; // no IPv6 here
        }
        let mut client = StoreClient::connect(host, store.port(), LONG)
            .await
            .unwrap();
        assert!(client.add("n", 1).await.unwrap() > 0);
    }
}
