//! Tests that `eval_info.json` has LeRobot's names and only values that were recorded.

use serde_json::Value;

use super::*;
use jobs::job::Variant;
use jobs::layout::RunFolder;

fn eval_info(lines: &[Line]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let folder = RunFolder::new(dir.path());
    crate::write(
        &folder,
        &two_jobs(),
        &Journals::of_lines(lines),
        Context::default(),
    )
    .unwrap();
    serde_json::from_slice(&std::fs::read(folder.eval_info()).unwrap()).unwrap()
}

#[test]
fn every_file_of_a_report_moves_with_its_run() {
    let dir = tempfile::tempdir().unwrap();
    let folder = RunFolder::new(dir.path());
    let journals = Journals::of_lines(&everything());
    let mut plan = two_jobs();
    plan.options
        .insert("arena-output".to_owned(), String::new());
    plan.jobs[1].variant = Some(Variant {
        of: "a".to_owned(),
        name: "dark".to_owned(),
        groups: Vec::new(),
    });
    crate::write(&folder, &plan, &journals, Context::default()).unwrap();
    let mut written: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file() && *path != folder.plan_lock())
        .collect();
    let mut listed = folder.reports();
    written.sort();
    listed.sort();
    assert_eq!(written, listed, "`RunFolder::reports` lists all of them");
}

#[test]
fn tasks_groups_and_all_of_them_have_lerobots_names() {
    let info = eval_info(&everything());
    let task = |index: usize| &info["per_task"][index];
    assert_eq!(
        (&task(0)["task_group"], &task(1)["task_id"], &task(1)["job"]),
        (&json!("reach"), &json!(1), &json!("b"))
    );
    assert_eq!(
        task(0)["metrics"]["successes"],
        json!([true, true, true, false])
    );
    assert_eq!(task(1)["metrics"]["sum_rewards"], json!([2.0, 2.0]));
    let overall = &info["overall"];
    assert_eq!(
        (&overall["n_episodes"], &overall["avg_sum_reward"]),
        (&json!(6), &json!(2.0))
    );
    assert!((overall["pc_success"].as_f64().unwrap() - 500.0 / 6.0).abs() < 1e-9);
    assert_eq!(
        info["per_group"]["reach"]["pc_success"],
        overall["pc_success"]
    );
}

#[test]
fn largest_rewards_are_in_step_with_the_sums_of_rewards() {
    let most = |number: u64, max_reward| {
        line(Episode {
            max_reward,
            ..episode(0, number, true)
        })
    };
    let broken = Episode {
        error: Some("NaN".to_owned()),
        max_reward: Some(9.0),
        ..episode(0, 3, false)
    };
    let info = eval_info(&[
        most(0, Some(0.5)),
        most(1, None),
        most(2, Some(-1.0)),
        line(broken),
    ]);
    assert_eq!(
        info["per_task"][0]["metrics"]["max_rewards"],
        json!([0.5, null, -1.0])
    );
    assert_eq!(info["overall"]["avg_max_reward"], json!(-0.25));
    assert_eq!(info["per_group"]["reach"]["avg_max_reward"], json!(-0.25));
}

#[test]
fn what_was_not_recorded_or_not_scored_is_left_out() {
    let mut lines = everything();
    lines[0] = line(Episode {
        success: None,
        error: Some("NaN".to_owned()),
        ..episode(0, 0, false)
    });
    let info = eval_info(&lines);
    assert_eq!(
        info["per_task"][0]["metrics"]["successes"],
        json!([true, true, false])
    );
    let metrics = info["per_task"][0]["metrics"].as_object().unwrap();
    assert!(
        !metrics.contains_key("max_rewards") && info["overall"].get("avg_max_reward").is_none()
    );
    assert_eq!(eval_info(&[])["overall"]["pc_success"], Value::Null);
}
