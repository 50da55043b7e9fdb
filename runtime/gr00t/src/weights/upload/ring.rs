//! Assigns staging buffers to threads: a pure state machine without threads, clocks and memory.
//!
//! ```text
//!          next: Fill        sent            next: Land         landed
//! free ───────────► filling ──────► flying ───────────► landing ──────► free
//! ```
//!
//! Copies finish in the order in which they were sent. A thread therefore waits for the buffer that
//! was sent first, and only when no buffer is free, since filling a free buffer is more useful than
//! waiting.

use std::collections::VecDeque;

use crate::weights::upload::plan::{Load, pieces};

/// The next task of an idle thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingTask {
    /// Read this load into the buffer of this slot, send it, and then call [`Ring::sent`].
    Fill { slot: usize, load: usize },
    /// Wait for the copies of this slot, and then call [`Ring::landed`].
    Land { slot: usize },
    /// Ask again after another thread has reported something.
    Wait,
    /// There is nothing left to do for this thread.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RingSlot {
    Free,
    Filling(usize),
    Flying(usize),
    Landing(usize),
}

/// The states of all slots, and the loads that are still to come.
#[derive(Debug)]
pub struct Ring {
    slots: Vec<RingSlot>,
    /// Slots whose copies are under way, the first one sent at the front.
    flying: VecDeque<usize>,
    loads: usize,
    next: usize,
    /// Number of pieces of each tensor that have not landed yet.
    missing: Vec<usize>,
    is_stopped: bool,
}

impl Ring {
    /// Creates the state at the beginning, when no load has been read.
    pub fn new(slots: usize, loads: &[Load], tensors: usize) -> Self {
        Self {
            slots: vec![RingSlot::Free; slots],
            flying: VecDeque::new(),
            loads: loads.len(),
            next: 0,
            missing: pieces(loads, tensors),
            is_stopped: false,
        }
    }

    /// Returns whether all pieces of a tensor have landed.
    pub fn has(&self, tensor: usize) -> bool {
        self.missing[tensor] == 0
    }

    /// Returns the next task, which then counts as begun.
    pub fn next(&mut self) -> RingTask {
        if self.is_stopped {
            return RingTask::Over;
        }
        let free = self.slots.iter().position(|slot| *slot == RingSlot::Free);
        if let (true, Some(slot)) = (self.next < self.loads, free) {
            let load = self.next;
            self.next += 1;
            self.slots[slot] = RingSlot::Filling(load);
            return RingTask::Fill { slot, load };
        }
        match self.flying.pop_front() {
            Some(slot) => {
                let RingSlot::Flying(load) = self.slots[slot] else {
                    unreachable!("slot {slot} flies")
                };
                self.slots[slot] = RingSlot::Landing(load);
                RingTask::Land { slot }
            }
            // The thread that fills a buffer also returns to wait for it.
            None if self.next == self.loads => RingTask::Over,
            None => RingTask::Wait,
        }
    }

    /// Records that the copies of a slot have been started.
    pub fn sent(&mut self, slot: usize) {
        let RingSlot::Filling(load) = self.slots[slot] else {
            panic!("slot {slot} was not being filled")
        };
        self.slots[slot] = RingSlot::Flying(load);
        self.flying.push_back(slot);
    }

    /// Records that the copies of a slot, which held the pieces of `loads`, have finished.
    pub fn landed(&mut self, slot: usize, loads: &[Load]) {
        let RingSlot::Landing(load) = self.slots[slot] else {
            panic!("slot {slot} was not waited for")
        };
        self.slots[slot] = RingSlot::Free;
        loads[load]
            .iter()
            .for_each(|piece| self.missing[piece.tensor] -= 1);
    }

    /// Prevents any further task from being started.
    pub fn stop(&mut self) {
        self.is_stopped = true;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::weights::upload::plan::{Extent, plan};

    /// Returns `count` loads of one piece each, all of tensor 0.
    fn loads(count: u64) -> Vec<Load> {
        plan(
            &[Extent {
                file: 0,
                bytes: 0..64 * count,
            }],
            64,
        )
    }

    #[test]
    fn the_buffer_sent_first_is_waited_for_first_and_only_when_none_is_free() {
        let loads = loads(3);
        let mut ring = Ring::new(2, &loads, 1);
        assert_eq!(ring.next(), RingTask::Fill { slot: 0, load: 0 });
        assert_eq!(ring.next(), RingTask::Fill { slot: 1, load: 1 });
        assert_eq!(ring.next(), RingTask::Wait, "both buffers are being filled");
        ring.sent(1);
        ring.sent(0);
        assert_eq!(ring.next(), RingTask::Land { slot: 1 });
        ring.landed(1, &loads);
        assert_eq!(ring.next(), RingTask::Fill { slot: 1, load: 2 });
        assert_eq!(ring.next(), RingTask::Land { slot: 0 });
        assert_eq!(
            ring.next(),
            RingTask::Over,
            "who fills the last buffer comes back"
        );
        ring.landed(0, &loads);
        ring.sent(1);
        assert!(!ring.has(0));
        assert_eq!(ring.next(), RingTask::Land { slot: 1 });
        ring.landed(1, &loads);
        assert_eq!((ring.next(), ring.has(0)), (RingTask::Over, true));
    }

    #[test]
    fn an_empty_tensor_is_there_at_once() {
        let ring = Ring::new(1, &[], 1);
        assert!(ring.has(0));
    }

    #[test]
    fn a_stopped_ring_begins_nothing() {
        let loads = loads(2);
        let mut ring = Ring::new(2, &loads, 1);
        ring.next();
        ring.stop();
        assert_eq!(ring.next(), RingTask::Over);
        ring.sent(0);
        assert_eq!(ring.next(), RingTask::Over);
    }

    proptest! {
        /// Threads that are scheduled in any order load everything once, and never two loads into
        /// one buffer.
        #[test]
        fn every_load_lands_once_whatever_the_order(
            count in 0u64..12, slots in 1usize..5, threads in 1usize..5, turns in prop::collection::vec(0usize..100, 400),
        ) {
            let loads = loads(count);
            let mut ring = Ring::new(slots, &loads, 1);
            let mut doing = vec![None; threads];
            let (mut filled, mut held) = (vec![0; loads.len()], vec![false; slots]);
            // After the drawn turns, every thread gets enough turns to finish.
            let turns = turns.into_iter().chain(0..600).map(|turn| turn % threads);
            for thread in turns {
                match doing[thread].take() {
                    Some(RingTask::Fill { slot, .. }) => ring.sent(slot),
                    Some(RingTask::Land { slot }) => {
                        held[slot] = false;
                        ring.landed(slot, &loads);
                    }
                    _ => {
                        let next = ring.next();
                        if let RingTask::Fill { slot, load } = next {
                            prop_assert!(!held[slot], "slot {} is filled twice", slot);
                            held[slot] = true;
                            filled[load] += 1;
                        }
                        doing[thread] = Some(next);
                    }
                }
            }
            prop_assert!(filled.iter().all(|times| *times == 1), "{:?}", filled);
            prop_assert!(ring.has(0) && held.iter().all(|held| !held));
        }
    }
}
