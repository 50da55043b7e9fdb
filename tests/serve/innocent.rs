//! Tests of one well-behaved client, alone and then beside many hostile ones: its answers, its
//! latencies, and the server's memory.
//!
//! Latencies are printed and not checked, because they depend on the machine. The test checks what
//! does not depend on time: the client gets the right answers, each hostile client gets its error
//! or loses its connection, and memory is released.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use wire::{Dialect, Value, read, write};

use crate::serve::client::{Client, error, hello, numbers, rows_of, seeded, with_token};
use crate::serve::server::{DEADLINE, Server, now, wait_until};

const TOKEN: &str = "s3cret";

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
    write(&with_token(request, token), Dialect::Npy)
}

/// Sends a message from a peer whose connection may be closed meanwhile; returns the answer, if
/// there is one.
fn attempt(address: SocketAddr, message: &[u8]) -> Result<Value, ErrorKind> {
    let mut client = Client::try_connect(address).map_err(|err| err.kind())?;
    client.send(message).map_err(|err| err.kind())?;
    let answer = client.receive().map_err(|err| err.kind())?;
    Ok(read(&answer.into()).unwrap().value)
}

/// Works like [`attempt`], from a client that has sent the token.
fn attempt_of_client(address: SocketAddr, message: &[u8]) -> Result<Value, ErrorKind> {
    let mut client = Client::try_connect(address).map_err(|err| err.kind())?;
    client.ask_value(&with_token(
        Value::map([("endpoint", "ping".into())]),
        TOKEN,
    ));
    client.send(message).map_err(|err| err.kind())?;
    let answer = client.receive().map_err(|err| err.kind())?;
    Ok(read(&answer.into()).unwrap().value)
}

