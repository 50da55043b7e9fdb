//! Starts ranks side by side: creates all of them, then waits until all execute their programs.
//!
//! ```text
//! spawn: clone ─► child: own session, streams, … ─► exec     a failure is written into the pipe,
//! spawn: clone ─► child: own session, streams, … ─► exec     exec or the end of a child closes it
//! finish: read the pipe to its end ─► ranks, or the first that could not be started
//! ```
//! Waiting for each rank before the next is created, as `std` does, would leave all CPUs but one
//! idle, and on a busy machine each rank would wait for its turn.

use std::io;

use nix::sys::signal::Signal;

use crate::process::command::ChildCommand;
use crate::process::pre_exec::Nursery;
use crate::process::rank::RankProcess;

/// Ranks that are being started. Signals to the launcher wait until it is dropped.
#[derive(Debug)]
pub struct ParallelStart {
    nursery: Nursery,
    ranks: Vec<RankProcess>,
}

/// A rank that could not be started.
#[derive(Debug)]
pub struct NotStarted {
    /// Number of ranks spawned before it.
    pub index: usize,
    /// The error.
    pub err: io::Error,
}

impl ParallelStart {
    /// Returns a start without ranks.
    ///
    /// # Errors
    /// Returns an error if there is no pipe or signals cannot be blocked.
    pub fn new() -> io::Result<ParallelStart> {
        Ok(ParallelStart {
            nursery: Nursery::new()?,
            ranks: Vec::new(),
        })
    }

    /// Creates the next rank. The calling thread must live as long as the rank, because the kernel
    /// kills the rank when the thread ends.
    ///
    /// # Errors
    /// Returns an error if the rank could not be created.
    pub fn spawn(&mut self, command: ChildCommand<'_>) -> io::Result<()> {
        let pid = self.nursery.start(command)?;
        self.ranks.push(RankProcess::new(pid));
        Ok(())
    }

    /// Waits until every rank executes its program. If one cannot, the ranks after it are killed,
    /// as if ranks had been started one after another.
    pub fn finish(self) -> (Vec<RankProcess>, Option<NotStarted>) {
        let ParallelStart {
            mut nursery,
            mut ranks,
        } = self;
        let failed = match nursery.wait() {
            // The one with the lowest index, whichever report came first.
            Ok(reports) => {
                let first = reports.into_iter().min_by_key(|report| report.index);
                first.map(|report| NotStarted {
                    index: report.index as usize,
                    err: io::Error::from_raw_os_error(report.errno),
                })
            }
            Err(err) => Some(NotStarted { index: 0, err }),
        };
        if let Some(failed) = &failed {
            for rank in ranks.split_off(failed.index) {
                rank.signal(Signal::SIGKILL as i32);
                rank.reap();
            }
        }
        (ranks, failed)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::process::command::tests::plan;
    use crate::process::command::{ChildOutput, OutputStream};
    use crate::process::environment::ChildEnvironment;
    use crate::process::exit::Exit;

    fn start(programs: &[&[&str]]) -> (Vec<RankProcess>, Option<NotStarted>) {
        let common = ChildEnvironment::inherited(&BTreeMap::new()).expect("no NUL in it");
        let mut start = ParallelStart::new().expect("signals can be blocked");
        for argv in programs {
            let output = ChildOutput {
                stdout: OutputStream::Inherit,
                stderr: OutputStream::Inherit,
            };
            let command = ChildCommand::new(&plan(argv), &common, &BTreeMap::new(), output)
                .expect("a command");
            start.spawn(command).expect("it forks");
        }
        start.finish()
    }

    #[test]
    fn ranks_come_back_in_the_order_in_which_they_were_spawned() {
        let (ranks, failed) = start(&[
            &["sh", "-c", "exit 3"],
            &["sh", "-c", "exit 4"],
            &["sh", "-c", "exit 5"],
        ]);
        assert!(failed.is_none());
        assert_eq!(
            ranks.into_iter().map(RankProcess::wait).collect::<Vec<_>>(),
            [Exit::Code(3), Exit::Code(4), Exit::Code(5)]
        );
    }

    #[test]
    fn the_first_that_cannot_start_is_named_and_later_ones_are_gone() {
        let (ranks, failed) = start(&[
            &["sleep", "100"],
            &["/nonexistent"],
            &["sleep", "100"],
            &["/nonexistent"],
        ]);
        let failed = failed.expect("two cannot");
        assert_eq!(
            (ranks.len(), failed.index, failed.err.kind()),
            (1, 1, io::ErrorKind::NotFound)
        );
        ranks[0].signal(libc::SIGTERM);
        assert_eq!(
            ranks.into_iter().map(RankProcess::wait).collect::<Vec<_>>(),
            [Exit::Signal(libc::SIGTERM)]
        );
    }

    #[test]
    fn nothing_to_start_is_nothing_started() {
        let (ranks, failed) = start(&[]);
        assert!(ranks.is_empty() && failed.is_none());
    }

    #[test]
    fn signals_that_arrive_meanwhile_are_handled_afterwards() {
        let blocked = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").expect("Linux has it");
            let line = status.lines().find(|line| line.starts_with("SigBlk:"));
            line.expect("a mask").to_owned()
        };
        let before = blocked();
        let start = ParallelStart::new().expect("signals can be blocked");
        assert_ne!(blocked(), before);
        drop(start);
        assert_eq!(blocked(), before);
    }

    #[test]
    fn a_start_that_is_dropped_has_waited_for_its_children() {
        let common = ChildEnvironment::inherited(&BTreeMap::new()).expect("no NUL in it");
        let output = ChildOutput {
            stdout: OutputStream::Null,
            stderr: OutputStream::Null,
        };
        let command = ChildCommand::new(&plan(&["true"]), &common, &BTreeMap::new(), output);
        let mut start = ParallelStart::new().expect("signals can be blocked");
        start.spawn(command.expect("a command")).expect("a child");
        let pid = start.ranks[0].pid();
        drop(start);
        // It executes `true` or has ended; either way it has left our memory.
        let program = std::fs::read_link(format!("/proc/{pid}/exe"));
        let ours = std::env::current_exe().expect("this program");
        assert!(program.is_err() || program.is_ok_and(|program| program != ours));
        RankProcess::new(pid).reap();
    }
}
