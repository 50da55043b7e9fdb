//! One client connection of the store, from its first byte to its last. It answers one request
//! after the other.
//!
//! ```text
//!   ┌─► fill ─► parse ─► answer: from the table, or once a wait is over ─► send ─┐
//!   └────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Torch's clients send nothing before they have the reply, but for requests without one, which
//! are answered together. So replies are sent when there is no further request, and while they are
//! sent, or awaited, nothing else is read: the memory for a client is bounded. A request with many
//! keys is answered in parts, and other connections have their turn in between.

use std::future::{pending, poll_fn};
use std::io::{self, ErrorKind, IoSlice};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::select;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use crate::error::StoreRefusal;
use crate::limits::{
    Budget, Charge, FREE_BUFFER, HALF_REQUEST_PATIENCE, PATIENCE, SEND_AT, SHARED, StoreLimits,
    TURN, TURN_BYTES,
};
use crate::reply::StoreReply;
use crate::table::{Answer, StoreTable, Wait};
use crate::wire::{CANCEL_WAIT, Parsed, StoreRequest, parse};

/// Bytes to reserve for one read.
const READ: usize = 4096;

/// Attempts to get room for a request, and the pause between two of them: clients that are in the
/// way leave meanwhile.
const LOOKS: u32 = 5;
const LOOK: Duration = Duration::from_millis(20);

/// What all connections of a store share. They run on one thread, so the locks are never contended.
#[derive(Clone, Debug)]
pub struct Hub(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    table: Mutex<StoreTable>,
    /// An empty buffer for the next connection that reads: it stays in the cache, and idle clients
    /// need none.
    spare: Mutex<Vec<u8>>,
    /// The memory of buffers beyond [`FREE_BUFFER`] each. It is part of the store's.
    buffers: Budget,
    /// Rings when there is no room for a buffer.
    is_full: Notify,
    grace: Duration,
}

impl Hub {
    /// Returns an empty store.
    pub fn new(limits: StoreLimits) -> Hub {
        Hub(Arc::new(Shared {
            table: Mutex::new(StoreTable::with_limit(limits.held)),
            spare: Mutex::default(),
            buffers: Budget::new(limits.buffered),
            is_full: Notify::new(),
            grace: limits.grace,
        }))
    }

    /// Returns the contents of the store.
    pub fn table(&self) -> MutexGuard<'_, StoreTable> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spare(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One client connection.
#[derive(Debug)]
pub struct StoreConnection {
    hub: Hub,
    replies: Replies,
    /// Whether it has sent a request besides the handshake and `PING`.
    has_asked: Arc<AtomicBool>,
    input: Vec<u8>,
    /// Offset of the first byte of `input` that has not been answered.
    at: usize,
    /// The memory of `input`: of the store, and of its part for buffers.
    room: [Charge; 2],
    is_greeted: bool,
}

/// The replies of a client that have not been sent.
#[derive(Debug)]
struct Replies {
    stream: TcpStream,
    bytes: Vec<u8>,
    /// Keys that may be processed before other clients have their turn.
    left: usize,
}

impl StoreConnection {
    /// Returns the connection of a client that has just been accepted.
    pub fn new(stream: TcpStream, hub: Hub, has_asked: Arc<AtomicBool>) -> StoreConnection {
        let room = [hub.table().budget().charge(), hub.0.buffers.charge()];
        StoreConnection {
            hub,
            replies: Replies {
                stream,
                bytes: Vec::new(),
                left: TURN,
            },
            has_asked,
            input: Vec::new(),
            at: 0,
            room,
            is_greeted: false,
        }
    }

    /// Answers requests until the client closes the connection, or has to be closed: it has sent
    /// bytes of another protocol, exceeded a limit, or owes something for too long.
    pub async fn serve(mut self) -> Result<(), StoreRefusal> {
        let mut needed = 1;
        loop {
            if self.input.len() - self.at < needed {
                self.replies.send(&[]).await?;
                if !self.fill(needed).await? {
                    return Ok(());
                }
                continue;
            }
            let (request, length) = match parse(&self.input[self.at..])? {
                Parsed::Needs(more) => {
                    needed = more;
                    continue;
                }
                Parsed::Request(request, length) => (request, length),
            };
            self.is_greeted |= request == StoreRequest::Validate;
            if !self.is_greeted {
                return Err(StoreRefusal::new("the first request is not VALIDATE"));
            }
            if !matches!(request, StoreRequest::Validate | StoreRequest::Ping { .. }) {
                self.has_asked.store(true, Ordering::Relaxed);
            }
            let waits = answer(&self.hub, &mut self.replies, &request, length).await?;
            (self.at, needed) = (self.at + length, 1);
            if !waits.is_empty() && !self.wait(waits).await? {
                return Ok(());
            }
        }
    }

