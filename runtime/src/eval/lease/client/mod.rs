//! The lease client: a thread that talks to the store about leases on its own connection.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use jobs::assign::lease::{
    self, Claimer, Hold, LeaseHolder, LeaseKey, LeaseOp, LeaseReply, LeasedJob, NextStep, Want,
};
use jobs::job::JobIndex;

use crate::eval::lease::{ANSWER, LeaseError};
use c10d::{DistError, Lookup as _, Store, StoreAddr};

/// Time limit for the first connection to the store.
const CONNECT: Duration = Duration::from_secs(60);

/// Time limit for the answer to a request, after which the connection is taken for dead.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time limit of one attempt to reconnect. A request and all [`MENDS`] together take less than
/// [`ANSWER`].
const MEND_LIMIT: Duration = Duration::from_secs(5);

/// Number of attempts to reconnect.
const MENDS: u32 = 6;

/// Pause between two attempts to reconnect.
const PAUSE: Duration = Duration::from_secs(1);

/// Lease configuration: where the leases are stored.
#[derive(Clone, Debug)]
pub struct LeaseConfig {
    /// Address of the store.
    pub addr: StoreAddr,
    /// Prefix of every key: launch and round.
    pub prefix: String,
    /// The rank that claims leases.
    pub rank: usize,
}

/// The handle of the lease thread in the rank's main loop.
pub struct LeaseClient {
    questions: Sender<LeaseRequest>,
    addr: StoreAddr,
}

type Answered<T> = Sender<Result<T, DistError>>;

enum LeaseRequest {
    Claim {
        want: Want,
        gone: BTreeSet<usize>,
        reply: Answered<NextStep>,
    },
    Mark {
        holder: LeaseHolder,
        job: JobIndex,
        block: usize,
        reply: Answered<Option<LeaseHolder>>,
    },
    Done {
        holder: LeaseHolder,
        job: JobIndex,
        block: usize,
    },
    Tell(Vec<LeaseOp>),
}

impl LeaseClient {
    /// Connects to the store and counts this life of the rank (its first start or a restart).
    ///
    /// # Errors
    /// Returns a [`LeaseError`] if the store cannot be reached.
    pub fn start(
        config: LeaseConfig,
        tasks: Vec<LeasedJob>,
    ) -> Result<(Self, LeaseHolder), LeaseError> {
        let (questions, inbox) = channel();
        let (reply, answer) = channel();
        let addr = config.addr.clone();
        let serve = move || match LeaseWorker::open(&config) {
            Ok((worker, me)) => {
                drop(reply.send(Ok(me)));
                worker.serve(Claimer::new(me, tasks), &inbox);
            }
            Err(err) => drop(reply.send(Err(err))),
        };
        thread::Builder::new()
            .name("leases".to_owned())
            .spawn(serve)
            .map_err(LeaseError::Thread)?;
        let client = Self { questions, addr };
        let me = client.wait(&answer, CONNECT + ANSWER)?;
        Ok((client, me))
    }

    /// Claims the next block; see [`Claimer::start`].
    ///
    /// # Errors
    /// Returns a [`LeaseError`] if the store is gone or does not answer.
    pub fn claim(&self, want: Want, gone: BTreeSet<usize>) -> Result<NextStep, LeaseError> {
        let (reply, answer) = channel();
        self.ask(LeaseRequest::Claim { want, gone, reply });
        self.wait(&answer, ANSWER)
    }

    /// Marks a lease before an episode is written; returns `None` if another rank has taken it
    /// over.
    ///
    /// # Errors
    /// Returns the same errors as [`LeaseClient::claim`].
    pub fn mark(
        &self,
        holder: LeaseHolder,
        job: JobIndex,
        block: usize,
    ) -> Result<Option<LeaseHolder>, LeaseError> {
        let (reply, answer) = channel();
        self.ask(LeaseRequest::Mark {
            holder,
            job,
            block,
            reply,
        });
        self.wait(&answer, ANSWER)
    }

