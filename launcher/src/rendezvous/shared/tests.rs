//! Tests with two nodes that share a launch, and an unrelated client of their store, which has no
//! authentication.

use super::*;
use crate::plan::{Backend, RendezvousPlan};
use crate::rendezvous::attend;
use crate::rendezvous::place::NodePlace;
use tcpstore::{ServerHandle, StoreServer};
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::spawn;

const LONG: Duration = Duration::from_secs(60);

/// The key of the state in these launches.
const KEY: &str = "torch.rendezvous.tonight";

fn plan(port: u16, node: usize) -> RendezvousPlan {
    RendezvousPlan {
        backend: Backend::C10d,
        host: "127.0.0.1".to_owned(),
        port,
        min: 2,
        max: 2,
        node_id: format!("node{node}"),
        hosts: Some(false),
        join_timeout: LONG,
        last_call_timeout: LONG,
        read_timeout: LONG,
        keep_alive_interval: Duration::from_millis(20),
        keep_alive_max_attempt: 1000,
        ..RendezvousPlan::default()
    }
}

struct TestNode {
    commands: UnboundedSender<RendezvousCommand>,
    notices: UnboundedReceiver<Notice>,
}

impl TestNode {
    fn start(port: u16, node: usize) -> TestNode {
        let (run_id, role) = ("tonight".to_owned(), "default".to_owned());
        let plan = plan(port, node);
        let facts = LaunchFacts {
            plan,
            launch: "0123".to_owned(),
            run_id,
            role,
            nproc: 1,
            is_shared: true,
        };
        let (commands, received) = unbounded_channel();
        let (sent, notices) = unbounded_channel();
        spawn(attend(facts, received, sent));
        TestNode { commands, notices }
    }

    fn command(&self, command: RendezvousCommand) {
        self.commands.send(command).expect("the node listens");
    }

    /// Returns the next notice that is not just a line for the user.
    async fn hears(&mut self) -> Notice {
        let next = async {
            loop {
                match self.notices.recv().await {
                    Some(Notice::Said(_)) => {}
                    notice => return notice.expect("the node speaks"),
                }
            }
        };
        tokio::time::timeout(LONG, next)
            .await
            .expect("it happens in a minute")
    }

    async fn joins(&mut self) -> NodePlace {
        match self.hears().await {
            Notice::Joined(place) => place,
            other => panic!("{other:?}"),
        }
    }

    async fn loses(&mut self) -> String {
        match self.hears().await {
            Notice::Lost(err) => err.to_string(),
            other => panic!("{other:?}"),
        }
    }
}

/// Returns two nodes in their first round, and an unrelated client.
async fn launch() -> (ServerHandle, [TestNode; 2], StoreClient) {
    let store = StoreServer::bind("127.0.0.1", None)
        .expect("a port")
        .spawn();
    let mut nodes = [0, 1].map(|node| TestNode::start(store.port(), node));
    for node in &mut nodes {
        assert_eq!(node.joins().await.nodes, 2);
    }
    let stranger = StoreClient::connect("127.0.0.1", store.port(), LONG)
        .await
        .expect("a store");
    (store, nodes, stranger)
}

async fn both_succeed(nodes: &mut [TestNode; 2]) {
    nodes
        .iter()
        .for_each(|node| node.command(RendezvousCommand::Done));
    all_succeed(nodes).await;
}

async fn all_succeed(nodes: &mut [TestNode; 2]) {
    for node in nodes {
        let heard = node.hears().await;
        assert!(
            matches!(heard, Notice::Over(RendezvousClosed::Succeeded)),
            "{heard:?}"
        );
    }
}

#[tokio::test]
async fn a_state_that_a_stranger_deletes_is_put_back() {
    let (_store, mut nodes, mut stranger) = launch().await;
    stranger
        .delete_all(&[format!("/{KEY}")])
        .await
        .expect("deleted");
    assert!(!stranger.get(KEY).await.expect("it comes back").is_empty());
    both_succeed(&mut nodes).await;
}

