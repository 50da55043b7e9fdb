//! One client connection of the store, from its first byte to its last.
//!
//! ```text
//!        ┌─► answer ─► flush ─► wait: readable, writable, woken by another client, or timeout ─┐
//!        └──────────────────────── receive, collect ◄──────────────────────────────────────────┘
//! ```
//!
//! The server stops reading from a client that does not read its replies, so the memory buffered
//! for a client is bounded. A request with many keys is answered in parts, and other connections
//! have their turn in between.

use std::future::{pending, poll_fn};
use std::io::{self, ErrorKind, IoSlice};
use std::ops::Range;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, Interest, Ready};
use tokio::net::TcpStream;

use crate::error::StoreRefusal;
use crate::hub::StoreSession;
use crate::limits::{HALF_REQUEST_PATIENCE, HIGH_WATER, PATIENCE, TURN, TURN_BYTES};
use crate::outbox::Outbox;
use crate::wire::{Parsed, StoreRequest, parse};

/// Bytes to reserve for one read.
const READ: usize = 4096;

/// One client connection.
#[derive(Debug)]
pub struct StoreConnection {
    stream: TcpStream,
    session: StoreSession,
    input: Vec<u8>,
    /// Offset of the first byte of `input` that has not been answered.
    at: usize,
    /// Bytes after `at` below which there is no whole request.
    needed: usize,
    /// Number of keys of the request at `at` that have been answered.
    done: usize,
    output: Outbox,
    is_greeted: bool,
}

impl StoreConnection {
    /// Returns the connection of a client that has just been accepted.
    pub fn new(stream: TcpStream, session: StoreSession) -> StoreConnection {
        let (input, output) = (Vec::new(), Outbox::default());
        StoreConnection {
            stream,
            session,
            input,
            at: 0,
            needed: 1,
            done: 0,
            output,
            is_greeted: false,
        }
    }

    /// Answers requests until the client closes the connection, or has to be closed: it has sent
    /// bytes of another protocol, exceeded a limit, or owes something for too long.
    pub async fn serve(mut self) -> Result<(), StoreRefusal> {
        loop {
            self.answer()?;
            self.flush()?;
            self.session
                .buffer(self.input.capacity() + self.output.owned())?;
            if self.has_work() {
                tokio::task::yield_now().await; // a client that never pauses leaves room for the others
                self.session.collect(&mut self.output)?;
                continue;
            }
            let ready = tokio::select! {
                ready = self.stream.ready(self.interest()) => ready?,
                () = self.session.ready() => Ready::EMPTY,
                patience = pass(self.patience()) => {
                    let seconds = patience.as_secs();
                    return Err(StoreRefusal::new(format!("nothing happened for {seconds} s")));
                }
            };
            if !ready.is_empty() {
                self.session.heard();
            }
            if ready.is_readable() && !self.receive().await? {
                return Ok(());
            }
            self.session.collect(&mut self.output)?;
        }
    }

    /// Answers the complete requests in the buffer, until the turn is over or the replies have
    /// reached their limit.
    fn answer(&mut self) -> Result<(), StoreRefusal> {
        let mut left = TURN;
        while left > 0 && self.has_work() {
            match parse(&self.input[self.at..])? {
                Parsed::Needs(needed) => self.needed = needed,
                Parsed::Request(request, length) => {
                    self.is_greeted |= request == StoreRequest::Validate;
                    if !self.is_greeted {
                        return Err(StoreRefusal::new("the first request is not VALIDATE"));
                    }
                    let items = request.items().max(1);
                    let cost_of_one = 1 + length / items / TURN_BYTES;
                    let end = items.min(self.done + (left / cost_of_one).max(1));
                    left = left.saturating_sub((end - self.done) * cost_of_one);
                    self.needed = 1;
                    if answer_part(&self.session, &request, self.done..end, &mut self.output)? {
                        self.done = 0;
                        self.at += length;
                    } else {
                        self.done = end;
                    }
                }
            }
        }
        self.forget_answered();
        Ok(())
    }

    /// Moves the unanswered bytes to the front once they are fewer than the answered ones. Without
    /// any, the connection needs no buffer.
    fn forget_answered(&mut self) {
        if self.at * 2 >= self.input.len() {
            self.input.drain(..self.at);
            self.at = 0;
        }
        if self.input.is_empty() {
            self.session.give_back(std::mem::take(&mut self.input));
        }
    }