    /// Reports that all episodes of a block are written. Does not wait.
    pub fn done(&self, holder: LeaseHolder, job: JobIndex, block: usize) {
        self.ask(LeaseRequest::Done { holder, job, block });
    }

    /// Reports that the rank begins (1) or leaves (-1) a job. Does not wait.
    pub fn helps(&self, job: JobIndex, delta: i64) {
        self.ask(LeaseRequest::Tell(vec![LeaseOp::Add(
            LeaseKey::Helpers(job),
            delta,
        )]));
    }

    /// Closes a job for all ranks. Does not wait.
    pub fn shut(&self, job: JobIndex) {
        self.ask(LeaseRequest::Tell(lease::shut(job).into()));
    }

    fn ask(&self, question: LeaseRequest) {
        // If the thread has ended, the next call that waits for an answer reports it.
        let _ = self.questions.send(question);
    }

    fn wait<T>(
        &self,
        answer: &Receiver<Result<T, DistError>>,
        limit: Duration,
    ) -> Result<T, LeaseError> {
        let store = |err| LeaseError::Store {
            addr: self.addr.clone(),
            err,
        };
        match answer.recv_timeout(limit) {
            Ok(answer) => answer.map_err(store),
            Err(RecvTimeoutError::Timeout) => Err(LeaseError::Silent {
                addr: self.addr.clone(),
                after: limit,
            }),
            Err(RecvTimeoutError::Disconnected) => Err(store(DistError::Lost {
                reason: "the thread that talks to it has ended".to_owned(),
            })),
        }
    }
}

/// The side of the lease thread that holds the connection.
struct LeaseWorker {
    config: LeaseConfig,
    store: Store,
}

impl LeaseWorker {
    fn open(config: &LeaseConfig) -> Result<(Self, LeaseHolder), DistError> {
        let worker = Self {
            config: config.clone(),
            store: config.enter(CONNECT)?,
        };
        let LeaseReply::Sum(life) = worker.ask(&LeaseOp::Add(LeaseKey::Life(config.rank), 1))?
        else {
            return Err(mistaken());
        };
        Ok((
            worker,
            LeaseHolder {
                rank: config.rank,
                life,
                mark: 0,
            },
        ))
    }

    fn serve(mut self, mut claimer: Claimer, inbox: &Receiver<LeaseRequest>) {
        for question in inbox {
            // An answer that cannot be sent has no receiver any more.
            match question {
                LeaseRequest::Claim { want, gone, reply } => {
                    drop(reply.send(self.claim(&mut claimer, want, gone)));
                }
                LeaseRequest::Mark {
                    holder,
                    job,
                    block,
                    reply,
                } => {
                    drop(reply.send(self.mark(holder, job, block)));
                }
                LeaseRequest::Done { holder, job, block } => self.done(holder, job, block),
                LeaseRequest::Tell(ops) => {
                    for op in ops {
                        self.told(op);
                    }
                }
            }
        }
    }

    fn claim(
        &mut self,
        claimer: &mut Claimer,
        want: Want,
        gone: BTreeSet<usize>,
    ) -> Result<NextStep, DistError> {
        let mut answer = claimer.start(want, gone);
        while let NextStep::Ask(op) = answer {
            answer = claimer.on(self.reply(&op)?);
        }
        Ok(answer)
    }

    fn mark(
        &mut self,
        holder: LeaseHolder,
        job: JobIndex,
        block: usize,
    ) -> Result<Option<LeaseHolder>, DistError> {
        let (op, marked) = lease::mark(holder, job, block);
        Ok((self.reply(&op)? == LeaseReply::Is(Hold::By(marked))).then_some(marked))
    }

    fn done(&mut self, holder: LeaseHolder, job: JobIndex, block: usize) {
        let [lease, closed] = lease::done(holder, job, block);
        if self.told(lease) == Some(LeaseReply::Is(Hold::Done(holder))) {
            self.told(closed);
        }
    }

