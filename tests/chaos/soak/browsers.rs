//! Browsers of the page: some read, some take nothing, some hang up, some send garbage.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Browsers that come and go until they are told to end.
pub struct Browsers {
    end: Arc<AtomicBool>,
    /// Each returns its visits and the bytes that it has read.
    threads: [JoinHandle<(u64, u64)>; ALL.len()],
}

impl Browsers {
    /// Starts a browser of each manner.
    pub fn start(port: u16) -> Browsers {
        let end = Arc::new(AtomicBool::new(false));
        let threads = ALL.map(|manner| {
            let end = Arc::clone(&end);
            std::thread::spawn(move || {
                let (mut visits, mut bytes) = (0, 0);
                while !end.load(Ordering::Relaxed) {
                    let read = visit(manner, port, &end);
                    visits += u64::from(read.is_some());
                    bytes += read.unwrap_or(0);
                    pause(Duration::from_millis(100));
                }
                (visits, bytes)
            })
        });
        Browsers { end, threads }
    }

    /// Ends the browsers, and returns what they have done.
    pub fn end(self) -> String {
        self.end.store(true, Ordering::Relaxed);
        let counts = self.threads.map(|thread| thread.join());
        let [(read, bytes), (stalled, _), (left, _), (garbage, _)] =
            counts.map(|counts| counts.expect("a browser does not panic"));
        let kib = bytes / 1024;
        format!(
            "browsers: {read} read ({kib} KiB), {stalled} took nothing, {left} hung up, {garbage} sent \
             garbage"
        )
    }
}

/// Visits the page once, if there is one; returns the bytes that were read.
fn visit(manner: Manner, port: u16, end: &AtomicBool) -> Option<u64> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
    let limit = Some(Duration::from_millis(500));
    stream.set_read_timeout(limit).ok()?;
    stream.set_write_timeout(limit).ok()?;
    let path = match manner {
        Manner::HangsUp => "/",
        _ => "/news",
    };
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let request: Vec<u8> = match manner {
        Manner::SendsGarbage => request.bytes().map(|byte| byte.wrapping_mul(7)).collect(),
        _ => request.into_bytes(),
    };
    let is_sent = stream.write_all(&request).is_ok();
    let until = now() + Duration::from_secs(5);
    let (mut bytes, mut buffer) = (0, [0; 16384]);
    while is_sent && now() < until && !end.load(Ordering::Relaxed) {
        match manner {
            Manner::Stalls => pause(Duration::from_millis(200)),
            Manner::HangsUp => break,
            Manner::Reads | Manner::SendsGarbage => match stream.read(&mut buffer) {
                Ok(count @ 1..) => bytes += count as u64,
                Err(err) if err.kind() == std::io::ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => break,
            },
        }
    }
    Some(bytes)
}