#[tokio::test]
async fn what_a_node_wants_is_not_lost_with_a_state_that_a_stranger_deletes() {
    let (_store, mut nodes, mut stranger) = launch().await;
    for node in &nodes {
        node.command(RendezvousCommand::Done);
        let deleted = stranger.delete_all(&[format!("/{KEY}")]).await;
        deleted.expect("deleted");
    }
    all_succeed(&mut nodes).await;
}

#[tokio::test]
async fn an_old_state_that_a_stranger_puts_back_changes_nothing() {
    let (_store, mut nodes, mut stranger) = launch().await;
    stranger
        .set(KEY, &seal(&RendezvousState::default()))
        .await
        .expect("set");
    both_succeed(&mut nodes).await;
}

#[tokio::test]
async fn rubbish_in_the_place_of_the_state_ends_the_launch_with_its_key() {
    let (_store, mut nodes, mut stranger) = launch().await;
    stranger.set(KEY, b"\x1b[2J").await.expect("set");
    for node in &mut nodes {
        assert_eq!(
            node.loses().await,
            format!(
                "the value of `{KEY}` in the store is not a rendezvous; choose another --rdzv-id"
            )
        );
    }
}

#[tokio::test]
async fn heartbeats_that_a_stranger_deletes_or_garbles_harm_nobody() {
    let (_store, mut nodes, mut stranger) = launch().await;
    for _ in 0..20 {
        stranger
            .set(&format!("{KEY}/rrun/beat/node0"), b"text")
            .await
            .expect("set");
        stranger
            .delete_all(&[format!("/{KEY}/rrun/beat/node1")])
            .await
            .expect("deleted");
    }
    // After that, each node goes on to write its heartbeat and reads the other's.
    let go_on = async {
        for node in ["node0", "node1"] {
            let key = format!("{KEY}/rrun/beat/{node}");
            let before = stranger.get(&key).await.expect("it is there");
            while stranger.get(&key).await.expect("it is there") == before {}
        }
    };
    tokio::time::timeout(LONG, go_on)
        .await
        .expect("both nodes write heartbeats");
    both_succeed(&mut nodes).await;
}

/// Forwards a connection to the store at `port` until its client has asked so many times.
async fn pass_on(listener: tokio::net::TcpListener, port: u16, requests: usize) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let (mut client, _) = listener.accept().await.expect("a client");
    let mut store = tokio::net::TcpStream::connect(("127.0.0.1", port))
        .await
        .expect("a store");
    let (mut asked, mut answered, mut count) = ([0; 4096], [0; 4096], 0);
    while count < requests {
        select! {
            read = client.read(&mut asked) => {
                count += 1;
                store.write_all(&asked[..read.expect("bytes")]).await.expect("sent");
            }
            read = store.read(&mut answered) => client.write_all(&answered[..read.expect("bytes")]).await.expect("sent"),
        }
    }
}

#[tokio::test]
async fn a_bell_that_a_stranger_rings_makes_nobody_hurry() {
    let store = StoreServer::bind("127.0.0.1", None)
        .expect("a port")
        .spawn();
    store
        .set(KEY, &seal(&RendezvousState::default()))
        .expect("room");
    store.set(&stored_state::bell(KEY, 1), b"").expect("room");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let port = listener.local_addr().expect("it has one").port();
    let looks = async {
        let client = StoreClient::connect("127.0.0.1", port, LONG)
            .await
            .expect("a store");
        let (seen_by, _seen) = unbounded_channel();
        stored_state::watch(client, KEY.to_owned(), LONG, seen_by).await;
    };
    let begun = tokio::time::Instant::now();
    let ten_requests = async {
        select! {
            () = looks => panic!("it goes on"),
            () = pass_on(listener, store.port(), 10) => {}
        }
    };
    tokio::time::timeout(LONG, ten_requests)
        .await
        .expect("it looks again");
    // Each look is two requests, and the first is not due to the bell.
    assert!(
        begun.elapsed() >= 3 * stored_state::FALSE_BELL,
        "{:?}",
        begun.elapsed()
    );
}
