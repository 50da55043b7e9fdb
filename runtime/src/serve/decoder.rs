//! Decodes messages in background threads, so that no message blocks the connections.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::serve::request::RequestError;
use crate::serve::stats::Counted;

/// Maximum size of a short message in bytes: a row with images of four cameras at 640 × 480 has 3.7
/// MB.
const SHORT_BYTES: usize = 4 << 20;

/// Maximum time for decoding a message, including the wait. Decoding time is proportional to the
/// size: 0.1 s for 60 MB.
const DEADLINE: Duration = Duration::from_secs(10);

/// Decodes one short and one long message at a time: an observation with a few images waits for
/// others of its size, not for arrays of 64 MiB. A client has one message under way, so clients
/// take turns.
#[derive(Debug, Default)]
pub struct Decoder {
    short: Arc<Mutex<()>>,
    long: Arc<Mutex<()>>,
}

impl Decoder {
    /// Runs `decode` for a message of `bytes` bytes when it is its turn. A call whose future was
    /// dropped is not started.
    ///
    /// # Errors
    /// Returns an error if the decoder was too busy, or panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        decode: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, RequestError> {
        let lane = match bytes {
            ..=SHORT_BYTES => &self.short,
            _ => &self.long,
        };
        let turn = Arc::clone(lane).lock_owned();
        let decoded = async {
            let turn = turn.await;
            // The turn ends with the work, even if nobody waits for its result any more.
            let work = move || {
                let _turn = turn;
                decode()
            };
            spawn_blocking(work).await
        };
        let text = match timeout(DEADLINE, decoded).await {
            Ok(Ok(decoded)) => return Ok(decoded),
            // It panicked, which is a bug; the panic was printed.
            Ok(Err(_)) => "the server failed to read the request".to_owned(),
            Err(_) => format!(
                "the server was too busy to read the request within {} s, try again later",
                DEADLINE.as_secs()
            ),
        };
        Err(RequestError::rejected(Counted::Refused, text))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_long_message_does_not_hold_up_a_short_one() {
        let decoder = Decoder::default();
        let (go_on, blocked) = mpsc::channel::<()>();
        let long = decoder.run(60 << 20, move || blocked.recv().is_ok());
        let short = async {
            let answer = decoder.run(1000, || 7).await;
            go_on.send(()).unwrap();
            answer
        };
        let (long, short) = tokio::join!(long, short);
        assert_eq!((long, short), (Ok(true), Ok(7)));
    }

    #[tokio::test]
    async fn a_message_whose_decoding_panics_is_refused_and_the_next_one_is_decoded() {
        let decoder = Decoder::default();
        let failed = decoder.run(1, || -> u8 { panic!("as a test wants it") });
        let failed = failed.await.unwrap_err().to_string();
        assert_eq!(failed, "the server failed to read the request");
        assert_eq!(decoder.run(1, || 7).await, Ok(7));
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_any_more_keeps_its_turn() {
        let decoder = Decoder::default();
        let (go_on, blocked) = mpsc::channel::<()>();
        let (started, starts) = mpsc::channel();
        let left = decoder.run(1, move || {
            started.send(()).unwrap();
            blocked.recv().is_ok()
        });
        let soon = Duration::from_millis(1);
        let mut left = Box::pin(left);
        while starts.try_recv().is_err() {
            assert!(timeout(soon, &mut left).await.is_err());
        }
        drop(left);
        let mut next = Box::pin(decoder.run(1, || 7));
        assert!(timeout(soon, &mut next).await.is_err());
        go_on.send(()).unwrap();
        assert_eq!(next.await, Ok(7));
    }
}
