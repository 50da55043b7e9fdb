//! A queue whose end can be polled: what other threads have for a loop that waits for descriptors,
//! too.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

/// What was put and not taken yet. Any number of threads may put.
#[derive(Debug)]
pub struct Inbox<T> {
    waiting: Mutex<VecDeque<T>>,
    bell: OwnedFd,
}

impl<T> Inbox<T> {
    /// Creates an empty queue.
    ///
    /// # Errors
    /// Returns the system's error if no descriptor is left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            waiting: Mutex::default(),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Adds something, and rings the bell.
    pub fn put(&self, one: T) {
        self.put_within(usize::MAX, one);
    }

    /// Adds several things and rings the bell once, if there are any.
    pub fn put_all(&self, all: Vec<T>) {
        if !all.is_empty() {
            self.waiting().extend(all);
            self.ring();
        }
    }

    /// Adds something in place of the oldest if there are `most`; returns whether there are.
    pub fn put_within(&self, most: usize, one: T) -> bool {
        let mut waiting = self.waiting();
        let is_full = waiting.len() >= most;
        if is_full {
            waiting.pop_front();
        }
        waiting.push_back(one);
        self.ring();
        is_full
    }

    /// Takes everything, in the order in which it came. Never blocks.
    pub fn take(&self) -> Vec<T> {
        let mut waiting = self.waiting();
        self.silence();
        waiting.drain(..).collect()
    }

    /// Takes what came first. The bell goes on ringing.
    pub fn take_one(&self) -> Option<T> {
        self.waiting().pop_front()
    }

    /// Rings the bell.
    pub fn ring(&self) {
        // The counter cannot overflow in the lifetime of a process.
        rustix::io::write(&self.bell, &1_u64.to_ne_bytes()).ok();
    }

    /// Silences the bell until something new comes.
    pub fn silence(&self) {
        // An error means that nothing was new.
        rustix::io::read(&self.bell, &mut [0; 8]).ok();
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the descriptor that is readable as long as there is something to take.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
