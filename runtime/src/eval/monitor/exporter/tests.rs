//! The metrics, and the connections of clients that do not behave.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use super::*;

use crate::clock::now;
use crate::eval::monitor::beat::Beat;
use crate::eval::monitor::meter::GpuBusy;
use crate::eval::monitor::view::{EarlierResults, RunView};

#[test]
fn a_gpu_is_busy_where_its_driver_tells_and_there_alone() {
    let mut view = RunView::new(EarlierResults::default(), 2);
    let text = render(&view.on(&[Beat::default(), Beat::default()], now()));
    assert!(!text.contains("rank_gpu_busy_ratio"), "{text}");
    let gpu_busy = Some(GpuBusy {
        busy_s: 1.0,
        seen_s: 4.0,
    });
    let busy = Beat {
        gpu_busy,
        ..Beat::default()
    };
    let text = render(&view.on(&[Beat::default(), busy], now()));
    let lines: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("rrun_rank_gpu_busy_ratio"))
        .collect();
    assert_eq!(lines, ["rrun_rank_gpu_busy_ratio{rank=\"1\"} 0.25"]);
}

const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

/// Starts an exporter with the connection timeout `patience`; returns it with its address.
fn exporter(patience: Duration) -> (Exporter, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (Exporter::listen_with(listener, patience).unwrap(), address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream
}

fn ask(address: SocketAddr, request: &[u8]) -> String {
    let mut client = connect(address);
    client.write_all(request).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

/// Waits until the server closes the connection or sends data; returns whether it has closed
/// it.
fn is_closed(client: &mut TcpStream) -> bool {
    !matches!(client.read(&mut [0; 100]), Ok(1..))
}

#[test]
fn numbers_are_answered_over_http() {
    let (exporter, address) = exporter(PATIENCE);
    let before = EarlierResults {
        expected: Some(9),
        ..EarlierResults::default()
    };
    let mut view = RunView::new(before, 2);
    let beat = Beat {
        ended: 2,
        ended_solved: 1,
        steps: 7,
        ..Beat::default()
    };
    exporter.show(&view.on(&[beat, Beat::default()], now()));
    let answer = ask(address, GET);
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("text/plain; version=0.0.4"),
        "{answer}"
    );
    for line in [
        "rrun_episodes_expected 9",
        "rrun_episodes_failed 1",
        "rrun_rank_steps_total{rank=\"0\"} 7",
    ] {
        let is_told = answer.lines().any(|found| found == line);
        assert!(is_told, "{line}: {answer}");
    }
    for (request, status) in [
        ("GET /metrics?x=1 HTTP/1.0", "HTTP/1.1 200"),
        ("GET /other HTTP/1.1", "HTTP/1.1 404"),
        ("POST /metrics HTTP/1.1", "HTTP/1.1 405"),
    ] {
        let answer = ask(address, format!("{request}\r\n\r\n").as_bytes());
        assert!(answer.starts_with(status), "{request}: {answer}");
    }
}

#[test]
fn a_client_that_sends_nothing_is_let_go_of() {
    let (_exporter, address) = exporter(Duration::from_millis(50));
    let mut silent = connect(address);
    let mut half = connect(address);
    half.write_all(b"GET /metrics HT").unwrap();
    assert!(is_closed(&mut silent) && is_closed(&mut half));
}

#[test]
fn silent_clients_keep_nobody_from_being_answered() {
    let (_exporter, address) = exporter(Duration::from_secs(3600));
    let mut silent: Vec<_> = (0..3 * CONNECTIONS).map(|_| connect(address)).collect();
    assert!(ask(address, GET).starts_with("HTTP/1.1 200"));
    assert!(is_closed(&mut silent[0]));
}

#[test]
fn a_request_without_an_end_is_closed() {
    let (_exporter, address) = exporter(Duration::from_secs(3600));
    let mut client = connect(address);
    // The server may close the connection before everything is written.
    client.write_all(&[b'x'; 1 << 14]).ok();
    assert!(is_closed(&mut client));
}
