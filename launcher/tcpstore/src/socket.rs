//! The blocking connection to a server, on which every request ends by a deadline: a node that has
//! lost its power answers nothing, and TCP notices after many minutes.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use crate::addr::StoreAddr;
use crate::client::{FIRST_RETRY, LAST_RETRY, READ, mute, not_a_store};
use crate::deadline::Deadline;
use crate::error::StoreError;
use crate::port_owner::PortOwner;
use crate::reply::StoreReply;
use crate::store::Ask;
use crate::wire::{ParseStop, StoreRequest};

/// The shortest time that the kernel can be asked to wait.
const LEAST: Duration = Duration::from_millis(1);

/// Bytes read at once: replies to small requests need one call.
const AT_LEAST: usize = 4096;

/// A connection to a server. Requests of several threads are made one after the other.
#[derive(Debug)]
pub struct StoreSocket {
    addr: StoreAddr,
    /// `None` once a request was given up: its reply may still come, and the next request would
    /// take it for its own.
    stream: Mutex<Option<TcpStream>>,
}

impl StoreSocket {
    /// Connects to the server at `addr`, retrying until one answers or `timeout` has passed.
    pub fn connect(addr: &StoreAddr, timeout: Duration) -> Result<Self, StoreError> {
        let until = Deadline::after(timeout);
        let mut pause = FIRST_RETRY;
        loop {
            let failed = match dial(addr, until) {
                Ok(stream) => {
                    let stream = greet(stream, addr, until, timeout)?;
                    return Ok(Self {
                        addr: addr.clone(),
                        stream: Mutex::new(Some(stream)),
                    });
                }
                Err(err) => err,
            };
            let can_never_be = failed.kind() == ErrorKind::InvalidInput;
            if can_never_be || pause >= until.left() {
                return Err(StoreError::unreachable(&addr.to_string(), timeout, failed));
            }
            rest(pause);
            pause = (2 * pause).min(LAST_RETRY);
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing tells when a server begins to listen"
)]
fn rest(pause: Duration) {
    thread::sleep(pause);
}

/// Tries the addresses of the host, one after the other.
fn dial(addr: &StoreAddr, until: Deadline) -> io::Result<TcpStream> {
    let mut failed = ErrorKind::NotFound.into();
    for found in resolve(addr, until)? {
        match TcpStream::connect_timeout(&found, until.left().max(LEAST)) {
            Ok(stream) => return stream.set_nodelay(true).map(|()| stream),
            Err(err) => failed = err,
        }
    }
    Err(failed)
}

/// Looks up the addresses of the host, on a thread that is left behind if the resolver hangs.
fn resolve(addr: &StoreAddr, until: Deadline) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = addr.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, addr.port)]);
    }
    let (done, found) = mpsc::channel();
    let (host, port) = (addr.host.clone(), addr.port);
    let look = move || (host.as_str(), port).to_socket_addrs().map(Vec::from_iter);
    let named = thread::Builder::new().name("rrun-lookup".to_owned());
    named.spawn(move || drop(done.send(look())))?;
    let late = |_| Err(io::Error::new(ErrorKind::TimedOut, "the name lookup hangs"));
    found.recv_timeout(until.left()).unwrap_or_else(late)
}

/// Performs the handshake, which checks that the other end is a store.
fn greet(
    mut stream: TcpStream,
    addr: &StoreAddr,
    until: Deadline,
    timeout: Duration,
) -> Result<TcpStream, StoreError> {
    let ends = (stream.local_addr().ok(), stream.peer_addr().ok());
    let nonce = std::process::id();
    let (ping, input) = (StoreRequest::Ping { nonce }, &mut Vec::new());
    let greeted = send(&mut stream, &StoreRequest::greeting(nonce), until)
        .and_then(|()| receive(&mut stream, &ping, input, until));
    let said = match greeted {
        Ok(Some(StoreReply::Nonce(answer))) if answer == nonce => return Ok(stream),
        Ok(Some(StoreReply::Nonce(answer))) => not_a_store(answer),
        Ok(_) => not_a_store(0),
        Err(err) if is_timeout(&err) => mute(timeout),
        Err(err) => {
            return Err(StoreError::Lost {
                addr: addr.to_string(),
                err,
            });
        }
    };
    let owner = PortOwner::at(ends.0, ends.1);
    Err(StoreError::stranger(
        &addr.to_string(),
        owner.as_ref(),
        &said,
    ))
}

