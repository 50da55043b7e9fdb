//! Tests that `eval_info.json` has LeRobot's names and only values that were recorded.

use serde_json::Value;

use super::*;
use jobs::job::Variant;

fn eval_info(lines: &[Line]) -> Value {
    let (_dir, folder) = written(&two_jobs(), lines);
    serde_json::from_slice(&std::fs::read(folder.eval_info()).unwrap()).unwrap()
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
    let (dir, folder) = written(&plan, &everything());
    let files = std::fs::read_dir(dir.path()).unwrap();
    let files = files.map(|entry| entry.unwrap().path());
    let is_report = |path: &std::path::PathBuf| path.is_file() && *path != folder.plan_lock();
    let mut found: Vec<_> = files.filter(is_report).collect();
    let mut listed = folder.reports();
    found.sort();
    listed.sort();
    assert_eq!(found, listed, "`RunFolder::reports` lists all of them");
}

#[test]
fn tasks_groups_and_all_of_them_have_lerobots_names() {
    let info = eval_info(&everything());
    let task = |index: usize| &info["per_task"][index];
    assert_eq!(task(0)["task_group"], "reach");
    assert_eq!(&task(1)["task_id"], &json!(1));
    assert_eq!(&task(1)["job"], &json!("b"));
    let solved = &task(0)["metrics"]["successes"];
    assert_eq!(solved, &json!([true, true, true, false]));
    assert_eq!(task(1)["metrics"]["sum_rewards"], json!([2.0, 2.0]));
    let overall = &info["overall"];
    assert_eq!(overall["n_episodes"], 6);
    assert_eq!(overall["avg_sum_reward"], 2.0);
    assert!((overall["pc_success"].as_f64().unwrap() - 500.0 / 6.0).abs() < 1e-9);
    let of_group = &info["per_group"]["reach"]["pc_success"];
    assert_eq!(of_group, &overall["pc_success"]);
}

#[test]
fn largest_rewards_are_in_step_with_the_sums_of_rewards() {
    let most = |number: u64, max_reward| {
        line(Episode {
            max_reward,
            ..episode(0, number, true)
        })
    };
    let lost = Episode {
        max_reward: Some(9.0),
        ..broken(episode(0, 3, false), "NaN")
    };
    let scored = [most(0, Some(0.5)), most(1, None), most(2, Some(-1.0))];
    let info = eval_info(&[&scored[..], &[line(lost)]].concat());
    let rewards = &info["per_task"][0]["metrics"]["max_rewards"];
    assert_eq!(rewards, &json!([0.5, null, -1.0]));
    assert_eq!(info["overall"]["avg_max_reward"], json!(-0.25));
    assert_eq!(info["per_group"]["reach"]["avg_max_reward"], json!(-0.25));
}

#[test]
fn what_was_not_recorded_or_not_scored_is_left_out() {
    let mut lines = everything();
    lines[0] = line(broken(episode(0, 0, false), "NaN"));
    let info = eval_info(&lines);
    let metrics = info["per_task"][0]["metrics"].as_object().unwrap();
    assert_eq!(metrics["successes"], json!([true, true, false]));
    assert!(!metrics.contains_key("max_rewards"));
    assert!(info["overall"].get("avg_max_reward").is_none());
    assert_eq!(eval_info(&[])["overall"]["pc_success"], Value::Null);
}
