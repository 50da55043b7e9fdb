//! More clients, or longer requests, than the store has room for.

use std::sync::atomic::AtomicUsize;

use super::*;

fn host_with(limits: StoreLimits) -> ServerHandle {
    StoreServer::bind("127.0.0.1", None)
        .unwrap()
        .with_limits(limits)
        .spawn()
}

#[tokio::test]
async fn connections_that_greet_and_ask_for_nothing_make_room_for_ranks() {
    let store = host_with(StoreLimits {
        clients: 64,
        grace: Duration::from_millis(100),
        ..StoreLimits::default()
    });
    let mut rank = join(&store).await;
    rank.set("k", b"v").await.unwrap();
    let mut idle = Vec::new();
    for _ in 0..200 {
        let mut stream = connect(&store).await;
        let ping = greeted(&[StoreRequest::Ping { nonce: 1 }]);
        stream.write_all(&ping).await.unwrap();
        idle.push(stream);
    }
    let mut late = within(join(&store)).await;
    assert_eq!(within(late.get("k")).await.unwrap(), b"v");
    assert_eq!(
        within(rank.get("k")).await.unwrap(),
        b"v",
        "who has asked for something stays"
    );
}

#[tokio::test]
async fn a_rank_that_waits_is_not_taken_for_idle() {
    let store = host_with(StoreLimits {
        clients: 8,
        grace: Duration::from_millis(50),
        ..StoreLimits::default()
    });
    let mut waiting = join(&store).await;
    let waiting = tokio::spawn(async move { waiting.get("k").await });
    tokio::task::yield_now().await;
    let mut idle = Vec::new();
    for _ in 0..40 {
        idle.push(connect(&store).await);
    }
    let mut late = within(join(&store)).await;
    late.set("k", b"v").await.unwrap();
    assert_eq!(within(waiting).await.unwrap().unwrap(), b"v");
}

#[tokio::test]
async fn half_requests_make_room_when_another_needs_it() {
    let limits = StoreLimits {
        buffered: 8 << 20,
        grace: Duration::from_millis(50),
        ..StoreLimits::default()
    };
    let store = host_with(limits);
    let (key, value) = (b"/half", &[7; 2 << 20]);
    let whole = greeted(&[StoreRequest::Set { key, value }]);
    let mut halves = Vec::new();
    for _ in 0..32 {
        let mut stream = connect(&store).await;
        // Some connections are refused, and closed before they have sent everything.
        let _ = stream.write_all(&whole[..whole.len() - 1]).await;
        halves.push(stream);
    }
    let mut rank = join(&store).await;
    let value = vec![1; 2 << 20];
    let set = async {
        loop {
            // There is no room until the half requests have been silent for the grace period.
            match rank.set("whole", &value).await {
                Ok(()) if rank.check(&["whole"]).await.is_ok_and(|is_there| is_there) => return,
                _ => rank = join(&store).await,
            }
        }
    };
    within(set).await;
    assert_eq!(within(rank.get("whole")).await.unwrap(), value);
}

#[tokio::test]
async fn small_requests_are_taken_when_long_ones_have_all_the_room() {
    let store = host_with(StoreLimits {
        buffered: 1 << 20,
        grace: LONG,
        ..StoreLimits::default()
    });
    let mut rank = join(&store).await;
    let mut greedy = connect(&store).await;
    let (key, value) = (b"/half", &[7; MAX_VALUE]);
    let whole = greeted(&[StoreRequest::Set { key, value }]);
    let _ = greedy.write_all(&whole[..whole.len() - 1]).await;
    assert!(is_closed(greedy).await);
    rank.set("k", &[1; 32 * 1024]).await.unwrap();
    assert_eq!(rank.get("k").await.unwrap().len(), 32 * 1024);
}

#[tokio::test]
async fn requests_of_very_many_keys_are_answered_as_others_are() {
    let store = host();
    let mut client = join(&store).await;
    let names: Vec<String> = (0..3 * TURN + 7).map(|at| format!("k{at}")).collect();
    let keys: Vec<&str> = names.iter().map(String::as_str).collect();
    assert!(!client.check(&keys).await.unwrap());
    let pairs: Vec<(&str, &[u8])> = keys.iter().map(|key| (*key, key.as_bytes())).collect();
    let mut waiting = join(&store).await;
    let wait = async { waiting.wait(&keys, LONG).await.unwrap() };
    let set = async { client.multi_set(&pairs).await.unwrap() };
    within(async { tokio::join!(wait, set) }).await;
    let values = client.peek(&keys).await.unwrap();
    assert!(
        values
            .iter()
            .zip(&keys)
            .all(|(value, key)| value == key.as_bytes())
    );
    assert!(client.check(&keys).await.unwrap());
    assert!(
        !client
            .check(&[&keys[..], &["absent"]].concat())
            .await
            .unwrap()
    );
    assert!(
        !client
            .check(&[&["absent"], &keys[..]].concat())
            .await
            .unwrap()
    );
    assert_eq!(
        client.add("n", 1).await.unwrap(),
        1,
        "replies are in step with requests"
    );
}

/// Counts the turns of other clients instead of time.
#[tokio::test]
async fn a_wait_for_very_many_keys_leaves_others_their_turn() {
    let store = host();
    let (mut stream, mut rank) = (connect(&store).await, join(&store).await);
    let names: Vec<Vec<u8>> = (0..MAX_KEYS as u64)
        .map(|at| at.to_le_bytes().to_vec())
        .collect();
    let keys: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    let request = greeted(&[StoreRequest::Wait { keys }, StoreRequest::CancelWait]);
    let all = async {
        stream.write_all(&request).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), 1, "the wait is cancelled");
    };
    let mut turns = 0;
    tokio::select! {
        () = all => {}
        () = async { loop { rank.add("n", 1).await.unwrap(); turns += 1; } } => {}
    }
    assert!(
        turns >= MAX_KEYS / TURN / 4,
        "{turns} requests of another client were answered meanwhile"
    );
}

/// Counts the requests of other clients instead of time.
#[tokio::test]
async fn a_client_that_has_waited_is_answered_before_others_come_twice() {
    const CLIENTS: usize = 32;
    let (store, answered) = (host(), Arc::new(AtomicUsize::new(0)));
    let names: Vec<String> = (0..TURN / 8).map(|at| at.to_string()).collect();
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (mut client, names) = (join(&store).await, names.clone());
        let answered = Arc::clone(&answered);
        clients.spawn(async move {
            let mut most = 0;
            for _ in 0..40 {
                let before = answered.load(Ordering::Relaxed);
                client.peek(&names).await.unwrap();
                most = most.max(answered.fetch_add(1, Ordering::Relaxed) - before);
            }
            most
        });
    }
    let most = within(clients.join_all()).await;
    let most = most.into_iter().max().unwrap();
    assert!(
        most < CLIENTS + CLIENTS / 2,
        "{most} of others were answered meanwhile"
    );
}