    /// Waits until all of these are over, or the client cancels them. Returns false at the end of
    /// the connection.
    async fn wait(&mut self, waits: Vec<Wait>) -> Result<bool, StoreRefusal> {
        self.replies.send(&[]).await?;
        let over = async {
            for wait in &waits {
                wait.over().await;
            }
        };
        let mut over = pin!(over);
        let reply = loop {
            if let Some(op) = self.input.get(self.at) {
                // Torch's clients make no other request while they wait.
                if *op != CANCEL_WAIT {
                    let text = "a request before the wait has ended that does not cancel it";
                    return Err(StoreRefusal::new(text));
                }
                self.at += 1;
                break StoreReply::WaitCanceled;
            }
            select! {
                biased;
                () = &mut over => {
                    self.replies.left = TURN;
                    break StoreReply::StopWaiting;
                }
                more = self.fill(1) => if !more? {
                    return Ok(false);
                },
            }
        };
        self.replies.add(&reply).await?;
        Ok(true)
    }

    /// Reads once; returns false at the end of the connection. The buffer grows with the bytes
    /// received, not with the length announced. Cancel-safe.
    async fn fill(&mut self, needed: usize) -> Result<bool, StoreRefusal> {
        self.input.drain(..self.at);
        self.at = 0;
        let is_idle = self.input.is_empty();
        if is_idle {
            give_back(&self.hub, &mut self.input);
            self.charge(0)?;
        }
        if self.has_to_wait().await? {
            // The others have had their turn meanwhile.
            self.replies.left = TURN;
        }
        if is_idle {
            self.input = std::mem::take(&mut *self.hub.spare());
        }
        let more = needed
            .saturating_sub(self.input.len())
            .clamp(READ, self.input.len().max(READ));
        if self.input.len() + more > self.input.capacity() {
            self.make_room(self.input.len() + more).await?;
            self.input.reserve_exact(more);
        }
        // Unlike `try_read_buf`, this treats a short read as the end of the available data. A
        // second read, which finds nothing, would cost as much, and a client that quickly asks
        // again would keep the others waiting.
        let mut read = pin!(self.replies.stream.read_buf(&mut self.input));
        match poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await {
            Poll::Ready(read) => Ok(read? > 0),
            Poll::Pending => {
                // This task has used up its turn, which ends only if it yields.
                yield_now().await;
                Ok(true)
            }
        }
    }

    /// Waits for bytes, and returns whether there were none yet.
    async fn has_to_wait(&self) -> Result<bool, StoreRefusal> {
        let (mut readable, mut has_to) = (pin!(self.readable()), false);
        poll_fn(|context| {
            let polled = readable.as_mut().poll(context);
            has_to |= polled.is_pending();
            polled
        })
        .await?;
        Ok(has_to)
    }

    /// Waits for bytes, for ever if the client owes nothing.
    async fn readable(&self) -> Result<(), StoreRefusal> {
        let patience = match (self.is_greeted, self.input.is_empty()) {
            (false, _) => PATIENCE,
            (true, false) => HALF_REQUEST_PATIENCE,
            (true, true) => return Ok(self.replies.stream.readable().await?),
        };
        let stands_in_the_way = async {
            if self.room[1].bytes() == 0 {
                pending::<()>().await;
            }
            sleep(self.hub.0.grace).await;
            self.hub.0.is_full.notified().await;
        };
        select! {
            ready = self.replies.stream.readable() => Ok(ready?),
            () = sleep(patience) => Err(nothing_happened(patience)),
            () = stands_in_the_way => {
                let why = "it was silent, and other clients need its place";
                Err(StoreRefusal::new(why))
            }
        }
    }

    /// Gets room for a buffer of so many bytes. If there is none, clients that are silent in the
    /// middle of a request leave.
    async fn make_room(&mut self, bytes: usize) -> Result<(), StoreRefusal> {
        for _ in 0..LOOKS {
            if self.charge(bytes).is_ok() {
                return Ok(());
            }
            self.hub.0.is_full.notify_waiters();
            sleep(LOOK).await;
        }
        self.charge(bytes)
    }

