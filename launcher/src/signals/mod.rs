//! Signals to the launcher: which are handled, and what they are called.
//!
//! ```text
//! listed (--signals-to-handle)   stop the launch in an orderly way: forwarded, grace, SIGKILL
//! unlisted but deadly            kill the ranks at once; they would become orphans otherwise
//! SIGHUP ignored at the start    stays ignored, so that `nohup rrun …` survives its terminal
//! SIGKILL                        the kernel kills the ranks (`process::pre_exec`)
//! under SLURM: SIGTERM           counts once, however often it comes; SLURM also sends it to the
//!                                ranks of a step: see [`terms`]
//!              SIGUSR1, SIGUSR2  unless listed, announce the end and end nothing: see [`Notices`]
//! SIGUSR2 otherwise              unless listed, asks for stacks and ends nothing: see [`StackRequests`]
//! ```

pub mod names;
mod terms;

use std::fs;
use std::future::{pending, poll_fn};
use std::io;
use std::task::{Context, Poll, ready};

use tokio::signal::unix::{SignalKind, signal};

use crate::plan::{Sender, SignalPlan};
use crate::signals::names::signal_name;
use crate::signals::terms::TermSource;

/// Signals that end a process by default and that users send to a launcher.
const DEADLY: [i32; 6] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// Signals by which SLURM announces the time limit, if the user asks for that
/// (`--signal=USR1@120`).
const NOTICES: [i32; 2] = [libc::SIGUSR1, libc::SIGUSR2];

/// A signal that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedSignal {
    /// Number of the signal.
    pub number: i32,
    /// Whether it is one of `--signals-to-handle`.
    pub is_listed: bool,
}

/// The signal streams of the launcher.
#[derive(Debug)]
pub struct Signals {
    streams: Vec<(ReceivedSignal, tokio::signal::unix::Signal)>,
    /// The source of SIGTERM, if it is not among the streams.
    terms: Option<(ReceivedSignal, TermSource)>,
    sender: Sender,
    /// Whether SIGTERM has been received.
    is_terminated: bool,
    /// Whether SLURM has sent SIGTERM to the ranks as well.
    is_known_to_ranks: bool,
}

impl Signals {
    /// Installs the handlers. Also returns a message for each listed signal that cannot be handled.
    pub fn listen(plan: &SignalPlan) -> (Signals, Vec<String>) {
        Signals::listen_unless(plan, ignored_mask())
    }

    /// Does the same, except for the signals in the mask `ignored`.
    fn listen_unless(plan: &SignalPlan, ignored: u64) -> (Signals, Vec<String>) {
        let is_ignored = |number: i32| ignored & mask(number) != 0;
        let listed = plan
            .numbers
            .iter()
            .copied()
            .filter(|&number| number != libc::SIGHUP || !is_ignored(number));
        let notices = notices(plan);
        let is_unlisted = |number: &i32| {
            !plan.numbers.contains(number)
                && !notices.contains(number)
                && stack_request(plan) != Some(*number)
        };
        let unlisted = DEADLY
            .into_iter()
            .filter(|number| is_unlisted(number) && !is_ignored(*number));
        let listed = listed.map(|number| ReceivedSignal {
            number,
            is_listed: true,
        });
        let unlisted = unlisted.map(|number| ReceivedSignal {
            number,
            is_listed: false,
        });
        let mut notes = Vec::new();
        let mut streams = Vec::new();
        let mut terms = None;
        for received in listed.chain(unlisted) {
            if received.number == libc::SIGTERM
                && plan.sender == Sender::SlurmToStep
                && let Ok(opened) = TermSource::listen()
            {
                terms = Some((received, opened));
                continue;
            }
            match open(received.number) {
                Ok(stream) => streams.push((received, stream)),
                Err(err) => notes.push(format!(
                    "cannot handle {}: {err}",
                    signal_name(received.number)
                )),
            }
        }
        let sender = plan.sender;
        (
            Signals {
                streams,
                terms,
                sender,
                is_terminated: false,
                is_known_to_ranks: false,
            },
            notes,
        )
    }

    /// Returns whether the received SIGTERM was also sent to the ranks, so that it need not be
    /// forwarded.
    pub fn is_known_to_ranks(&self) -> bool {
        self.is_known_to_ranks
    }