    /// Sends an operation whose result no caller waits for. If it is lost, other ranks find the
    /// episodes in the journals.
    fn told(&mut self, op: LeaseOp) -> Option<LeaseReply> {
        self.reply(&op)
            .inspect_err(|err| tracing::warn!(%err, ?op, "a lease is not told"))
            .ok()
    }

    /// Sends an operation, and reconnects if the connection breaks. The store may have applied it
    /// before the connection broke. That does no harm to a swap, which sees its own result, or to
    /// `next`, where a skipped number is found by the search for free leases. A block that is
    /// counted twice in `closed` would hide another, so that operation is not repeated.
    fn reply(&mut self, op: &LeaseOp) -> Result<LeaseReply, DistError> {
        let mut result = self.ask(op);
        for _ in 0..MENDS {
            match &result {
                Err(err)
                    if err.is_lost() && !matches!(op, LeaseOp::Add(LeaseKey::Closed(_), 1..)) =>
                {
                    tracing::warn!(%err, "connects to the store again");
                }
                _ => break,
            }
            match self.config.enter(MEND_LIMIT) {
                Ok(store) => {
                    self.store = store;
                    result = self.ask(op);
                }
                Err(_) => rest(),
            }
        }
        result
    }

    fn ask(&self, op: &LeaseOp) -> Result<LeaseReply, DistError> {
        match op {
            LeaseOp::Add(key, delta) => {
                Ok(LeaseReply::Sum(self.store.add(&key.to_string(), *delta)?))
            }
            LeaseOp::Swap(key, from, to) => {
                let (name, from, to) = (key.to_string(), from.to_string(), to.to_string());
                let found = self
                    .store
                    .compare_set(&name, from.as_bytes(), to.as_bytes())?;
                Ok(LeaseReply::Is(hold(*key, &found)?))
            }
            LeaseOp::Sums(keys) => {
                let sum = |text: &Option<Vec<u8>>| text.as_deref().map_or(0, number);
                let found = self.store.find(&names(keys))?;
                Ok(LeaseReply::Sums(found.iter().map(sum).collect()))
            }
            LeaseOp::Holds(keys) => {
                let found = self.store.find(&names(keys))?;
                let read = |(key, text): (&LeaseKey, &Option<Vec<u8>>)| {
                    hold(*key, text.as_deref().unwrap_or_default())
                };
                let holds = keys.iter().zip(&found).map(read);
                Ok(LeaseReply::Holds(holds.collect::<Result<_, _>>()?))
            }
            LeaseOp::AreThere(keys) => {
                let are_there = self.store.check_all(&names(keys))?;
                Ok(LeaseReply::AreThere(are_there))
            }
        }
    }
}

fn names(keys: &[LeaseKey]) -> Vec<String> {
    keys.iter().map(LeaseKey::to_string).collect()
}

/// Returns the value of a counter, which the store has as text.
fn number(text: &[u8]) -> i64 {
    let text = str::from_utf8(text).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn hold(key: LeaseKey, text: &[u8]) -> Result<Hold, DistError> {
    let text = String::from_utf8_lossy(text);
    text.parse().map_err(|what| DistError::Misuse {
        what: format!("{key}: {what}"),
    })
}

impl LeaseConfig {
    fn enter(&self, timeout: Duration) -> Result<Store, DistError> {
        // A server may count the ranks that connect, and this rank is counted already: it must not
        // be counted again.
        let store = Store::connect(&self.addr, 0, false, timeout)?;
        Ok(store.prefix(&self.prefix).answering_within(PATIENCE))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a thread of its own, with nothing else to do"
)]
fn rest() {
    thread::sleep(PAUSE);
}

fn mistaken() -> DistError {
    DistError::Misuse {
        what: "a sum was asked for, and a value came".to_owned(),
    }
}
