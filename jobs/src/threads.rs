//! Processes work in pieces on a few threads.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// Maximum number of threads: more would wait for the disk or for each other.
const THREADS: usize = 8;

/// Runs `one` on each piece of `work` on several threads, each with its own buffer, and passes the
/// results to `on` in order.
///
/// # Errors
/// Returns the first error of a piece or of `on`; the remaining work is skipped then.
pub fn in_order<W: Sync, T: Send, E: Send>(
    work: &[W],
    one: impl Fn(&W, &mut Vec<u8>) -> Result<T, E> + Sync,
    mut on: impl FnMut(&W, T) -> Result<(), E>,
) -> Result<(), E> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = cores.min(THREADS).min(work.len());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (done, found) = mpsc::sync_channel(threads);
        for _ in 0..threads {
            let (done, next, one) = (done.clone(), &next, &one);
            scope.spawn(move || {
                let mut buffer = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(piece) = work.get(number) else { break };
                    // The receiver is gone after an error.
                    if done.send((number, one(piece, &mut buffer))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(done);
        let (mut early, mut wanted) = (BTreeMap::new(), 0);
        for (number, done) in found {
            early.insert(number, done?);
            while let Some(done) = early.remove(&wanted) {
                on(&work[wanted], done)?;
                wanted += 1;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_out_is_in_order_and_complete() {
        let work: Vec<u64> = (0..500).collect();
        let mut found = Vec::new();
        let double = |number: &u64, _: &mut Vec<u8>| Ok(number * 2);
        let done: Result<(), ()> = in_order(&work, double, |_, double| {
            found.push(double);
            Ok(())
        });
        assert_eq!(done, Ok(()));
        assert_eq!(
            found,
            work.iter().map(|number| number * 2).collect::<Vec<_>>()
        );
    }

    #[test]
    fn an_error_ends_it() {
        let work: Vec<u64> = (0..500).collect();
        let up_to = |most: u64| move |number: u64| if number < most { Ok(()) } else { Err(number) };
        let found = in_order(&work, |number, _| up_to(250)(*number), |_, ()| Ok(()));
        assert_eq!(found, Err(250));
        let found = in_order(&work, |_, _| Ok(()), |number, ()| up_to(20)(*number));
        assert_eq!(found, Err(20));
    }
}
