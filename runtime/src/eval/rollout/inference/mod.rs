//! The policy thread: it owns checkpoints and policy, so that environments step while the policy
//! infers.
//!
//! Requests are answered in order. The results are the same as in a single thread, because the
//! policy sees each environment's observations in the order of its steps.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use jobs::job::Job;
use serde_json::Value;
use tch::Device;

use crate::clock::now;
use crate::device::gpu;
use crate::env::{EnvIndex, EnvSpec, Observation};
use crate::policy::gr00t::Models;
use crate::policy::{
    self, Account, Chunk, EpisodeStart, Lifeline, Made, Over, PolicyError, PolicySpec, Shortage,
};
use c10d::cuda;

/// Stack size: TorchScript's interpreter recurses. A main thread would have at most this much.
const STACK_BYTES: usize = 16 << 20;

/// How often [`PolicyThread::make`] asks its caller whether to go on.
const TICK: Duration = Duration::from_millis(100);

/// The handle of the policy thread in the evaluation loop.
pub struct PolicyThread {
    /// Cut when no answer is needed any more; then remote calls end early.
    lifeline: Lifeline,
    words: Receiver<String>,
    // `None` after the thread was told to end.
    questions: Option<Sender<Question>>,
    thread: Option<JoinHandle<()>>,
}

/// The properties of the policy that the thread holds.
#[derive(Clone, Debug)]
pub struct Held {
    /// Its constant specification.
    pub spec: PolicySpec,
    /// Number of actions taken from each chunk.
    pub chunk_length: usize,
    /// Seeds that the policy prescribes for its episodes, in place of those of the plan.
    pub seeds: Vec<Option<u64>>,
    /// Facts about the policy for the journal.
    pub facts: BTreeMap<String, Value>,
    /// True for a planner: it computes elsewhere, and is told how episodes end.
    pub is_planner: bool,
    /// Notes for the user about the policy.
    pub notes: Vec<String>,
    /// True if another process runs the inference.
    pub is_remote: bool,
}

/// The result of an inference.
#[derive(Debug)]
pub struct Acted {
    /// One chunk for each row, in order.
    pub chunks: Result<Vec<Chunk>, PolicyError>,
    /// Duration of the call.
    pub took: Duration,
    /// Memory shortages that the policy has reported since it was made.
    pub shortage: Shortage,
}

/// One row of an inference: environment and observation.
pub type Row = (EnvIndex, Arc<Observation>);

/// Sends the answer to an inference, exactly once. If the thread dies, dropping it sends an error.
struct Reply(Option<Box<dyn FnOnce(Acted) + Send>>);

