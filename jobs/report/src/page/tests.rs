use std::sync::LazyLock;

use jobs::format;
use serde_json::{Value, json};

use super::*;
use crate::page::success::{GridLabel, TaskGrid, counts};
use jobs::costs::Costs;
use jobs::job::{JobIndex, Status};
use jobs::plan::RunPlan;

use crate::tests::lines;
use crate::{Context, JobReport, PolicyRates, RankReport, Rates};

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

/// Returns the places of all texts in a value, and of what is not there.
fn texts(value: &Value, at: &str) -> Vec<String> {
    let fields: Vec<_> = match value {
        Value::String(_) | Value::Null => return vec![at.to_owned()],
        Value::Array(items) => (0..items.len()).map(|nth| nth.to_string()).collect(),
        Value::Object(fields) => fields.keys().cloned().collect(),
        _ => Vec::new(),
    };
    let paths = fields.iter().map(|field| format!("{at}/{field}"));
    paths
        .flat_map(|path| texts(value.pointer(&path[at.len()..]).unwrap(), &path))
        .collect()
}

/// Puts a text into every field of a report that takes any.
fn with_everywhere(text: &str, report: &Report) -> Report {
    let mut value = json!(report);
    for path in texts(&value, "") {
        let mut other = value.clone();
        *other.pointer_mut(&path).unwrap() = json!(text);
        if serde_json::from_value::<Report>(other.clone()).is_ok() {
            value = other;
        }
    }
    serde_json::from_value(value).unwrap()
}

#[test]
fn whatever_users_write_is_text() {
    let mut report = with_everywhere(EVIL, &crate::tests::documented::full());
    let settings = &mut report.per_job[0].settings;
    settings.insert(EVIL.to_owned(), json!(EVIL));
    report.run.versions = [(EVIL.to_owned(), vec![EVIL.to_owned()])].into();
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

/// Returns rows, columns, and jobs and episodes of the cells of a table of jobs, of which each has
/// two episodes. A job has an environment, and unless they are empty an instruction and a policy's
/// path.
fn grid(jobs: &[[&str; 3]]) -> String {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let of = |(index, [environment, instruction, path]): (usize, &[&str; 3])| {
        let path = some(path).map(|path| ("policy_path".to_owned(), json!(path)));
        JobReport {
            instruction: some(instruction),
            settings: path.into_iter().collect(),
            ..job(index, environment, "gr00t", rates(1, 2, 0))
        }
    };
    let report = of_jobs(jobs.iter().enumerate().map(of).collect());
    let grid = TaskGrid::new(&report);
    let heads = [&grid.tasks, &grid.policies].map(|labels| {
        let label = |label: &GridLabel| match &label.detail {
            Some(detail) => format!("{detail} of {}", label.name),
            None => label.name.clone(),
        };
        labels.iter().map(label).collect::<Vec<_>>().join(", ")
    });
    let cells = grid.cells.values();
    let cells: Vec<_> = cells
        .map(|jobs| format!("{}/{}", jobs.len(), counts(jobs).episodes))
        .collect();
    format!("{}: {}", heads.join(" × "), cells.join(" "))
}

#[test]
fn rows_and_columns_are_told_apart_by_as_little_as_does_and_checkpoints_never_added_up() {
    let libero = "a/libero_env.py:make";
    let [push, pull] = ["push", "pull"].map(|instruction| [libero, instruction, ""]);
    let of = |path| ["reach", "", path];
    let named = ["a/e.py:make", "b/e.py:make"].map(|name| [name, "", ""]);
    for (jobs, wanted) in [
        (&[push, push][..], "libero_env.py:make × gr00t: 2/4"),
        (
            &[push, pull, push],
            "push of libero_env.py:make, pull of libero_env.py:make × gr00t: 2/4 1/2",
        ),
        (
            &[of("a"), of("b"), of("a")],
            "reach × a of gr00t, b of gr00t: 2/4 1/2",
        ),
        // A job that was not started has no path.
        (&[of("a"), of("")], "reach × gr00t: 2/4"),
        (&named, "a/e.py:make, b/e.py:make × gr00t: 1/2 1/2"),
    ] {
        assert_eq!(grid(jobs), wanted);
    }
}

#[test]
fn what_is_beyond_the_limits_is_added_up_and_said() {
    let jobs = (0..1000).map(|index| {
        let (environment, policy) = (format!("e{}", index % 100), format!("p{}", index % 20));
        job(index, &environment, &policy, rates(1, 2, 0))
    });
    let report = of_jobs(jobs.collect());
    let grid = TaskGrid::new(&report);
    let last = [&grid.tasks[60..], &grid.policies[8..]].concat();
    let others: Vec<_> = last.into_iter().map(|label| label.name).collect();
    assert_eq!(others, ["40 other tasks", "12 other policies"]);
    let sum: u64 = grid.cells.values().map(|jobs| counts(jobs).episodes).sum();
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