    /// Counts a buffer of so many bytes.
    fn charge(&mut self, bytes: usize) -> Result<(), StoreRefusal> {
        let bytes = bytes.saturating_sub(FREE_BUFFER);
        let [all, buffers] = &mut self.room;
        all.resize(bytes)?;
        let charged = buffers.resize(bytes);
        if charged.is_err() {
            all.resize(buffers.bytes())?;
        }
        charged
    }
}

/// Gives an empty buffer to the connection that reads next, unless it is a large one.
fn give_back(hub: &Hub, input: &mut Vec<u8>) {
    let buffer = std::mem::take(input);
    if (1..=FREE_BUFFER).contains(&buffer.capacity()) {
        *hub.spare() = buffer;
    }
}

/// Answers a request of so many bytes, or returns the waits that have to be over first. Requests of
/// other clients may be answered between two parts of it, as if the parts were requests.
async fn answer(
    hub: &Hub,
    replies: &mut Replies,
    request: &StoreRequest<'_>,
    length: usize,
) -> Result<Vec<Wait>, StoreRefusal> {
    let cost = 1 + length / request.items().max(1) / TURN_BYTES;
    let at_once = (TURN / cost).max(1);
    let parts = (request.items() > at_once).then(|| request.parts(at_once));
    // The keys are there twice while others have their turn.
    let keys = 2 * request.items() * size_of::<&[u8]>();
    let room = parts.as_ref().map(|_| hub.0.buffers.take(keys));
    let _room = room.transpose()?;
    let (mut waits, mut last) = (Vec::new(), None);
    for part in parts.as_deref().unwrap_or(std::slice::from_ref(request)) {
        replies.turn(part.items() * cost).await;
        let answer = hub.table().answer(part)?;
        match answer {
            Answer::None => {}
            Answer::Wait(wait) => waits.push(wait),
            Answer::Reply(values @ StoreReply::Values(_)) => replies.add(&values).await?,
            Answer::Reply(reply) => {
                // One missing key decides the answer.
                let is_decided = reply == StoreReply::Exist(false);
                last = Some(reply);
                if is_decided {
                    break;
                }
            }
        }
    }
    let list = last.as_ref().map_or(0, StoreReply::owned);
    let room = (list > 0).then(|| hub.0.buffers.take(list));
    let _room = room.transpose()?;
    if let Some(reply) = last.filter(|_| waits.is_empty()) {
        replies.add(&reply).await?;
    }
    Ok(waits)
}

impl Replies {
    /// Lets other clients have their turn if this one has had its own.
    async fn turn(&mut self, cost: usize) {
        if self.left < cost {
            self.left = TURN;
            yield_now().await;
        }
        self.left = self.left.saturating_sub(cost);
    }

    async fn add(&mut self, reply: &StoreReply) -> Result<(), StoreRefusal> {
        reply.encode_head(&mut self.bytes);
        for text in reply.texts() {
            self.bytes
                .extend_from_slice(&(text.len() as u64).to_le_bytes());
            if text.len() >= SHARED {
                self.send(text).await?;
                continue;
            }
            self.bytes.extend_from_slice(text);
            if self.bytes.len() >= SEND_AT {
                self.send(&[]).await?;
            }
        }
        Ok(())
    }

    /// Sends the replies, and `text` after them.
    async fn send(&mut self, text: &[u8]) -> Result<(), StoreRefusal> {
        let mut sent = 0;
        while sent < self.bytes.len() + text.len() {
            let own = self.bytes.get(sent..).unwrap_or_default();
            let text = &text[sent.saturating_sub(self.bytes.len())..];
            // For a single piece, `write` costs the kernel less than `writev`.
            let written = match (own, text) {
                (own, []) => self.stream.try_write(own),
                ([], text) => self.stream.try_write(text),
                (own, text) => {
                    let pieces = [IoSlice::new(own), IoSlice::new(text)];
                    self.stream.try_write_vectored(&pieces)
                }
            };
            match written {
                Ok(0) => return Err(io::Error::from(ErrorKind::WriteZero).into()),
                Ok(written) => sent += written,
                Err(err) if err.kind() == ErrorKind::WouldBlock => {
                    let ready = timeout(PATIENCE, self.stream.writable()).await;
                    ready.map_err(|_| nothing_happened(PATIENCE))??;
                }
                Err(err) => return Err(err.into()),
            }
        }
        self.bytes.clear();
        self.bytes.shrink_to(READ);
        Ok(())
    }
}

fn nothing_happened(patience: Duration) -> StoreRefusal {
    StoreRefusal::new(format!("nothing happened for {} s", patience.as_secs()))
}
