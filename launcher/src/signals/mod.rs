//! Signals to the launcher: which are handled, and what they are called.
//!
//! ```text
//! listed (--signals-to-handle)   stop the launch in an orderly way: forwarded, grace, SIGKILL
//! unlisted but deadly            kill the ranks at once; they would become orphans otherwise
//! SIGHUP ignored at the start    stays ignored, so that `nohup rrun …` survives its terminal
//! SIGKILL                        the kernel kills the ranks (`process::pre_exec`)
//! under SLURM: SIGTERM           counts once, however often it comes; SLURM also sends it to the
//!                                ranks of a step: see [`handler`]
//!              SIGUSR1, SIGUSR2  unless listed, announce the end and end nothing
//! SIGUSR2 otherwise              unless listed, asks for stacks and ends nothing
//! ```
//! The handlers are installed before anything else is done ([`Caught`]), when no other thread exists
//! and what a signal means may not be known yet. No signal is blocked: children would inherit that.

mod handler;
pub mod names;

use std::collections::BTreeMap;
use std::future::{poll_fn, ready};
use std::io;
use std::task::Poll;

use tokio::select;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::yield_now;

use crate::plan::{Sender, SignalPlan};
use crate::process::pre_exec::is_ignored;
use crate::signals::names::signal_name;

/// Signals that end a process by default and that users send to a launcher.
const DEADLY: [i32; 6] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// A signal that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedSignal {
    /// Number of the signal.
    pub number: i32,
    /// Whether it is one of `--signals-to-handle`.
    pub is_listed: bool,
}

/// The signals that have handlers since the launcher began. One that arrives is kept until somebody
/// asks for it.
#[derive(Debug)]
pub struct Caught {
    streams: BTreeMap<i32, tokio::signal::unix::Signal>,
    /// A message for each listed signal that cannot be handled.
    notes: Vec<String>,
}

/// What the signals of a launch mean.
#[derive(Debug)]
pub struct LaunchSignals {
    /// Those that end the launch.
    pub ends: Signals,
    /// Those that end nothing: SLURM announces the end by them, and anyone else asks for stacks.
    pub notices: Streams<i32>,
    /// A message for each listed signal that cannot be handled.
    pub notes: Vec<String>,
}

impl Caught {
    /// Installs the handlers of the signals that would end this process, and of `listed`
    /// ([`SignalPlan::numbers`]). Must be called on a runtime, and before another thread is started.
    pub fn new(listed: &[i32]) -> Caught {
        Caught::unless(listed, is_ignored)
    }

    /// Does the same, except for the signals that are ignored.
    fn unless(listed: &[i32], is_ignored: impl Fn(i32) -> bool) -> Caught {
        let mut caught = Caught {
            streams: BTreeMap::new(),
            notes: Vec::new(),
        };
        for number in listed.iter().copied().chain(DEADLY) {
            let is_listed = listed.contains(&number) && number != libc::SIGHUP;
            let stays_ignored = is_ignored(number) && !is_listed;
            if stays_ignored || caught.streams.contains_key(&number) {
                continue;
            }
            match open(number) {
                Ok(stream) => drop(caught.streams.insert(number, stream)),
                Err(err) => {
                    let name = signal_name(number);
                    caught.notes.push(format!("cannot handle {name}: {err}"));
                }
            }
        }
        caught
    }

    /// Gives the signals the meaning that they have in a launch.
    pub fn with(mut self, plan: &SignalPlan) -> LaunchSignals {
        // They are received even if they were ignored before.
        let mut stream = |number| self.streams.remove(&number).or_else(|| open(number).ok());
        let notices = notices(plan).into_iter();
        let notices = notices.filter_map(|number| Some((number, stream(number)?)));
        let notices = Streams(notices.collect());
        let received = |number| ReceivedSignal {
            number,
            is_listed: plan.numbers.contains(&number),
        };
        let streams = self.streams.into_iter();
        let streams = streams.map(|(number, stream)| (received(number), stream));
        LaunchSignals {
            ends: Signals {
                streams: Streams(streams.collect()),
                early: None,
                sender: plan.sender,
                is_terminated: false,
            },
            notices,
            notes: self.notes,
        }
    }
}

/// Signals, each with what it means.
#[derive(Debug)]
pub struct Streams<T>(Vec<(T, tokio::signal::unix::Signal)>);

