//! Limits the number of simultaneous requests.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// A semaphore: a caller waits while no permit is free.
#[derive(Clone)]
pub(super) struct Permits(Arc<(Mutex<usize>, Condvar)>);

/// A permit, which is returned when it is dropped.
pub(super) struct Permit<'a>(&'a Permits);

impl Permits {
    /// Creates a semaphore with `count` permits.
    pub(super) fn new(count: usize) -> Self {
        Self(Arc::new((Mutex::new(count), Condvar::new())))
    }

    /// Waits for a free permit and takes it.
    pub(super) fn take(&self) -> Permit<'_> {
        let (free, given_back) = &*self.0;
        let free = free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = given_back
            .wait_while(free, |free| *free == 0)
            .unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Permit(self)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let (free, given_back) = &*self.0.0;
        *free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        given_back.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn no_more_than_so_many_are_under_way() {
        let permits = Permits::new(2);
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let _permit = permits.take();
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    now.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        assert!((1..=2).contains(&most.into_inner()));
    }
}
