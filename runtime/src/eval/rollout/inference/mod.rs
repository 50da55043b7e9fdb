//! The inference thread: it owns checkpoints and policy, so that environments step while the policy
//! infers.
//!
//! ```text
//! episode_loop ─► InferenceThread ── requests ──► worker ─► policy (crate::policy)
//!      ▲                                            │
//!      └───────── InferenceResult ──────────────────┘
//! ```
//! Requests are answered in order. The results are the same as in a single thread, because a row
//! has all that a policy sees.

mod request;
#[cfg(test)]
mod tests;
mod worker;

pub use request::InferenceResult;

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use jobs::job::Job;
use tch::Device;

use crate::env::EnvSpec;
use crate::eval::rollout::inference::request::{InferenceReply, InferenceRequest, gone};
use crate::eval::rollout::inference::worker::InferenceWorker;
use crate::policy::{Account, Lifeline, Over, PolicyError, PolicyFacts, PolicyRow};

/// Stack size: TorchScript's interpreter recurses. A main thread would have at most this much.
const STACK_BYTES: usize = 16 << 20;

/// How often [`InferenceThread::make`] asks its caller whether to go on.
const TICK: Duration = Duration::from_millis(100);

/// The handle of the inference thread in the evaluation loop.
pub struct InferenceThread {
    /// Cut when no answer is needed any more; then remote calls end early.
    lifeline: Lifeline,
    words: Receiver<String>,
    // `None` after the thread was told to end.
    requests: Option<Sender<InferenceRequest>>,
    thread: Option<JoinHandle<()>>,
}

impl InferenceThread {
    /// Starts the thread; policies will be on `device`.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(device: Device) -> std::io::Result<Self> {
        let (requests, inbox) = channel();
        let (lifeline, words) = Lifeline::heard();
        let own = lifeline.clone();
        let thread = std::thread::Builder::new()
            .name("policy".to_owned())
            .stack_size(STACK_BYTES);
        let thread = thread.spawn(move || InferenceWorker::new(device, own).serve(&inbox))?;
        Ok(Self {
            lifeline,
            words,
            requests: Some(requests),
            thread: Some(thread),
        })
    }

    /// Makes the policy of a job in place of the previous one; a policy that keeps files writes
    /// them to `folder`. Meanwhile `goes_on` is called regularly with the messages of the policy.
    /// After it returns false, calls to remote servers end early.
    ///
    /// # Errors
    /// Returns the errors of [`policy::make`].
    pub fn make(
        &self,
        job: &Job,
        env: &EnvSpec,
        folder: &Path,
        mut goes_on: impl FnMut(Vec<String>) -> bool,
    ) -> Result<PolicyFacts, PolicyError> {
        let (reply, answer) = channel();
        let (job, env, folder) = (
            Box::new(job.clone()),
            Box::new(env.clone()),
            folder.to_owned(),
        );
        self.ask(InferenceRequest::Make {
            job,
            env,
            folder,
            reply,
        });
        loop {
            let made = answer.recv_timeout(TICK);
            if !goes_on(self.said()) {
                self.lifeline.cut();
            }
            match made {
                Ok(made) => return made,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(gone()),
            }
        }
    }

    /// Returns the messages of the policy for the user since the last call.
    pub fn said(&self) -> Vec<String> {
        self.words.try_iter().collect()
    }

    /// Announces that inferences usually have `rows` rows, and at most `max_rows`.
    pub fn warm_up(&self, rows: usize, max_rows: usize) {
        self.ask(InferenceRequest::WarmUp { rows, max_rows });
    }

    /// Requests action chunks, with at most `max_batch` rows in one call of the policy. The thread
    /// calls `give` with the result.
    pub fn infer(
        &self,
        rows: Vec<PolicyRow>,
        max_batch: usize,
        give: impl FnOnce(InferenceResult) + Send + 'static,
    ) {
        self.ask(InferenceRequest::Infer {
            rows,
            max_batch,
            reply: InferenceReply::new(give),
        });
    }

    /// Tells a planner that an episode is over, and waits for its account of it, which takes little
    /// time.
    ///
    /// # Errors
    /// Returns the errors of [`policy::Planner::end`].
    pub fn end(&self, over: Over) -> Result<Account, PolicyError> {
        let (reply, answer) = channel();
        self.ask(InferenceRequest::End(over, reply));
        answer.recv().unwrap_or_else(|_| Err(gone()))
    }

    /// Sends a request. If the thread is gone, the request is dropped together with its reply.
    fn ask(&self, request: InferenceRequest) {
        if let Some(requests) = &self.requests {
            requests.send(request).ok();
        }
    }
}

impl Drop for InferenceThread {
    fn drop(&mut self) {
        self.requests.take();
        self.lifeline.cut();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened.
            thread.join().ok();
        }
    }
}
