use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use super::*;

const WAIT: Duration = Duration::from_secs(10);

fn serve() -> Store {
    Store::connect(&StoreAddr::local(0), 1, true, WAIT).unwrap()
}

fn join(server: &Store) -> Store {
    Store::connect(&StoreAddr::local(server.port()), 1, false, WAIT).unwrap()
}

#[test]
fn every_request_of_one_client_is_answered_and_another_sees_it() {
    let (server, large) = (serve(), vec![7; 3_000_000]);
    let (part, client) = (server.prefix("a"), join(&server));
    part.set("x", b"\0v\xff").unwrap();
    part.append("x", b"!").unwrap();
    part.set("y", b"").unwrap();
    assert_eq!(client.get("a/x", WAIT).unwrap(), b"\0v\xff!");
    let keys = ["x", "y", "z"].map(str::to_owned);
    assert!(part.check_all(&keys[..2]).unwrap() && !part.check_all(&keys).unwrap());
    assert!(part.multi_get(&keys).unwrap() == [&b"\0v\xff!"[..], b"", b""]);
    let early = part.wait_all(&keys, Duration::from_millis(50));
    assert!(early.unwrap_err().is_missing());
    client.set("a/z", &large).unwrap();
    part.wait_all(&keys, WAIT).unwrap();
    assert!(part.multi_get(&keys).unwrap() == [&b"\0v\xff!"[..], b"", &large]);
    assert!(part.multi_get::<&str>(&[]).unwrap().is_empty());
    assert_eq!(server.add("n", 3).unwrap(), 3);
    assert_eq!(client.add("n", -5).unwrap(), -2);
    assert!(server.delete("n").unwrap() && !server.delete("n").unwrap());
    assert!(!client.check("n").unwrap());
    assert_eq!(client.compare_set("k", b"", b"one").unwrap(), b"one");
    assert_eq!(server.compare_set("k", b"", b"two").unwrap(), b"one");
    assert_eq!(server.compare_set("k", b"one", b"two").unwrap(), b"two");
}

#[test]
fn a_key_that_never_comes_is_a_timeout_even_with_no_time_left() {
    let server = serve();
    let waited = server.wait("never", Duration::ZERO);
    assert!(waited.unwrap_err().is_missing());
    let got = server.get("never", Duration::from_millis(50));
    assert!(got.unwrap_err().is_missing());
    assert!(
        !server.check("never").unwrap(),
        "the connection still works"
    );
}

#[test]
fn a_waiting_client_is_woken() {
    let server = serve();
    let client = join(&server);
    let waiting = std::thread::spawn(move || client.get("late", WAIT));
    server.set("late", b"here").unwrap();
    assert_eq!(waiting.join().unwrap().unwrap(), b"here");
}

/// Connects to a server that answers the handshake, and then does what `act` does.
fn join_one_that(act: impl FnOnce(TcpStream) + Send + 'static) -> Store {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut greeting = [0; 10];
        stream.read_exact(&mut greeting).unwrap();
        stream.write_all(&greeting[6..]).unwrap();
        act(stream);
    });
    let store = Store::connect(&StoreAddr::local(port), 0, false, WAIT).unwrap();
    store.answering_within(Duration::from_millis(100))
}

#[test]
fn a_server_that_vanishes_without_a_word_costs_one_time_limit_and_no_more() {
    let (_keep, vanished) = std::sync::mpsc::channel::<()>();
    let store = join_one_that(move |stream| {
        let _ = vanished.recv();
        drop(stream);
    });
    let err = store.add("n", 1).unwrap_err();
    assert!(matches!(err, StoreError::Silent { .. }), "{err}");
    let until = Deadline::after(WAIT);
    for _ in 0..1000 {
        let err = store.check("n").unwrap_err();
        assert!(matches!(err, StoreError::Lost { .. }), "{err}");
    }
    assert!(until.left() > WAIT / 2, "further requests fail at once");
}

#[test]
fn a_wait_that_ends_while_it_is_cancelled_is_over_and_the_connection_still_works() {
    let store = join_one_that(|mut stream| {
        let mut byte = [0];
        while byte != [0x0c] {
            stream.read_exact(&mut byte).unwrap(); // until the cancellation
        }
        stream.write_all(&[0, 1]).unwrap();
        stream.read_exact(&mut [0; 8]).unwrap();
        stream.write_all(&[0]).unwrap();
        let _ = stream.read(&mut [0]);
    });
    store.wait("k", Duration::from_millis(10)).unwrap();
    assert!(store.check("k").unwrap());
}

#[test]
fn an_answer_that_comes_byte_by_byte_has_the_same_time_limit() {
    let store = join_one_that(|mut stream| {
        stream.read_exact(&mut [0]).unwrap(); // of the request
        let endless = 1_000_000_u64.to_le_bytes().into_iter();
        for byte in endless.chain(std::iter::repeat(7)) {
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            rest();
        }
    });
    let err = store.compare_set("k", b"", b"").unwrap_err();
    assert!(matches!(err, StoreError::Silent { .. }), "{err}");
}

#[expect(clippy::disallowed_methods, reason = "a peer that is slow on purpose")]
fn rest() {
    std::thread::sleep(Duration::from_millis(10));
}

#[test]
fn a_host_with_a_zero_byte_is_refused() {
    let addr = StoreAddr {
        host: "a\0b".to_owned(),
        port: 1,
    };
    assert!(Store::connect(&addr, 1, false, WAIT).is_err());
}

#[test]
fn an_endless_wait_does_not_overflow() {
    assert!(Deadline::after(Duration::MAX).plus(Duration::MAX).left() > Duration::from_secs(3600));
    assert_eq!(Deadline::after(Duration::ZERO).left(), Duration::ZERO);
}
