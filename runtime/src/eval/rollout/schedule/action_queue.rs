//! Which action of which chunk an environment takes at which step of an episode. Pure: no I/O.
//!
//! ```text
//! step          0   1   2   3   4   5   6   7   8   9 …     s = 4 (interval), d = 2 (delay)
//! inference     ▲ 0             ▲ 1             ▲ 2         looks at the observation of this step
//! arrives       │               └──────►        └──────►    the first one is waited for
//! action        0.0 0.1 0.2 0.3 0.4 0.5 1.2 1.3 1.4 1.5 …   chunk.index
//! ```
//! An inference begins every `s` steps. Its chunk arrives `d` steps later; until then the
//! environment takes the actions of the previous chunk, and then those of the new one from index
//! `d`, which is the action for that step. Before the first chunk there is nothing to take: the
//! environment waits for it, as a robot does, and it begins at index 0. This is the schedule of
//! `eval_flow.py` of "Real-Time Execution of Action Chunking Flow Policies" (Black et al. 2025).
//!
//! With `d` = 0, an environment takes the first `s` actions of each chunk. If an inference takes
//! longer than `s`, the next one begins when it ends. If the previous chunk ends before the new one
//! arrives, the last action is repeated, see [`Hold`].

use jobs::latency::Hold;

use crate::policy::Chunk;

/// The actions of one environment in one episode.
#[derive(Debug, Default)]
pub struct ActionQueue {
    /// The chunk whose actions are taken, and the index of the next one.
    current: Option<(Chunk, usize)>,
    /// A chunk that arrives when its observation has this age.
    arriving: Option<(Chunk, usize)>,
    /// Number of steps since the observation of the newest chunk.
    age: usize,
    /// Number of steps after that observation at which the next inference begins.
    interval: usize,
    last: Vec<f32>,
}

/// An action of an [`ActionQueue`].
#[derive(Debug, PartialEq)]
pub struct NextAction {
    /// The action.
    pub values: Vec<f32>,
    /// True if no chunk had an action for this step.
    pub is_held: bool,
}

impl ActionQueue {
    /// Returns whether an inference has to begin before the next step.
    pub fn needs_chunk(&self) -> bool {
        self.current.is_none() || (self.arriving.is_none() && self.age >= self.interval)
    }

    /// Returns the number of steps since the observation of the newest chunk; `None` before the
    /// first.
    pub fn age(&self) -> Option<usize> {
        self.current.is_some().then_some(self.age)
    }

    /// Adds the chunk for the observation before the next step. It arrives `delay` steps later, or
    /// at once if it is the first. The next inference begins `interval` steps after this one, or
    /// when the chunk is used up, or when it arrives.
    pub fn add(&mut self, chunk: Chunk, delay: usize, interval: usize) {
        self.age = 0;
        self.interval = interval.min(chunk.horizon());
        if self.current.is_none() || delay == 0 {
            self.current = Some((chunk, 0));
        } else {
            self.arriving = Some((chunk, delay));
        }
    }

