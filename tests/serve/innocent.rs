//! One well-behaved client beside many hostile ones gets the right answers, each hostile one gets
//! its error or loses its connection, and the server's memory comes back. For its latencies there
//! is `benches/serve.py`.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rig::wait::{DEADLINE, now, pause, until};
use wire::{Dialect, Value, read, write};

use crate::serve::client::{Client, SMALL, error, hello, numbers, rows_of, seeded, with_token};
use crate::serve::server::Server;

const TOKEN: &str = "s3cret";
/// Pause between two attempts of one peer, so that the server is tried and not how fast this
/// process fills a socket.
const PACE: Duration = Duration::from_millis(100);
/// Requests of the client that behaves.
const REQUESTS: usize = 500;

/// Returns an array of 60 MB in column order, with as many axes as numpy allows.
fn giant(token: &str) -> Vec<u8> {
    let edges = format!("{}60000000", "1, ".repeat(63));
    let header = format!("{{'descr': '|u1', 'fortran_order': True, 'shape': ({edges}), }}\n");
    let length = (header.len() as u16).to_le_bytes();
    let npy = [
        b"\x93NUMPY\x01\x00",
        &length[..],
        header.as_bytes(),
        &vec![1; 60_000_000],
    ]
    .concat();
    let array = Value::map([
        ("__ndarray_class__", true.into()),
        ("as_npy", Value::Bytes(npy.into())),
    ]);
    let observation = Value::map([("observation", Value::map([("video", array)]))]);
    let request = Value::map([("endpoint", "get_action".into()), ("data", observation)]);
    write(&with_token(&request, token), Dialect::Npy)
}

/// Sends a message from a peer whose connection may be closed meanwhile; returns the answer, if
/// there is one.
fn attempt(client: io::Result<Client>, message: &[u8]) -> io::Result<Value> {
    let mut client = client?;
    client.send(message)?;
    Ok(read(&client.receive()?.into()).unwrap().value)
}

/// Connects, and shows the token.
fn known(address: SocketAddr) -> io::Result<Client> {
    let mut client = Client::try_connect(address)?;
    let ping = Value::map([("endpoint", "ping".into())]);
    client.ask_value(&with_token(&ping, TOKEN));
    Ok(client)
}

/// Returns the outcome of an attempt; a silent open connection is a failure.
fn outcome(attempt: io::Result<Value>) -> String {
    match attempt.map_err(|err| err.kind()) {
        Ok(answer) if answer.get("error").is_some() => {
            let text = error(&answer);
            text.split(|letter: char| letter.is_ascii_digit() || letter == '.')
                .next()
                .unwrap_or_default()
                .to_owned()
        }
        Ok(_) => "answered".to_owned(),
        Err(ErrorKind::WouldBlock | ErrorKind::TimedOut) => panic!("neither answered nor closed"),
        Err(_) => "closed".to_owned(),
    }
}

/// The hostile behaviours by name, with their allowed outcomes.
const MISBEHAVIOURS: [(&str, &[&str]); 10] = [
    (
        "giant array",
        &[
            "Observation 'video' must be a dictionary",
            "the server was too busy",
            "closed",
        ],
    ),
    ("giant array, no token", &["closed"]),
    ("wrong token", &["Unauthorized: Invalid API token"]),
    ("half a message", &["closed"]),
    ("slow sender", &["closed"]),
    ("3000 rows", &["the request has "]),
    ("long prompt", &["an instruction has "]),
    ("gone before the answer", &["gone"]),
    ("200 rows", &["answered", "stopped"]),
    ("websocket without token", &["HTTP/"]),
];

/// The messages of those that send a whole one, by the name of the behaviour.
type Messages = BTreeMap<&'static str, Vec<u8>>;

fn messages() -> Messages {
    let message = |value: &Value, token| write(&with_token(value, token), Dialect::Kind);
    let long = "pick up the red cube ".repeat(5000);
    let some_rows = message(&rows_of(200, SMALL, "reach"), TOKEN);
    BTreeMap::from([
        ("giant array", giant(TOKEN)),
        ("giant array, no token", giant("guessed")),
        ("wrong token", message(&seeded(1), "guessed")),
        ("3000 rows", message(&rows_of(3000, SMALL, "reach"), TOKEN)),
        ("long prompt", message(&rows_of(1, SMALL, &long), TOKEN)),
        ("gone before the answer", some_rows.clone()),
        ("200 rows", some_rows),
    ])
}

