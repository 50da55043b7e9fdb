//! `--dry-run`: describes a plan for people. `--dry-run=json` prints the plan itself.
//!
//! ```text
//! LaunchPlan ──────────────────────► any program: ranks, command, variables, logs
//!   └── EvalPlan ──► work (done) ──► an evaluation: ranks with their jobs, files, memory
//! ```
//! Everything here only reads: the plan, and for an evaluation the journals of its run folder.

mod evaluation;

use std::fmt::Write as _;

use jobs::count::counted;
use jobs::printable::{printable_line, quoted};
use jobs::table::{MAX_ROWS, Table};

use crate::plan::{Backend, FailurePolicy, LaunchPlan, RankPlan};

/// Number of columns that the names of facts have.
const MARGIN: usize = 10;

/// Returns the text for a plan.
pub fn text(plan: &LaunchPlan) -> String {
    match &plan.eval {
        Some(eval) => evaluation::text(plan, eval),
        None => of_program(plan),
    }
}

/// Appends the first line: how many ranks of what.
fn headline(text: &mut String, plan: &LaunchPlan) {
    let ranks = counted(plan.ranks.len(), "rank");
    let title = printable_line(&plan.title);
    let _ = match plan.nnodes {
        1 => writeln!(text, "{ranks} of `{title}`; nothing was started\n"),
        nodes => writeln!(
            text,
            "{ranks} of `{title}` on this node, of {}{nodes} nodes; nothing was started\n",
            if is_elastic(plan) { "at most " } else { "" }
        ),
    };
}

/// Returns whether the number of nodes is open.
fn is_elastic(plan: &LaunchPlan) -> bool {
    let rendezvous = plan.rendezvous.as_ref();
    rendezvous.is_some_and(|meeting| meeting.min != meeting.max)
}

/// Appends a fact, which may have several lines, or none.
fn fact(text: &mut String, name: &str, lines: impl IntoIterator<Item = String>) {
    for (index, line) in lines.into_iter().enumerate() {
        let name = if index == 0 { name } else { "" };
        let _ = writeln!(text, "{name:<MARGIN$} {}", printable_line(&line));
    }
}

/// Returns the global rank of the rank at `index` on this node, if that is known before the nodes
/// meet.
fn global_rank(plan: &LaunchPlan, index: usize) -> Option<usize> {
    let rank = plan.ranks.get(index)?;
    if let Some(rank) = rank.env.get("RANK") {
        return rank.parse().ok();
    }
    match &plan.rendezvous {
        None => Some(index),
        Some(meeting) if meeting.backend == Backend::Static => {
            let node = usize::try_from(meeting.node_rank).ok()?;
            Some(node * plan.ranks.len() + index)
        }
        Some(_) => None,
    }
}

/// Returns the text for a plan.
fn of_program(plan: &LaunchPlan) -> String {
    let mut text = String::new();
    headline(&mut text, plan);

    let rows = (0..plan.ranks.len()).map(|index| row(plan, index));
    let head = ["Rank", "Local rank", "GPUs", "CPUs", "Output"];
    text += &Table::first(head, rows, "rank", ", see --dry-run=json").grid();
    text.push('\n');

    fact(&mut text, "Ranks", numbering(plan));
    fact(&mut text, "Command", commands(&plan.ranks));
    fact(&mut text, "Variables", [variables(plan)]);
    fact(&mut text, "Meeting", [meeting(plan)]);
    fact(&mut text, "Logs", [logs(plan)]);
    fact(&mut text, "Failure", [failure(plan)]);
    let front = plan.serve.as_ref().and_then(|serve| serve.front);
    let front = front.map(|front| format!("{front} is shared by all ranks"));
    fact(&mut text, "Port", front);
    text
}

/// Returns on what the numbers of the ranks depend: nodes in front of this one say how many ranks
/// they have when all meet.
fn numbering(plan: &LaunchPlan) -> Option<String> {
    let meeting = plan.rendezvous.as_ref()?;
    let is_open = meeting.node_rank > 0 && !meeting.is_identical;
    let is_numbered = global_rank(plan, 0).is_some() && !plan.ranks[0].env.contains_key("RANK");
    let ranks = plan.ranks.len();
    (is_open && is_numbered).then(|| format!("numbered as if each node had {ranks}"))
}

