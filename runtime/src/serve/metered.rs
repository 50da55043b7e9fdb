//! A TCP stream that counts the bytes read from it, because tungstenite does not report how much of
//! a message it holds.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Bytes that are read before the task yields to other connections, and before the count is
/// reported.
const SLICE: usize = 256 << 10;

/// A TCP stream with a counter of the bytes read since the counter was last set to 0.
pub struct Metered {
    stream: TcpStream,
    read: Arc<AtomicUsize>,
    /// Bytes read since the task last yielded.
    slice: usize,
    /// Called with the number of bytes read, after each slice.
    tell: Box<dyn Fn(usize) + Send>,
}

impl Metered {
    /// Wraps a stream whose reads are added to `read`; `tell` gets the sum after each slice.
    pub fn new(stream: TcpStream, read: Arc<AtomicUsize>, tell: Box<dyn Fn(usize) + Send>) -> Self {
        Self {
            stream,
            read,
            slice: 0,
            tell,
        }
    }

    /// Returns the stream itself.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.slice >= SLICE {
            self.slice = 0;
            (self.tell)(self.read.load(Ordering::Relaxed));
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if polled.is_pending() {
            self.slice = 0;
        }
        ready!(polled)?;
        let count = buf.filled().len() - before;
        self.slice += count;
        self.read.fetch_add(count, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
