//! Requests over HTTP, and the state of a server for tests.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;
use crate::clock::now;
use crate::protocols::vla_eval::server_tests::card;
use crate::serve::card::ServedSpec;
use crate::serve::connections::ConnectionId;
use crate::serve::server::DispatcherMessage;
use jobs::serve_args::ServeArgs;

/// Returns the state of a server with 16 MiB for messages.
pub fn server(
    card: ServedSpec,
    token: Option<&str>,
    dispatcher: mpsc::UnboundedSender<DispatcherMessage>,
) -> Arc<ServerState> {
    let words = "--policy p --max-message 1 --max-rows 1 --max-picture 8";
    let words: Vec<_> = words.split(' ').map(Into::into).collect();
    let mut rules = ServeArgs::parse_words(&words).unwrap();
    rules.api_token = token.map(str::to_owned);
    ServerState::new(card, rules, 9, dispatcher)
}

/// Asks a server for a websocket; returns its connection, its end of it, and the status line of
/// the answer.
async fn upgrade(server: &Arc<ServerState>, token: &str) -> (ConnectionId, TcpStream, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(address).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let id = server.connections().admit(true, now()).unwrap().client;
    let session = Session::new(Arc::clone(server), id);
    tokio::spawn(serve(stream, session));
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
    (id, client, status.lines().next().unwrap().to_owned())
}

#[tokio::test]
async fn a_websocket_with_the_token_has_the_memory_of_clients() {
    let server = server(card(&[0]), Some("s3cret"), mpsc::unbounded_channel().0);
    let (_, _, status) = upgrade(&server, "gue55ed").await;
    assert_eq!(status, "HTTP/1.1 401 Unauthorized");
    let stranger = server.connections().admit(true, now()).unwrap().client;
    let greediest = server.connections().hold(stranger, 5 << 20);
    assert_eq!(greediest, Some(stranger));
    let (client, _open, status) = upgrade(&server, "s3cret").await;
    assert_eq!(status, "HTTP/1.1 101 Switching Protocols");
    assert_eq!(server.connections().hold(client, 5 << 20), None);
}

#[test]
fn a_token_is_what_openpis_clients_send_or_what_stands_before_the_host_in_an_address() {
    let server = server(card(&[0]), Some("s3cret"), mpsc::unbounded_channel().0);
    // In base64: `s3cret:`, and `any:s3cret`.
    for (authorization, is_let_in) in [
        ("Api-Key s3cre", false),
        ("Basic s3cret", false),
        ("Basic czNjcmV0Og==", false),
        ("Basic YW55OnMzY3JldA==", true),
        ("Bearer s3cret", true),
    ] {
        let text = format!("GET / HTTP/1.1\r\nAuthorization: {authorization}\r\n\r\n");
        let head = parse(text.as_bytes()).unwrap().unwrap();
        let found = server.lets_in(token(&head).as_deref());
        assert_eq!(found, is_let_in, "{authorization}");
    }
    assert!(!server.lets_in(None));
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
