//! Divides the rows of an inference into batches that fit into memory.
//!
//! ```text
//! rows ─► as many as fit ─► network ─┬─ answered ───────► next rows
//!              ▲                     └─ out of memory ─► cache released, fewer rows (ladder)
//!              └───────────────────────────┘
//! ```
//!
//! The limit learnt for a checkpoint on its device holds for all jobs of the rank that use it.

mod ladder;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tch::Device;

use crate::policy::{Lifeline, PolicyError, RowError, loss, release};
use torchlib::torch_error::{is_out_of_memory, shortage};

use ladder::{Ladder, NextTry};

/// How often a policy ran out of memory, and to what batch size that led.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortage {
    /// Number of inferences that ran out of memory.
    pub count: u64,
    /// Maximum number of rows of one inference; 0 if not even one fitted, `None` while memory was
    /// never short.
    pub batch: Option<usize>,
}

/// The learnt limits of all checkpoints of a rank.
#[derive(Debug)]
pub struct Ladders {
    device: Device,
    lifeline: Lifeline,
    by_path: BTreeMap<PathBuf, Rc<RefCell<Ladder>>>,
}

/// The learnt limit of one policy's checkpoint.
#[derive(Debug)]
pub struct Batches {
    ladder: Rc<RefCell<Ladder>>,
    device: Device,
    lifeline: Lifeline,
    count: Cell<u64>,
}

/// Rows that were inferred together, and the result.
#[derive(Debug)]
struct InferredRows<'a, R, T> {
    /// The rows, in order.
    rows: &'a [R],
    /// What the inference gave.
    result: Result<T, PolicyError>,
}

impl Ladders {
    /// Creates the limits, none of which is known yet on `device`; changes are reported to
    /// `lifeline`.
    pub fn new(device: Device, lifeline: Lifeline) -> Self {
        Self {
            device,
            lifeline,
            by_path: BTreeMap::new(),
        }
    }

    /// Returns the limit for a policy made from this file or folder.
    pub fn batches(&mut self, path: &Path) -> Batches {
        let ladder = Rc::clone(self.by_path.entry(path.to_owned()).or_default());
        Batches {
            ladder,
            device: self.device,
            lifeline: self.lifeline.clone(),
            count: Cell::new(0),
        }
    }
}

impl Batches {
    /// Returns the shortage of this policy so far.
    pub fn shortage(&self) -> Shortage {
        Shortage {
            count: self.count.get(),
            batch: self.ladder.borrow().limit(),
        }
    }

    /// Infers all rows as [`Batches::split`] does. The rows of a batch that fails for another
    /// reason than memory are inferred one by one, so that a row costs no other its answer.
    ///
    /// # Errors
    /// Returns an error that no row survives: the device is lost, or has no room for one row.
    pub fn infer<'a, R, T>(
        &self,
        rows: &'a [R],
        max_rows: usize,
        mut run: impl FnMut(&'a [R]) -> Result<Vec<T>, PolicyError>,
    ) -> Result<Vec<Result<T, RowError>>, PolicyError> {
        let mut answers = Vec::with_capacity(rows.len());
        for InferredRows { rows, result } in self.split(rows, max_rows, &mut run) {
            match result {
                Ok(all) => answers.extend(all.into_iter().map(Ok)),
                Err(err) if rows.len() == 1 => answers.push(Err(self.of_row(err)?)),
                Err(err) => {
                    self.of_row(err)?;
                    for alone in self.split(rows, 1, &mut run) {
                        match alone.result {
                            Ok(all) => answers.extend(all.into_iter().map(Ok)),
                            Err(err) => answers.push(Err(self.of_row(err)?)),
                        }
                    }
                }
            }
        }
        Ok(answers)
    }

    /// Returns the error of a batch as that of a row.
    fn of_row(&self, err: PolicyError) -> Result<RowError, PolicyError> {
        match loss(self.device, &err) {
            Some(loss) => Err(loss),
            None => err.of_row(),
        }
    }

    /// Infers all rows in order, with at most `max_rows` at a time and no more than fit. When
    /// memory runs out, `run` is called again with fewer rows. It must have released its tensors
    /// when it returns an error.
    fn split<'a, R, T>(
        &self,
        rows: &'a [R],
        max_rows: usize,
        mut run: impl FnMut(&'a [R]) -> Result<T, PolicyError>,
    ) -> Vec<InferredRows<'a, R, T>> {
        let mut parts = Vec::new();
        let mut left = rows;
        while !left.is_empty() {
            let limit = self.ladder.borrow().rows();
            let (now, later) = left.split_at(left.len().min(max_rows.max(1)).min(limit));
            let Some(result) = self.settled(now.len(), run(now)) else {
                continue;
            };
            parts.push(InferredRows { rows: now, result });
            left = later;
        }
        parts
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
        match self.ladder.borrow_mut().on_oom(rows) {
            NextTry::Halve | NextTry::Again => None,
            NextTry::GiveUp => {
                let shortage = shortage(&err.to_string()).to_owned();
                Some(Err(PolicyError::Failed(format!(
                    "out of memory: not even one row fits into an inference ({shortage}); fewer \
                     num_envs leave more for the policy, and so does a higher --gpu-memory if it \
                     is given (--num-envs N is for all jobs; `rrun fit` shows which N fits)"
                ))))
            }
        }
    }
}

#[cfg(test)]
mod tests;