/// Returns the outcome of an attempt; a silent open connection is a failure.
fn outcome(attempt: Result<Value, ErrorKind>) -> String {
    match attempt {
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
    ("200 rows", &["answered", "stopped", "closed"]),
    ("websocket without token", &["HTTP/"]),
];

struct Messages {
    giant: Vec<u8>,
    giant_without_token: Vec<u8>,
    wrong_token: Vec<u8>,
    many_rows: Vec<u8>,
    long_prompt: Vec<u8>,
    some_rows: Vec<u8>,
}

impl Messages {
    fn new() -> Self {
        let message = |value: &Value| write(value, Dialect::Kind);
        let long = "pick up the red cube ".repeat(5000);
        Self {
            giant: giant(TOKEN),
            giant_without_token: giant("guessed"),
            wrong_token: message(&with_token(seeded(1), "guessed")),
            many_rows: message(&with_token(rows_of(3000, "reach the cube"), TOKEN)),
            long_prompt: message(&with_token(rows_of(1, &long), TOKEN)),
            some_rows: message(&with_token(rows_of(200, "reach the cube"), TOKEN)),
        }
    }
}

fn misbehave(kind: usize, address: SocketAddr, messages: &Messages, stop: &AtomicBool) -> String {
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
    match MISBEHAVIOURS[kind].0 {
        "giant array" => outcome(attempt_of_client(address, &messages.giant)),
        "giant array, no token" => outcome(attempt(address, &messages.giant_without_token)),
        "wrong token" => outcome(attempt(address, &messages.wrong_token)),
        "half a message" => is_closed(unfinished()),
        "slow sender" => {
            let mut stream = unfinished();
            let start = now();
            while stream.write_all(b"x").is_ok() {
                assert!(
                    start.elapsed() < DEADLINE,
                    "a slow sender was not sent away"
                );
                pause();
            }
            is_closed(stream)
        }
        "3000 rows" => outcome(attempt(address, &messages.many_rows)),
        "long prompt" => outcome(attempt(address, &messages.long_prompt)),
        "gone before the answer" => {
            let mut client = Client::connect(address);
            client.send(&messages.some_rows).unwrap();
            "gone".to_owned()
        }
        "200 rows" => {
            let mut client = Client::connect(address);
            client.send(&messages.some_rows).unwrap();
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

/// Pauses between two attempts of one peer, so that the server is measured and not how fast this
/// process fills a socket.
fn pause() {
    #[expect(clippy::disallowed_methods, reason = "hostile peers have a pace, too")]
    std::thread::sleep(Duration::from_millis(100));
}

/// Latencies of one client and of `/healthz`.
#[derive(Default)]
struct Latencies {
    answers: Vec<Duration>,
    health: Vec<Duration>,
}

impl Latencies {
    fn measure(server: &Server, requests: usize, expected: &[f32]) -> Self {
        let mut client = Client::connect(server.address);
        let request = write(&with_token(seeded(1), TOKEN), Dialect::Kind);
        let mut latencies = Self::default();
        for _ in 0..requests {
            let asked = now();
            let answer = client.ask(&request);
            latencies.answers.push(asked.elapsed());
            assert_eq!(numbers(&read(&answer.into()).unwrap().value), expected);
            let asked = now();
            assert!(server.get("/healthz").starts_with("HTTP/1.1 200 "));
            latencies.health.push(asked.elapsed());
        }
        latencies
    }

    fn print(mut self, when: &str) {
        for (what, times) in [
            ("answers", &mut self.answers),
            ("healthz", &mut self.health),
        ] {
            times.sort_unstable();
            let at =
                |quantile: usize| times[(times.len() - 1) * quantile / 100].as_secs_f64() * 1e3;
            let [p50, p99, most] = [50, 99, 100].map(at);
            eprintln!(
                "{when}: {what} p50 {p50:.1} ms, p99 {p99:.1} ms, longest {most:.1} ms of {}",
                times.len()
            );
        }
    }
}

fn beside(hostile: usize, requests: usize) {
    let server = Server::start(&["--api-token", TOKEN, "--max-connections", "256"]);
    let expected =
        numbers(&Client::connect(server.address).ask_value(&with_token(seeded(1), TOKEN)));
    Latencies::measure(&server, requests, &expected).print("quiet");
    let before = server.resident();
    let (messages, stop) = (&Messages::new(), &AtomicBool::new(false));
    let outcomes: &Mutex<BTreeMap<(&str, String), u64>> = &Mutex::default();
    let address = server.address;
    let mut most = before;
    std::thread::scope(|scope| {
        for number in 0..hostile {
            scope.spawn(move || {
                // Real attackers use their own machines; here they get the CPU time that the server
                // and its client leave.
                let _ = rustix::process::nice(19);
                let kind = number % MISBEHAVIOURS.len();
                let (name, allowed) = MISBEHAVIOURS[kind];
                while !stop.load(Ordering::Relaxed) {
                    let outcome = misbehave(kind, address, messages, stop);
                    assert!(
                        allowed.iter().any(|allowed| outcome.starts_with(allowed)),
                        "{name}: {outcome}"
                    );
                    *outcomes.lock().unwrap().entry((name, outcome)).or_default() += 1;
                    pause();
                }
            });
        }
        // The others have to stop even if this fails.
        let measured = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let latencies = Latencies::measure(&server, requests, &expected);
            most = server.resident();
            latencies
        }));
        stop.store(true, Ordering::Relaxed);
        match measured {
            Ok(latencies) => latencies.print("beside the others"),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
    for ((name, outcome), count) in outcomes.lock().unwrap().iter() {
        eprintln!("{name}: {outcome:?} {count} times");
    }
    let metrics = server.get("/metrics");
    metrics
        .lines()
        .filter(|line| line.contains("_seconds{"))
        .for_each(|line| eprintln!("{line}"));
    let bound = before + 128 * 1024;
    eprintln!(
        "memory: {before} KiB before, {most} KiB with the others, {} KiB after them",
        server.resident()
    );
    wait_until("memory comes back", || server.resident() < bound);
    wait_until("nothing waits", || {
        server.metric("rrun_serve_queue_length") == 0.0
    });
}

#[test]
fn ten_that_misbehave_each_in_its_way() {
    beside(10, 40);
}

#[test]
#[ignore = "some minutes"]
fn sixty_four_that_misbehave() {
    beside(64, 500);
}
