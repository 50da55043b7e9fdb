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
use tcpstore::wire::StoreRequest;
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

/// Runs the clients of [`repeat`], and prints their measurements.
fn load(steps: Steps, port: &str, clients: &str, seconds: &str) -> io::Result<()> {
    let (port, clients, seconds) = (number(port)?, number(clients)?, number::<f64>(seconds)?);
    let time = Duration::from_secs_f64(seconds);
    let seen = together(port, clients, |stream, rank| {
        repeat(stream, steps(rank, (rank + 1) % clients), time)
    })?;
    let (ops, latencies): (Vec<u64>, Vec<_>) = seen.into_iter().unzip();
    let ops_s = ops.iter().sum::<u64>() as f64 / seconds;
    println!(
        r#"{{"ops_s": {ops_s}, {}}}"#,
        percentiles(&mut latencies.concat())
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
    let latencies = together(port, clients, |stream, _| barrier(stream, clients, rounds))?;
    let mut latencies = latencies.concat();
    let ops = latencies.len();
    println!(r#"{{"ops": {ops}, {}}}"#, percentiles(&mut latencies));
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
    let (mut latencies, mut looks) = (latencies.concat(), looks.concat());
    let (ops, look_ms) = (latencies.len(), at(&mut looks, 0.5) * 1e3);
    println!(
        r#"{{"ops": {ops}, {}, "look_ms": {look_ms}}}"#,
        percentiles(&mut latencies)
    );
    Ok(())
}

fn percentiles(latencies: &mut [Duration]) -> String {
    let [p50, p99] = [0.5, 0.99].map(|share| at(latencies, share) * 1e6);
    format!(r#""p50_us": {p50}, "p99_us": {p99}"#)
}

/// Returns the time below which this share of them is, in seconds.
fn at(times: &mut [Duration], share: f64) -> f64 {
    times.sort_unstable();
    let time = times.get((times.len() as f64 * share) as usize);
    time.copied().unwrap_or_default().as_secs_f64()
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
            connected.push(connect(port).await?);
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

async fn connect(port: u16) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    let mut hello = bytes(&StoreRequest::Validate);
    hello.extend(bytes(&StoreRequest::Ping { nonce: 1 }));
    stream.write_all(&hello).await?;
    stream.read_exact(&mut [0; 4]).await?;
    Ok(stream)
}

async fn barrier(mut stream: TcpStream, clients: usize, rounds: u64) -> io::Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    for round in 0..rounds {
        let [count, gone] =
            ["count", "gone"].map(|name| format!("/barrier/{}/{round}/{name}", process::id()));
        let (count, gone) = (count.as_bytes(), gone.as_bytes());
        let sent = Instant::now();
        stream.write_all(&bytes(&add(count))).await?;
        let mut sum = [0; 8];
        stream.read_exact(&mut sum).await?;
        if i64::from_le_bytes(sum) == clients as i64 {
            stream.write_all(&bytes(&set(gone, b"1"))).await?;
        }
        let wait = StoreRequest::Wait { keys: vec![gone] };
        stream.write_all(&bytes(&wait)).await?;
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
    // Only the first looks at others.
    let looked_at = if rank == 0 { clients } else { 0 };
    let names: Vec<_> = (0..looked_at).map(|rank| key(rank, 0)).collect();
    let keys = vec![&b"/off"[..]];
    let check = StoreRequest::Check { keys };
    let beat = [bytes(&set(&key(rank, 0), &[7; BEAT])), bytes(&check)].concat();
    // Ranks do not begin at the same moment.
    let begin = Instant::now() + pace.mul_f64(rank as f64 / clients as f64);
    for number in 0..count {
        tokio::time::sleep_until((begin + pace * number).into()).await;
        let sent = Instant::now();
        stream.write_all(&beat).await?;
        stream.read_exact(&mut [0]).await?;
        latencies.push(sent.elapsed());
        // In the first round not all are there.
        if rank > 0 || number == 0 {
            continue;
        }
        let sent = Instant::now();
        let mut reply = vec![0; AT_ONCE * (8 + BEAT)];
        for some in names.chunks(AT_ONCE) {
            let keys = some.iter().map(Vec::as_slice).collect();
            let get = bytes(&StoreRequest::MultiGet { keys });
            stream.write_all(&get).await?;
            let length = some.len() * (8 + BEAT);
            stream.read_exact(&mut reply[..length]).await?;
        }
        looks.push(sent.elapsed());
    }
    Ok((latencies, looks))
}

fn number<T: FromStr>(word: &str) -> io::Result<T> {
    word.parse()
        .map_err(|_| io::Error::other(format!("`{word}` is not a number")))
}

/// Returns the requests that a rank repeats, given its number and that of its neighbour.
type Steps = fn(usize, usize) -> Vec<Step>;

struct Step {
    request: Vec<u8>,
    /// Bytes of the reply.
    reply: usize,
    ops: u64,
}

impl Step {
    fn new(request: &StoreRequest<'_>, reply: usize, ops: usize) -> Self {
        Self {
            request: bytes(request),
            reply,
            ops: ops as u64,
        }
    }
}

fn calls(rank: usize, next: usize) -> Vec<Step> {
    let (own, next) = (&*key(rank, 0), &*key(next, 0));
    let wait = StoreRequest::Wait { keys: vec![next] };
    vec![
        Step::new(&set(own, &VALUE), 0, 1),
        Step::new(&wait, 1, 1),
        Step::new(&StoreRequest::Get { key: next }, 8 + VALUE.len(), 1),
        Step::new(&add(b"/counter"), 8, 1),
    ]
}

fn bulk(rank: usize, next: usize) -> Vec<Step> {
    let names = |rank| {
        (0..KEYS)
            .map(|number| key(rank, number))
            .collect::<Vec<_>>()
    };
    let (own, next) = (names(rank), names(next));
    let pairs = own
        .iter()
        .map(|name| (name.as_slice(), &VALUE[..]))
        .collect();
    let keys: Vec<_> = next.iter().map(Vec::as_slice).collect();
    vec![
        Step::new(&StoreRequest::MultiSet { pairs }, 0, KEYS),
        // In the first round the neighbour may have set nothing yet; the reply with an absent value
        // would be shorter.
        Step::new(&StoreRequest::Wait { keys: keys.clone() }, 1, 0),
        Step::new(
            &StoreRequest::MultiGet { keys },
            KEYS * (8 + VALUE.len()),
            KEYS,
        ),
    ]
}

/// Repeats the steps for `time`, after [`WARM_UP`]. Returns the number of operations, and the
/// latencies of requests that have a reply.
async fn repeat(
    mut stream: TcpStream,
    steps: Vec<Step>,
    time: Duration,
) -> io::Result<(u64, Vec<Duration>)> {
    let begin = Instant::now() + WARM_UP;
    let (mut ops, mut latencies) = (0, Vec::new());
    let mut reply = vec![0; KEYS * (8 + VALUE.len())];
    for step in steps.iter().cycle() {
        let sent = Instant::now();
        stream.write_all(&step.request).await?;
        // Clients on separate machines would not wait for each other's replies either.
        yield_now().await;
        stream.read_exact(&mut reply[..step.reply]).await?;
        let received = Instant::now();
        if received >= begin + time {
            break;
        }
        if sent >= begin {
            ops += step.ops;
            latencies.extend((step.reply > 0).then(|| received - sent));
        }
    }
    Ok((ops, latencies))
}

fn key(rank: usize, number: usize) -> Vec<u8> {
    format!("/default_pg/0//rank{rank}/{number}").into_bytes()
}

fn set<'a>(key: &'a [u8], value: &'a [u8]) -> StoreRequest<'a> {
    StoreRequest::Set { key, value }
}

fn add(key: &[u8]) -> StoreRequest<'_> {
    StoreRequest::Add { key, delta: 1 }
}

fn bytes(request: &StoreRequest<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.encode(&mut bytes);
    bytes
}