impl Ask for StoreSocket {
    fn ask(
        &self,
        request: &StoreRequest<'_>,
        wait: Duration,
        answer: Duration,
    ) -> Result<Option<StoreReply>, StoreError> {
        let mut guard = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut stream) = guard.take() else {
            return Err(StoreError::GivenUp {
                addr: self.addr.to_string(),
            });
        };
        match exchange(&mut stream, request, wait, answer) {
            Ok(reply) => {
                *guard = Some(stream);
                Ok(reply)
            }
            Err(err) if is_timeout(&err) => Err(StoreError::Silent {
                addr: self.addr.to_string(),
                timeout: answer,
            }),
            Err(err) => Err(StoreError::Lost {
                addr: self.addr.to_string(),
                err,
            }),
        }
    }

    fn addr(&self) -> String {
        self.addr.to_string()
    }
}

/// Sends a request and receives its reply: that of a `WAIT` within `wait`, others within `answer`.
fn exchange(
    stream: &mut TcpStream,
    request: &StoreRequest<'_>,
    wait: Duration,
    answer: Duration,
) -> io::Result<Option<StoreReply>> {
    let (mut bytes, input) = (Vec::new(), &mut Vec::new());
    request.encode(&mut bytes);
    let until = Deadline::after(answer);
    send(stream, &bytes, until)?;
    if !matches!(request, StoreRequest::Wait { .. }) {
        return receive(stream, request, input, until);
    }
    match receive(stream, request, input, Deadline::after(wait)) {
        Err(err) if is_timeout(&err) => {}
        reply => return reply,
    }
    let (cancel, until) = (StoreRequest::CancelWait, Deadline::after(answer));
    bytes.clear();
    cancel.encode(&mut bytes);
    send(stream, &bytes, until)?;
    let reply = receive(stream, &cancel, input, until)?;
    if reply == Some(StoreReply::StopWaiting) {
        // The wait had ended before the server received the cancellation, which it answers, too.
        receive(stream, &cancel, input, until)?;
    }
    Ok(reply)
}

fn send(stream: &mut TcpStream, mut bytes: &[u8], until: Deadline) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(until)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(sent) => bytes = &bytes[sent..],
            Err(err) if err.kind() == ErrorKind::Interrupted => {}
            Err(err) => return Err(err),
        }
    }
    Ok(())
}

/// Receives the reply to a request; bytes after it stay in `input`.
fn receive(
    stream: &mut TcpStream,
    request: &StoreRequest<'_>,
    input: &mut Vec<u8>,
    until: Deadline,
) -> io::Result<Option<StoreReply>> {
    loop {
        let needed = match StoreReply::parse(request, input) {
            Ok(None) => return Ok(None),
            Ok(Some((reply, length))) => {
                input.drain(..length);
                return Ok(Some(reply));
            }
            Err(ParseStop::Refused(err)) => {
                return Err(io::Error::new(ErrorKind::InvalidData, err));
            }
            Err(ParseStop::Needs(needed)) => needed,
        };
        stream.set_read_timeout(Some(left(until)?))?;
        let begun = input.len();
        input.resize(begun + (needed - begun).clamp(AT_LEAST, READ), 0);
        let came = stream.read(&mut input[begun..]);
        input.truncate(begun + came.as_ref().map_or(0, |came| *came));
        match came {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Err(err) if err.kind() != ErrorKind::Interrupted => return Err(err),
            _ => {}
        }
    }
}

/// Returns the time until the deadline; after it, an error as that of the kernel.
fn left(until: Deadline) -> io::Result<Duration> {
    match until.left() {
        Duration::ZERO => Err(ErrorKind::TimedOut.into()),
        left => Ok(left.max(LEAST)),
    }
}

fn is_timeout(err: &io::Error) -> bool {
    matches!(err.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
