//! Infers the rows of a policy in batches that its network takes and that fit into memory.
//!
//! ```text
//! rows ─► as many as fit ─► filled up ─► network ─┬─ answered ───────► next rows
//!              ▲            (captured sizes)      ├─ failed ─────────► one by one
//!              └────────────── fewer rows (ladder) ┴─ out of memory ─► cache released
//! ```
//!
//! The limit learnt for a checkpoint on its device holds for all jobs of the rank that use it.

mod ladder;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tch::Device;

use crate::policy::{Lifeline, PolicyError, RowError, loss, release};
use models::graphs::{Graphs, bucket};
use torchlib::torch_error::{caught, is_out_of_memory, shortage};

pub use ladder::Ladder;

/// How often a policy ran out of memory, and to what batch size that led.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortage {
    /// Number of inferences that ran out of memory.
    pub count: u64,
    /// Maximum number of rows of one inference; 0 if not even one fitted, `None` while memory was
    /// never short.
    pub batch: Option<usize>,
}

/// Runs the network of one policy.
pub struct Runner {
    /// The passes that are captured, which belong to the checkpoint.
    pub graphs: Rc<RefCell<Graphs>>,
    /// Minimum number of rows of one inference: fewer are filled up.
    pub min_rows: usize,
    /// Maximum number of rows of one inference.
    pub max_rows: usize,
    /// The limit that was learnt for the checkpoint.
    ladder: Rc<RefCell<Ladder>>,
    device: Device,
    lifeline: Lifeline,
    count: Cell<u64>,
}

impl Runner {
    /// Creates the runner of a policy whose checkpoint has this limit and these graphs. Changes of
    /// the limit are reported to `lifeline`.
    pub fn new(
        device: Device,
        ladder: Rc<RefCell<Ladder>>,
        graphs: Rc<RefCell<Graphs>>,
        lifeline: Lifeline,
    ) -> Self {
        Self {
            graphs,
            min_rows: 1,
            max_rows: usize::MAX,
            ladder,
            device,
            lifeline,
            count: Cell::new(0),
        }
    }

    /// Returns the shortage of this policy so far.
    pub fn shortage(&self) -> Shortage {
        Shortage {
            count: self.count.get(),
            batch: self.ladder.borrow().limit(),
        }
    }

    /// Returns up to how many rows a batch of `rows` rows is filled: the minimum, and a size that
    /// is captured if `fills` is set.
    pub fn filled(&self, rows: usize, fills: bool) -> usize {
        let limit = self.ladder.borrow().rows();
        let most = limit.min(self.max_rows).max(self.min_rows);
        let size = if fills { bucket(rows, most) } else { rows };
        size.max(self.min_rows)
    }

    /// Infers all rows, and returns one result each, in order. `run` gets the rows of one batch,
    /// [filled](Self::filled) up with its last row, and returns a result for each; it must have
    /// released its tensors when it returns an error. When memory runs out, it gets fewer rows. The
    /// rows of a batch that fails for another reason are inferred one by one, so that a row costs
    /// no other its answer.
    ///
    /// # Errors
    /// Returns an error that no row survives: the device is lost, or has no room for one row.
    pub fn infer<'a, R, T>(
        &self,
        rows: &'a [R],
        fills: bool,
        mut run: impl FnMut(&[&'a R]) -> Result<Vec<T>, PolicyError>,
    ) -> Result<Vec<Result<T, RowError>>, PolicyError> {
        let mut answers = Vec::with_capacity(rows.len());
        // Up to here, rows are inferred one by one, because they failed together.
        let mut alone = 0;
        while answers.len() < rows.len() {
            let left = &rows[answers.len()..];
            let most = if answers.len() < alone {
                1
            } else {
                self.max_rows.max(1).min(self.ladder.borrow().rows())
            };
            let now = &left[..left.len().min(most)];
            let filled = self.filled(now.len(), fills);
            let last = now.last().into_iter().cycle();
            let batch: Vec<&R> = now.iter().chain(last).take(filled).collect();
            let result = self.attempt(|| {
                let results = run(&batch)?;
                if results.len() < now.len() {
                    return Err(RowError::not_inferred().into());
                }
                Ok(results)
            });
            match self.settled(now.len(), result) {
                None => {}
                Some(Ok(results)) => answers.extend(results.into_iter().take(now.len()).map(Ok)),
                Some(Err(err)) => {
                    let err = match loss(self.device, &err) {
                        Some(loss) => return Err(loss),
                        None => err.of_row()?,
                    };
                    if now.len() == 1 {
                        answers.push(Err(err));
                    } else {
                        alone = answers.len() + now.len();
                    }
                }
            }
        }
        Ok(answers)
    }

    /// Runs a pass of the network; its panic is an error. If memory is short, the captured passes
    /// make room.
    pub fn attempt<T>(
        &self,
        pass: impl FnOnce() -> Result<T, PolicyError>,
    ) -> Result<T, PolicyError> {
        let result = caught(pass).unwrap_or_else(|reason| Err(RowError(reason).into()));
        if let Err(err) = &result
            && is_out_of_memory(&err.to_string())
        {
            self.graphs.borrow_mut().make_room();
        }
        result
    }

    /// Returns the result of an inference, or `None` if it has to be tried again.
    fn settled<T>(
        &self,
        rows: usize,
        result: Result<T, PolicyError>,
    ) -> Option<Result<T, PolicyError>> {
        let err = match result {
            Err(err) if is_out_of_memory(&err.to_string()) => err,
            Err(err) => return Some(Err(err)),
            Ok(answer) => {
                if let Some(landed) = self.ladder.borrow_mut().on_answer() {
                    self.lifeline.say(format!(
                        "out of memory with {} rows in one inference: at most {} from now on; \
                         --max-batch {} does so from the start, and fewer num_envs leave more for \
                         the policy",
                        landed.from, landed.to, landed.to
                    ));
                }
                return Some(Ok(answer));
            }
        };
        self.count.set(self.count.get() + 1);
        release(self.device);
        if self.ladder.borrow_mut().on_oom(rows) {
            return None;
        }
        let shortage = shortage(&err.to_string()).to_owned();
        Some(Err(PolicyError::Failed(format!(
            "out of memory: not even one row fits into an inference ({shortage}); fewer num_envs \
             leave more for the policy, and so does a higher --gpu-memory if it is given \
             (--num-envs N is for all jobs; `rrun fit` shows which N fits)"
        ))))
    }
}

#[cfg(test)]
mod tests;
