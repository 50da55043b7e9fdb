use tokio::net::TcpListener;
use tokio::sync::mpsc;

use wire::Dialect;

use super::*;
use crate::clock::now;
use crate::protocols::vla_eval::server_tests::card;
use crate::serve::card::ServedSpec;
use crate::serve::limits::RequestLimits;
use crate::serve::server::{DispatcherMessage, ServerConfig};

/// Returns the state of a server with 64 KiB for messages of at most 64 bytes.
pub fn server(
    card: ServedSpec,
    token: Option<&str>,
    dispatcher: mpsc::UnboundedSender<DispatcherMessage>,
) -> Arc<ServerState> {
    let rules = ServerConfig {
        token: token.map(str::to_owned),
        ignores_kill: false,
        arrays: Dialect::Kind,
        protocol: Protocol::Both,
        most_bytes: 64,
        unauthenticated_bytes: 8,
        memory_bytes: 64 << 10,
        limits: RequestLimits {
            max_rows: 1,
            max_prompt_bytes: 100,
            max_picture_edge: 8,
        },
        chunk_size: None,
        most_connections: 9,
    };
    ServerState::new(card, rules, dispatcher)
}

/// Asks a server for a websocket; returns its connection, and the status line of the answer.
async fn upgrade(server: &Arc<ServerState>, token: &str) -> (ConnectionId, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(address).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let id = server.connections().admit(true, now()).unwrap().client;
    tokio::spawn(serve(stream, Arc::clone(server), id));
    let request = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\
         Authorization: Api-Key {token}\r\n\r\n"
    );
    client.write_all(request.as_bytes()).await.unwrap();
    let mut status = BytesMut::new();
    while !status.contains(&b'\n') {
        assert_ne!(client.read_buf(&mut status).await.unwrap(), 0);
    }
    let status = String::from_utf8_lossy(&status);
    (id, status.lines().next().unwrap().to_owned())
}

#[tokio::test]
async fn a_websocket_with_the_token_has_the_memory_of_clients() {
    let server = server(card(&[0]), Some("s3cret"), mpsc::unbounded_channel().0);
    let (stranger, status) = upgrade(&server, "gue55ed").await;
    assert_eq!(status, "HTTP/1.1 401 Unauthorized");
    assert_eq!(
        server.connections().hold(stranger, 40 << 10),
        Some(stranger)
    );
    let (client, status) = upgrade(&server, "s3cret").await;
    assert_eq!(status, "HTTP/1.1 101 Switching Protocols");
    assert_eq!(server.connections().hold(client, 40 << 10), None);
}

#[test]
fn a_websockets_request_is_read() {
    let text = "GET /x?y HTTP/1.1\r\nHost: a\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\n\
                Sec-WebSocket-Key: k\r\nAuthorization: Api-Key s3cret\r\n\r\nmore";
    let head = parse(text.as_bytes()).unwrap().unwrap();
    assert_eq!(
        (&*head.path, head.key.as_deref(), token(&head).as_deref()),
        ("/x", Some("k"), Some("s3cret"))
    );
    assert_eq!(&text[head.length..], "more");
    assert_eq!(parse(&text.as_bytes()[..50]).unwrap(), None);
}