    /// Waits for the next signal. Cancel-safe: dropping the future loses none.
    pub async fn recv(&mut self) -> ReceivedSignal {
        poll_fn(|context| {
            for (received, stream) in &mut self.streams {
                // A duplicate is dropped, and the stream polled again, so that it wakes the task
                // for the next signal.
                while stream.poll_recv(context) == Poll::Ready(Some(())) {
                    if !is_copy(self.sender, &mut self.is_terminated, received.number) {
                        return Poll::Ready(*received);
                    }
                }
            }
            self.poll_terms(context)
        })
        .await
    }

    fn poll_terms(&mut self, context: &mut Context<'_>) -> Poll<ReceivedSignal> {
        let Some((received, terms)) = &self.terms else {
            return Poll::Pending;
        };
        loop {
            let is_from_slurm = ready!(terms.poll(context));
            if !is_copy(self.sender, &mut self.is_terminated, received.number) {
                self.is_known_to_ranks = is_from_slurm;
                return Poll::Ready(*received);
            }
        }
    }
}

/// Signals that end nothing but tell the ranks to save their work.
#[derive(Debug)]
pub struct Notices {
    streams: Vec<(i32, tokio::signal::unix::Signal)>,
}

impl Notices {
    /// Installs the handlers, if SLURM is the sender.
    pub fn listen(plan: &SignalPlan) -> Notices {
        let streams = notices(plan)
            .into_iter()
            .filter_map(|number| Some((number, open(number).ok()?)));
        Notices {
            streams: streams.collect(),
        }
    }

