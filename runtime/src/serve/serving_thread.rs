//! The inference thread of a server: it owns the policy and infers one batch after the other.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jobs::serve_args::PolicyChoice;
use tch::Device;

use crate::clock::now;
use crate::device::gpu;
use crate::env::EnvSpec;
use crate::policy::served::{self, Actions, ClientId, PolicyRequest, ServedSpec};
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

/// What the inference thread is told.
enum ServingMessage {
    /// Infer these requests.
    Infer(RequestBatch),
    /// This client has disconnected.
    Left(ClientId),
}

/// The handle of the inference thread in the dispatcher.
#[derive(Debug)]
pub struct ServingThread {
    messages: Sender<ServingMessage>,
    loss: PolicyLoss,
}

/// Why the policy can no longer infer in this process: its GPU is lost, or its worker failed too
/// often. Empty until then.
pub type PolicyLoss = Arc<OnceLock<String>>;

impl ServingThread {
    /// Starts the thread and makes the policy in it, on `device`. `say` is called in the thread
    /// with messages for the user.
    ///
    /// # Errors
    /// Returns a [`PolicyError`] if the policy cannot be made.
    pub fn start(
        choice: PolicyChoice,
        interface: Option<EnvSpec>,
        device: Device,
        say: impl Fn(String) + Send + 'static,
    ) -> Result<(Self, ServedSpec), PolicyError> {
        // The batcher sends one batch at a time, and each client leaves once.
        let (messages, inbox) = channel();
        let (told, card) = channel();
        let thread = std::thread::Builder::new()
            .name("policy".to_owned())
            .stack_size(STACK_BYTES);
        let loss = PolicyLoss::default();
        let own = Arc::clone(&loss);
        let body = move || {
            if let (Device::Cuda(index), Ok(cuda)) = (device, cuda::load())
                && let Err(err) = cuda.select(index)
            {
                tracing::warn!("policy thread on cuda:{index}: {err}");
            }
            let (lifeline, words) = Lifeline::heard();
            let mut checkpoints = Checkpoints::heard_by(device, lifeline.clone());
            let made = gpu::using(device, || {
                served::serve(&choice, interface.as_ref(), &mut checkpoints, &lifeline)
            });
            match made {
                Ok(mut policy) => {
                    policy.notes().into_iter().for_each(&say);
                    // Cannot fail: `start` waits for it.
                    let _ = told.send(Ok(policy.card()));
                    let is_lost = |err: &PolicyError| lost(device, err);
                    if let Some(reason) = run(
                        policy.as_mut(),
                        &inbox,
                        || words.try_iter().for_each(&say),
                        is_lost,
                    ) {
                        // Cannot fail: `own` was never set.
                        let _ = own.set(reason);
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
        Ok((Self { messages, loss }, card))
    }

    /// Returns the cell that holds the reason after the policy was lost and the thread has ended.
    pub fn loss(&self) -> PolicyLoss {
        Arc::clone(&self.loss)
    }

    /// Sends a batch. If the thread is gone, the batch is dropped together with its replies.
    pub fn infer(&self, batch: RequestBatch) {
        self.messages.send(ServingMessage::Infer(batch)).ok();
    }

    /// Tells the policy that a client has disconnected.
    pub fn leave(&self, client: ClientId) {
        // If the thread is gone, so is what it knew of the client.
        self.messages.send(ServingMessage::Left(client)).ok();
    }
}

/// Returns why no later call can succeed, if `err` means that: the policy has lost its GPU, or its
/// worker has used up its restarts.
fn lost(device: Device, err: &PolicyError) -> Option<String> {
    match err {
        PolicyError::Worker { .. } => Some(err.to_string()),
        err => gpu::loss(device, err).map(|loss| loss.to_string()),
    }
}

/// Answers batches until the channel is closed, or `lost` reports that the policy is lost.
fn run(
    policy: &mut dyn served::Served,
    messages: &Receiver<ServingMessage>,
    tell: impl Fn(),
    lost: impl Fn(&PolicyError) -> Option<String>,
) -> Option<String> {
    for message in messages {
        let RequestBatch {
            requests,
            max_rows,
            give,
        } = match message {
            ServingMessage::Infer(batch) => batch,
            ServingMessage::Left(client) => {
                policy.leave(client);
                continue;
            }
        };
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
