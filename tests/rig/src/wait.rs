//! The only deadline and the only poll: tests wait for a condition, never for a time.

use std::time::{Duration, Instant};

/// Time limit, longer than any step of a test takes on a busy machine with two cores.
pub const DEADLINE: Duration = Duration::from_secs(180);

/// Pause between two looks at other processes.
const PAUSE: Duration = Duration::from_millis(5);

/// What a look finds: `bool`, or `Option` of something.
pub trait Look {
    /// What is returned when it is there.
    type Found;

    /// Returns what is there.
    fn found(self) -> Option<Self::Found>;
}

impl Look for bool {
    type Found = ();

    fn found(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Look for Option<T> {
    type Found = T;

    fn found(self) -> Option<T> {
        self
    }
}

/// Looks again and again until something is there, and returns it.
///
/// # Panics
///
/// With `what`, after [`DEADLINE`].
#[track_caller]
pub fn until<L: Look>(what: &str, look: impl FnMut() -> L) -> L::Found {
    let Some(found) = within(DEADLINE, look) else {
        panic!("{what}: not within {DEADLINE:?}");
    };
    found
}

/// Works like [`until`], and returns `None` after this time.
pub fn within<L: Look>(limit: Duration, mut look: impl FnMut() -> L) -> Option<L::Found> {
    let start = now();
    loop {
        let found = look().found();
        if found.is_some() || start.elapsed() > limit {
            return found;
        }
        pause(PAUSE);
    }
}

/// Lets time pass, where a test claims that nothing happens, or that something lasts.
#[expect(clippy::disallowed_methods, reason = "the only pause of tests")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Returns the time, for claims about how long something takes.
#[expect(clippy::disallowed_methods, reason = "the only clock of tests")]
pub fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_repeated_until_it_finds_something() {
        let mut looks = 0;
        let found = until("three looks", || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found, 3);
        until("nothing", || true);
    }

    #[test]
    fn what_never_comes_has_a_limit() {
        assert_eq!(within(Duration::from_millis(1), || false), None);
    }
}
