//! The names of signals.

use std::borrow::Cow;
use std::str::FromStr as _;

use nix::sys::signal::Signal;

/// Returns the name of a signal, as `SIGTERM`, or `signal 40` for one without a name.
pub fn signal_name(number: i32) -> Cow<'static, str> {
    match Signal::try_from(number) {
        Ok(signal) => Cow::Borrowed(signal.as_str()),
        Err(_) => Cow::Owned(format!("signal {number}")),
    }
}

/// Returns the number of a signal by a name that Python knows.
pub fn signal_number(name: &str) -> Option<i32> {
    let number = match name {
        "SIGCLD" => libc::SIGCHLD,
        "SIGPOLL" => libc::SIGPOLL,
        "SIGRTMIN" => libc::SIGRTMIN(),
        "SIGRTMAX" => libc::SIGRTMAX(),
        name => Signal::from_str(name).ok()? as i32,
    };
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_time_signal_has_a_number_for_a_name() {
        assert_eq!(
            (signal_name(15).as_ref(), signal_name(40).as_ref()),
            ("SIGTERM", "signal 40")
        );
    }
}