impl<T: Copy> Streams<T> {
    /// Waits for the next signal. Cancel-safe: dropping the future loses none.
    pub async fn recv(&mut self) -> T {
        poll_fn(|context| {
            for (meaning, stream) in &mut self.0 {
                if stream.poll_recv(context) == Poll::Ready(Some(())) {
                    return Poll::Ready(*meaning);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The signals that end the launch.
#[derive(Debug)]
pub struct Signals {
    streams: Streams<ReceivedSignal>,
    /// A signal that arrived before the launch began.
    early: Option<ReceivedSignal>,
    sender: Sender,
    /// Whether SIGTERM has been received.
    is_terminated: bool,
}

impl Signals {
    /// Returns whether the received SIGTERM was also sent to the ranks, so that it need not be
    /// forwarded.
    pub fn is_known_to_ranks(&self) -> bool {
        self.is_terminated && self.sender == Sender::SlurmToStep && handler::is_from_slurm()
    }

    /// Waits for the next signal. Cancel-safe: dropping the future loses none.
    pub async fn recv(&mut self) -> ReceivedSignal {
        handler::listen();
        if let Some(early) = self.early.take() {
            return early;
        }
        loop {
            let received = self.streams.recv().await;
            if !is_copy(self.sender, &mut self.is_terminated, received.number) {
                return received;
            }
        }
    }

    /// Returns the next signal, if it has arrived by now.
    pub async fn so_far(&mut self) -> Option<ReceivedSignal> {
        // The runtime looks for signals between two turns of its tasks.
        yield_now().await;
        select! {
            biased;
            received = self.recv() => Some(received),
            () = ready(()) => None,
        }
    }

    /// Waits for a signal and leaves it to the next caller of [`Signals::recv`]. Cancel-safe.
    pub async fn arrived(&mut self) {
        self.early = Some(self.recv().await);
    }
}

/// Returns the signals that end nothing. SLURM announces the time limit by one, if the user asks
/// for that (`--signal=USR1@120`).
fn notices(plan: &SignalPlan) -> Vec<i32> {
    let numbers: &[i32] = match plan.sender {
        Sender::Anyone => &[libc::SIGUSR2],
        Sender::SlurmToScript | Sender::SlurmToStep => &[libc::SIGUSR1, libc::SIGUSR2],
    };
    let numbers = numbers.iter().copied();
    numbers
        .filter(|number| !plan.numbers.contains(number))
        .collect()
}

/// Returns whether this is a duplicate of SLURM's SIGTERM; `is_terminated` remembers the first one.
fn is_copy(sender: Sender, is_terminated: &mut bool, number: i32) -> bool {
    let counts_once = number == libc::SIGTERM && sender != Sender::Anyone;
    counts_once && std::mem::replace(is_terminated, true)
}

fn open(number: i32) -> io::Result<tokio::signal::unix::Signal> {
    // Every exit of a rank causes a SIGCHLD, so that signal cannot end the launch.
    if number == libc::SIGCHLD {
        return Err(io::Error::other("rrun needs it to see its ranks exit"));
    }
    handler::install(number)?;
    signal(SignalKind::from_raw(number))
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::Signal;

    use super::*;

    fn plan(sender: Sender, numbers: &[i32]) -> SignalPlan {
        SignalPlan {
            sender,
            spec: String::new(),
            numbers: numbers.to_vec(),
        }
    }

    #[tokio::test]
    async fn what_cannot_be_handled_is_said() {
        let plan = plan(Sender::Anyone, &[libc::SIGKILL, libc::SIGCHLD]);
        let notes = Caught::new(&plan.numbers).with(&plan).notes;
        assert_eq!(notes.len(), 2);
        assert!(notes[0].starts_with("cannot handle SIGKILL: "), "{notes:?}");
    }

    #[tokio::test]
    async fn a_signal_is_received_as_listed_also_if_it_arrives_before_the_launch() {
        let plan = plan(Sender::Anyone, &[libc::SIGIO, libc::SIGWINCH]);
        let received = |number| ReceivedSignal {
            number,
            is_listed: true,
        };
        let caught = Caught::new(&plan.numbers);
        nix::sys::signal::raise(Signal::SIGIO).expect("our own process");
        let mut signals = caught.with(&plan).ends;
        signals.arrived().await;
        assert_eq!(
            [signals.so_far().await, signals.so_far().await],
            [Some(received(libc::SIGIO)), None]
        );
        nix::sys::signal::raise(Signal::SIGWINCH).expect("our own process");
        assert_eq!(signals.recv().await, received(libc::SIGWINCH));
    }

    // The tests below raise no real signal: it would reach the launches of the other tests in this
    // process.
    #[tokio::test]
    async fn slurm_s_copies_of_sigterm_count_once_and_every_one_of_another_sender() {
        use libc::{SIGINT, SIGTERM};
        let copies = |sender, numbers: &[i32]| {
            let plan = plan(sender, &[SIGTERM]);
            let mut signals = Caught::new(&plan.numbers).with(&plan).ends;
            let numbers = numbers.iter();
            numbers
                .map(|number| is_copy(signals.sender, &mut signals.is_terminated, *number))
                .collect::<Vec<_>>()
        };
        let by_slurm = [SIGTERM, SIGTERM, SIGINT, SIGINT, SIGTERM];
        assert_eq!(
            copies(Sender::SlurmToScript, &by_slurm),
            [false, true, false, false, true]
        );
        assert_eq!(copies(Sender::Anyone, &[SIGTERM; 2]), [false, false]);
    }

    #[tokio::test]
    async fn slurm_s_announcement_is_no_end() {
        let ends = |ignored: &[i32]| {
            let plan = plan(Sender::SlurmToScript, &[libc::SIGTERM]);
            let signals =
                Caught::unless(&plan.numbers, |number| ignored.contains(&number)).with(&plan);
            let is_end = |number| {
                let streams = &signals.ends.streams.0;
                streams
                    .iter()
                    .any(|(received, _)| received.number == number)
            };
            [libc::SIGUSR1, libc::SIGUSR2, libc::SIGHUP].map(is_end)
        };
        assert_eq!(
            [ends(&[]), ends(&[libc::SIGHUP])],
            [[false, false, true], [false, false, false]]
        );
    }

    #[test]
    fn only_slurm_announces_by_both_and_what_is_listed_is_an_end() {
        let [usr1, usr2] = [libc::SIGUSR1, libc::SIGUSR2];
        for (sender, listed, wanted) in [
            (Sender::Anyone, vec![], vec![usr2]),
            (Sender::Anyone, vec![usr2], vec![]),
            (Sender::SlurmToScript, vec![], vec![usr1, usr2]),
            (Sender::SlurmToScript, vec![usr1], vec![usr2]),
        ] {
            assert_eq!(notices(&plan(sender, &listed)), wanted, "{sender:?}");
        }
    }
}
