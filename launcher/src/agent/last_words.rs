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
use std::path::Path;

use jobs::time;

use crate::agent::attempt::Attempt;
use crate::failure::{Casualty, RankFailure, by_themselves, root_cause};
use crate::node::full_name;
use crate::plan::LaunchPlan;
use crate::process::exit::Exit;
use crate::rank_id::RankId;
use crate::say::{self, Level};
use crate::signals::names::signal_name;

/// Number of ranks whose last lines are shown. If many ranks fail on their own, the first ones are
/// the most useful.
const SHOWN: usize = 4;

/// Width of the widest rule in the box that torchrun prints and that other tools parse, in
/// characters.
const WIDTH: usize = 60;

/// Prints the report, and hands the root cause on to the process that started this launcher.
pub fn say_all(plan: &LaunchPlan, attempt: &Attempt, failures: &[RankFailure]) {
    let blamed = by_themselves(failures);
    let Some(root) = blamed.first() else { return };
    let host = full_name();
    say_of(root, headline(root, &host));
    for failure in blamed.iter().take(SHOWN) {
        say_last_lines(attempt, failure);
    }
    say::block(Level::Error, &render(&plan.title, &host, failures));
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

fn say_last_lines(attempt: &Attempt, failure: &RankFailure) {
    let rank = attempt.rank(failure.casualty.rank.index);
    if let Some((path, lines)) = rank.last_lines() {
        let lines: String = lines.iter().map(|line| format!("\n  {line}")).collect();
        let what = format!(
            "rank {}: end of `{}`:{lines}",
            failure.casualty.rank.global,
            path.display()
        );
        say_of(failure, what);
    }
}

/// Formats the report of `failures`, which are in the order in which they were seen; empty if there
/// are none.
fn render(title: &str, host: &str, failures: &[RankFailure]) -> String {
    let Some(root) = root_cause(failures) else {
        return String::new();
    };
    let blocks = failures.iter().enumerate();
    let mut blocks: Vec<_> = blocks
        .map(|(index, failure)| block(index, host, failure))
        .collect();
    let title = format!("{title} FAILED");
    let lines = blocks.iter().chain([&title]).flat_map(|text| text.lines());
    let longest = lines.map(|line| line.chars().count()).max();
    let width = longest.unwrap_or(0).min(WIDTH);
    let (thick, thin) = ("=".repeat(width), "-".repeat(width));
    let root = blocks.remove(root);
    let others = match blocks.is_empty() {
        true => "  <NO_OTHER_FAILURES>".to_owned(),
        false => blocks.join("\n"),
    };
    format!(
        "{thick}\n{title}\n{thin}\nFailures:\n{others}\n{thin}\n\
         Root Cause (first observed failure):\n{root}\n{thick}\n"
    )
}

fn block(index: usize, host: &str, failure: &RankFailure) -> String {
    let time = time::local(failure.timestamp);
    let casualty = &failure.casualty;
    let (rank, local_rank, pid) = (casualty.rank.global, casualty.rank.local, casualty.pid);
    let code = casualty.exit.returncode();
    let signal = match casualty.exit {
        Exit::Signal(signal) => format!("  ({})", signal_name(signal)),
        Exit::Code(_) => String::new(),
    };
    let error_file = failure
        .error_file
        .as_deref()
        .map_or_else(|| "<N/A>".to_owned(), |p: &Path| p.display().to_string());
    let message = failure.message.replace('\n', "\n  ");
    format!(
        "[{index}]:\n  time      : {time}\n  host      : {host}\n  rank      : {rank} (local_rank: {local_rank})\n  \
         exitcode  : {code} (pid: {pid}){signal}\n  error_file: {error_file}\n  traceback : {message}"
    )
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::failure::Hang;
    use crate::process::exit::Usage;
    use crate::tests::rank;

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

    /// Returns the failure of rank 4 or above. Local rank 1 failed by itself.
    fn failed(local_rank: usize, exit: Exit) -> RankFailure {
        let mut failure = failure(exit, None);
        failure.timestamp = 1_795_233_885;
        failure.casualty.rank = RankId {
            global: local_rank + 4,
            ..rank(local_rank)
        };
        failure.casualty.stopped_by = (local_rank != 1).then_some(15);
        failure
    }

    #[test]
    fn a_single_failure_has_no_others() {
        let report = render("train.py", "node1", &[failed(0, Exit::Code(7))]);
        let time = time::local(1_795_233_885);
        let (thick, thin) = ("=".repeat(60), "-".repeat(60));
        assert_eq!(
            report,
            format!(
                "{thick}\ntrain.py FAILED\n{thin}\nFailures:\n  <NO_OTHER_FAILURES>\n{thin}\n\
                 Root Cause (first observed failure):\n[0]:\n  time      : {time}\n  host      : node1\n  \
                 rank      : 4 (local_rank: 0)\n  exitcode  : 7 (pid: 99)\n  error_file: <N/A>\n  \
                 traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n{thick}\n"
            )
        );
    }

    #[test]
    fn the_root_keeps_its_index_and_is_not_among_the_others() {
        let report = render(
            "t",
            "h",
            &[failed(0, Exit::Signal(15)), failed(1, Exit::Code(5))],
        );
        let (others, root) = report.split_once("Root Cause").expect("both parts");
        assert!(
            others.contains("[0]:") && !others.contains("[1]:") && root.contains("[1]:"),
            "{report}"
        );
        assert!(
            others.contains("exitcode  : -15 (pid: 99)  (SIGTERM)\n"),
            "{report}"
        );
    }

    #[test]
    fn no_failure_is_no_report() {
        assert_eq!(render("t", "h", &[]), "");
    }
}
