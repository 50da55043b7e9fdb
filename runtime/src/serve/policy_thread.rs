//! The policy's thread: it owns the checkpoint and infers one batch after the other.

use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jobs::serve_args::PolicyChoice;
use tch::Device;

use crate::eval::device;
use crate::policy::gr00t::Models;
use crate::policy::served::{self, Actions, Card, Question};
use crate::policy::{Lifeline, PolicyError};
use crate::serve::now;
use c10d::cuda;

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
    loss: Loss,
}

/// What was said when the GPU was lost, once it is.
pub type Loss = Arc<OnceLock<String>>;

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
        let loss = Loss::default();
        let own = Arc::clone(&loss);
        let body = move || {
            if let (Device::Cuda(index), Ok(cuda)) = (device, cuda::load())
                && let Err(err) = cuda.select(index)
            {
                tracing::warn!("policy thread on cuda:{index}: {err}");
            }
            let (lifeline, words) = Lifeline::heard();
            let mut models = Models::heard_by(device, lifeline);
            let made = device::using(device, || served::serve(&choice.policy_type, &choice.config, &mut models));
            match made {
                Ok(mut policy) => {
                    // `start` waits for it.
                    let _ = told.send(Ok(policy.card()));
                    let is_lost = |err: &PolicyError| device::loss(device, err);
                    if let Some(err) = run(policy.as_mut(), &inbox, || words.try_iter().for_each(&say), is_lost) {
                        // `own` is new.
                        let _ = own.set(err.to_string());
                        // libtorch ends the process where it cannot free what is on a GPU.
                        std::mem::forget((policy, models));
                    }
                }
                Err(err) => drop(told.send(Err(err))),
            }
        };
        thread.spawn(body).map_err(|err| PolicyError::Inference(format!("no thread for the policy: {err}")))?;
        let card = card.recv().map_err(|_| PolicyError::Inference("the policy's thread has ended".to_owned()))??;
        Ok((Self { batches, loss }, card))
    }

    /// Says why, when the GPU is lost and the thread has ended.
    pub fn loss(&self) -> Loss {
        Arc::clone(&self.loss)
    }

    /// Hands over a batch. A thread that is gone drops it, and with it the replies.
    pub fn infer(&self, batch: Batch) {
        self.batches.send(batch).ok();
    }
}

/// Answers until nobody asks any more, or `lost` says that the GPU is.
fn run(
    policy: &mut dyn served::Served,
    batches: &Receiver<Batch>,
    tell: impl Fn(),
    lost: impl Fn(&PolicyError) -> Option<PolicyError>,
) -> Option<PolicyError> {
    for Batch { questions, max_rows, give } in batches {
        let started = now();
        let answers = policy.answer(&questions, max_rows);
        if let Some(loss) = answers.iter().find_map(|answer| lost(answer.as_ref().err()?)) {
            return Some(loss);
        }
        give(answers.into_iter().map(|answer| answer.map_err(|err| err.to_string())).collect(), started.elapsed());
        tell();
    }
    None
}
