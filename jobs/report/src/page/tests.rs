use std::sync::LazyLock;

use jobs::format;
use serde_json::json;

use super::*;
use crate::page::success::TaskGrid;
use jobs::costs::Costs;
use jobs::job::{JobIndex, Status};
use jobs::plan::RunPlan;

use crate::tests::lines;
use crate::{Context, FailureReport, JobReport, PolicyRates, RankReport, Rates, Unsolved};

/// Returns the report of a run of which nothing has ended.
pub(super) fn report() -> Report {
    Report::new(&RunPlan::default(), &[], Context::default())
}

pub(super) fn rank(rank: usize) -> RankReport {
    RankReport {
        rank,
        host: "h".to_owned(),
        device: "cpu".to_owned(),
        starts: 1,
        ..RankReport::default()
    }
}

fn rates(successes: u64, scored: u64, errors: u64) -> Rates {
    let episodes = scored + errors;
    Rates {
        expected: Some(episodes),
        episodes,
        scored,
        successes,
        errors,
        ..Rates::default()
    }
}

/// Returns what a report says of a completed job.
fn job(index: usize, environment: &str, policy: &str, rates: Rates) -> JobReport {
    static PENDING: LazyLock<JobReport> = LazyLock::new(|| {
        let plan = lines::plan([lines::job("pending", 1)]);
        Report::new(&plan, &[], Context::default())
            .per_job
            .remove(0)
    });
    let settings = [("dtype", json!("bfloat16")), ("seed", json!(index))];
    JobReport {
        name: format!("job_{index}"),
        index: JobIndex(index),
        environment: environment.to_owned(),
        policy_type: policy.to_owned(),
        status: Status::Completed,
        settings: settings
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
        rates,
        wall_s: 10.0,
        steps_per_s: Some(100.0),
        costs: Costs {
            env_steps: 1000,
            policy_calls: 100,
            ..Costs::default()
        },
        ..PENDING.clone()
    }
}

fn of_jobs(per_job: Vec<JobReport>) -> Report {
    Report {
        per_job,
        ..report()
    }
}

fn text(report: &Report) -> String {
    render(report, &Zone::utc()).replace(format::THIN, " ")
}

const EVIL: &str = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>&amp;";

#[test]
fn whatever_users_write_is_text() {
    let (word, some, list) = (
        EVIL.to_owned(),
        Some(EVIL.to_owned()),
        vec![EVIL.to_owned()],
    );
    let evil = JobReport {
        name: word.clone(),
        error: some.clone(),
        instruction: some.clone(),
        videos: list.clone(),
        datasets: list.clone(),
        log: some.clone(),
        settings: [(word.clone(), json!(EVIL))].into(),
        ..job(0, EVIL, EVIL, rates(1, 2, 0))
    };
    let other = JobReport {
        instruction: Some("another".to_owned()),
        ..job(1, EVIL, "p", rates(1, 2, 0))
    };
    let mut report = of_jobs(vec![evil, other]);
    report.failures = vec![FailureReport {
        job: word.clone(),
        episode: None,
        rank: None,
        reason: word.clone(),
        log: some.clone(),
    }];
    (report.run.argv, report.run.hosts) = (list.clone(), list.clone());
    (report.run.stopped, report.run.started) = (some.clone(), some.clone());
    report.run.versions = [(word.clone(), list)].into();
    report.config.jobs_file = word.clone();
    report.per_rank = vec![RankReport {
        host: word.clone(),
        device: word.clone(),
        ..rank(0)
    }];
    report.unsolved = vec![Unsolved {
        job: word,
        episode: 0,
        seed: 0,
        rank: 0,
        end: jobs::episode::End::TimeLimit,
        length: 1,
        return_: 0.0,
        max_reward: None,
        video: None,
        episode_video: some,
    }];
    let page = render(&report, &Zone::utc());
    assert_eq!(page.matches("<script>").count(), 1, "the page's own");
    let is_obeyed = page.contains("<img") || page.contains("\"'>");
    assert!(!is_obeyed, "nothing ends an attribute or begins an element");
    assert!(page.contains("&lt;script&gt;"), "and yet it can be read");
}

