//! The inference thread of a server: it owns the policy and infers one batch after the other.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jobs::serve_args::PolicyChoice;
use tch::Device;

use crate::clock::now;
use crate::env::EnvSpec;
use crate::policy::served::{self, Actions, ClientId, PolicyRequest, ServedSpec};
use crate::policy::{self, Checkpoints, InferenceError, Lifeline, PolicyError};
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
    pub answers: Vec<Result<Actions, InferenceError>>,
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
            let made = policy::using(device, || {
                served::serve(&choice, interface.as_ref(), &mut checkpoints, &lifeline)
            });
            match made {
                Ok(mut policy) => {
                    policy.notes().into_iter().for_each(&say);
                    // Cannot fail: `start` waits for it.
                    let _ = told.send(Ok(policy.card()));
                    let tell = || words.try_iter().for_each(&say);
                    if let Some(reason) = run(policy.as_mut(), device, &inbox, tell) {
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

/// Answers batches until the channel is closed, or the policy is lost. Returns why it is lost.
fn run(
    policy: &mut dyn served::Served,
    device: Device,
    messages: &Receiver<ServingMessage>,
    tell: impl Fn(),
) -> Option<String> {
    let card = policy.card();
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
        let answers = match policy::using(device, || policy.answer(&requests, max_rows)) {
            Ok(answers) => answers
                .into_iter()
                .map(|answer| checked(answer, &card))
                .collect(),
            Err(loss @ (PolicyError::DeviceLost(_) | PolicyError::Worker { .. })) => {
                return Some(loss.to_string());
            }
            Err(err) => {
                let reason = err.to_string();
                let failed = |_: &PolicyRequest| {
                    let reason = reason.clone();
                    Err(InferenceError::Row { reason })
                };
                requests.iter().map(failed).collect()
            }
        };
        give(InferredBatch {
            answers,
            took: started.elapsed(),
        });
        tell();
    }
    None
}

/// Returns actions that a robot can take, whatever the policy.
fn checked(
    answer: Result<Actions, InferenceError>,
    card: &ServedSpec,
) -> Result<Actions, InferenceError> {
    let actions = answer?;
    actions.check_finite(card)?;
    Ok(actions)
}

#[cfg(test)]
mod tests {
    use gr00t::client::PyObject;
    use gr00t::processor::KeyActions;

    use super::*;
    use crate::serve::vla_eval::tests::card;

    /// A policy that gives its requests the next of these answers.
    struct Told(Vec<Result<Vec<f32>, PolicyError>>);

    impl served::Served for Told {
        fn card(&self) -> ServedSpec {
            card(&[0])
        }

        fn answer(
            &mut self,
            requests: &[PolicyRequest],
            _: usize,
        ) -> Result<Vec<Result<Actions, InferenceError>>, PolicyError> {
            let values = self.0.remove(0)?;
            let key = |key: &str, width: usize| KeyActions {
                key: key.to_owned(),
                width,
                values: values[..2 * width].to_vec(),
            };
            let actions = Actions {
                rows: 1,
                horizon: 2,
                keys: vec![key("y", 1), key("x", 3)],
            };
            Ok(requests.iter().map(|_| Ok(actions.clone())).collect())
        }
    }

    /// Asks a policy as often as it has answers; returns what two requests get each time, and why
    /// the policy is lost.
    fn asked(answers: Vec<Result<Vec<f32>, PolicyError>>) -> (Vec<[String; 2]>, Option<String>) {
        let (messages, inbox) = channel();
        let (tell, told) = channel();
        for _ in 0..answers.len() {
            let request = PolicyRequest {
                observation: PyObject::Map(Vec::new()),
                noise: Vec::new(),
            };
            let tell = tell.clone();
            let batch = RequestBatch {
                requests: vec![request; 2],
                max_rows: 1,
                give: Box::new(move |inferred| tell.send(inferred.answers).unwrap()),
            };
            messages.send(ServingMessage::Infer(batch)).unwrap();
        }
        drop((messages, tell));
        let loss = run(&mut Told(answers), Device::Cpu, &inbox, || ());
        // Batches that a lost policy leaves are dropped with their replies.
        drop(inbox);
        let text = |answer: Result<Actions, InferenceError>| match answer {
            Ok(actions) => format!("{:?}", actions.keys[0].values),
            Err(err) => err.to_string(),
        };
        let texts = |answers: Vec<_>| {
            let texts: Vec<String> = answers.into_iter().map(text).collect();
            texts.try_into().unwrap()
        };
        (told.iter().map(texts).collect(), loss)
    }

    fn both(text: &str) -> [String; 2] {
        [(); 2].map(|()| text.to_owned())
    }

    #[test]
    fn no_robot_gets_a_number_that_is_not_finite() {
        let (ok, mut nan) = (vec![1.0; 6], vec![1.0; 6]);
        nan[4] = f32::NAN;
        let infinite = vec![1.0, f32::INFINITY, 1.0, 1.0, 1.0, 1.0];
        let (answers, loss) = asked(vec![Ok(nan), Ok(infinite), Ok(ok)]);
        let wanted = [
            "policy `gr00t` gave NaN as `x[1]` of action 1",
            "policy `gr00t` gave inf as `y[0]` of action 1",
            "[1.0, 1.0]",
        ];
        assert_eq!((answers, loss), (wanted.map(both).to_vec(), None));
    }

    #[test]
    fn a_call_that_fails_is_an_error_of_each_request_and_the_policy_goes_on() {
        let failed = || Err(InferenceError::NoPolicy.into());
        let (answers, loss) = asked(vec![failed(), Ok(vec![1.0; 6])]);
        assert_eq!(answers, [both("no policy was made"), both("[1.0, 1.0]")]);
        assert_eq!(loss, None);
        let lost = || Err(PolicyError::DeviceLost("gone".to_owned()));
        let (answers, loss) = asked(vec![lost(), Ok(vec![1.0; 6])]);
        assert_eq!((answers, loss), (Vec::new(), Some("gone".to_owned())));
    }
}
