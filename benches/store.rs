//! The two sides of the bench `store`: the launcher's store server, and clients for any server of
//! torch's protocol.
//!
//! ```text
//! store serve                          prints its port and serves until standard input ends
//! store load calls PORT CLIENTS SECONDS     prints {"ops_s": …, "p50_us": …, "p99_us": …}
//! store load bulk PORT CLIENTS SECONDS
//! store barrier PORT CLIENTS ROUNDS         prints {"ops": …, "p50_us": …, "p99_us": …}
//! store beats PORT CLIENTS SECONDS PACE     prints {"ops": …, "p50_us": …, "p99_us": …, "look_ms": …}
//! ```
//! Every client has its own connection and one call under way at a time, like a rank.
//!
//! *calls*: the client sets its key, gets its neighbour's key like torch's `get` (`WAIT`, then
//! `GET`), and adds to a counter that all clients share; an operation is a request. *bulk*: the
//! client sets [`KEYS`] keys at once, and gets as many of its neighbour, like ranks that exchange
//! addresses; an operation is a key. A latency is the time from a request to the end of its reply
//! (a set has no reply).
//!
//! *barrier*: all clients add to one counter and wait for a key, which the last of them sets; an
//! operation is one client's part in one barrier, and so is a latency. *beats*: what the ranks of an
//! evaluation do. Each sets its heartbeat of [`BEAT`] bytes and asks whether a key is there, once in
//! PACE seconds; the first also gets the heartbeats of all, [`AT_ONCE`] in a request. An operation
//! is a heartbeat, its latency that of the question, and `look_ms` the time of the gets.

#![expect(
    clippy::disallowed_methods,
    reason = "a bench reads the clock and ends with an exit code"
)]

use std::env;
use std::io::{self, Read as _, Write as _};
use std::process::{self, exit};
use std::str::FromStr;
use std::time::{Duration, Instant};

use launcher::node::FileLimit;
use tcpstore::StoreServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::{JoinSet, yield_now};

/// Bytes of a value, the size of an address or a small pickle.
const VALUE: [u8; 64] = [7; 64];

/// Number of keys in one bulk request.
const KEYS: usize = 64;

/// Bytes of a heartbeat, with the names of a job and a device.
const BEAT: usize = 320;

/// Heartbeats in one request.
const AT_ONCE: usize = 1024;

/// Time before the measurement begins, in which all clients start.
const WARM_UP: Duration = Duration::from_millis(200);

const VALIDATE_AND_PING: [u8; 10] = [0x00, 0xce, 0xf7, 0x85, 0x3c, 0x0d, 1, 2, 3, 4];
const SET: u8 = 0x01;
const GET: u8 = 0x03;
const ADD: u8 = 0x04;
const CHECK: u8 = 0x05;
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
        ["barrier", port, clients, rounds] => barriers(port, clients, rounds),
        ["beats", port, clients, seconds, pace] => beats(port, clients, seconds, pace),
        _ => Err(io::Error::other(
            "`serve`, `barrier`, `beats` or `load calls|bulk PORT CLIENTS SECONDS` is wanted (see benches/store.py)",
        )),
    };
    if let Err(err) = done {
        eprintln!("store: {err}");
        exit(1);
    }
}

