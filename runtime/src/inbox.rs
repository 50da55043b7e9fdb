//! A queue whose end can be polled: what other threads have for a loop that waits for descriptors,
//! too.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

/// What was put and not taken yet. Any number of threads may put.
#[derive(Debug)]
pub struct Inbox<T> {
    waiting: Mutex<Vec<T>>,
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
        self.put_all(vec![one]);
    }

    /// Adds several things and rings the bell once, if there are any.
    pub fn put_all(&self, all: Vec<T>) {
        if !all.is_empty() {
            self.waiting().extend(all);
            // The counter cannot overflow in the lifetime of a process.
            rustix::io::write(&self.bell, &1_u64.to_ne_bytes()).ok();
        }
    }

    /// Takes everything, in the order in which it came. Never blocks.
    pub fn take(&self) -> Vec<T> {
        let mut waiting = self.waiting();
        // An error means that nothing is new.
        rustix::io::read(&self.bell, &mut [0; 8]).ok();
        std::mem::take(&mut *waiting)
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the descriptor that is readable as long as there is something to take.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
