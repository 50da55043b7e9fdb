//! What this side knows of one copy: its episode, its slots, and whether it was lost.

use std::sync::Arc;

use super::host::Terms;
use super::layout::SLOTS;
use super::message::Op;
use crate::env::{EnvError, EnvIndex};

/// One copy of an environment.
#[derive(Debug)]
pub struct CopyState {
    /// Its number in the whole environment.
    pub env: EnvIndex,
    /// The command that it is at, and the slot for what it will see.
    pub doing: Option<(Op, u8)>,
    /// Its episode, from the reset until the next one.
    pub episode: Option<Under>,
    /// Its episode was lost with the process, and it does not know yet.
    pub lost: Option<Loss>,
    /// The task in words.
    pub language: Arc<str>,
    slots: Vec<Arc<()>>,
}

/// An episode under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Under {
    /// Its number.
    pub episode: u64,
    /// Its seed.
    pub seed: u64,
    /// Steps that were commanded.
    pub steps: u64,
    /// It has ended; nobody has to wait for its next step.
    pub is_over: bool,
    /// It was stepped without an action.
    pub is_spoilt: bool,
}

/// Why a process is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// What happened, and where.
    pub reason: String,
    /// Its last lines.
    pub stderr: Vec<String>,
}

impl CopyState {
    /// A copy that has done nothing yet.
    pub fn new(env: EnvIndex) -> Self {
        let slots = (0..SLOTS).map(|_| Arc::new(())).collect();
        Self { env, doing: None, episode: None, lost: None, language: Arc::from(""), slots }
    }

    /// The first slot that nobody holds. At least one is free between answers, see [`CopyState::hold`].
    pub fn free_slot(&mut self) -> Option<u8> {
        let free = self.slots.iter_mut().position(|slot| Arc::get_mut(slot).is_some())?;
        u8::try_from(free).ok()
    }

    /// Keeps a slot from being used again; `None` if no other would be free, and what is seen has to be copied out.
    pub fn hold(&mut self, slot: u8) -> Option<Arc<()>> {
        let slot = usize::from(slot);
        let others =
            self.slots.iter_mut().enumerate().any(|(index, token)| index != slot && Arc::get_mut(token).is_some());
        others.then(|| Arc::clone(&self.slots[slot]))
    }

    /// Its process has another memory now: what is held of the old one is none of its business.
    pub fn renew(&mut self) {
        *self = Self { lost: self.lost.take(), language: Arc::clone(&self.language), ..Self::new(self.env) };
    }

    /// Whether others that step with it have to wait for its action.
    pub fn is_midway(&self) -> bool {
        self.episode.is_some_and(|episode| episode.steps > 0 && !episode.is_over)
    }

    /// What the environment gave is wrong: this episode is over, and its process lives on for the next.
    pub fn fault(&mut self, reason: &str, terms: &Terms) -> EnvError {
        let (rank, job) = (terms.rank, &terms.job);
        let when = self.episode.take().map_or_else(String::new, |Under { episode, seed, steps, .. }| match steps {
            0 => format!("at the reset of episode {episode}, seed {seed}; "),
            steps => format!("at step {steps} of episode {episode}, seed {seed}; "),
        });
        let reason = format!("the simulator gave {reason}; {when}rank {rank}, job `{job}`");
        EnvError::Episode { env: self.env, reason }
    }

    /// As the loop is told.
    pub fn loss(&self, loss: &Loss) -> EnvError {
        EnvError::Lost { env: self.env, reason: loss.reason.clone(), stderr: loss.stderr.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_is_held_is_not_used_again() {
        let mut copy = CopyState::new(EnvIndex(0));
        let first = copy.hold(0).unwrap();
        assert_eq!(copy.free_slot(), Some(1));
        drop(first);
        assert_eq!(copy.free_slot(), Some(0));
    }

    #[test]
    fn the_last_slot_is_never_held() {
        let mut copy = CopyState::new(EnvIndex(0));
        let held: Vec<_> = (0..SLOTS).map_while(|slot| copy.hold(slot)).collect();
        assert_eq!(held.len(), usize::from(SLOTS) - 1);
        assert_eq!(copy.free_slot(), Some(SLOTS - 1));
    }

    #[test]
    fn a_new_process_begins_with_all_slots() {
        let mut copy = CopyState::new(EnvIndex(3));
        let held = copy.hold(0);
        copy.lost = Some(Loss { reason: "r".to_owned(), stderr: Vec::new() });
        copy.renew();
        assert_eq!((copy.free_slot(), copy.lost.is_some(), held.is_some()), (Some(0), true, true));
    }
}
