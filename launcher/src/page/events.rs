//! The stream of events of one browser.
//!
//! The stream asks the board for the next event when the connection can take one, so that nothing is
//! queued. After a large event it waits a little, so that a large page does not fill the line.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use hyper::body::Frame;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{sleep, timeout};

use crate::page::shared::Watcher;

/// Interval of comments while nothing happens. They show the browser that the connection lives, and
/// this side that the browser does.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Bytes per second of one browser.
const BYTES_PER_S: f64 = 2e6;

/// Bytes that need no pause.
const SMALL: usize = 64 << 10;

/// One browser.
struct Subscriber {
    watcher: Watcher,
    seen: u64,
    pause: Duration,
    /// Its place among the streams, which is free again when the stream ends.
    _permit: OwnedSemaphorePermit,
}

/// Returns the events after number `seen`, and those that follow.
pub(super) fn stream(
    watcher: Watcher,
    seen: u64,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send {
    let subscriber = Subscriber {
        watcher,
        seen,
        pause: Duration::ZERO,
        _permit: permit,
    };
    unfold(subscriber, |mut subscriber| async move {
        let event = subscriber.next().await?;
        Some((Ok(Frame::data(event)), subscriber))
    })
}

impl Subscriber {
    /// Returns the next event, or a comment; `None` if the page is no longer served.
    async fn next(&mut self) -> Option<Bytes> {
        sleep(std::mem::take(&mut self.pause)).await;
        loop {
            if let Some((number, event)) = self.watcher.shared.next(self.seen) {
                self.seen = number;
                if event.len() > SMALL {
                    self.pause = Duration::from_secs_f64(event.len() as f64 / BYTES_PER_S);
                }
                return Some(event);
            }
            match timeout(KEEP_ALIVE, self.watcher.changed()).await {
                Ok(true) => {}
                Ok(false) => return None,
                Err(_) => return Some(Bytes::from_static(b":\n\n")),
            }
        }
    }
}