fn serve() -> io::Result<()> {
    raise_limit();
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
    raise_limit();
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

/// Raises the limit on open files as far as it may be, as the launcher does.
fn raise_limit() {
    if let Some(limit) = FileLimit::current() {
        // Otherwise few clients fit, and the bench says so.
        let _ = limit.raised().apply();
    }
}

/// Runs the clients of [`barrier`], and prints their measurements.
fn barriers(port: &str, clients: &str, rounds: &str) -> io::Result<()> {
    let (port, clients, rounds) = (number(port)?, number(clients)?, number::<u64>(rounds)?);
    let latencies = together(port, clients, move |stream, rank| {
        barrier(stream, rank, clients, rounds)
    })?;
    println!("{{{}}}", percentiles(latencies.concat()));
    Ok(())
}

/// Runs the clients of [`beat`], and prints their measurements.
fn beats(port: &str, clients: &str, seconds: &str, pace: &str) -> io::Result<()> {
    let (port, clients, pace) = (number(port)?, number(clients)?, number::<f64>(pace)?);
    let count = (number::<f64>(seconds)? / pace).ceil() as u32;
    let pace = Duration::from_secs_f64(pace);
    let seen = together(port, clients, move |stream, rank| {
        beat(stream, rank, clients, count, pace)
    })?;
    let (latencies, looks): (Vec<_>, Vec<_>) = seen.into_iter().unzip();
    let mut looks = looks.concat();
    looks.sort_unstable();
    let look = looks.get(looks.len() / 2).copied().unwrap_or_default();
    let look_ms = look.as_secs_f64() * 1e3;
    println!(
        r#"{{{}, "look_ms": {look_ms}}}"#,
        percentiles(latencies.concat())
    );
    Ok(())
}

fn percentiles(mut latencies: Vec<Duration>) -> String {
    latencies.sort_unstable();
    let at = |share: f64| latencies.get((latencies.len() as f64 * share) as usize);
    let us = |share: f64| at(share).copied().unwrap_or_default().as_secs_f64() * 1e6;
    let ops = latencies.len();
    format!(
        r#""ops": {ops}, "p50_us": {}, "p99_us": {}"#,
        us(0.5),
        us(0.99)
    )
}

/// Connects all clients, then runs them together; returns what each has measured.
fn together<T: Send + 'static, F: Future<Output = io::Result<T>> + Send + 'static>(
    port: u16,
    clients: usize,
    run: impl Fn(TcpStream, usize) -> F,
) -> io::Result<Vec<T>> {
    raise_limit();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connected = Vec::new();
        for _ in 0..clients {
            connected.push(Client::connect(port, Vec::new()).await?.stream);
        }
        let ranks = connected.into_iter().enumerate();
        let mut running: JoinSet<_> = ranks.map(|(rank, stream)| run(stream, rank)).collect();
        let mut all = Vec::new();
        while let Some(client) = running.join_next().await {
            all.push(client??);
        }
        Ok(all)
    })
}

async fn barrier(
    mut stream: TcpStream,
    _rank: usize,
    clients: usize,
    rounds: u64,
) -> io::Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    for round in 0..rounds {
        let [count, gone] =
            ["count", "gone"].map(|name| format!("/barrier/{}/{round}/{name}", process::id()));
        let sent = Instant::now();
        let add = request(ADD, &[&text(count.as_bytes()), &1_i64.to_le_bytes()]);
        stream.write_all(&add).await?;
        let mut sum = [0; 8];
        stream.read_exact(&mut sum).await?;
        if i64::from_le_bytes(sum) == clients as i64 {
            let set = request(SET, &[&text(gone.as_bytes()), &text(b"1")]);
            stream.write_all(&set).await?;
        }
        let wait = request(WAIT, &[&1_u64.to_le_bytes(), &text(gone.as_bytes())]);
        stream.write_all(&wait).await?;
        stream.read_exact(&mut [0]).await?;
        latencies.push(sent.elapsed());
    }
    Ok(latencies)
}

/// Returns the latencies of the questions, and those of the looks of the first client.
async fn beat(
    mut stream: TcpStream,
    rank: usize,
    clients: usize,
    count: u32,
    pace: Duration,
) -> io::Result<(Vec<Duration>, Vec<Duration>)> {
    let (mut latencies, mut looks) = (Vec::new(), Vec::new());
    let own = |rank: usize| text(&key(rank, 0));
    // Ranks do not begin at the same moment.
    let begin = Instant::now() + pace.mul_f64(rank as f64 / clients as f64);
    for number in 0..count {
        tokio::time::sleep_until((begin + pace * number).into()).await;
        let set = request(SET, &[&own(rank), &text(&[7; BEAT])]);
        let check = request(CHECK, &[&1_u64.to_le_bytes(), &text(b"/off")]);
        let sent = Instant::now();
        stream.write_all(&[set, check].concat()).await?;
        stream.read_exact(&mut [0]).await?;
        latencies.push(sent.elapsed());
        // In the first round not all are there.
        if rank > 0 || number == 0 {
            continue;
        }
        let sent = Instant::now();
        let mut reply = vec![0; AT_ONCE * (8 + BEAT)];
        for first in (0..clients).step_by(AT_ONCE) {
            let ranks = first..clients.min(first + AT_ONCE);
            let length = ranks.len();
            let keys: Vec<u8> = ranks.flat_map(own).collect();
            let get = request(MULTI_GET, &[&(length as u64).to_le_bytes(), &keys]);
            stream.write_all(&get).await?;
            stream.read_exact(&mut reply[..length * (8 + BEAT)]).await?;
        }
        looks.push(sent.elapsed());
    }
    Ok((latencies, looks))
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

fn request(op: u8, parts: &[&[u8]]) -> Vec<u8> {
    [&[op], parts.concat().as_slice()].concat()
}

fn text(bytes: &[u8]) -> Vec<u8> {
    [(bytes.len() as u64).to_le_bytes().as_slice(), bytes].concat()
}
