use serde_json::json;

use super::*;
use crate::page::document::{POLICY, SCRIPT, STYLE};
use jobs::job::{JobIndex, Status};
use jobs::journal::Quantiles;

use crate::{
    ConfigReport, EpisodeId, FailureReport, JobReport, PolicyRates, RankReport, Rates, RunReport,
    Unsolved,
};

/// Returns an empty report.
pub(super) fn report() -> Report {
    Report {
        schema: "rrun/report/1".to_owned(),
        partial: false,
        run: RunReport::default(),
        config: ConfigReport::default(),
        per_policy: vec![],
        decision: None,
        overall: Rates::default(),
        controls: Rates::default(),
        mean_task_success_rate: None,
        per_job: vec![],
        per_group: vec![],
        variations: vec![],
        per_latency: vec![],
        per_rank: vec![],
        missing: vec![],
        missing_count: 0,
        duplicates: vec![],
        duplicates_count: 0,
        failures: vec![],
        failures_count: 0,
        failures_by_reason: vec![],
        unsolved: vec![],
        unsolved_count: 0,
        env_losses: vec![],
        env_losses_count: 0,
    }
}

pub(super) fn rank(rank: usize) -> RankReport {
    let text = json!({"rank": rank, "host": "h", "device": "cpu", "device_reason": "", "starts": 1, "busy_s": 0.0,
                      "idle_s": 0.0, "episodes": 0});
    serde_json::from_value(text).unwrap()
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

fn job(index: usize, environment: &str, policy: &str, rates: Rates) -> JobReport {
    JobReport {
        latency: None,
        name: format!("job_{index}"),
        index: JobIndex(index),
        variant_of: None,
        environment: environment.to_owned(),
        policy_type: policy.to_owned(),
        instruction: None,
        num_envs: 4,
        ranks: vec![0],
        nodes: vec![],
        devices: vec![],
        status: Status::Completed,
        error: None,
        attempts: 1,
        log: None,
        settings: [
            ("dtype".to_owned(), json!("bfloat16")),
            ("seed".to_owned(), json!(index)),
        ]
        .into(),
        rates,
        metrics: [].into(),
        wall_s: 10.0,
        env_steps: 1000,
        steps_per_s: Some(100.0),
        frames: 0,
        policy_calls: 100,
        infer_busy_s: 3.0,
        sim_busy_s: 8.0,
        env_restarts: 0,
        record_waits: 0,
        record_wait_s: 0.0,
        infer_ms: Quantiles::default(),
        sim_ms: Quantiles::default(),
        peak_rss_bytes: 1 << 28,
        peak_vram_bytes: None,
        peak_vram_allocated_bytes: None,
        peak_env_bytes: None,
        peak_env_vram_bytes: None,
        env_vram_is_estimate: false,
        out_of_memory: 0,
        out_of_memory_batch: None,
        gpu_busy: None,
        datasets: vec![],
        videos: vec![],
    }
}

fn of_jobs(per_job: Vec<JobReport>) -> Report {
    Report {
        per_job,
        ..report()
    }
}

fn text(report: &Report) -> String {
    render(report, &Zone::utc()).replace(number::THIN, " ")
}

const EVIL: &str = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>&amp;";

#[test]
fn every_job_with_missing_episodes_is_named_however_many_another_lacks() {
    let short = |index, missing: u64| {
        let rates = Rates {
            expected: Some(12 + missing),
            ..rates(9, 12, 0)
        };
        job(index, "reach", "scripted", rates)
    };
    let listed = |episode| EpisodeId {
        job: "job_0".to_owned(),
        episode,
    };
    let report = Report {
        partial: true,
        missing: (12..1012).map(listed).collect(),
        missing_count: 2010,
        ..of_jobs(vec![short(0, 2000), short(1, 0), short(2, 10)])
    };
    let text = text(&report);
    assert!(
        text.contains("2 010 episodes are missing, of job_0, job_2."),
        "{text}"
    );
}

#[test]
fn whatever_users_write_is_text() {
    let mut evil = job(0, EVIL, EVIL, rates(1, 2, 0));
    (evil.name, evil.error, evil.instruction) = (
        EVIL.to_owned(),
        Some(EVIL.to_owned()),
        Some(EVIL.to_owned()),
    );
    (evil.videos, evil.datasets, evil.log) = (
        vec![EVIL.to_owned()],
        vec![EVIL.to_owned()],
        Some(EVIL.to_owned()),
    );
    evil.settings = [(EVIL.to_owned(), json!(EVIL))].into();
    let mut other = job(1, EVIL, "p", rates(1, 2, 0));
    other.instruction = Some("another".to_owned());
    let mut report = of_jobs(vec![evil, other]);
    report.failures = vec![FailureReport {
        job: EVIL.to_owned(),
        episode: None,
        rank: None,
        reason: EVIL.to_owned(),
        log: Some(EVIL.to_owned()),
    }];
    report.run.argv = vec![EVIL.to_owned()];
    report.run.hosts = vec![EVIL.to_owned()];
    report.run.stopped = Some(EVIL.to_owned());
    report.run.started = Some(EVIL.to_owned());
    report.run.versions = [(EVIL.to_owned(), vec![EVIL.to_owned()])].into();
    report.config.jobs_file = EVIL.to_owned();
    report.per_rank = vec![RankReport {
        host: EVIL.to_owned(),
        device: EVIL.to_owned(),
        ..rank(0)
    }];
    report.unsolved = vec![Unsolved {
        job: EVIL.to_owned(),
        episode: 0,
        seed: 0,
        rank: 0,
        end: jobs::episode::End::TimeLimit,
        length: 1,
        return_: 0.0,
        max_reward: None,
        video: None,
        episode_video: Some(EVIL.to_owned()),
    }];
    let page = render(&report, &Zone::utc());
    assert_eq!(page.matches("<script>").count(), 1, "the page's own");
    assert!(
        !page.contains("<img") && !page.contains("\"'>"),
        "nothing ends an attribute or begins an element"
    );
    assert!(page.contains("&lt;script&gt;"), "and yet it can be read");
}

#[test]
fn only_the_own_style_and_script_are_allowed() {
    for (text, of) in [(STYLE, "style-src"), (SCRIPT, "script-src")] {
        let hash = base64(&jobs::sha256::digest(text));
        assert!(
            POLICY.contains(&format!("{of} 'sha256-{hash}'")),
            "POLICY needs {of} 'sha256-{hash}'"
        );
    }
    let page = render(&report(), &Zone::utc());
    assert!(
        page.contains(&STYLE[..200]) && page.contains(SCRIPT),
        "neither is escaped"
    );
    assert!(!STYLE.contains("</") && !SCRIPT.contains("</"));
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |group: &[u8]| {
        let bits = group
            .iter()
            .chain([&0, &0])
            .take(3)
            .fold(0, |bits, byte| bits << 8 | usize::from(*byte));
        let digit = |at: usize| {
            if at <= group.len() {
                char::from(DIGITS[bits >> (18 - 6 * at) & 63])
            } else {
                '='
            }
        };
        [0, 1, 2, 3].map(digit)
    };
    bytes.chunks(3).flat_map(group).collect()
}

#[test]
fn nothing_comes_from_elsewhere() {
    let page = text(&of_jobs(vec![job(0, "reach", "gr00t", rates(1, 2, 1))]));
    for loads in [
        "http:", "https:", "url(", "@import", "<link", "<iframe", "<base", "src=\"//",
    ] {
        assert!(!page.contains(loads), "{loads}");
    }
}

/// SVG has no void elements: an element that is not closed would contain everything after it.
#[test]
fn every_element_of_a_drawing_is_closed() {
    let mut report = of_jobs(vec![job(0, "reach", "gr00t", rates(1, 2, 1))]);
    report.overall = rates(1, 2, 1);
    report.controls = rates(1, 2, 1);
    report.per_rank = vec![RankReport {
        busy_s: 1.0,
        ..rank(0)
    }];
    let page = text(&report);
    for name in ["svg", "rect", "line", "text", "title", "span", "div"] {
        let opened =
            page.matches(&format!("<{name} ")).count() + page.matches(&format!("<{name}>")).count();
        assert_eq!(
            opened,
            page.matches(&format!("</{name}>")).count(),
            "{name}"
        );
        assert!(opened > 0, "{name}");
    }
}

#[test]
fn the_same_report_is_the_same_page() {
    let report = of_jobs(
        (0..50)
            .map(|index| job(index, "reach", "gr00t", rates(1, 2, 1)))
            .collect(),
    );
    assert_eq!(
        render(&report, &Zone::utc()),
        render(&report.clone(), &Zone::utc())
    );
}

#[test]
fn of_several_policies_each_leads_with_its_rate_and_the_sum_says_that_it_is_one() {
    let mut report = of_jobs(vec![]);
    let of = |policy: &str, rates: Rates| PolicyRates {
        policy_type: policy.to_owned(),
        path: None,
        jobs: 1,
        rated_jobs: 0,
        mean_task_success_rate: None,
        rates,
    };
    report.per_policy = vec![
        of("gr00t", rates(9, 12, 0)),
        of("scripted", rates(12, 12, 0)),
        of("idle", rates(0, 0, 0)),
    ];
    report.controls = rates(21, 24, 0);
    let page = text(&report);
    let of = |words: &str| {
        page.find(words)
            .unwrap_or_else(|| panic!("{words}: {page}"))
    };
    let [gr00t, scripted] = [
        "<b>75.0 %</b> solved by gr00t",
        "<b>100 %</b> solved by scripted",
    ]
    .map(of);
    let sum = of("All 2 policies together: <b>87.5 %</b>, 21 of 24 episodes");
    assert!(gr00t < scripted && scripted < sum);
    report.per_policy.truncate(1);
    assert!(
        text(&report).contains("<b>87.5 %</b> solved</p>"),
        "one policy needs no name"
    );
}

#[test]
fn a_mean_counts_the_jobs_that_are_in_it() {
    let half = Rates {
        success_rate: Some(0.5),
        ..rates(1, 2, 0)
    };
    let mut report = of_jobs(vec![job(0, "reach", "gr00t", half.clone()); 2]);
    (report.controls, report.mean_task_success_rate) = (half, Some(0.5));
    assert!(text(&report).contains("Mean over 2 jobs: "));
    let without = job(2, "lift", "gr00t", Rates::default());
    report.per_job.push(without);
    assert!(text(&report).contains("Mean over 2 of 3 jobs: "));
}

#[test]
fn a_job_in_steps_that_ends_before_an_episode_is_named() {
    let page = text(&of_jobs(vec![job(0, "reach", "gr00t", Rates::default())]));
    assert!(
        page.contains("1 job in steps ended before its first episode did: job_0."),
        "{page}"
    );
}

#[test]
fn an_empty_report_is_a_page() {
    let page = text(&report());
    assert!(
        page.contains("No episode has ended yet") && page.contains("No rank has left a journal")
    );
}

#[test]
fn the_matrix_adds_up_jobs_of_the_same_task_and_policy() {
    let page = text(&of_jobs(vec![
        job(0, "reach", "gr00t", rates(9, 10, 2)),
        job(1, "reach", "gr00t", rates(1, 10, 0)),
        job(2, "push", "scripted", rates(4, 4, 0)),
    ]));
    assert!(
        page.contains("<b>45.5 %</b><small>10 of 22</small>"),
        "{page}"
    );
    assert!(
        page.contains("<small class=\"bad\">2 errors</small>"),
        "{page}"
    );
    assert_eq!(
        page.matches("not run").count(),
        2,
        "reach by scripted, push by gr00t"
    );
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
    assert_eq!(
        (same.tasks.len(), same.tasks[0].detail.as_deref()),
        (1, None)
    );
    let others = TaskGrid::new(&of_jobs(vec![
        told(0, "push"),
        told(1, "pull"),
        told(2, "push"),
    ]));
    assert_eq!(
        others
            .tasks
            .iter()
            .map(|task| task.detail.as_deref())
            .collect::<Vec<_>>(),
        [Some("push"), Some("pull")]
    );
    assert_eq!(others.tasks[0].name, "libero_env.py:make");
    assert_eq!(others.cell(0, 0).unwrap().episodes, 4);
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
    let columns: Vec<_> = grid
        .policies
        .iter()
        .map(|policy| policy.detail.as_deref().unwrap())
        .collect();
    assert_eq!(
        (
            columns,
            grid.cell(0, 0).unwrap().jobs,
            grid.cell(0, 1).unwrap().jobs
        ),
        (vec!["a", "b"], 2, 1)
    );
    let same = TaskGrid::new(&of_jobs(vec![
        of(0, "a"),
        job(1, "reach", "gr00t", rates(0, 0, 0)),
    ]));
    assert_eq!(
        (same.policies.len(), same.policies[0].detail.as_deref()),
        (1, None)
    );
}

#[test]
fn environments_with_the_same_short_name_have_their_whole_one() {
    let jobs = vec![
        job(0, "a/e.py:make", "p", rates(1, 1, 0)),
        job(1, "b/e.py:make", "p", rates(1, 1, 0)),
    ];
    let names: Vec<_> = TaskGrid::new(&of_jobs(jobs))
        .tasks
        .into_iter()
        .map(|task| task.name)
        .collect();
    assert_eq!(names, ["a/e.py:make", "b/e.py:make"]);
}

#[test]
fn what_is_beyond_the_limits_is_added_up_and_said() {
    let jobs: Vec<_> = (0..1000)
        .map(|index| {
            job(
                index,
                &format!("e{}", index % 100),
                &format!("p{}", index % 20),
                rates(1, 2, 0),
            )
        })
        .collect();
    let report = of_jobs(jobs);
    let grid = TaskGrid::new(&report);
    assert_eq!(
        (
            grid.tasks.len(),
            grid.other_tasks,
            grid.policies.len(),
            grid.other_policies
        ),
        (61, 40, 9, 12)
    );
    let all = (0..61)
        .flat_map(|row| (0..9).map(move |column| (row, column)))
        .filter_map(|(r, c)| grid.cell(r, c));
    assert_eq!(
        all.map(|tally| tally.episodes).sum::<u64>(),
        2000,
        "nothing is lost"
    );
    assert!(text(&report).contains("500 of 1 000 jobs are shown"));
}

#[test]
fn of_too_many_jobs_those_that_need_a_look_are_shown() {
    let mut jobs: Vec<_> = (0..1000)
        .map(|index| job(index, "e", "p", rates(1, 2, 0)))
        .collect();
    jobs[900].status = Status::Failed;
    jobs[950].rates.errors = 1;
    let report = of_jobs(jobs);
    let shown: Vec<_> = sheet::shown(&report)
        .iter()
        .map(|job| job.index.0)
        .collect();
    assert_eq!(
        (shown.len(), shown[497], shown[498], shown[499]),
        (500, 497, 900, 950)
    );
}

/// 10 000 jobs are 13 MB of report. A browser handles a page of a few megabytes well.
#[test]
fn the_page_of_ten_thousand_jobs_stays_small() {
    let jobs = (0..10_000).map(|index| {
        let mut job = job(
            index,
            &format!("environment_{}", index % 300),
            &format!("policy_{}", index % 7),
            rates(50, 99, 1),
        );
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
