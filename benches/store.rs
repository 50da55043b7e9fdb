//! The two sides of the bench `store`: the launcher's store server, and clients for any server of
//! torch's protocol.
//!
//! ```text
//! store serve                          prints its port and serves until standard input ends
//! store load calls PORT CLIENTS SECONDS     prints {"ops_s": …, "p50_us": …, "p99_us": …}
//! store load bulk PORT CLIENTS SECONDS
//! ```
//! Every client has its own connection and one call under way at a time, like a rank.
//!
//! *calls*: the client sets its key, gets its neighbour's key like torch's `get` (`WAIT`, then
//! `GET`), and adds to a counter that all clients share; an operation is a request. *bulk*: the
//! client sets [`KEYS`] keys at once, and gets as many of its neighbour, like ranks that exchange
//! addresses; an operation is a key. A latency is the time from a request to the end of its reply
//! (a set has no reply).

#![expect(
    clippy::disallowed_methods,
    reason = "a bench reads the clock and ends with an exit code"
)]

use std::env;
use std::io::{self, Read as _, Write as _};
use std::process::exit;
use std::str::FromStr;
use std::time::{Duration, Instant};

use launcher::store::StoreServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::{JoinSet, yield_now};

/// Bytes of a value, the size of an address or a small pickle.
const VALUE: [u8; 64] = [7; 64];

/// Number of keys in one bulk request.
const KEYS: usize = 64;

/// Time before the measurement begins, in which all clients start.
const WARM_UP: Duration = Duration::from_millis(200);

const VALIDATE_AND_PING: [u8; 10] = [0x00, 0xce, 0xf7, 0x85, 0x3c, 0x0d, 1, 2, 3, 4];
const SET: u8 = 0x01;
const GET: u8 = 0x03;
const ADD: u8 = 0x04;
const WAIT: u8 = 0x06;
const MULTI_GET: u8 = 0x0a;
const MULTI_SET: u8 = 0x0b;

fn main() {
    let words: Vec<String> = env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match *words.as_slice() {
        ["serve"] => serve(),
        ["load", "calls", port, clients, seconds] => load(calls, port, clients, seconds),
        ["load", "bulk", port, clients, seconds] => load(bulk, port, clients, seconds),
        _ => Err(io::Error::other(
            "`serve` or `load calls|bulk PORT CLIENTS SECONDS` is wanted (see benches/store.py)",
        )),
    };
    if let Err(err) = done {
        eprintln!("store: {err}");
        exit(1);
    }
}

fn serve() -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = StoreServer::bind("localhost", None)
            .map_err(io::Error::other)?
            .spawn();
        println!("{}", server.port());
        io::stdout().flush()?;
        // Not tokio's stdin, which uses a thread anyway.
        tokio::task::spawn_blocking(|| io::stdin().read_to_end(&mut Vec::new()))
            .await?
            .map(drop)
    })
}

fn load(steps: Steps, port: &str, clients: &str, seconds: &str) -> io::Result<()> {
    let (port, clients, seconds) = (number(port)?, number(clients)?, number::<f64>(seconds)?);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut seen = runtime.block_on(drive(
        steps,
        port,
        clients,
        Duration::from_secs_f64(seconds),
    ))?;
    seen.latencies.sort_unstable();
    let at = |share: f64| {
        seen.latencies
            .get((seen.latencies.len() as f64 * share) as usize)
            .copied()
    };
    let us = |share: f64| at(share).unwrap_or_default().as_secs_f64() * 1e6;
    println!(
        r#"{{"ops_s": {}, "p50_us": {}, "p99_us": {}}}"#,
        seen.ops as f64 / seconds,
        us(0.5),
        us(0.99)
    );
    Ok(())
}

fn number<T: FromStr>(word: &str) -> io::Result<T> {
    word.parse()
        .map_err(|_| io::Error::other(format!("`{word}` is not a number")))
}

