//! Starts ranks in parallel: forks all of them, then waits until all execute their programs.
//!
//! ```text
//! spawn: fork ─► child: own session, streams, … ─► exec      a failure is written into the pipe,
//! spawn: fork ─► child: own session, streams, … ─► exec      exec or the end of a child closes it
//! finish: read the pipe to its end ─► ranks, or the first that could not be started
//! ```
//! Waiting for each rank before the next is forked, as `std` does, would leave all CPUs but one
//! idle. No rank may be signalled before [`ParallelStart::finish`]: until `exec`, the launcher's
//! own handlers would take the signal.

use std::io::{self, PipeReader, PipeWriter, Read as _};

use nix::sys::signal::Signal;

use crate::process::command::ChildCommand;
use crate::process::pre_exec::{self, ExecReport};
use crate::process::rank::RankProcess;

/// Ranks that are being started.
#[derive(Debug)]
pub struct ParallelStart {
    reader: PipeReader,
    writer: PipeWriter,
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
    pub fn new() -> io::Result<ParallelStart> {
        let (reader, writer) = io::pipe()?;
        Ok(ParallelStart {
            reader,
            writer,
            ranks: Vec::new(),
        })
    }

    /// Forks the next rank. The calling thread must live as long as the rank, because the kernel
    /// kills the rank when the thread ends.
    pub fn spawn(&mut self, command: &ChildCommand<'_>) -> io::Result<()> {
        let pid = pre_exec::fork(command, self.ranks.len(), &self.writer)?;
        self.ranks.push(RankProcess::new(pid));
        Ok(())
    }

    /// Waits until every rank executes its program. If one cannot, the ranks after it are killed,
    /// as if ranks had been started one after another.
    pub fn finish(self) -> (Vec<RankProcess>, Option<NotStarted>) {
        let ParallelStart {
            mut reader,
            writer,
            mut ranks,
        } = self;
        drop(writer);
        let mut reports = Vec::new();
        let failed = match reader.read_to_end(&mut reports) {
            Ok(_) => first(&reports),
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

/// Returns the failed rank with the lowest index, whichever report came first.
fn first(reports: &[u8]) -> Option<NotStarted> {
    let (reports, _) = reports.as_chunks();
    let (index, errno) = reports
        .iter()
        .map(|bytes| ExecReport::from_bytes(*bytes))
        .map(|it| (it.index, it.errno))
        .min()?;
    Some(NotStarted {
        index: index as usize,
        err: io::Error::from_raw_os_error(errno),
    })
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
        let mut start = ParallelStart::new().expect("a pipe");
        for argv in programs {
            let output = ChildOutput {
                stdout: OutputStream::Inherit,
                stderr: OutputStream::Inherit,
            };
            let command = ChildCommand::new(&plan(argv), &common, &BTreeMap::new(), output)
                .expect("a command");
            start.spawn(&command).expect("it forks");
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
}
