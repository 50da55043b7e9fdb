//! The policy's thread: it owns the checkpoint and infers one batch after the other.

use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::time::Duration;

use jobs::serve_args::PolicyChoice;
use tch::Device;

use crate::dist::cuda;
use crate::policy::gr00t::Models;
use crate::policy::served::{self, Actions, Card, Question};
use crate::policy::{Lifeline, PolicyError};
use crate::serve::now;

/// As the thread of an evaluation's policy has.
const STACK_BYTES: usize = 16 << 20;

/// Requests that are inferred together.
pub struct Batch {
    /// One a request.
    pub questions: Vec<Question>,
    /// Rows of one pass of the network.
    pub max_rows: usize,
    /// Gets one answer a question, and how long they took.
    pub give: Give,
}

/// Takes answers in the policy's thread.
pub type Give = Box<dyn FnOnce(Vec<Result<Actions, String>>, Duration) + Send>;

/// The desk's end.
#[derive(Debug)]
pub struct PolicyThread {
    batches: SyncSender<Batch>,
}

impl PolicyThread {
    /// Starts the thread and makes the policy in it, on `device`. `say` gets what the user should know, in the thread.
    ///
    /// # Errors
    /// [`PolicyError`] when the policy cannot be made.
    pub fn start(
        choice: PolicyChoice,
        device: Device,
        say: impl Fn(String) + Send + 'static,
    ) -> Result<(Self, Card), PolicyError> {
        // The batcher gives one at a time.
        let (batches, inbox) = sync_channel(1);
        let (told, card) = channel();
        let thread = std::thread::Builder::new().name("policy".to_owned()).stack_size(STACK_BYTES);
        let body = move || {
            if let (Device::Cuda(index), Ok(cuda)) = (device, cuda::load())
                && let Err(err) = cuda.select(index)
            {
                tracing::warn!("policy thread on cuda:{index}: {err}");
            }
            let (lifeline, words) = Lifeline::heard();
            match served::serve(&choice.policy_type, &choice.config, &mut Models::heard_by(device, lifeline)) {
                Ok(policy) => {
                    // `start` waits for it.
                    let _ = told.send(Ok(policy.card()));
                    run(policy, &inbox, || words.try_iter().for_each(&say));
                }
                Err(err) => drop(told.send(Err(err))),
            }
        };
        thread.spawn(body).map_err(|err| PolicyError::Inference(format!("no thread for the policy: {err}")))?;
        let card = card.recv().map_err(|_| PolicyError::Inference("the policy's thread has ended".to_owned()))??;
        Ok((Self { batches }, card))
    }

    /// Hands over a batch. A thread that is gone drops it, and with it the replies.
    pub fn infer(&self, batch: Batch) {
        self.batches.send(batch).ok();
    }
}

fn run(mut policy: Box<dyn served::Served>, batches: &Receiver<Batch>, tell: impl Fn()) {
    for Batch { questions, max_rows, give } in batches {
        let started = now();
        let answers = policy.answer(&questions, max_rows);
        give(answers.into_iter().map(|answer| answer.map_err(|err| err.to_string())).collect(), started.elapsed());
        tell();
    }
}