fn misbehave(name: &str, address: SocketAddr, messages: &Messages, stop: &AtomicBool) -> String {
    let unfinished = || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
            .write_all(&[&hello()[..], b"\x01\x00\x02\0\0\0\0\0\x01\0\0half"].concat())
            .unwrap();
        stream
    };
    let is_closed = |mut stream: TcpStream| match stream.read_to_end(&mut Vec::new()) {
        Err(err) if matches!(err.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            panic!("still open")
        }
        _ => "closed".to_owned(),
    };
    match name {
        "giant array" => outcome(attempt(known(address), &messages[name])),
        "giant array, no token" | "wrong token" | "3000 rows" | "long prompt" => {
            outcome(attempt(Client::try_connect(address), &messages[name]))
        }
        "half a message" => is_closed(unfinished()),
        "slow sender" => {
            let mut stream = unfinished();
            let start = now();
            while stream.write_all(b"x").is_ok() {
                assert!(
                    start.elapsed() < DEADLINE,
                    "a slow sender was not sent away"
                );
                pause(PACE);
            }
            is_closed(stream)
        }
        "gone before the answer" => {
            let mut client = Client::connect(address);
            client.send(&messages[name]).unwrap();
            "gone".to_owned()
        }
        "200 rows" => {
            let mut client = Client::connect(address);
            client.send(&messages[name]).unwrap();
            client.wait_at_most(Duration::from_millis(200));
            loop {
                match client.receive() {
                    Ok(answer) => return outcome(Ok(read(&answer.into()).unwrap().value)),
                    Err(err)
                        if !matches!(err.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                    {
                        return "closed".to_owned();
                    }
                    Err(_) if stop.load(Ordering::Relaxed) => return "stopped".to_owned(),
                    Err(_) => {}
                }
            }
        }
        _ => {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(DEADLINE)).unwrap();
            let head = "GET / HTTP/1.1\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
            "HTTP/".to_owned()
        }
    }
}

/// Asks as a well-behaved client does.
fn ask(server: &Server, requests: usize, expected: &[f32]) {
    let mut client = Client::connect(server.address);
    for _ in 0..requests {
        let answer = client.ask_value(&with_token(&seeded(1), TOKEN));
        assert_eq!(numbers(&answer), expected);
        assert!(server.get("/healthz").starts_with("HTTP/1.1 200 "));
    }
}

#[test]
#[ignore = "some minutes"]
fn one_that_behaves_is_answered_beside_sixty_four_that_do_not() {
    let server = Server::start(&["--api-token", TOKEN, "--max-connections", "256"]);
    let request = with_token(&seeded(1), TOKEN);
    let expected = numbers(&Client::connect(server.address).ask_value(&request));
    let bound = server.resident() + 128 * 1024;
    let (messages, stop) = (&messages(), &AtomicBool::new(false));
    let outcomes: &Mutex<BTreeMap<(&str, String), u64>> = &Mutex::default();
    let address = server.address;
    std::thread::scope(|scope| {
        for number in 0..64 {
            scope.spawn(move || {
                // Real attackers use their own machines; here they get the CPU time that the server
                // and its client leave.
                let _ = rustix::process::nice(19);
                let (name, allowed) = MISBEHAVIOURS[number % MISBEHAVIOURS.len()];
                while !stop.load(Ordering::Relaxed) {
                    let outcome = misbehave(name, address, messages, stop);
                    assert!(
                        allowed.iter().any(|allowed| outcome.starts_with(allowed)),
                        "{name}: {outcome}"
                    );
                    *outcomes.lock().unwrap().entry((name, outcome)).or_default() += 1;
                    pause(PACE);
                }
            });
        }
        // The others have to stop even if this fails.
        let asked = catch_unwind(AssertUnwindSafe(|| ask(&server, REQUESTS, &expected)));
        stop.store(true, Ordering::Relaxed);
        asked.unwrap_or_else(|panic| resume_unwind(panic));
    });
    let outcomes = outcomes.lock().unwrap();
    for ((name, outcome), count) in outcomes.iter() {
        eprintln!("{name}: {outcome:?} {count} times");
    }
    for (name, _) in MISBEHAVIOURS {
        let is_there = outcomes.keys().any(|(found, _)| *found == name);
        assert!(is_there, "{name} was not tried to its end");
    }
    until("memory comes back", || server.resident() < bound);
    until("nothing waits", || {
        server.metric("rrun_serve_queue_length") == 0.0
    });
}