fn row(plan: &LaunchPlan, index: usize) -> [String; 5] {
    let rank = &plan.ranks[index];
    let gpus = match rank.env.get("CUDA_VISIBLE_DEVICES") {
        Some(devices) => format!("{devices} alone"),
        None => "all visible".to_owned(),
    };
    [
        global_rank(plan, index).map_or_else(|| "set later".to_owned(), |rank| rank.to_string()),
        rank.local_rank.to_string(),
        gpus,
        cpus(rank),
        output(rank),
    ]
}

/// Returns the CPUs that a rank may use.
fn cpus(rank: &RankPlan) -> String {
    match &rank.cpus {
        Some(cpus) => cpus.to_string(),
        None => "all".to_owned(),
    }
}

/// Returns where the output of a rank goes.
fn output(rank: &RankPlan) -> String {
    let place = |is_redirected: bool, is_teed: bool| match (is_redirected, is_teed, rank.shown) {
        (_, true, true) => "file and console",
        (_, true, false) | (true, false, _) => "file",
        (false, false, true) => "console",
        (false, false, false) => "nowhere",
    };
    let stdout = place(rank.redirect.stdout, rank.tee.stdout);
    let stderr = place(rank.redirect.stderr, rank.tee.stderr);
    if stdout == stderr {
        stdout.to_owned()
    } else {
        format!("stdout: {stdout}, stderr: {stderr}")
    }
}

/// Returns the command of all ranks, or one line for each that differs from the one before.
fn commands(ranks: &[RankPlan]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut last = None;
    for rank in ranks {
        if last == Some(&rank.argv) {
            continue;
        }
        if lines.len() == MAX_ROWS {
            lines.push("… and more, see --dry-run=json".to_owned());
            break;
        }
        let words = rank.argv.iter().map(|word| word.to_string_lossy());
        let words: Vec<_> = words.map(|word| quoted(&word)).collect();
        lines.push(words.join(" "));
        last = Some(&rank.argv);
    }
    lines
}

/// Returns the variables that all ranks get, in the notation of a shell.
fn variables(plan: &LaunchPlan) -> String {
    let mut variables = Vec::new();
    if plan.rendezvous.is_none() {
        variables.push(format!("WORLD_SIZE={}", plan.ranks.len()));
        variables.push(format!("MASTER_ADDR={}", plan.store.master_addr));
        match plan.store.port {
            Some(port) => variables.push(format!("MASTER_PORT={port}")),
            None => variables.push("MASTER_PORT=<a free one>".to_owned()),
        }
    }
    let set = plan.env.iter();
    variables.extend(set.map(|(name, value)| format!("{name}={}", quoted(value))));
    variables.join(" ")
}

/// Returns how the nodes meet.
fn meeting(plan: &LaunchPlan) -> String {
    let Some(meeting) = &plan.rendezvous else {
        return "on this node alone".to_owned();
    };
    let place = match &meeting.file {
        Some(file) => format!("the file `{}`", file.display()),
        None => format!("{}:{}", meeting.host, meeting.port),
    };
    let nodes = match is_elastic(plan) {
        true => format!("{} to {} nodes", meeting.min, meeting.max),
        false => format!("{} nodes", meeting.max),
    };
    format!(
        "{nodes} through {place} ({}), run id `{}`",
        meeting.backend.name(),
        plan.run_id
    )
}

/// Returns where log files go.
fn logs(plan: &LaunchPlan) -> String {
    match &plan.logs.dir {
        _ if plan.logs.disabled => "no files".to_owned(),
        Some(folder) => format!("`{}`", folder.display()),
        None => format!("a new folder in `{}`", std::env::temp_dir().display()),
    }
}

/// Returns what the failure of a rank means.
fn failure(plan: &LaunchPlan) -> String {
    let restarts = counted(plan.max_restarts, "restart");
    match (plan.failure_policy, plan.max_restarts) {
        (FailurePolicy::Torchrun, 0) => "the first failure ends all ranks".to_owned(),
        (FailurePolicy::Torchrun, _) => format!("all ranks restart together, {restarts} at most"),
        (FailurePolicy::Isolate, 0) => "the other ranks go on".to_owned(),
        (FailurePolicy::Isolate, _) => {
            format!("a rank restarts alone, {restarts} at most, while the others go on")
        }
    }
}
