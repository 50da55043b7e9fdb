//! One client, from its first byte to its last.
//!
//! ```text
//!        ┌─► answer ─► flush ─► until readable, writable, woken by another client, or out of patience ─┐
//!        └──────────────────────────── receive, collect ◄──────────────────────────────────────────────┘
//! ```
//!
//! A client that does not read its replies is not read from either, so what is kept for it stays bounded.

use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, Interest, Ready};
use tokio::net::TcpStream;

use crate::store::hub::Seat;
use crate::store::outbox::Outbox;
use crate::store::table::Refusal;
use crate::store::wire::{Parsed, Request, WireError, parse};

/// With more replies than this not yet sent, no further request is looked at. One reply can go beyond it. Bytes.
const HIGH_WATER: usize = 1024 * 1024;

/// A client that owes its greeting, or has replies to read and takes none of them, is dropped after this. Generous: the
/// kernel's buffers take the replies of a rank that is merely stopped.
const PATIENCE: Duration = Duration::from_secs(60);

/// Room for one read. Bytes.
const READ: usize = 4096;

/// A larger buffer is given back when it is empty, so that idle clients cost little. Bytes.
const KEEP: usize = 64 * 1024;

/// Why a connection was ended from this side, or broke.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// Bytes of another protocol, or over the limits.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A request that cannot be granted.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The first request was another.
    #[error("the first request is not VALIDATE")]
    Greeting,
    /// It neither greeted nor took its replies.
    #[error("nothing happened for {} s", PATIENCE.as_secs())]
    Stalled,
    /// The connection broke.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// One client.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    seat: Seat,
    input: Vec<u8>,
    /// Less than this in `input` holds no whole request. Bytes.
    needed: usize,
    output: Outbox,
    is_greeted: bool,
}

impl Connection {
    /// A client that has just come.
    pub fn new(stream: TcpStream, seat: Seat) -> Connection {
        Connection { stream, seat, input: Vec::new(), needed: 1, output: Outbox::default(), is_greeted: false }
    }

    /// Answers the client until it goes.
    pub async fn serve(mut self) -> Result<(), Ended> {
        loop {
            self.answer()?;
            self.flush()?;
            if self.has_work() {
                tokio::task::yield_now().await; // a client that never pauses leaves room for the others
                continue;
            }
            let ready = tokio::select! {
                ready = self.stream.ready(self.interest()) => ready?,
                () = self.seat.ready() => Ready::EMPTY,
                () = tokio::time::sleep(PATIENCE), if self.owes() => return Err(Ended::Stalled),
            };
            if ready.is_readable() && !self.receive().await? {
                return Ok(());
            }
            self.seat.collect(&mut self.output);
        }
    }

    /// Answers the whole requests that are there, as long as there is room for their replies.
    fn answer(&mut self) -> Result<(), Ended> {
        let mut at = 0;
        while self.output.len() < HIGH_WATER && self.input.len() - at >= self.needed {
            match parse(&self.input[at..])? {
                Parsed::Needs(needed) => self.needed = needed,
                Parsed::Request(request, length) => {
                    self.is_greeted |= request == Request::Validate;
                    if !self.is_greeted {
                        return Err(Ended::Greeting);
                    }
                    self.seat.on(&request, &mut self.output)?;
                    self.needed = 1;
                    at += length;
                }
            }
        }
        self.input.drain(..at);
        if self.input.is_empty() && self.input.capacity() > KEEP {
            self.input = Vec::new();
        }
        Ok(())
    }

    /// Sends what the kernel takes.
    fn flush(&mut self) -> io::Result<()> {
        // The kernel takes one piece with less ado than a list of one.
        let write = |slices: &[IoSlice<'_>]| match slices {
            [one] => self.stream.try_write(one),
            many => self.stream.try_write_vectored(many),
        };
        match self.output.drain(write) {
            Err(err) if err.kind() != ErrorKind::WouldBlock => Err(err),
            _ => Ok(()),
        }
    }

    /// Reads once; false at the end of the connection. The buffer grows with what came, not with what was announced.
    async fn receive(&mut self) -> io::Result<bool> {
        let missing = self.needed.saturating_sub(self.input.len());
        self.input.reserve(missing.clamp(READ, self.input.len().max(READ)));
        // Unlike `try_read_buf` this takes a short read for the end of what is there. A second read, which finds
        // nothing, would cost as much, and a client that is quick to ask again would keep the others waiting.
        let mut read = pin!(self.stream.read_buf(&mut self.input));
        match poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await {
            Poll::Ready(read) => Ok(read? > 0),
            Poll::Pending => Ok(true),
        }
    }

    fn has_work(&self) -> bool {
        self.output.len() < HIGH_WATER && self.input.len() >= self.needed
    }

    fn interest(&self) -> Interest {
        match (self.output.is_empty(), self.output.len() < HIGH_WATER) {
            (true, _) => Interest::READABLE,
            (false, true) => Interest::READABLE | Interest::WRITABLE,
            (false, false) => Interest::WRITABLE,
        }
    }

    fn owes(&self) -> bool {
        !self.is_greeted || !self.output.is_empty()
    }
}
