//! Who may use which staging buffer: a state machine without threads, clocks and memory.
//!
//! ```text
//!          next: Fill        sent            next: Land         landed
//! free ───────────► filling ──────► flying ───────────► landing ──────► free
//! ```
//!
//! Copies arrive in the order in which they were sent, so the buffer that was sent first is waited for first, and only
//! when none is free: until then there is something better to do.

use std::collections::VecDeque;

use super::plan::{Load, pieces};

/// What a thread that has nothing to do should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Read this load into this slot's buffer and send it, then say [`Ring::sent`].
    Fill { slot: usize, load: usize },
    /// Wait for the copies of this slot, then say [`Ring::landed`].
    Land { slot: usize },
    /// Ask again when another thread has said something.
    Wait,
    /// There is nothing left for this thread.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Free,
    Filling(usize),
    Flying(usize),
    Landing(usize),
}

/// All slots, and what is still to come.
#[derive(Debug)]
pub struct Ring {
    slots: Vec<Slot>,
    /// Flying slots, the first one sent in front.
    flying: VecDeque<usize>,
    loads: usize,
    next: usize,
    /// Pieces of each tensor that have not landed.
    missing: Vec<usize>,
    is_stopped: bool,
}

impl Ring {
    /// Everything is to be done.
    pub fn new(slots: usize, loads: &[Load], tensors: usize) -> Self {
        Self {
            slots: vec![Slot::Free; slots],
            flying: VecDeque::new(),
            loads: loads.len(),
            next: 0,
            missing: pieces(loads, tensors),
            is_stopped: false,
        }
    }

    /// Whether all of a tensor has landed.
    pub fn has(&self, tensor: usize) -> bool {
        self.missing[tensor] == 0
    }

    /// What to do; it counts as begun.
    pub fn next(&mut self) -> Next {
        if self.is_stopped {
            return Next::Over;
        }
        let free = self.slots.iter().position(|slot| *slot == Slot::Free);
        if let (true, Some(slot)) = (self.next < self.loads, free) {
            let load = self.next;
            self.next += 1;
            self.slots[slot] = Slot::Filling(load);
            return Next::Fill { slot, load };
        }
        match self.flying.pop_front() {
            Some(slot) => {
                let Slot::Flying(load) = self.slots[slot] else { unreachable!("slot {slot} flies") };
                self.slots[slot] = Slot::Landing(load);
                Next::Land { slot }
            }
            // Who fills a buffer comes back for it.
            None if self.next == self.loads => Next::Over,
            None => Next::Wait,
        }
    }

    /// The copies of a slot have begun.
    pub fn sent(&mut self, slot: usize) {
        let Slot::Filling(load) = self.slots[slot] else { panic!("slot {slot} was not being filled") };
        self.slots[slot] = Slot::Flying(load);
        self.flying.push_back(slot);
    }

    /// The copies of a slot, which had the pieces of `loads`, are over.
    pub fn landed(&mut self, slot: usize, loads: &[Load]) {
        let Slot::Landing(load) = self.slots[slot] else { panic!("slot {slot} was not waited for") };
        self.slots[slot] = Slot::Free;
        loads[load].iter().for_each(|piece| self.missing[piece.tensor] -= 1);
    }

    /// Nothing more is begun.
    pub fn stop(&mut self) {
        self.is_stopped = true;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::plan::{Extent, plan};
    use super::*;

    /// `count` loads of one piece each, all of tensor 0.
    fn loads(count: u64) -> Vec<Load> {
        plan(&[Extent { file: 0, bytes: 0..64 * count }], 64)
    }

    #[test]
    fn the_buffer_sent_first_is_waited_for_first_and_only_when_none_is_free() {
        let loads = loads(3);
        let mut ring = Ring::new(2, &loads, 1);
        assert_eq!(ring.next(), Next::Fill { slot: 0, load: 0 });
        assert_eq!(ring.next(), Next::Fill { slot: 1, load: 1 });
        assert_eq!(ring.next(), Next::Wait, "both buffers are being filled");
        ring.sent(1);
        ring.sent(0);
        assert_eq!(ring.next(), Next::Land { slot: 1 });
        ring.landed(1, &loads);
        assert_eq!(ring.next(), Next::Fill { slot: 1, load: 2 });
        assert_eq!(ring.next(), Next::Land { slot: 0 });
        assert_eq!(ring.next(), Next::Over, "who fills the last buffer comes back");
        ring.landed(0, &loads);
        ring.sent(1);
        assert!(!ring.has(0));
        assert_eq!(ring.next(), Next::Land { slot: 1 });
        ring.landed(1, &loads);
        assert_eq!((ring.next(), ring.has(0)), (Next::Over, true));
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
        assert_eq!(ring.next(), Next::Over);
        ring.sent(0);
        assert_eq!(ring.next(), Next::Over);
    }

    proptest! {
        /// Threads that are scheduled in any order bring every load once, never two into one buffer.
        #[test]
        fn every_load_lands_once_whatever_the_order(
            count in 0u64..12, slots in 1usize..5, threads in 1usize..5, turns in prop::collection::vec(0usize..100, 400),
        ) {
            let loads = loads(count);
            let mut ring = Ring::new(slots, &loads, 1);
            let mut doing = vec![None; threads];
            let (mut filled, mut held) = (vec![0; loads.len()], vec![false; slots]);
            // Behind the drawn turns everybody has enough turns to end.
            let turns = turns.into_iter().chain(0..600).map(|turn| turn % threads);
            for thread in turns {
                match doing[thread].take() {
                    Some(Next::Fill { slot, .. }) => ring.sent(slot),
                    Some(Next::Land { slot }) => {
                        held[slot] = false;
                        ring.landed(slot, &loads);
                    }
                    _ => {
                        let next = ring.next();
                        if let Next::Fill { slot, load } = next {
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