/// Runs all clients for `time`, and returns their measurements.
async fn drive(steps: Steps, port: u16, clients: usize, time: Duration) -> io::Result<Seen> {
    let mut connected = Vec::new();
    for rank in 0..clients {
        connected.push(Client::connect(port, steps(rank, (rank + 1) % clients)).await?);
    }
    let begin = Instant::now() + WARM_UP;
    let mut running: JoinSet<_> = connected
        .into_iter()
        .map(|client| client.run(begin, begin + time))
        .collect();
    let mut all = Seen::default();
    while let Some(client) = running.join_next().await {
        let seen = client??;
        all.ops += seen.ops;
        all.latencies.extend(seen.latencies);
    }
    Ok(all)
}

#[derive(Default)]
struct Seen {
    ops: u64,
    latencies: Vec<Duration>,
}

/// Returns the requests that a rank repeats, given its number and that of its neighbour.
type Steps = fn(usize, usize) -> Vec<Step>;

struct Step {
    request: Vec<u8>,
    /// Bytes of the reply.
    reply: usize,
    ops: u64,
}

fn calls(rank: usize, next: usize) -> Vec<Step> {
    let one = |request: Vec<u8>, reply| Step {
        request,
        reply,
        ops: 1,
    };
    let (own, next) = (key(rank, 0), key(next, 0));
    vec![
        one([&[SET], text(&own).as_slice(), &text(&VALUE)].concat(), 0),
        one(
            [&[WAIT], 1_u64.to_le_bytes().as_slice(), &text(&next)].concat(),
            1,
        ),
        one([&[GET], text(&next).as_slice()].concat(), 8 + VALUE.len()),
        one(
            [&[ADD], text(b"/counter").as_slice(), &1_i64.to_le_bytes()].concat(),
            8,
        ),
    ]
}

fn bulk(rank: usize, next: usize) -> Vec<Step> {
    let many =
        |op: u8, keys: Vec<u8>| [&[op], (KEYS as u64).to_le_bytes().as_slice(), &keys].concat();
    let pairs = (0..KEYS)
        .flat_map(|number| [text(&key(rank, number)), text(&VALUE)].concat())
        .collect();
    let keys = |rank| {
        (0..KEYS)
            .flat_map(|number| text(&key(rank, number)))
            .collect()
    };
    vec![
        Step {
            request: many(MULTI_SET, pairs),
            reply: 0,
            ops: KEYS as u64,
        },
        // In the first round the neighbour may have set nothing yet; the reply with an absent value
        // would be shorter.
        Step {
            request: many(WAIT, keys(next)),
            reply: 1,
            ops: 0,
        },
        Step {
            request: many(MULTI_GET, keys(next)),
            reply: KEYS * (8 + VALUE.len()),
            ops: KEYS as u64,
        },
    ]
}

struct Client {
    stream: TcpStream,
    steps: Vec<Step>,
}

impl Client {
    async fn connect(port: u16, steps: Vec<Step>) -> io::Result<Client> {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        stream.write_all(&VALIDATE_AND_PING).await?;
        stream.read_exact(&mut [0; 4]).await?;
        Ok(Client { stream, steps })
    }

    async fn run(mut self, begin: Instant, end: Instant) -> io::Result<Seen> {
        let mut seen = Seen::default();
        let mut reply = vec![0; KEYS * (8 + VALUE.len())];
        for step in self.steps.iter().cycle() {
            let sent = Instant::now();
            self.stream.write_all(&step.request).await?;
            // Clients on separate machines would not wait for each other's replies either.
            yield_now().await;
            self.stream.read_exact(&mut reply[..step.reply]).await?;
            let received = Instant::now();
            if received >= end {
                break;
            }
            if sent >= begin {
                seen.ops += step.ops;
                seen.latencies
                    .extend((step.reply > 0).then(|| received - sent));
            }
        }
        Ok(seen)
    }
}

fn key(rank: usize, number: usize) -> Vec<u8> {
    format!("/default_pg/0//rank{rank}/{number}").into_bytes()
}

fn text(bytes: &[u8]) -> Vec<u8> {
    [(bytes.len() as u64).to_le_bytes().as_slice(), bytes].concat()
}
