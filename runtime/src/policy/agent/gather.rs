//! Answers that come from several threads, given on together.

use std::sync::{Arc, Mutex, PoisonError};

use crate::policy::{Chunk, Give, PolicyError};

/// What has come so far.
pub(super) struct Gather {
    chunks: Vec<Option<Chunk>>,
    /// The first error.
    error: Option<PolicyError>,
    /// Places that nobody has filled.
    left: usize,
    give: Option<Give>,
}

/// The place of one answer; dropped without one, it is an error, so that nobody waits for ever.
pub(super) struct Place {
    gather: Arc<Mutex<Gather>>,
    index: usize,
    is_filled: bool,
}

impl Gather {
    /// Places for so many answers; the last that is filled gives all of them on.
    pub(super) fn places(count: usize, give: Give) -> Vec<Place> {
        let gather = Self { chunks: vec![None; count], error: None, left: count, give: Some(give) };
        let gather = Arc::new(Mutex::new(gather));
        (0..count).map(|index| Place { gather: Arc::clone(&gather), index, is_filled: false }).collect()
    }

    /// What is to be given on, and to whom, if this was the last.
    fn fill(
        &mut self,
        index: usize,
        answer: Result<Chunk, PolicyError>,
    ) -> Option<(Give, Result<Vec<Chunk>, PolicyError>)> {
        match answer {
            Ok(chunk) => self.chunks[index] = Some(chunk),
            Err(err) => drop(self.error.get_or_insert(err)),
        }
        self.left -= 1;
        if self.left > 0 {
            return None;
        }
        let chunks: Vec<_> = std::mem::take(&mut self.chunks).into_iter().flatten().collect();
        Some((self.give.take()?, self.error.take().map_or(Ok(chunks), Err)))
    }
}

impl Place {
    /// Fills it.
    pub(super) fn put(mut self, answer: Result<Chunk, PolicyError>) {
        self.fill(answer);
    }

    fn fill(&mut self, answer: Result<Chunk, PolicyError>) {
        if std::mem::replace(&mut self.is_filled, true) {
            return;
        }
        let last = self.gather.lock().unwrap_or_else(PoisonError::into_inner).fill(self.index, answer);
        if let Some((give, answer)) = last {
            give(answer);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.fill(Err(PolicyError::Inference("a planner's thread has ended without an answer".to_owned())));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    type Answer = Result<Vec<Chunk>, PolicyError>;

    fn places(count: usize) -> (Vec<Place>, Receiver<Answer>) {
        let (give, answer) = channel();
        (Gather::places(count, Box::new(move |chunks| drop(give.send(chunks)))), answer)
    }

    fn chunk(value: f32) -> Chunk {
        Chunk::new(1, vec![value])
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
        places.remove(0).put(Err(PolicyError::Inference("away".to_owned())));
        places.remove(0).put(Ok(chunk(0.0)));
        assert_eq!(answer.recv().unwrap().unwrap_err().to_string(), "away");
    }

    #[test]
    fn a_place_that_nobody_fills_is_an_error() {
        let (places, answer) = places(1);
        drop(places);
        assert!(answer.recv().unwrap().unwrap_err().to_string().contains("without an answer"));
    }
}
