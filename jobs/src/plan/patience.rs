//! Processes that were just killed hold their journals until their last thread is gone.

use std::time::Duration;

/// How long that may take on a busy machine: 5 s in all.
const LOOKS: u32 = 100;
const BETWEEN: Duration = Duration::from_millis(50);

/// Waits for `condition` as long as a process takes to die; false if it does not come about.
pub(super) fn wait_for(mut condition: impl FnMut() -> bool) -> bool {
    (0..LOOKS).any(|look| {
        if look > 0 {
            #[expect(clippy::disallowed_methods, reason = "between two looks at processes of others, with an end")]
            std::thread::sleep(BETWEEN);
        }
        condition()
    })
}
