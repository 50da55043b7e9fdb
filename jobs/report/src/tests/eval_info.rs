//! Tests that `eval_info.json` has LeRobot's names and only values that were recorded.

use serde_json::Value;

use super::*;
use jobs::job::Variant;

fn eval_info(lines: &[Line]) -> Value {
    let run = written(&two_jobs(), lines);
    serde_json::from_slice(&std::fs::read(run.folder.eval_info()).unwrap()).unwrap()
}

#[test]
fn every_file_of_a_report_moves_with_its_run() {
    let mut plan = two_jobs();
    plan.options
        .insert("arena-output".to_owned(), String::new());
    plan.jobs[1].variant = Some(Variant {
        of: "a".to_owned(),
        name: "dark".to_owned(),
        groups: Vec::new(),
    });
    let run = written(&plan, &everything());
    let folder = &run.folder;
    let files = std::fs::read_dir(folder.root()).unwrap();
    let files = files.map(|entry| entry.unwrap().path());
    let of_plan = [folder.plan(), folder.plan_lock()];
    let is_report = |path: &std::path::PathBuf| path.is_file() && !of_plan.contains(path);
    let mut found: Vec<_> = files.filter(is_report).collect();
    let mut listed = folder.reports();
    found.sort();
    listed.sort();
    assert_eq!(found, listed, "`RunFolder::reports` lists all of them");
}

/// Largest rewards are in step with the sums of rewards; what was not recorded or not scored is
/// left out.
#[test]
fn tasks_groups_and_all_of_them_have_lerobots_names() {
    let mut lines = everything();
    lines[0] = line(broken(episode(0, 0, false), "NaN"));
    let most = |number: u64, max_reward| Episode {
        max_reward,
        ..episode(0, number, true)
    };
    let lost = broken(most(3, Some(9.0)), "NaN");
    let scored = [most(0, Some(0.5)), most(1, None), most(2, Some(-1.0)), lost];
    let infos = [&lines[..], &scored.map(line), &[]].map(eval_info);
    let texts = infos.map(|info| serde_json::to_string_pretty(&info).unwrap());
    insta::assert_snapshot!(texts.join("\n"));
}
