//! The thread of a rank or a server that owns checkpoints and policy, so that environments step,
//! and connections are served, while the policy infers.
//!
//! ```text
//! rollout or dispatcher ─► PolicyThread ── orders ──► worker ─► policy (crate::policy)
//!      ▲                                                │
//!      └──────────────────── Inferred ──────────────────┘
//! ```
//! Orders are carried out one after the other. The results are the same as in a single thread,
//! because a row has all that a policy sees.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::Duration;

use jobs::serve_args::PolicyChoice;
use tch::Device;
use torchlib::cuda;

use crate::clock::now;
use crate::env::EnvSpec;
use crate::joined::JoinedThread;
use crate::policy::{
    self, Checkpoints, Lifeline, Made, Over, PolicyError, PolicyFacts, PolicyRow, RowAnswer,
    Shortage, check_finite,
};

/// Stack size: TorchScript's interpreter recurses. A main thread would have at most this much.
const STACK_BYTES: usize = 16 << 20;

/// How often [`PolicyThread::make`] asks its caller whether to go on.
const TICK: Duration = Duration::from_millis(100);

/// The result of an inference.
#[derive(Debug)]
pub struct Inferred {
    /// One answer for each row, in order; chunks have finite actions of the right length.
    pub answers: Result<Vec<RowAnswer>, PolicyError>,
    /// Duration of the call.
    pub took: Duration,
    /// Memory shortages that the policy has reported since it was made.
    pub shortage: Shortage,
}

/// Sends the result of an inference, exactly once. If the thread dies, dropping it sends an error.
struct Give(Option<Box<dyn FnOnce(Inferred) + Send>>);

impl Give {
    fn give(mut self, result: Inferred) {
        if let Some(give) = self.0.take() {
            give(result);
        }
    }
}

impl Drop for Give {
    fn drop(&mut self) {
        if let Some(give) = self.0.take() {
            give(Inferred {
                answers: Err(gone()),
                took: Duration::ZERO,
                shortage: Shortage::default(),
            });
        }
    }
}

/// The handle of the policy's thread.
pub struct PolicyThread {
    /// Cut when no answer is needed any more; then remote calls end early.
    lifeline: Lifeline,
    words: Receiver<String>,
    thread: JoinedThread<Sender<Order>>,
}

