//! Gathers the answers of several threads and delivers them together.

use std::sync::{Arc, Mutex, PoisonError};

use crate::policy::agent::PlannerError;
use crate::policy::{GiveAnswers, InferenceError, PolicyError, RowAnswer};

/// The answers that have arrived so far.
pub(super) struct Gather {
    answers: Vec<Option<RowAnswer>>,
    /// The first error that occurred.
    error: Option<PolicyError>,
    /// Number of places that are not filled yet.
    left: usize,
    give: Option<GiveAnswers>,
}

/// All answers, and their receiver.
struct GatheredAnswers {
    give: GiveAnswers,
    answers: Result<Vec<RowAnswer>, PolicyError>,
}

/// The place for one answer. If it is dropped unfilled it yields an error, so that the receiver
/// does not wait forever.
pub(super) struct AnswerPlace {
    gather: Arc<Mutex<Gather>>,
    index: usize,
    is_filled: bool,
}

impl Gather {
    /// Returns `count` places; filling the last one delivers all answers to `give`.
    pub(super) fn places(count: usize, give: GiveAnswers) -> Vec<AnswerPlace> {
        let gather = Self {
            answers: vec![None; count],
            error: None,
            left: count,
            give: Some(give),
        };
        let gather = Arc::new(Mutex::new(gather));
        (0..count)
            .map(|index| AnswerPlace {
                gather: Arc::clone(&gather),
                index,
                is_filled: false,
            })
            .collect()
    }

    /// Fills a place. If it was the last one, returns all answers.
    fn fill(
        &mut self,
        index: usize,
        answer: Result<RowAnswer, PolicyError>,
    ) -> Option<GatheredAnswers> {
        match answer {
            Ok(answer) => self.answers[index] = Some(answer),
            Err(err) => drop(self.error.get_or_insert(err)),
        }
        self.left -= 1;
        if self.left > 0 {
            return None;
        }
        let answers: Vec<_> = std::mem::take(&mut self.answers)
            .into_iter()
            .flatten()
            .collect();
        Some(GatheredAnswers {
            give: self.give.take()?,
            answers: self.error.take().map_or(Ok(answers), Err),
        })
    }
}

impl AnswerPlace {
    /// Fills the place with an answer.
    pub(super) fn put(mut self, answer: Result<RowAnswer, PolicyError>) {
        self.fill(answer);
    }

    fn fill(&mut self, answer: Result<RowAnswer, PolicyError>) {
        if std::mem::replace(&mut self.is_filled, true) {
            return;
        }
        let last = self
            .gather
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .fill(self.index, answer);
        if let Some(GatheredAnswers { give, answers }) = last {
            give(answers);
        }
    }
}

impl Drop for AnswerPlace {
    fn drop(&mut self) {
        self.fill(Err(InferenceError::from(PlannerError::Unanswered).into()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;
    use crate::policy::Chunk;

    type Gathered = Result<Vec<RowAnswer>, PolicyError>;

    fn places(count: usize) -> (Vec<AnswerPlace>, Receiver<Gathered>) {
        let (give, answer) = channel();
        let give = move |answers| drop(give.send(answers));
        (Gather::places(count, Box::new(give)), answer)
    }

    fn chunk(value: f32) -> RowAnswer {
        RowAnswer::Chunk(Chunk::new(1, vec![value]))
    }

    #[test]
    fn answers_are_given_on_together_and_in_order() {
        let (mut places, answer) = places(2);
        places.remove(1).put(Ok(chunk(1.0)));
        assert!(answer.try_recv().is_err());
        places.remove(0).put(Ok(chunk(0.0)));
        assert_eq!(answer.recv().unwrap().unwrap(), [chunk(0.0), chunk(1.0)]);
    }

    #[test]
    fn one_error_is_the_answer_of_all() {
        let (mut places, answer) = places(2);
        let ended = InferenceError::ThreadEnded.into();
        places.remove(0).put(Err(ended));
        places.remove(0).put(Ok(chunk(0.0)));
        let reason = answer.recv().unwrap().unwrap_err().to_string();
        assert_eq!(reason, "the policy's thread has ended");
    }

    #[test]
    fn a_place_that_nobody_fills_is_an_error() {
        let (places, answer) = places(1);
        drop(places);
        let reason = answer.recv().unwrap().unwrap_err().to_string();
        assert!(reason.contains("without an answer"), "{reason}");
    }
}
