//! Browsers of the page: some read, some take nothing, some hang up, some send garbage.

use std::fmt::{self, Display, Formatter};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rig::wait::{now, pause};

/// How a browser behaves, and how long it stays.
#[derive(Clone, Copy)]
enum Manner {
    Reads,
    Stalls,
    HangsUp,
    SendsGarbage,
}

const ALL: [Manner; 4] = [
    Manner::Reads,
    Manner::Stalls,
    Manner::HangsUp,
    Manner::SendsGarbage,
];

/// What the browsers have done.
#[derive(Default)]
struct Counts {
    visits: [AtomicU64; ALL.len()],
    /// Bytes that were read.
    bytes: AtomicU64,
}

/// Browsers that come and go until they are told to end.
pub struct Browsers {
    end: Arc<AtomicBool>,
    counts: Arc<Counts>,
    threads: Vec<JoinHandle<()>>,
}

impl Browsers {
    /// Starts a browser of each manner.
    pub fn start(port: u16) -> Browsers {
        let end = Arc::new(AtomicBool::new(false));
        let counts = Arc::new(Counts::default());
        let threads = ALL.into_iter().map(|manner| {
            let (end, counts) = (Arc::clone(&end), Arc::clone(&counts));
            std::thread::spawn(move || {
                while !end.load(Ordering::Relaxed) {
                    visit(manner, port, &counts, &end);
                    pause(Duration::from_millis(100));
                }
            })
        });
        Browsers {
            threads: threads.collect(),
            end,
            counts,
        }
    }

    /// Ends the browsers, and returns what they have done.
    pub fn end(self) -> String {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a browser does not panic");
        }
        self.counts.to_string()
    }
}

/// Visits the page once, if there is one.
fn visit(manner: Manner, port: u16, counts: &Counts, end: &AtomicBool) {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) else {
        return;
    };
    let limit = Some(Duration::from_millis(500));
    if stream.set_read_timeout(limit).is_err() || stream.set_write_timeout(limit).is_err() {
        return;
    }
    counts.visits[manner as usize].fetch_add(1, Ordering::Relaxed);
    let path = match manner {
        Manner::HangsUp => "/",
        _ => "/news",
    };
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let bytes: Vec<u8> = match manner {
        Manner::SendsGarbage => request.bytes().map(|byte| byte.wrapping_mul(7)).collect(),
        _ => request.into_bytes(),
    };
    if stream.write_all(&bytes).is_err() {
        return;
    }
    let until = now() + Duration::from_secs(5);
    let mut buffer = [0; 16384];
    while now() < until && !end.load(Ordering::Relaxed) {
        match manner {
            Manner::Stalls => pause(Duration::from_millis(200)),
            Manner::HangsUp => return,
            Manner::Reads | Manner::SendsGarbage => match stream.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => {
                    counts.bytes.fetch_add(count as u64, Ordering::Relaxed);
                }
                Err(err) if err.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            },
        }
    }
}

impl Display for Counts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [read, stalled, left, garbage] = self
            .visits
            .each_ref()
            .map(|count| count.load(Ordering::Relaxed));
        let kib = self.bytes.load(Ordering::Relaxed) / 1024;
        write!(
            f,
            "browsers: {read} read ({kib} KiB), {stalled} took nothing, {left} hung up, {garbage} sent garbage"
        )
    }
}