    /// Sends as much as the kernel accepts.
    fn flush(&mut self) -> io::Result<()> {
        // For a single piece, `write` costs the kernel less than `writev`.
        let write = |slices: &[IoSlice<'_>]| match slices {
            [one] => self.stream.try_write(one),
            many => self.stream.try_write_vectored(many),
        };
        match self.output.drain(write) {
            Err(err) if err.kind() != ErrorKind::WouldBlock => Err(err),
            _ => Ok(()),
        }
    }

    /// Reads once; returns false at the end of the connection. The buffer grows with the bytes
    /// received, not with the length announced.
    async fn receive(&mut self) -> Result<bool, StoreRefusal> {
        self.input.drain(..self.at);
        self.at = 0;
        if self.input.is_empty() {
            self.input = self.session.spare();
        }
        let more = self
            .needed
            .saturating_sub(self.input.len())
            .clamp(READ, self.input.len().max(READ));
        if self.input.len() + more > self.input.capacity() {
            self.session
                .buffer(self.input.len() + more + self.output.owned())?;
            self.input.reserve_exact(more);
        }
        // Unlike `try_read_buf`, this treats a short read as the end of the available data. A
        // second read, which finds nothing, would cost as much, and a client that quickly asks
        // again would keep the others waiting.
        let mut read = pin!(self.stream.read_buf(&mut self.input));
        match poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await {
            Poll::Ready(read) => Ok(read? > 0),
            Poll::Pending => Ok(true),
        }
    }

    fn has_work(&self) -> bool {
        self.output.len() < HIGH_WATER && self.input.len() - self.at >= self.needed
    }

    fn interest(&self) -> Interest {
        match (self.output.is_empty(), self.output.len() < HIGH_WATER) {
            (true, _) => Interest::READABLE,
            (false, true) => Interest::READABLE | Interest::WRITABLE,
            (false, false) => Interest::WRITABLE,
        }
    }

    /// Returns how long the client may stay silent, or `None` if it owes nothing.
    fn patience(&self) -> Option<Duration> {
        match (
            self.is_greeted && self.output.is_empty(),
            self.input.len() > self.at,
        ) {
            (false, _) => Some(PATIENCE),
            (true, true) => Some(HALF_REQUEST_PATIENCE),
            (true, false) => None,
        }
    }
}

/// Waits for as long as the client may be silent, for ever with `None`.
async fn pass(patience: Option<Duration>) -> Duration {
    match patience {
        Some(patience) => {
            tokio::time::sleep(patience).await;
            patience
        }
        None => pending().await,
    }
}

/// Answers the keys in range `part` of a request. Returns whether the request is answered
/// completely. Requests of other clients may be answered between two parts, as if the parts were
/// separate requests.
fn answer_part(
    session: &StoreSession,
    request: &StoreRequest<'_>,
    part: Range<usize>,
    out: &mut Outbox,
) -> Result<bool, StoreRefusal> {
    let is_last = part.end >= request.items();
    let of_part = match request {
        _ if is_last && part.start == 0 => return session.on(request, out).map(|()| true),
        StoreRequest::Wait { keys } if !is_last => {
            return session.begin_wait(&keys[part]).map(|()| false);
        }
        StoreRequest::Check { keys } if !is_last && session.has_all(&keys[part.clone()]) => {
            return Ok(false);
        }
        StoreRequest::Wait { keys } => StoreRequest::Wait {
            keys: keys[part].to_vec(),
        },
        StoreRequest::MultiGet { keys } => StoreRequest::MultiGet {
            keys: keys[part].to_vec(),
        },
        StoreRequest::MultiSet { pairs } => StoreRequest::MultiSet {
            pairs: pairs[part].to_vec(),
        },
        // One missing key decides the answer.
        StoreRequest::Check { keys } => {
            return session
                .on(
                    &StoreRequest::Check {
                        keys: keys[part].to_vec(),
                    },
                    out,
                )
                .map(|()| true);
        }
        whole => return session.on(whole, out).map(|()| true),
    };
    session.on(&of_part, out).map(|()| is_last)
}
