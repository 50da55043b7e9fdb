//! Signals to the launcher: which are listened to, and what they are called.
//!
//! ```text
//! listed (--signals-to-handle)   end the launch in order: forwarded, grace, SIGKILL
//! unlisted but deadly            kill the ranks at once; without us they would be orphans
//! SIGHUP ignored at the start    stays ignored, so that `nohup rrun …` survives its terminal
//! SIGKILL                        the kernel kills the ranks (`process::pre_exec`)
//! ```

use std::borrow::Cow;
use std::fs;
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};

use crate::plan::SignalPlan;

/// Signals that end a process by default and that people send to a launcher.
const DEADLY: [i32; 6] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its number.
    pub number: i32,
    /// Whether it is one of `--signals-to-handle`.
    pub is_listed: bool,
}

/// The signals listened to.
#[derive(Debug)]
pub struct Signals {
    streams: Vec<(Received, tokio::signal::unix::Signal)>,
}

impl Signals {
    /// Listens from now on. Also gives a line for each listed signal that cannot be handled.
    pub fn listen(plan: &SignalPlan) -> (Signals, Vec<String>) {
        let ignored = ignored_mask();
        let is_ignored = |number: i32| ignored & mask(number) != 0;
        let listed = plan.numbers.iter().copied().filter(|&number| number != libc::SIGHUP || !is_ignored(number));
        let unlisted = DEADLY.into_iter().filter(|number| !plan.numbers.contains(number) && !is_ignored(*number));
        let listed = listed.map(|number| Received { number, is_listed: true });
        let unlisted = unlisted.map(|number| Received { number, is_listed: false });
        let mut notes = Vec::new();
        let mut streams = Vec::new();
        for received in listed.chain(unlisted) {
            match open(received.number) {
                Ok(stream) => streams.push((received, stream)),
                Err(err) => notes.push(format!("cannot handle {}: {err}", name(received.number))),
            }
        }
        (Signals { streams }, notes)
    }

    /// The next one to arrive. Dropping the future loses none.
    pub async fn recv(&mut self) -> Received {
        poll_fn(|context| {
            for (received, stream) in &mut self.streams {
                if stream.poll_recv(context) == Poll::Ready(Some(())) {
                    return Poll::Ready(*received);
                }
            }
            Poll::Pending
        })
        .await
    }
}

fn open(number: i32) -> io::Result<tokio::signal::unix::Signal> {
    // Every exit of a rank is a SIGCHLD; as the end of the launch it would make no sense.
    if number == libc::SIGCHLD {
        return Err(io::Error::other("rrun needs it to see its ranks exit"));
    }
    signal(SignalKind::from_raw(number))
}

/// The signals that this process ignores, bit `n - 1` for signal `n`; none if `/proc` does not tell.
fn ignored_mask() -> u64 {
    parse_ignored(&fs::read_to_string("/proc/self/status").unwrap_or_default()).unwrap_or(0)
}

fn parse_ignored(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn mask(number: i32) -> u64 {
    u32::try_from(number - 1).ok().and_then(|bit| 1_u64.checked_shl(bit)).unwrap_or(0)
}

/// `SIGTERM`, or `signal 40` for one without a name.
pub fn name(number: i32) -> Cow<'static, str> {
    match Signal::try_from(number) {
        Ok(signal) => Cow::Borrowed(signal.as_str()),
        Err(_) => Cow::Owned(format!("signal {number}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_time_signal_has_a_number_for_a_name() {
        assert_eq!((name(15).as_ref(), name(40).as_ref()), ("SIGTERM", "signal 40"));
    }

    #[test]
    fn the_ignored_signals_are_read_from_proc() {
        let ignored = parse_ignored("Name:\tx\nSigIgn:\t0000000000001001\n").expect("a mask");
        assert_eq!((ignored & mask(libc::SIGHUP) != 0, ignored & mask(libc::SIGTERM) != 0), (true, false));
        assert_eq!(ignored & mask(libc::SIGPIPE), mask(libc::SIGPIPE));
    }

    #[test]
    fn a_number_outside_the_mask_is_not_ignored() {
        assert_eq!((mask(0), mask(65), mask(-3)), (0, 0, 0));
    }

    #[tokio::test]
    async fn what_cannot_be_handled_is_said() {
        let plan = SignalPlan { spec: "SIGKILL,SIGCHLD".to_owned(), numbers: vec![libc::SIGKILL, libc::SIGCHLD] };
        let (_, notes) = Signals::listen(&plan);
        assert_eq!(notes.len(), 2);
        assert!(notes[0].starts_with("cannot handle SIGKILL: "), "{notes:?}");
    }

    #[tokio::test]
    async fn a_listed_signal_is_received_as_listed() {
        let plan = SignalPlan { spec: "SIGWINCH".to_owned(), numbers: vec![libc::SIGWINCH] };
        let (mut signals, _) = Signals::listen(&plan);
        nix::sys::signal::raise(Signal::SIGWINCH).expect("our own process");
        assert_eq!(signals.recv().await, Received { number: libc::SIGWINCH, is_listed: true });
    }
}
