//! The description of a plan whose ranks run any program.

use std::path::Path;

use jobs::printable::quoted;
use jobs::table::{MAX_ROWS, Table};

use crate::dry_run::{fact, global_rank, headline, is_elastic};
use crate::plan::{FailurePolicy, LaunchPlan, RankPlan};

/// Returns the text for a plan.
pub(super) fn text(plan: &LaunchPlan) -> String {
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
pub(super) fn cpus(rank: &RankPlan) -> String {
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
pub(super) fn meeting(plan: &LaunchPlan) -> String {
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
pub(super) fn logs(plan: &LaunchPlan) -> String {
    match &plan.logs.dir {
        _ if plan.logs.disabled => "no files".to_owned(),
        Some(folder) => format!("`{}`", folder.display()),
        None => {
            let parent = std::env::temp_dir();
            format!("a new folder in `{}`", Path::display(&parent))
        }
    }
}

/// Returns what the failure of a rank means.
pub(super) fn failure(plan: &LaunchPlan) -> String {
    let restarts = jobs::count::counted(plan.max_restarts, "restart");
    match (plan.failure_policy, plan.max_restarts) {
        (FailurePolicy::Torchrun, 0) => "the first failure ends all ranks".to_owned(),
        (FailurePolicy::Torchrun, _) => format!("all ranks restart together, {restarts} at most"),
        (FailurePolicy::Isolate, 0) => "the other ranks go on".to_owned(),
        (FailurePolicy::Isolate, _) => {
            format!("a rank restarts alone, {restarts} at most, while the others go on")
        }
    }
}