    /// Waits for the next signal and returns its number. Cancel-safe: dropping the future loses
    /// none.
    pub async fn recv(&mut self) -> i32 {
        poll_fn(|context| {
            let mut is_there = |stream: &mut tokio::signal::unix::Signal| {
                stream.poll_recv(context) == Poll::Ready(Some(()))
            };
            let arrived = self
                .streams
                .iter_mut()
                .find_map(|(number, stream)| is_there(stream).then_some(*number));
            arrived.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// Receives the signal that asks for the stacks of the ranks.
#[derive(Debug)]
pub struct StackRequests(Option<tokio::signal::unix::Signal>);

impl StackRequests {
    /// Installs the handler, unless the signal has another meaning.
    pub fn listen(plan: &SignalPlan) -> StackRequests {
        let stream = stack_request(plan).and_then(|number| open(number).ok());
        StackRequests(stream)
    }

    /// Waits for the next request. Cancel-safe: dropping the future loses none.
    pub async fn recv(&mut self) {
        match &mut self.0 {
            // A stream of signals does not end.
            Some(stream) => drop(stream.recv().await),
            None => pending().await,
        }
    }
}

/// Returns the signal that asks for stacks: SIGUSR2, unless it ends the launch or announces its end.
fn stack_request(plan: &SignalPlan) -> Option<i32> {
    let is_free = plan.sender == Sender::Anyone && !plan.numbers.contains(&libc::SIGUSR2);
    is_free.then_some(libc::SIGUSR2)
}

/// Returns whether this is a duplicate of SLURM's SIGTERM; `is_terminated` remembers the first one.
fn is_copy(sender: Sender, is_terminated: &mut bool, number: i32) -> bool {
    let counts_once = number == libc::SIGTERM && sender != Sender::Anyone;
    counts_once && std::mem::replace(is_terminated, true)
}

fn notices(plan: &SignalPlan) -> Vec<i32> {
    let is_notice = |number: &i32| plan.sender != Sender::Anyone && !plan.numbers.contains(number);
    NOTICES.into_iter().filter(is_notice).collect()
}

fn open(number: i32) -> io::Result<tokio::signal::unix::Signal> {
    // Every exit of a rank causes a SIGCHLD, so that signal cannot end the launch.
    if number == libc::SIGCHLD {
        return Err(io::Error::other("rrun needs it to see its ranks exit"));
    }
    signal(SignalKind::from_raw(number))
}

/// Returns the mask of signals that this process ignores, with bit `n - 1` for signal `n`; 0 if
/// `/proc` does not tell.
fn ignored_mask() -> u64 {
    parse_ignored(&fs::read_to_string("/proc/self/status").unwrap_or_default()).unwrap_or(0)
}

fn parse_ignored(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn mask(number: i32) -> u64 {
    u32::try_from(number - 1)
        .ok()
        .and_then(|bit| 1_u64.checked_shl(bit))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::Signal;

    use super::*;

    #[test]
    fn the_ignored_signals_are_read_from_proc() {
        let ignored = parse_ignored("Name:\tx\nSigIgn:\t0000000000001001\n").expect("a mask");
        assert_eq!(
            (
                ignored & mask(libc::SIGHUP) != 0,
                ignored & mask(libc::SIGTERM) != 0
            ),
            (true, false)
        );
        assert_eq!(ignored & mask(libc::SIGPIPE), mask(libc::SIGPIPE));
    }

    #[test]
    fn a_number_outside_the_mask_is_not_ignored() {
        assert_eq!((mask(0), mask(65), mask(-3)), (0, 0, 0));
    }

    #[tokio::test]
    async fn what_cannot_be_handled_is_said() {
        let plan = SignalPlan {
            sender: Sender::Anyone,
            spec: "SIGKILL,SIGCHLD".to_owned(),
            numbers: vec![libc::SIGKILL, libc::SIGCHLD],
        };
        let (_, notes) = Signals::listen(&plan);
        assert_eq!(notes.len(), 2);
        assert!(notes[0].starts_with("cannot handle SIGKILL: "), "{notes:?}");
    }

    #[tokio::test]
    async fn a_listed_signal_is_received_as_listed() {
        let plan = SignalPlan {
            sender: Sender::Anyone,
            spec: "SIGWINCH".to_owned(),
            numbers: vec![libc::SIGWINCH],
        };
        let (mut signals, _) = Signals::listen(&plan);
        nix::sys::signal::raise(Signal::SIGWINCH).expect("our own process");
        assert_eq!(
            signals.recv().await,
            ReceivedSignal {
                number: libc::SIGWINCH,
                is_listed: true
            }
        );
    }

    fn under_slurm(number: i32) -> SignalPlan {
        SignalPlan {
            sender: Sender::SlurmToScript,
            spec: String::new(),
            numbers: vec![number],
        }
    }

    // The tests raise no real signal: it would reach the launches of the other tests in this
    // process.
    #[tokio::test]
    async fn slurm_s_copies_of_sigterm_count_once() {
        let (mut signals, _) = Signals::listen(&under_slurm(libc::SIGTERM));
        let numbers = [
            libc::SIGTERM,
            libc::SIGTERM,
            libc::SIGINT,
            libc::SIGINT,
            libc::SIGTERM,
        ];
        assert_eq!(
            numbers.map(|number| is_copy(signals.sender, &mut signals.is_terminated, number)),
            [false, true, false, false, true]
        );
    }

    #[tokio::test]
    async fn another_sender_means_every_sigterm() {
        let plan = SignalPlan {
            sender: Sender::Anyone,
            ..under_slurm(libc::SIGTERM)
        };
        let (mut signals, _) = Signals::listen(&plan);
        assert_eq!(
            [15, 15].map(|number| is_copy(signals.sender, &mut signals.is_terminated, number)),
            [false, false]
        );
    }

    #[tokio::test]
    async fn slurm_s_announcement_is_no_end() {
        let ends = |ignored| {
            let (signals, _) = Signals::listen_unless(&under_slurm(libc::SIGTERM), ignored);
            let is_end = |number| {
                signals
                    .streams
                    .iter()
                    .any(|(received, _)| received.number == number)
            };
            [libc::SIGUSR1, libc::SIGUSR2, libc::SIGHUP].map(is_end)
        };
        assert_eq!(
            [ends(0), ends(mask(libc::SIGHUP))],
            [[false, false, true], [false, false, false]]
        );
    }

    #[test]
    fn only_slurm_announces_and_what_is_listed_is_an_end() {
        let anyone = SignalPlan {
            sender: Sender::Anyone,
            spec: String::new(),
            numbers: Vec::new(),
        };
        assert!(notices(&anyone).is_empty());
        assert_eq!(notices(&under_slurm(libc::SIGUSR1)), [libc::SIGUSR2]);
    }
}
