//! The inference thread of a server: it owns the checkpoint and infers one batch after the other.

use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jobs::serve_args::PolicyChoice;
use tch::Device;

use crate::clock::now;
use crate::device::gpu;
use crate::policy::served::{self, Actions, PolicyRequest, ServedSpec};
use crate::policy::{Checkpoints, InferenceError, Lifeline, PolicyError};
use c10d::cuda;

/// Stack size, the same as that of the policy thread in an evaluation.
const STACK_BYTES: usize = 16 << 20;

/// Requests that are inferred together.
pub struct RequestBatch {
    /// The requests.
    pub requests: Vec<PolicyRequest>,
    /// Maximum number of rows in one forward pass.
    pub max_rows: usize,
    /// Called with the answers.
    pub give: GiveAnswers,
}

/// The result of a batch.
pub struct InferredBatch {
    /// One answer for each request.
    pub answers: Vec<Result<Actions, PolicyError>>,
    /// Duration of the inference.
    pub took: Duration,
}

/// A callback that takes the answers in the inference thread.
pub type GiveAnswers = Box<dyn FnOnce(InferredBatch) + Send>;

/// The handle of the inference thread in the dispatcher.
#[derive(Debug)]
pub struct ServingThread {
    batches: SyncSender<RequestBatch>,
    loss: DeviceLoss,
}

/// The error message of a lost GPU; empty until it is lost.
pub type DeviceLoss = Arc<OnceLock<String>>;

impl ServingThread {
    /// Starts the thread and makes the policy in it, on `device`. `say` is called in the thread
    /// with messages for the user.
    ///
    /// # Errors
    /// Returns a [`PolicyError`] if the policy cannot be made.
    pub fn start(
        choice: PolicyChoice,
        device: Device,
        say: impl Fn(String) + Send + 'static,
    ) -> Result<(Self, ServedSpec), PolicyError> {
        // The batcher sends one batch at a time.
        let (batches, inbox) = sync_channel(1);
        let (told, card) = channel();
        let thread = std::thread::Builder::new()
            .name("policy".to_owned())
            .stack_size(STACK_BYTES);
        let loss = DeviceLoss::default();
        let own = Arc::clone(&loss);
        let body = move || {
            if let (Device::Cuda(index), Ok(cuda)) = (device, cuda::load())
                && let Err(err) = cuda.select(index)
            {
                tracing::warn!("policy thread on cuda:{index}: {err}");
            }
            let (lifeline, words) = Lifeline::heard();
            let mut checkpoints = Checkpoints::heard_by(device, lifeline);
            let made = gpu::using(device, || {
                served::serve(&choice.policy_type, &choice.config, &mut checkpoints)
            });
            match made {
                Ok(mut policy) => {
                    // Cannot fail: `start` waits for it.
                    let _ = told.send(Ok(policy.card()));
                    let is_lost = |err: &PolicyError| gpu::loss(device, err);
                    if let Some(err) = run(
                        policy.as_mut(),
                        &inbox,
                        || words.try_iter().for_each(&say),
                        is_lost,
                    ) {
                        // Cannot fail: `own` was never set.
                        let _ = own.set(err.to_string());
                        // libtorch aborts the process if it cannot free GPU memory, so leak it.
                        std::mem::forget((policy, checkpoints));
                    }
                }
                Err(err) => drop(told.send(Err(err))),
            }
        };
        thread
            .spawn(body)
            .map_err(|err| InferenceError::NoThread { err })?;
        let card = card.recv().map_err(|_| InferenceError::ThreadEnded)??;
        Ok((Self { batches, loss }, card))
    }

    /// Returns the cell that holds the reason after the GPU was lost and the thread has ended.
    pub fn loss(&self) -> DeviceLoss {
        Arc::clone(&self.loss)
    }

    /// Sends a batch. If the thread is gone, the batch is dropped together with its replies.
    pub fn infer(&self, batch: RequestBatch) {
        self.batches.send(batch).ok();
    }
}

/// Answers batches until the channel is closed, or `lost` reports that the GPU is lost.
fn run(
    policy: &mut dyn served::Served,
    batches: &Receiver<RequestBatch>,
    tell: impl Fn(),
    lost: impl Fn(&PolicyError) -> Option<PolicyError>,
) -> Option<PolicyError> {
    for RequestBatch {
        requests,
        max_rows,
        give,
    } in batches
    {
        let started = now();
        let answers = policy.answer(&requests, max_rows);
        if let Some(loss) = answers
            .iter()
            .find_map(|answer| lost(answer.as_ref().err()?))
        {
            return Some(loss);
        }
        give(InferredBatch {
            answers,
            took: started.elapsed(),
        });
        tell();
    }
    None
}
