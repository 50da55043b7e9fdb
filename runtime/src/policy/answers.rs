//! What a policy answers for a row, and when a row's failure is that of its policy.

use crate::policy::{Chunk, PolicyError, RowError};

/// Number of rows that fail in succession, with none answered between them, until their policy has
/// failed: more than a few states that a network cannot take, and few of a job's episodes.
const MOST_FAILED_ROWS: usize = 16;

/// What the inference of a row gives.
#[derive(Clone, Debug, PartialEq)]
pub enum RowAnswer {
    /// The actions of the next steps.
    Chunk(Chunk),
    /// The policy ends the episode: no step is taken, and the episode counts as not solved unless
    /// it was solved before.
    End,
    /// The inference of the row failed. It costs the row's episode or request, and no other.
    Failed(RowError),
}

impl RowAnswer {
    /// Returns the chunk, if there is one.
    pub fn chunk(&self) -> Option<&Chunk> {
        match self {
            Self::Chunk(chunk) => Some(chunk),
            Self::End | Self::Failed(_) => None,
        }
    }

    /// Returns why the inference failed, if it did.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed(RowError(reason)) => Some(reason),
            Self::Chunk(_) | Self::End => None,
        }
    }
}

impl From<Result<Chunk, RowError>> for RowAnswer {
    fn from(result: Result<Chunk, RowError>) -> Self {
        match result {
            Ok(chunk) => Self::Chunk(chunk),
            Err(err) => Self::Failed(err),
        }
    }
}

/// Refuses actions of `width` numbers each if a number is not finite: what moves by them is an
/// environment, or a robot. `name` names a component of an action.
///
/// # Errors
/// Returns the error for the first such number.
pub fn check_finite(
    policy: &str,
    values: &[f32],
    width: usize,
    name: impl FnOnce(usize) -> String,
) -> Result<(), RowError> {
    match values.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(place) => Err(RowError(format!(
            "policy `{policy}` gave {} as `{}` of action {}",
            values[place],
            name(place % width),
            place / width
        ))),
    }
}

/// The rows of a policy that have failed since it last answered one.
#[derive(Debug, Default)]
pub struct FailedRows(usize);

impl FailedRows {
    /// Counts the failures of a call.
    ///
    /// # Errors
    /// Returns an error with the reason of the last row if the policy answers no row any more.
    pub fn count(&mut self, policy: &str, answers: &[RowAnswer]) -> Result<(), PolicyError> {
        let mut reasons = answers.iter().map(RowAnswer::failure);
        let Some(Some(reason)) = reasons.next_back() else {
            self.0 = 0;
            return Ok(());
        };
        if reasons.any(|reason| reason.is_none()) {
            self.0 = 0;
            return Ok(());
        }
        self.0 += answers.len();
        if self.0 < MOST_FAILED_ROWS {
            return Ok(());
        }
        Err(PolicyError::Failed(format!(
            "policy `{policy}` has answered none of {} observations in succession, at last: \
             {reason}",
            self.0
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered() -> RowAnswer {
        RowAnswer::Chunk(Chunk::new(1, vec![0.0]))
    }

    fn failed(reason: &str) -> RowAnswer {
        RowAnswer::Failed(RowError(reason.to_owned()))
    }

    #[test]
    fn a_number_that_is_not_finite_is_refused_with_policy_and_component() {
        let name = |component: usize| ["dx", "gripper"][component].to_owned();
        check_finite("torchscript", &[0.0, 1.0], 2, name).unwrap();
        for (values, reason) in [
            (
                &[0.0, 1.0, 2.0, f32::NAN][..],
                "gave NaN as `gripper` of action 1",
            ),
            (&[f32::NEG_INFINITY, 1.0], "gave -inf as `dx` of action 0"),
        ] {
            let refused = check_finite("torchscript", values, 2, name).unwrap_err();
            assert_eq!(
                refused.to_string(),
                format!("policy `torchscript` {reason}")
            );
        }
    }

    #[test]
    fn a_policy_that_answers_no_row_any_more_has_failed() {
        let mut failures = FailedRows::default();
        let mut count = |answers: &[RowAnswer]| failures.count("torchscript", answers);
        for _ in 0..100 {
            count(&vec![failed("a"); MOST_FAILED_ROWS - 1]).unwrap();
            count(&[failed("a"), answered(), failed("a")]).unwrap();
        }
        for _ in 0..MOST_FAILED_ROWS - 1 {
            count(&[failed("b")]).unwrap();
        }
        let lost = count(&[failed("c")]).unwrap_err().to_string();
        let wanted = "has answered none of 16 observations in succession, at last: c";
        assert_eq!(lost, format!("policy `torchscript` {wanted}"));
    }

    #[test]
    fn an_episode_that_its_policy_ends_was_answered() {
        let mut failures = FailedRows::default();
        for _ in 0..2 {
            failures.count("python", &vec![failed("a"); 10]).unwrap();
            failures.count("python", &[RowAnswer::End]).unwrap();
        }
    }
}
