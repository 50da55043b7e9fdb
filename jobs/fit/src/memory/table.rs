//! Formats needs and proposals as tables for the terminal.

use jobs::table::Table;

use crate::memory::amount::Need;
use crate::memory::planner::MemoryPlanner;
use crate::memory::propose::Proposal;

/// Returns a table with one row per GPU: what it will hold, what is free, and whether that fits.
pub fn needs(planner: &MemoryPlanner<'_>) -> String {
    let row = |need: &Need| {
        let budget = planner.budget(need.gpu);
        let free = budget.map(|budget| budget.free.to_string());
        [
            need.gpu.to_string(),
            need.weights.text(),
            need.activations.text(),
            need.graphs.text(),
            need.context.text(),
            need.environments.text(),
            need.sum().text(),
            free.unwrap_or_else(|| "unknown".to_owned()),
            need.fit(budget).text().to_owned(),
        ]
    };
    let rows: Vec<_> = planner.needs().iter().map(row).collect();
    let head = [
        "GPU",
        "Weights",
        "Activations",
        "Graphs",
        "Context",
        "Environments",
        "Sum",
        "Free",
        "Fits",
    ];
    Table::first(head, rows, "GPU", ", see --json").grid()
}

/// Returns a table with one row per job: its current numbers and the proposed ones.
pub fn proposals(proposals: &[Proposal]) -> String {
    let number = |number: Option<usize>, none: &str| match number {
        Some(number) => number.to_string(),
        None => none.to_owned(),
    };
    let row = |proposal: &Proposal| {
        let largest = proposal.batch.map(|batch| number(batch.largest, "none"));
        [
            proposal.job.clone(),
            proposal.num_envs.to_string(),
            number(proposal.proposed_num_envs, "-"),
            proposal.why.text().to_owned(),
            number(proposal.batch.map(|batch| batch.rows), "-"),
            largest.unwrap_or_else(|| "-".to_owned()),
        ]
    };
    let rows: Vec<_> = proposals.iter().map(row).collect();
    let head = [
        "Job",
        "Envs",
        "Proposed",
        "Because",
        "Batch",
        "Largest Batch",
    ];
    Table::first(head, rows, "job", ", see --json").grid()
}
