use jobs::journal::JobStart;
use jobs::samples::{self, job};
use serde_json::json;

use super::*;

fn at(second: u64) -> String {
    format!("2026-11-21T10:00:{second:02}.000Z")
}

fn start(second: u64) -> Line {
    Line::JobStart(JobStart {
        started: at(second),
        ..JobStart::default()
    })
}

fn episode(number: u64, second: u64) -> Line {
    let mut episode = samples::episode(0, "a", number);
    episode.ended = at(second);
    Line::from(episode)
}

fn end(wall_s: f64) -> Line {
    Line::JobEnd(Box::new(JobEnd {
        wall_s,
        peak_rss_bytes: 1000,
        peak_env_bytes: Some(500),
        ..JobEnd::default()
    }))
}

fn run(folder: &str, job: Job, lines: Vec<Line>) -> EarlierRun {
    let plan = RunPlan {
        jobs: vec![job],
        ..RunPlan::default()
    };
    let contents = Contents {
        lines,
        ..Contents::default()
    };
    EarlierRun::of(Path::new(folder), &plan, [&contents].into_iter())
}

fn seconds(job: &Job, runs: &[EarlierRun]) -> Option<f64> {
    estimate(job, runs).seconds.map(|rate| rate.each)
}

#[test]
fn the_time_of_a_job_is_divided_by_its_episodes() {
    let lines = vec![start(0), episode(0, 4), episode(1, 8), end(9.0)];
    let run = run("run", job(json!({})), lines);
    assert_eq!((run.episodes, run.rank_bytes), (2, Some(1500)));
    assert_eq!(
        seconds(&job(json!({"num_episodes": 50})), &[run]),
        Some(4.5)
    );
}

#[test]
fn an_interrupted_job_counts_up_to_its_last_episode() {
    let lines = vec![
        start(0),
        episode(0, 4),
        episode(1, 8),
        start(20),
        episode(2, 24),
    ];
    let run = run("run", job(json!({})), lines);
    assert_eq!(seconds(&job(json!({})), &[run]), Some(4.0));
}

#[test]
fn a_job_in_steps_is_scaled_by_steps() {
    let earlier = job(json!({"num_episodes": null, "num_steps": 100}));
    let run = run("run", earlier, vec![start(0), end(50.0)]);
    assert_eq!(
        seconds(
            &job(json!({"num_episodes": null, "num_steps": 400})),
            std::slice::from_ref(&run)
        ),
        Some(0.5)
    );
    assert_eq!(
        seconds(&job(json!({})), &[run]),
        None,
        "episodes are not steps"
    );
}

#[test]
fn the_job_that_is_most_alike_counts_and_then_the_first_run() {
    let lines = |wall_s: f64| vec![start(0), episode(0, 1), end(wall_s)];
    let runs = [
        run(
            "other",
            job(json!({"name": "b", "policy_config_dict": {"action_horizon": 2}})),
            lines(1.0),
        ),
        run("first", job(json!({})), lines(2.0)),
        run("second", job(json!({})), lines(3.0)),
    ];
    let found = estimate(&job(json!({})), &runs).seconds.unwrap();
    assert_eq!((found.folder.to_str(), found.each), (Some("first"), 2.0));
    assert_eq!(
        seconds(&job(json!({"policy_type": "random_action"})), &runs),
        None
    );
    assert_eq!(seconds(&job(json!({})), &runs[..1]), Some(1.0));
}

#[test]
fn a_run_without_a_finished_episode_tells_nothing() {
    let run = run("run", job(json!({})), vec![start(0)]);
    assert_eq!(seconds(&job(json!({})), &[run]), None);
}

#[test]
fn videos_in_datasets_are_data() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: usize| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, vec![0; bytes]).unwrap();
    };
    write("a_video_rank0_gpu0_env0.mp4", 10);
    write("dataset_a.hdf5", 200);
    write("dataset_a_rank0/videos/front.mp4", 3000);
    write("planner/log.json", 40_000);
    assert_eq!(sizes(folder.path()), (10, 43_200));
}

#[test]
fn a_run_without_videos_tells_nothing_about_their_size() {
    let lines = || vec![start(0), episode(0, 1), end(1.0)];
    let mut filmed = run("filmed", job(json!({})), lines());
    filmed.jobs[0].video_bytes = Some(500);
    let runs = [run("quick", job(json!({})), lines()), filmed];
    let found = estimate(&job(json!({})), &runs);
    assert_eq!(found.seconds.unwrap().folder, Path::new("quick"));
    let videos = found.video_bytes.unwrap();
    assert_eq!(
        (videos.folder.to_str(), videos.each),
        (Some("filmed"), 500.0)
    );
    assert_eq!(found.data_bytes, None);
}