#[test]
fn nothing_comes_from_elsewhere() {
    let page = text(&of_jobs(vec![job(0, "reach", "gr00t", rates(1, 2, 1))]));
    for loads in [
        "http:",
        "https:",
        "url(",
        "@import",
        "stylesheet",
        "<iframe",
        "<base",
        "src=\"//",
    ] {
        assert!(!page.contains(loads), "{loads}");
    }
}

#[test]
fn instructions_tell_tasks_of_one_environment_apart() {
    let told = |index, text: &str| {
        let instruction = Some(text.to_owned());
        JobReport {
            instruction,
            ..job(index, "a/libero_env.py:make", "gr00t", rates(1, 2, 0))
        }
    };
    let same = TaskGrid::new(&of_jobs(vec![told(0, "push"), told(1, "push")]));
    let details = |grid: &TaskGrid| -> Vec<_> {
        let tasks = grid.tasks.iter();
        tasks
            .map(|task| task.detail.as_deref().map(str::to_owned))
            .collect()
    };
    assert_eq!(details(&same), [None]);
    let jobs = vec![told(0, "push"), told(1, "pull"), told(2, "push")];
    let others = TaskGrid::new(&of_jobs(jobs));
    let found = details(&others);
    assert_eq!(found, ["push", "pull"].map(|text| Some(text.to_owned())));
    assert_eq!(others.tasks[0].name, "libero_env.py:make");
    assert_eq!(others.cells[&(0, 0)].rates.episodes, 4);
}

#[test]
fn two_checkpoints_of_a_policy_are_never_added_up() {
    let of = |index, path: &str| {
        let settings = [("policy_path".to_owned(), json!(path))].into();
        JobReport {
            settings,
            ..job(index, "reach", "gr00t", rates(1, 2, 0))
        }
    };
    let grid = TaskGrid::new(&of_jobs(vec![of(0, "a"), of(1, "b"), of(2, "a")]));
    let columns = grid
        .policies
        .iter()
        .map(|policy| policy.detail.as_deref().unwrap());
    assert_eq!(columns.collect::<Vec<_>>(), ["a", "b"]);
    let jobs = |column| grid.cells[&(0, column)].jobs;
    assert_eq!((jobs(0), jobs(1)), (2, 1));
    let not_run = job(1, "reach", "gr00t", rates(0, 0, 0));
    let same = TaskGrid::new(&of_jobs(vec![of(0, "a"), not_run]));
    assert_eq!(same.policies.len(), 1);
    assert_eq!(same.policies[0].detail.as_deref(), None);
}

#[test]
fn environments_with_the_same_short_name_have_their_whole_one() {
    let names = ["a/e.py:make", "b/e.py:make"];
    let jobs = names.map(|environment| job(0, environment, "p", rates(1, 1, 0)));
    let tasks = TaskGrid::new(&of_jobs(jobs.into())).tasks.into_iter();
    assert_eq!(tasks.map(|task| task.name).collect::<Vec<_>>(), names);
}

#[test]
fn what_is_beyond_the_limits_is_added_up_and_said() {
    let jobs = (0..1000).map(|index| {
        let (environment, policy) = (format!("e{}", index % 100), format!("p{}", index % 20));
        job(index, &environment, &policy, rates(1, 2, 0))
    });
    let report = of_jobs(jobs.collect());
    let grid = TaskGrid::new(&report);
    assert_eq!((grid.tasks.len(), grid.policies.len()), (61, 9));
    assert_eq!(grid.others, [40, 12]);
    let sum: u64 = grid.cells.values().map(|cell| cell.rates.episodes).sum();
    assert_eq!(sum, 2000, "nothing is lost");
    assert!(text(&report).contains("and 500 more, see report.json"));
}