impl PolicyThread {
    /// Starts the thread; policies will be on `device`.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(device: Device) -> std::io::Result<Self> {
        let (orders, inbox) = channel();
        let (lifeline, words) = Lifeline::heard();
        let own = lifeline.clone();
        let thread = Builder::new()
            .name("policy".to_owned())
            .stack_size(STACK_BYTES);
        let serve = move || PolicyWorker::new(device, own).serve(&inbox);
        Ok(Self {
            lifeline,
            words,
            thread: JoinedThread::spawn(thread, orders, serve)?,
        })
    }

    /// Makes a policy in place of the previous one, for an environment or else for the keys of its
    /// own checkpoint; one that keeps files writes them to `folder`. Meanwhile `goes_on` is called
    /// regularly with the messages of the policy. After it returns false, calls to remote servers
    /// end early.
    ///
    /// # Errors
    /// Returns the errors of [`crate::policy::make`].
    pub fn make(
        &self,
        choice: PolicyChoice,
        env: Option<&EnvSpec>,
        folder: Option<&Path>,
        mut goes_on: impl FnMut(Vec<String>) -> bool,
    ) -> Result<PolicyFacts, PolicyError> {
        let (reply, answer) = channel();
        let (env, folder) = (env.cloned(), folder.map(Path::to_owned));
        self.order(move |worker| {
            drop(reply.send(worker.make(&choice, env.as_ref(), folder)));
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
        self.order(move |worker| worker.warm_up(rows, max_rows));
    }

    /// Asks for the chunks of rows, with at most `max_rows` in one call of the policy. The thread
    /// calls `give` with the result.
    pub fn infer(
        &self,
        rows: Vec<PolicyRow>,
        max_rows: usize,
        give: impl FnOnce(Inferred) + Send + 'static,
    ) {
        let give = Give(Some(Box::new(give)));
        self.order(move |worker| worker.infer(rows, max_rows, give));
    }

    /// Tells a planner that an episode is over, and waits for its metrics, which takes little time.
    ///
    /// # Errors
    /// Returns the errors of [`crate::policy::Policy::end`].
    pub fn end(&self, over: Over) -> Result<BTreeMap<String, f64>, PolicyError> {
        let (reply, answer) = channel();
        self.order(move |worker| drop(reply.send(worker.end(&over))));
        answer.recv().unwrap_or_else(|_| Err(gone()))
    }

    /// Sends an order. If the thread is gone, it is dropped together with its reply.
    fn order(&self, order: impl FnOnce(&mut PolicyWorker) + Send + 'static) {
        self.thread.end.send(Box::new(order)).ok();
    }
}

impl Drop for PolicyThread {
    fn drop(&mut self) {
        self.lifeline.cut();
    }
}

/// Returns the error of a thread that has ended.
fn gone() -> PolicyError {
    PolicyError::Gone("the policy's thread has ended".to_owned())
}

/// What the thread is told to do. The receiver of a reply is gone if the caller was stopped
/// meanwhile.
type Order = Box<dyn FnOnce(&mut PolicyWorker) + Send>;

/// The owner of checkpoints and policy.
struct PolicyWorker {
    device: Device,
    lifeline: Lifeline,
    /// The policy. It is freed before the checkpoints, which stand below.
    made: Option<Made>,
    models: Checkpoints,
    is_gpu_lost: bool,
}

impl PolicyWorker {
    /// Creates a worker without a policy. Call it in the policy's thread, because CUDA's current
    /// device is a property of each thread; policies name their device wherever they can.
    fn new(device: Device, lifeline: Lifeline) -> Self {
        if let (Device::Cuda(index), Ok(cuda)) = (device, cuda::load())
            && let Err(err) = cuda.select(index)
        {
            tracing::warn!("policy thread on cuda:{index}: {err}");
        }
        Self {
            device,
            models: Checkpoints::new(device, lifeline.clone()),
            lifeline,
            made: None,
            is_gpu_lost: false,
        }
    }

    /// Carries out orders until the channel is closed or the GPU is lost.
    fn serve(mut self, orders: &Receiver<Order>) {
        for order in orders {
            order(&mut self);
            if self.is_gpu_lost {
                // libtorch aborts the process if it cannot free GPU memory. Leak it, so that the
                // process can first report the reason.
                std::mem::forget(self);
                return;
            }
        }
    }

    fn warm_up(&mut self, rows: usize, max_rows: usize) {
        if let Some(made) = &mut self.made {
            made.policy.warm_up(rows, max_rows);
        }
    }

    fn make(
        &mut self,
        choice: &PolicyChoice,
        env: Option<&EnvSpec>,
        folder: Option<PathBuf>,
    ) -> Result<PolicyFacts, PolicyError> {
        // Free the memory of the previous policy before the next one is loaded.
        self.made = None;
        let (name, config) = (&choice.policy_type, &choice.config);
        let (models, lifeline) = (&mut self.models, &self.lifeline);
        let made = policy::using(self.device, || {
            policy::make(name, config, env, models, lifeline)
        });
        self.is_gpu_lost = matches!(made, Err(PolicyError::DeviceLost(_)));
        let mut made = made?;
        if let Some(folder) = folder {
            made.policy.keep_in(folder);
        }
        let facts = PolicyFacts::clone(&made.facts);
        self.made = Some(made);
        Ok(facts)
    }

    fn infer(&mut self, rows: Vec<PolicyRow>, max_rows: usize, give: Give) {
        let (started, count) = (now(), rows.len());
        let facts = self.made.as_ref().map(|made| Arc::clone(&made.facts));
        let facts = facts.unwrap_or_default();
        let give = move |answers: Result<Vec<RowAnswer>, _>, shortage| {
            give.give(Inferred {
                answers: answers.and_then(|answers| checked(answers, count, &facts)),
                took: started.elapsed(),
                shortage,
            });
        };
        let Some(made) = &mut self.made else {
            let none = PolicyError::Failed("no policy was made".to_owned());
            return give(Err(none), Shortage::default());
        };
        if made.facts.is_planner {
            let give = move |answers| give(answers, Shortage::default());
            return made.policy.act_later(rows, Box::new(give));
        }
        let answers = policy::using(self.device, || {
            let calls = rows.chunks(max_rows.max(1));
            let answers = calls.map(|rows| made.policy.act(rows));
            Ok(answers.collect::<Result<Vec<_>, _>>()?.concat())
        });
        self.is_gpu_lost = matches!(answers, Err(PolicyError::DeviceLost(_)));
        give(answers, made.policy.shortage());
    }

    fn end(&mut self, over: &Over) -> Result<BTreeMap<String, f64>, PolicyError> {
        let made = self.made.as_mut();
        made.map_or(Ok(BTreeMap::new()), |made| made.policy.end(over))
    }
}

/// Returns the answers for `rows` rows, in which a chunk that nothing can be moved by is a failure
/// of its row.
fn checked(
    answers: Vec<RowAnswer>,
    rows: usize,
    facts: &PolicyFacts,
) -> Result<Vec<RowAnswer>, PolicyError> {
    let dim = facts.action_names.len();
    let mut chunks = answers.iter().filter_map(RowAnswer::chunk);
    if answers.len() != rows || chunks.any(|chunk| chunk.action_dim() != dim) {
        return Err(PolicyError::Failed(format!(
            "policy `{}` gave {} chunks for {rows} rows of {dim} actions",
            facts.policy,
            answers.len()
        )));
    }
    let finite = |answer: RowAnswer| {
        let name = |at: usize| facts.action_names[at].clone();
        let checked = answer
            .chunk()
            .map(|chunk| check_finite(facts.policy, chunk.values(), dim, name));
        match checked {
            Some(Err(err)) => RowAnswer::Failed(err),
            _ => answer,
        }
    };
    Ok(answers.into_iter().map(finite).collect())
}