impl Reply {
    fn give(mut self, acted: Acted) {
        if let Some(give) = self.0.take() {
            give(acted);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(give) = self.0.take() {
            give(Acted {
                chunks: Err(gone()),
                took: Duration::ZERO,
                shortage: Shortage::default(),
            });
        }
    }
}

enum Question {
    Make {
        job: Box<Job>,
        env: Box<EnvSpec>,
        folder: PathBuf,
        reply: Sender<Result<Held, PolicyError>>,
    },
    WarmUp {
        rows: usize,
        max_rows: usize,
    },
    Reset(EpisodeStart),
    Observe(EnvIndex, Arc<Observation>),
    Act {
        rows: Vec<Row>,
        max_batch: usize,
        reply: Reply,
    },
    End(Over, Sender<Result<Account, PolicyError>>),
}

impl PolicyThread {
    /// Starts the thread; policies will be on `device`.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(device: Device) -> std::io::Result<Self> {
        let (questions, inbox) = channel();
        let (lifeline, words) = Lifeline::heard();
        let own = lifeline.clone();
        let thread = std::thread::Builder::new()
            .name("policy".to_owned())
            .stack_size(STACK_BYTES);
        let thread = thread.spawn(move || run(device, &inbox, &own))?;
        Ok(Self {
            lifeline,
            words,
            questions: Some(questions),
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
    ) -> Result<Held, PolicyError> {
        let (reply, answer) = channel();
        let (job, env, folder) = (
            Box::new(job.clone()),
            Box::new(env.clone()),
            folder.to_owned(),
        );
        self.ask(Question::Make {
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
        self.ask(Question::WarmUp { rows, max_rows });
    }

    /// Announces the start of an episode.
    pub fn reset(&self, start: EpisodeStart) {
        self.ask(Question::Reset(start));
    }

    /// Shows an observation to the policy.
    pub fn observe(&self, env: EnvIndex, observation: Arc<Observation>) {
        self.ask(Question::Observe(env, observation));
    }

    /// Requests action chunks, with at most `max_batch` rows in one call of the policy. The thread
    /// calls `give` with the result.
    pub fn act(&self, rows: Vec<Row>, max_batch: usize, give: impl FnOnce(Acted) + Send + 'static) {
        self.ask(Question::Act {
            rows,
            max_batch,
            reply: Reply(Some(Box::new(give))),
        });
    }

    /// Tells a planner that an episode is over, and waits for its account of it, which takes little
    /// time.
    ///
    /// # Errors
    /// Returns the errors of [`policy::Planner::end`].
    pub fn end(&self, over: Over) -> Result<Account, PolicyError> {
        let (reply, answer) = channel();
        self.ask(Question::End(over, reply));
        answer.recv().unwrap_or_else(|_| Err(gone()))
    }

    /// Sends a question. If the thread is gone, the question is dropped together with its reply.
    fn ask(&self, question: Question) {
        if let Some(questions) = &self.questions {
            questions.send(question).ok();
        }
    }
}

impl Drop for PolicyThread {
    fn drop(&mut self) {
        self.questions.take();
        self.lifeline.cut();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened.
            thread.join().ok();
        }
    }
}

fn gone() -> PolicyError {
    PolicyError::Inference("the policy's thread has ended".to_owned())
}

/// Answers questions until the channel is closed or the GPU is lost.
fn run(device: Device, questions: &Receiver<Question>, lifeline: &Lifeline) {
    if let (Device::Cuda(index), Ok(cuda)) = (device, cuda::load())
        && let Err(err) = cuda.select(index)
    {
        // CUDA's current device is a property of each thread; policies name their device wherever
        // they can.
        tracing::warn!("policy thread on cuda:{index}: {err}");
    }
    let mut models = Models::heard_by(device, lifeline.clone());
    let mut made: Option<Made> = None;
    let mut is_lost = false;
    for question in questions {
        match question {
            Question::Make {
                job,
                env,
                folder,
                reply,
            } => {
                // Free the memory of the previous policy before the next one is loaded.
                made = None;
                let (name, config) = (&job.policy_type, &job.policy_config);
                let answer = gpu::using(device, || {
                    policy::make(name, config, &env, &mut models, lifeline)
                });
                is_lost = matches!(answer, Err(PolicyError::DeviceLost(_)));
                // The receiver is gone if the loop was stopped meanwhile.
                let _ = reply.send(answer.map(|mut fresh| {
                    let held = held(&mut fresh);
                    if let Some(planner) = fresh.policy.planner() {
                        planner.keep_in(folder);
                    }
                    made = Some(fresh);
                    held
                }));
            }
            Question::WarmUp { rows, max_rows } => {
                on(&mut made, |policy| policy.warm_up(rows, max_rows))
            }
            Question::Reset(start) => on(&mut made, |policy| policy.reset(&[start])),
            Question::Observe(env, observation) => {
                on(&mut made, |policy| policy.observe(env, &observation))
            }
            Question::Act {
                rows,
                max_batch,
                reply,
            } => {
                let started = now();
                let give = move |chunks, shortage| {
                    reply.give(Acted {
                        chunks,
                        took: started.elapsed(),
                        shortage,
                    })
                };
                let Some(made) = &mut made else {
                    give(
                        Err(PolicyError::Inference("no policy was made".to_owned())),
                        Shortage::default(),
                    );
                    continue;
                };
                match made.policy.planner() {
                    Some(planner) => {
                        planner.act_later(
                            rows,
                            Box::new(move |chunks| give(chunks, Shortage::default())),
                        );
                    }
                    None => {
                        let chunks = gpu::using(device, || act(made, &rows, max_batch));
                        is_lost = matches!(chunks, Err(PolicyError::DeviceLost(_)));
                        give(chunks, made.policy.shortage());
                    }
                }
            }
            Question::End(over, reply) => {
                let planner = made.as_mut().and_then(|made| made.policy.planner());
                let account = planner.map_or(Ok(Account::default()), |planner| planner.end(&over));
                // The receiver is gone if the loop was stopped meanwhile.
                let _ = reply.send(account);
            }
        }
        if is_lost {
            // libtorch aborts the process if it cannot free GPU memory. Leak it, so that the
            // process can first report the reason.
            std::mem::forget((made, models));
            return;
        }
    }
}

fn on(made: &mut Option<Made>, run: impl FnOnce(&mut dyn policy::Policy)) {
    if let Some(made) = made {
        run(made.policy.as_mut());
    }
}

fn act(made: &mut Made, rows: &[Row], max_batch: usize) -> Result<Vec<Chunk>, PolicyError> {
    let mut chunks = Vec::with_capacity(rows.len());
    for rows in rows.chunks(max_batch.max(1)) {
        let rows: Vec<_> = rows
            .iter()
            .map(|(env, observation)| (*env, observation.as_ref()))
            .collect();
        chunks.extend(made.policy.act(&rows)?);
    }
    Ok(chunks)
}

fn held(made: &mut Made) -> Held {
    let spec = made.policy.spec();
    let seeds = (0..spec.num_episodes.unwrap_or(0))
        .map(|episode| made.policy.episode_seed(episode))
        .collect();
    let facts = made
        .policy
        .facts()
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    let (notes, is_planner) = (made.policy.notes(), made.policy.planner().is_some());
    Held {
        spec,
        chunk_length: made.chunk_length,
        seeds,
        facts,
        is_planner,
        notes,
        is_remote: made.is_remote,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use serde_json::json;

    use super::*;
    use crate::policy::tests::env_spec;

    fn job(policy: &str) -> Job {
        let entry = json!({"name": "a", "arena_env_args": {"environment": "push"}, "policy_type": policy,
                           "num_episodes": 1});
        jobs::file::parse(&json!({"jobs": [entry]}))
            .unwrap()
            .remove(0)
    }

    fn rows(count: usize) -> Vec<Row> {
        (0..count)
            .map(|env| (EnvIndex(env), Arc::new(Observation::empty())))
            .collect()
    }

    fn chunks(
        thread: &PolicyThread,
        count: usize,
        max_batch: usize,
    ) -> Result<Vec<Chunk>, PolicyError> {
        let (give, answer) = channel();
        thread.act(rows(count), max_batch, move |acted| {
            drop(give.send(acted.chunks))
        });
        answer.recv().unwrap()
    }

    #[test]
    fn rows_are_answered_in_order_in_batches_of_any_size() {
        let thread = PolicyThread::start(Device::Cpu).unwrap();
        thread
            .make(&job("random_action"), &env_spec(), Path::new(""), |_| true)
            .unwrap();
        let begin = || {
            (0..3).for_each(|n| {
                thread.reset(EpisodeStart {
                    env: EnvIndex(n),
                    episode: 0,
                    seed: n as u64,
                })
            })
        };
        begin();
        let together = chunks(&thread, 3, usize::MAX).unwrap();
        begin();
        assert_eq!(chunks(&thread, 3, 2).unwrap(), together);
        assert_ne!(together[0], together[1]);
    }

    #[test]
    fn an_inference_without_a_policy_is_an_error() {
        let thread = PolicyThread::start(Device::Cpu).unwrap();
        assert_eq!(
            chunks(&thread, 1, 1).unwrap_err().to_string(),
            "no policy was made"
        );
    }

    #[test]
    fn a_policy_that_cannot_be_made_says_why() {
        let thread = PolicyThread::start(Device::Cpu).unwrap();
        let err = thread
            .make(&job("pi0"), &env_spec(), Path::new(""), |_| true)
            .unwrap_err();
        assert!(
            err.to_string().starts_with("unknown policy_type `pi0`"),
            "{err}"
        );
    }

    /// Returns a job whose server does not exist.
    fn remote() -> Job {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let mut job = job("gr00t_remote_closedloop");
        job.policy_config
            .insert("remote_host".to_owned(), "127.0.0.1".into());
        job.policy_config
            .insert("remote_port".to_owned(), port.into());
        job
    }

    #[test]
    fn what_is_waited_for_is_told_and_the_waiting_can_be_ended() {
        let thread = PolicyThread::start(Device::Cpu).unwrap();
        let mut told = Vec::new();
        let err = thread.make(&remote(), &env_spec(), Path::new(""), |said| {
            told.extend(said);
            told.is_empty()
        });
        assert!(
            err.unwrap_err()
                .to_string()
                .ends_with("given up, as the evaluation ends")
        );
        assert!(
            told[0]
                .ends_with("get_modality_config: connection refused; it is tried again for 300 s"),
            "{told:?}"
        );
    }

    #[test]
    fn an_unanswered_question_answers_itself() {
        let (give, answer) = channel();
        drop(Reply(Some(Box::new(move |acted: Acted| {
            drop(give.send(acted.chunks))
        }))));
        assert_eq!(
            answer.recv().unwrap().unwrap_err().to_string(),
            "the policy's thread has ended"
        );
    }
}