#[test]
fn of_too_many_jobs_those_that_need_a_look_are_shown() {
    let jobs = (0..1000).map(|index| job(index, "e", "p", rates(1, 2, 0)));
    let mut jobs: Vec<_> = jobs.collect();
    jobs[900].status = Status::Failed;
    jobs[950].rates.errors = 1;
    let report = of_jobs(jobs);
    let shown = table::shown(&report);
    let shown: Vec<_> = shown.iter().map(|job| job.index.0).collect();
    assert_eq!((shown.len(), &shown[497..]), (500, &[497, 900, 950][..]));
}

/// 10 000 jobs are 13 MB of report. A browser handles a page of a few megabytes well.
#[test]
fn the_page_of_ten_thousand_jobs_stays_small() {
    let jobs = (0..10_000).map(|index| {
        let environment = format!("environment_{}", index % 300);
        let policy = format!("policy_{}", index % 7);
        let mut job = job(index, &environment, &policy, rates(50, 99, 1));
        job.name = format!("a_job_with_a_long_name_{index}_{}", "x".repeat(100));
        job.videos = (0..16)
            .map(|video| format!("{}/video_{video}.mp4", job.name))
            .collect();
        job.error = Some("it broke: ".repeat(200));
        job
    });
    let page = render(&of_jobs(jobs.collect()), &Zone::utc());
    assert!(page.len() < 5_000_000, "{}", page.len());
}

/// Returns HTML with each element on a line of its own.
pub(super) fn elements(html: &str) -> String {
    html.replace("><", ">\n<").replace(">\n</", "></")
}

/// Returns what can be read of a page. SVG has no void elements: each one has to be closed.
fn words(report: &Report) -> String {
    let page = text(report);
    for name in ["svg", "rect", "line", "text", "title", "span", "div"] {
        let opened = [format!("<{name} "), format!("<{name}>")];
        let opened: usize = opened.iter().map(|tag| page.matches(tag).count()).sum();
        assert_eq!(
            opened,
            page.matches(&format!("</{name}>")).count(),
            "{name}"
        );
    }
    let (_, body) = page.split_once("<body>").unwrap();
    let (body, _) = body.split_once("<script>").unwrap();
    let mut words = String::new();
    for (tag, text) in body.split('<').filter_map(|part| part.split_once('>')) {
        words += match tag {
            "/p" | "/tr" | "/li" | "/h1" | "/h2" | "/h3" | "/dd" | "/div" | "/svg" => "\n",
            "/th" | "/td" | "/dt" | "/text" | "/small" | "/b" => " ",
            _ => "",
        };
        words += text;
    }
    let lines = words.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn an_empty_report_is_a_page() {
    insta::assert_snapshot!(words(&report()));
}

/// Policies lead with their rates, and a mean counts the jobs that are in it; the cells of a table add
/// up jobs of one task and policy.
#[test]
fn the_page_shows_what_each_policy_solved_of_each_task_and_what_went_wrong() {
    let half = Rates {
        success_rate: Some(0.5),
        ..rates(4, 8, 0)
    };
    let mut report = of_jobs(vec![
        job(0, "reach", "gr00t", rates(9, 10, 2)),
        job(1, "reach", "gr00t", rates(1, 10, 0)),
        job(2, "push", "scripted", half.clone()),
        job(3, "push", "scripted", Rates::default()),
    ]);
    let of = |policy: &str, jobs: u64, rates: Rates| PolicyRates {
        policy_type: policy.to_owned(),
        path: None,
        jobs,
        rated_jobs: 2,
        mean_task_success_rate: Some(0.5),
        rates,
    };
    report.per_policy = vec![
        of("gr00t", 2, rates(10, 20, 2)),
        of("scripted", 3, half),
        of("idle", 1, rates(0, 0, 0)),
    ];
    (report.overall, report.controls) = (rates(14, 28, 2), rates(14, 28, 2));
    report.partial = true;
    report.run.missing_ranks = vec![1];
    report.per_rank = vec![RankReport {
        busy_s: 1.0,
        ..rank(0)
    }];
    insta::assert_snapshot!(words(&report));
}
