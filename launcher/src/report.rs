//! The failure report: the box that torchrun prints and that other tools parse.

use std::path::Path;

use jobs::time;

use crate::failure::{RankFailure, root_cause};
use crate::process::exit::Exit;
use crate::signals::names::signal_name;

/// Width of the widest rule in the box, in characters.
const WIDTH: usize = 60;

/// Formats the report of `failures`, which are in the order in which they were seen; empty if there
/// are none.
pub fn render(title: &str, host: &str, failures: &[RankFailure]) -> String {
    let Some(root) = root_cause(failures) else {
        return String::new();
    };
    let blocks = failures.iter().enumerate();
    let blocks: Vec<String> = blocks
        .map(|(index, failure)| block(index, host, failure))
        .collect();
    let others: Vec<&str> = blocks
        .iter()
        .enumerate()
        .filter(|(index, _)| *index != root)
        .map(|(_, block)| block.as_str())
        .collect();
    let others = if others.is_empty() {
        "  <NO_OTHER_FAILURES>".to_owned()
    } else {
        others.join("\n")
    };
    let title = format!("{title} FAILED");
    let lines = blocks.iter().chain([&title]).flat_map(|text| text.lines());
    let longest = lines.map(|line| line.chars().count()).max();
    let width = longest.unwrap_or(0).min(WIDTH);
    let (thick, thin) = ("=".repeat(width), "-".repeat(width));
    let root = &blocks[root];
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
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::failure::Casualty;
    use crate::rank_id::RankId;
    use crate::tests::rank;

    fn failure(local_rank: usize, exit: Exit) -> RankFailure {
        let at = UNIX_EPOCH + Duration::from_secs(1_795_233_885);
        let stopped_by = (local_rank != 1).then_some(15);
        RankFailure::read(
            Casualty {
                rank: RankId {
                    global: local_rank + 4,
                    ..rank(local_rank)
                },
                pid: 99,
                exit,
                usage: None,
                at,
                stopped_by,
                hang: None,
                memory: "",
            },
            None,
        )
    }

    #[test]
    fn a_single_failure_has_no_others() {
        let report = render("train.py", "node1", &[failure(0, Exit::Code(7))]);
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
            &[failure(0, Exit::Signal(15)), failure(1, Exit::Code(5))],
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