    /// Returns the next action, and advances past it; `None` if an inference has to begin before.
    pub fn next(&mut self, hold: Hold) -> Option<NextAction> {
        if self.needs_chunk() {
            return None;
        }
        let (chunk, index) = self.current.as_mut()?;
        let action = chunk.action(*index);
        let is_held = action.is_none();
        match (action, hold) {
            (Some(action), _) => action.clone_into(&mut self.last),
            (None, Hold::Last) => {}
            (None, Hold::Zero) => self.last.fill(0.0),
        }
        *index += 1;
        self.age += 1;
        if let Some((chunk, delay)) = self.arriving.take_if(|(_, delay)| *delay <= self.age) {
            self.current = Some((chunk, delay));
        }
        let values = self.last.clone();
        Some(NextAction { values, is_held })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns a chunk whose actions are `100 * number + index`.
    fn chunk(number: usize, horizon: usize) -> Chunk {
        let values = (0..horizon).map(|index| (100 * number + index) as f32);
        Chunk::new(1, values.collect())
    }

    /// Returns the actions of `steps` steps, with inferences of these delays; `None` for a step
    /// without an action.
    fn taken(delays: &[usize], interval: usize, horizon: usize, steps: usize) -> Vec<Option<f32>> {
        let mut queue = ActionQueue::default();
        let mut inferences = 0;
        let mut step = || {
            if queue.needs_chunk() {
                let delay = delays[inferences % delays.len()];
                queue.add(chunk(inferences, horizon), delay, interval);
                inferences += 1;
            }
            let action = queue.next(Hold::Last).unwrap();
            (!action.is_held).then_some(action.values[0])
        };
        (0..steps).map(|_| step()).collect()
    }

    #[test]
    fn the_previous_chunk_goes_on_until_the_next_one_arrives_at_its_index() {
        let wanted = [0, 1, 2, 3, 4, 5, 102, 103, 104, 105, 202, 203];
        let wanted = wanted.map(|action| Some(action as f32));
        assert_eq!(taken(&[2], 4, 6, 12), wanted);
    }

    #[test]
    fn a_held_action_is_the_last_one_or_zero() {
        let held = |hold| {
            let mut queue = ActionQueue::default();
            queue.add(chunk(7, 1), 0, 1);
            queue.next(hold);
            queue.add(chunk(8, 4), 2, 4);
            let actions = [(); 3].map(|()| queue.next(hold).unwrap());
            actions.map(|action| (action.values[0], action.is_held))
        };
        let last = [(700.0, true), (700.0, true), (802.0, false)];
        assert_eq!(held(Hold::Last), last);
        let zero = [(0.0, true), (0.0, true), (802.0, false)];
        assert_eq!(held(Hold::Zero), zero);
    }

    #[test]
    fn there_is_no_action_before_an_inference_that_is_due() {
        let mut queue = ActionQueue::default();
        assert!(queue.needs_chunk());
        assert_eq!(queue.next(Hold::Last), None);
        queue.add(chunk(0, 4), 0, 1);
        assert!(queue.next(Hold::Last).is_some());
        assert_eq!(
            queue.next(Hold::Last),
            None,
            "although the chunk has actions"
        );
    }

    /// The same by definition: all inferences first, each with the step at which it begins and
    /// the one at which its chunk arrives, then for each step the newest chunk that has arrived.
    fn by_definition(
        delays: &[usize],
        interval: usize,
        horizon: usize,
        steps: usize,
    ) -> Vec<Option<f32>> {
        let interval = interval.min(horizon);
        let mut inferences = vec![(0, 0)];
        while inferences.last().unwrap().0 < steps {
            let (begin, arrival) = *inferences.last().unwrap();
            let next = (begin + interval).max(arrival);
            let delay = delays[inferences.len() % delays.len()];
            inferences.push((next, next + delay));
        }
        let action = |step: usize| {
            let arrived = |(_, (_, arrival)): &(usize, &(usize, usize))| *arrival <= step;
            let (number, (begin, _)) = inferences.iter().enumerate().rfind(arrived)?;
            let index = step - begin;
            (index < horizon).then(|| (100 * number + index) as f32)
        };
        (0..steps).map(action).collect()
    }

    proptest! {
        #[test]
        fn every_step_takes_what_the_newest_chunk_that_has_arrived_has_for_it(
            delays in proptest::collection::vec(0usize..12, 1..6), interval in 1usize..9,
            horizon in 1usize..10, steps in 0usize..60
        ) {
            let found = taken(&delays, interval, horizon, steps);
            prop_assert_eq!(found, by_definition(&delays, interval, horizon, steps));
        }

        #[test]
        fn no_action_is_missing_for_a_latency_that_is_accepted(
            interval in 1usize..9, horizon in 1usize..17, delay in 0usize..9
        ) {
            let [steps, length, actions] = [delay, interval, horizon].map(|number| number as u64);
            prop_assume!(interval <= horizon);
            prop_assume!(jobs::latency::check(steps, length, actions).is_ok());
            let taken = taken(&[delay], interval, horizon, 60);
            prop_assert!(taken.iter().all(Option::is_some));
        }
    }
}
