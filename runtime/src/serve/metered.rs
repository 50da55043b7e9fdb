//! A connection that counts what it has read: tungstenite does not tell how much it holds of a message.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Bytes that are read before other connections have their turn, and after which it is told how many there are.
const SLICE: usize = 256 << 10;

/// A connection, and the bytes that were read since somebody set them to 0.
pub struct Metered {
    stream: TcpStream,
    read: Arc<AtomicUsize>,
    /// Bytes since others had their turn.
    slice: usize,
    /// Told how many bytes were read, every now and then.
    tell: Box<dyn Fn(usize) + Send>,
}

impl std::fmt::Debug for Metered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metered").field("stream", &self.stream).field("read", &self.read).finish_non_exhaustive()
    }
}

impl Metered {
    /// A connection whose reads are added to `read`; `tell` gets the sum after each slice.
    pub fn new(stream: TcpStream, read: Arc<AtomicUsize>, tell: Box<dyn Fn(usize) + Send>) -> Self {
        Self { stream, read, slice: 0, tell }
    }

    /// The connection itself.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

impl AsyncRead for Metered {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
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
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
