//! Waits for processes that were just killed: they keep their files locked until their last
//! thread has exited.

use std::time::Duration;

/// Number of checks. Exiting may take a while on a busy machine; together the checks span 5 s.
const LOOKS: u32 = 100;
const BETWEEN: Duration = Duration::from_millis(50);

/// Waits for `condition` as long as a process may take to exit. Returns false if it does not become
/// true.
pub(crate) fn wait_for(mut condition: impl FnMut() -> bool) -> bool {
    (0..LOOKS).any(|look| {
        if look > 0 {
            #[expect(
                clippy::disallowed_methods,
                reason = "between two looks at processes of others, with an end"
            )]
            std::thread::sleep(BETWEEN);
        }
        condition()
    })
}
