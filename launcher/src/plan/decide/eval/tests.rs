//! What an evaluation means on a machine: how many ranks run where, what is said, what is refused.

use jobs::count::counted;
use jobs::placement::PlacedProcess;

use crate::tests::{cases, planned};

fn answer(given: &str) -> String {
    let plan = match planned(&format!("OMP_NUM_THREADS=1 {given}"), |_| None) {
        Ok(plan) => plan,
        Err(err) => return err,
    };
    let eval = plan.eval.expect("an evaluation");
    let placed = eval.seating.placement.rollout.iter();
    let gpus: Vec<_> = placed
        .map(|rank| PlacedProcess::gpu(rank).to_string())
        .collect();
    let ranks = format!(
        "{} here, GPUs of all: {}",
        counted(plan.ranks.len(), "rank"),
        gpus.join(" ")
    );
    let notes = plan.notes.iter().map(|note| note.to_string());
    [ranks]
        .into_iter()
        .chain(notes)
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn an_evaluation_means_a_plan_or_is_refused() {
    rig::cases::check(cases("plan/decide/eval/evaluations.txt"), answer);
}
