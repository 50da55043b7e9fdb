//! The report on a failed launch: the root cause in one line, the last lines of the failed ranks,
//! and the report that torchrun's users know.
//!
//! ```text
//! rrun: root cause: rank 3 (local_rank 1, pid 4711) on node1 exited with code 1; it used 1.50 s …
//! rrun: rank 3: end of `/tmp/…/attempt_0/1/stderr.log`:
//!   RuntimeError: …
//! ============================================================
//! train.py FAILED
//! ```
//! For a program without `@record`, torchrun's own report says nothing about the error and only
//! prints a link (Facico/Chinese-Vicuna#113, hiyouga/LlamaFactory#7032).

use std::env;
use std::path::{Path, PathBuf};

use crate::agent::attempt::Attempt;
use crate::failure::{Casualty, RankFailure, by_themselves};
use crate::node::host;
use crate::plan::LaunchPlan;
use crate::rank_id::RankId;
use crate::report;
use crate::say::{self, Level};

/// Number of ranks whose last lines are shown. If many ranks fail on their own, the first ones are
/// the most useful.
const SHOWN: usize = 4;

/// Prints the report, and hands the root cause on to the process that started this launcher.
pub fn say_all(plan: &LaunchPlan, attempt: &Attempt, failures: &[RankFailure]) {
    let blamed = by_themselves(failures);
    let Some(root) = blamed.first() else { return };
    say_of(root, headline(root, &host::full_name()));
    for failure in blamed.iter().take(SHOWN) {
        say_last_lines(attempt, failure);
    }
    if let Some(line) = advice(plan, attempt, root) {
        say::info(line);
    }
    say::block(
        Level::Error,
        &report::render(&plan.title, &host::full_name(), failures),
    );
    let own = env::var_os("TORCHELASTIC_ERROR_FILE").filter(|path| !path.is_empty());
    if let Some(Err(err)) = own.map(|path| root.forward_to(Path::new(&path))) {
        say::warning(format_args!(
            "cannot write the launcher's own error file: {err}"
        ));
    }
}

fn say_of(failure: &RankFailure, line: String) {
    let Casualty { rank, pid, .. } = failure.casualty;
    say::of_rank(Level::Error, rank, Some(pid), line);
}

fn headline(root: &RankFailure, host: &str) -> String {
    let casualty = &root.casualty;
    let RankId { local, global, .. } = casualty.rank;
    let (pid, exit) = (casualty.pid, casualty.ending());
    let hint = casualty.lack_of_memory();
    let used = casualty
        .usage
        .map(|usage| format!("; it used {usage}"))
        .unwrap_or_default();
    format!(
        "root cause: rank {global} (local_rank {local}, pid {pid}) on {host} {exit}{hint}{used}"
    )
}

fn last_lines(attempt: &Attempt, failure: &RankFailure) -> Option<(PathBuf, Vec<String>)> {
    attempt.rank(failure.casualty.rank.index)?.last_lines()
}

fn say_last_lines(attempt: &Attempt, failure: &RankFailure) {
    if let Some((path, lines)) = last_lines(attempt, failure) {
        let lines: String = lines.iter().map(|line| format!("\n  {line}")).collect();
        let what = format!(
            "rank {}: end of `{}`:{lines}",
            failure.casualty.rank.global,
            path.display()
        );
        say_of(failure, what);
    }
}

/// Returns advice on how to learn more the next time, if the rank left no output to read.
fn advice(plan: &LaunchPlan, attempt: &Attempt, root: &RankFailure) -> Option<String> {
    let casualty = &root.casualty;
    let is_told = root.error_file.is_some() || last_lines(attempt, root).is_some();
    let planned = plan.ranks.get(casualty.rank.index)?;
    let is_captured = planned.redirect.or(planned.tee).stderr;
    if is_told || is_captured || plan.logs.disabled {
        return None;
    }
    let where_to = match (planned.shown, plan.ranks.len()) {
        (false, _) => "nowhere, by --local-ranks-filter",
        (true, 1) => return None,
        (true, _) => "to the console, among that of the other ranks",
    };
    Some(format!(
        "rank {}: its stderr went {where_to}; with -r 2 or -t 2 it is kept, and its end is printed \
         here",
        casualty.rank.global
    ))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::failure::Hang;
    use crate::plan::Streams;
    use crate::process::exit::Exit;
    use crate::process::usage::Usage;
    use crate::tests::{plan, rank};

    fn failure(exit: Exit, usage: Option<Usage>) -> RankFailure {
        let casualty = Casualty {
            rank: RankId {
                global: 5,
                ..rank(1)
            },
            pid: 99,
            exit,
            usage,
            at: UNIX_EPOCH,
            stopped_by: None,
            hang: None,
            memory: " (no memory)",
        };
        RankFailure::read(casualty, None)
    }

    #[test]
    fn the_root_cause_is_one_line_with_all_that_is_known() {
        let usage = Usage {
            user_s: 1.5,
            system_s: 0.25,
            max_rss: 3 << 20,
        };
        let hang = Hang {
            seconds: 5,
            report: None,
        };
        let mut hung = failure(Exit::Signal(libc::SIGKILL), None);
        hung.casualty.hang = Some(hang);
        let killed = |signal| failure(Exit::Signal(signal), None);
        for (failure, wanted) in [
            (
                failure(Exit::Code(7), Some(usage)),
                "exited with code 7; it used 1.50 s of CPU, 0.25 s in the kernel, at most 3 MiB of \
                 memory",
            ),
            // Lack of memory is a hint for SIGKILL alone, and not where the launcher has sent it.
            (killed(libc::SIGKILL), "was killed by SIGKILL (no memory)"),
            (killed(libc::SIGSEGV), "was killed by SIGSEGV"),
            (
                hung,
                "made no progress for 5 s (--hang-timeout) and was ended by rrun (SIGKILL)",
            ),
        ] {
            let who = "root cause: rank 5 (local_rank 1, pid 99) on node1";
            assert_eq!(headline(&failure, "node1"), format!("{who} {wanted}"));
        }
    }

    #[test]
    fn where_nothing_was_kept_it_is_said_how_to_keep_it() {
        let advice =
            |plan: &LaunchPlan| advice(plan, &Attempt::default(), &failure(Exit::Code(1), None));
        let mut plan = plan(&["true"], 2);
        assert_eq!(
            advice(&plan),
            None,
            "without a log folder nothing can be kept"
        );
        plan.logs.disabled = false;
        assert!(
            advice(&plan)
                .is_some_and(|line| line.contains("rank 5: its stderr went to the console, among"))
        );
        plan.ranks[1].shown = false;
        assert!(advice(&plan).is_some_and(|line| {
            line.contains("went nowhere, by --local-ranks-filter; with -r 2 or")
        }));
        plan.ranks[1].redirect = Streams {
            stdout: false,
            stderr: true,
        };
        assert_eq!(advice(&plan), None, "it was kept, and is empty");
    }
}
