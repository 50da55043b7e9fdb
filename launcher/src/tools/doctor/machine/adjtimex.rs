//! Asks the kernel whether something keeps the clock right. The unsafe code of the doctor.

use std::mem::MaybeUninit;

/// sys/timex.h: the state in which the clock is not synchronised.
const TIME_ERROR: i32 = 5;

/// What the kernel knows about its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClockState {
    /// Whether NTP or PTP keeps it right.
    pub(super) is_synchronised: bool,
    /// Estimated error, in microseconds.
    pub(super) error_us: i64,
}

/// Returns the state of the clock; `None` if the kernel does not tell, as in some containers.
pub(super) fn clock_state() -> Option<ClockState> {
    let mut state = MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: all fields are numbers, for which zero is a value, and `modes` 0 only reads the
    // state. The pointer is valid for writes during the call.
    let answer = unsafe { libc::adjtimex(state.as_mut_ptr()) };
    if answer < 0 {
        return None;
    }
    // SAFETY: the memory was initialised with zeros, and the kernel has written to it.
    let state = unsafe { state.assume_init() };
    Some(ClockState {
        is_synchronised: answer != TIME_ERROR,
        error_us: state.esterror,
    })
}
