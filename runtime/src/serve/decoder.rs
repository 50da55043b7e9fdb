//! Decodes messages in background threads, so that no message blocks the connections.
//!
//! Clients take turns, measured in bytes of their messages ([`FairQueue`]). Long messages have
//! their own thread: an observation with a few images waits for others of its size, not for arrays
//! of 64 MiB.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::serve::connections::ConnectionId;
use crate::serve::fair_queue::FairQueue;

/// Maximum size of a short message in bytes: a row with images of four cameras at 640 × 480 has 3.7
/// MB.
const SHORT_BYTES: usize = 4 << 20;

/// Maximum time for decoding a message, including the wait. Decoding time is proportional to the
/// size: 0.1 s for 60 MB.
const DEADLINE: Duration = Duration::from_secs(10);

/// Niceness of the thread that decodes long messages. If there are too few cores, connections,
/// short messages and inference take precedence.
const LONG_NICENESS: i32 = 10;

/// Cost of an empty message, in bytes: the overhead of switching to another message.
const BASE_COST: u64 = 4096;

/// The reason why a message was not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDecoded {
    /// The decoder was too busy with other messages.
    #[error("the server was too busy to read the request within {} s, try again later", DEADLINE.as_secs())]
    Late,
    /// The decoder panicked, which is a bug; the panic was printed.
    #[error("the server failed to read the request")]
    Failed,
}

/// The decoder threads for short and for long messages.
#[derive(Debug)]
pub struct Decoder {
    short: Arc<DecodeLane>,
    long: Arc<DecodeLane>,
}

type DecodeJob = Box<dyn FnOnce() + Send>;

/// One thread and its queue.
#[derive(Default)]
struct DecodeLane {
    waiting: Mutex<LaneQueue>,
    changed: Condvar,
}

#[derive(Default)]
struct LaneQueue {
    jobs: FairQueue<DecodeJob>,
    is_closed: bool,
}

impl std::fmt::Debug for DecodeLane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane")
            .field("waiting", &self.waiting().jobs.len())
            .finish_non_exhaustive()
    }
}

impl Decoder {
    /// Starts the threads.
    ///
    /// # Errors
    /// Returns the system's error if a thread cannot be started.
    pub fn start() -> std::io::Result<Self> {
        Ok(Self {
            short: DecodeLane::start("decode-short", 0)?,
            long: DecodeLane::start("decode-long", LONG_NICENESS)?,
        })
    }

    /// Runs `decode` for a message of `bytes` bytes when it is the client's turn. A call whose
    /// future was dropped is not started.
    ///
    /// # Errors
    /// Returns [`NotDecoded`], whose text is meant for the client.
    pub async fn run<T: Send + 'static>(
        &self,
        client: ConnectionId,
        bytes: usize,
        decode: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotDecoded> {
        let (reply, decoded) = oneshot::channel();
        let job: DecodeJob = Box::new(move || {
            if !reply.is_closed() {
                // The receiver is gone if the client has disconnected meanwhile.
                let _ = reply.send(decode());
            }
        });
        let lane = if bytes <= SHORT_BYTES {
            &self.short
        } else {
            &self.long
        };
        lane.waiting()
            .jobs
            .push(client, BASE_COST + bytes as u64, job);
        lane.changed.notify_one();
        timeout(DEADLINE, decoded)
            .await
            .map_err(|_| NotDecoded::Late)?
            .map_err(|_| NotDecoded::Failed)
    }

    /// Drops the queued messages of a client that has disconnected.
    pub fn leave(&self, client: ConnectionId) {
        for lane in [&self.short, &self.long] {
            lane.waiting().jobs.leave(client);
        }
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        for lane in [&self.short, &self.long] {
            lane.waiting().is_closed = true;
            lane.changed.notify_one();
        }
    }
}

impl DecodeLane {
    fn start(name: &str, niceness: i32) -> std::io::Result<Arc<Self>> {
        let lane = Arc::new(Self::default());
        let own = Arc::clone(&lane);
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                // On Linux the niceness applies to this thread only. If changing it is not
                // permitted, the thread runs with normal priority.
                let _ = rustix::process::nice(niceness);
                own.run();
            })?;
        Ok(lane)
    }

    fn waiting(&self) -> MutexGuard<'_, LaneQueue> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        while let Some(job) = self.next() {
            // A panic is answered with an error to the client of that message, and must not affect
            // the next one.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }

    /// Waits for a job; returns `None` after the decoder was closed.
    fn next(&self) -> Option<DecodeJob> {
        let mut waiting = self.waiting();
        loop {
            if waiting.is_closed {
                return None;
            }
            if let Some((_, job)) = waiting.jobs.pop() {
                return Some(job);
            }
            waiting = self
                .changed
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
            .block_on(future)
    }

    #[test]
    fn a_long_message_does_not_hold_up_a_short_one() {
        let decoder = Decoder::start().unwrap();
        let (go_on, blocked) = mpsc::channel::<()>();
        block_on(async {
            let long = decoder.run(ConnectionId(1), 60 << 20, move || blocked.recv().is_ok());
            let short = async {
                let answer = decoder.run(ConnectionId(2), 1000, || 7).await;
                go_on.send(()).unwrap();
                answer
            };
            let (long, short) = tokio::join!(long, short);
            assert_eq!((long, short), (Ok(true), Ok(7)));
        });
    }

    #[test]
    fn a_message_whose_decoding_panics_is_refused_and_the_next_one_is_decoded() {
        let decoder = Decoder::start().unwrap();
        block_on(async {
            let failed = decoder
                .run(ConnectionId(1), 1, || -> u8 {
                    panic!("as a test wants it")
                })
                .await;
            assert_eq!(failed, Err(NotDecoded::Failed));
            assert_eq!(decoder.run(ConnectionId(1), 1, || 7).await, Ok(7));
        });
    }
}
