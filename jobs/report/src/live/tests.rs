//! Tests that a run that is watched has the report of its journals, whenever somebody looks.

use std::time::{Duration, SystemTime};

use jobs::episode::Episode;
use jobs::job::{JobIndex, Status};
use jobs::journal::{Journal, Line, RankStart};
use jobs::layout::RunFolder;
use jobs::live::Commands;
use jobs::time::now;
use proptest::prelude::*;

use super::*;
use crate::HowEnded;
use crate::tests::TestRun;
use crate::tests::lines::{self, at, began, rank_end};

pub(crate) const LAUNCH: &str = "0a1b";

fn plan() -> RunPlan {
    lines::plan([lines::job("a", 6), lines::job("b", 4)])
}

fn empty() -> TestRun {
    TestRun::new(&plan())
}

impl TestRun {
    /// A run of two ranks of other machines, of which one has broken an episode.
    pub(crate) fn busy() -> Self {
        let run = empty();
        let start = |rank| Line::Rank(Box::new(lines::rank_start(rank, 0, 1)));
        let lost = lines::broken(lines::episode(0, 2, false), "lost\u{1b} 2\nmore");
        let lost = Episode {
            ended: at(20),
            ..lost
        };
        run.write(0, &[start(0), job_start(0, 2), began(0, 0, 0, 3)]);
        run.write(0, &[began(0, 1, 1, 3)]);
        run.write(0, &[ended(0, 0, 8, Some(true))]);
        run.write(0, &[ended(0, 1, 9, Some(false))]);
        run.write(0, &[lost.into(), began(0, 3, 0, 20)]);
        run.write(1, &[start(1), job_start(1, 3), ended(1, 0, 10, Some(true))]);
        run.write(1, &[ended(1, 1, 12, Some(true))]);
        run
    }

    /// Appends lines of the launch.
    fn write(&self, rank: usize, lines: &[Line]) {
        self.append(rank, &text_of(LAUNCH, lines));
    }

    /// Makes the run one that is under way, without saying anything of its ranks.
    pub(crate) fn held(&self) -> Journal {
        Journal::open(&self.folder.journal(7)).unwrap()
    }

    pub(crate) fn watched(&self) -> LiveRun {
        LiveRun::open(self.folder.clone()).unwrap()
    }
}

/// A moment after all lines.
pub(crate) fn later() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn text(lines: &[Line]) -> Vec<u8> {
    text_of(LAUNCH, lines)
}

fn text_of(launch: &str, lines: &[Line]) -> Vec<u8> {
    let mut text = Vec::new();
    for line in lines {
        let mut line = serde_json::to_vec(line).unwrap();
        let stamp = jobs::journal::Stamp {
            launch: Some(launch.into()),
            ..Default::default()
        };
        stamp.seal(&mut line);
        text.extend(line);
        text.push(b'\n');
    }
    text
}

fn rank_start(rank: usize, restart: u32, second: u64) -> Line {
    Line::Rank(Box::new(RankStart {
        host: jobs::host::name(),
        ..lines::rank_start(rank, restart, second)
    }))
}

fn job_start(job: usize, second: u64) -> Line {
    Line::JobStart(lines::job_start(job, job, second))
}

fn ended(job: usize, episode: u64, second: u64, outcome: Option<bool>) -> Line {
    let metrics = [("steps".to_owned(), second as f64)];
    Line::from(Episode {
        success: outcome,
        error: outcome.is_none().then(|| format!("lost {episode}")),
        ended: at(second),
        metrics: metrics.into_iter().collect(),
        ..lines::episode(job, episode, true)
    })
}

/// The journal of rank 0, which dies once and runs an episode twice.
fn of_rank_0() -> Vec<u8> {
    let mut lines = vec![rank_start(0, 0, 1), job_start(0, 2)];
    for episode in 0..4 {
        lines.push(began(0, episode, 0, 3 + episode));
        lines.push(ended(0, episode, 4 + episode, Some(episode % 2 == 0)));
    }
    lines.extend([rank_start(0, 1, 20), job_start(0, 21)]);
    lines.extend([ended(0, 3, 22, Some(true)), ended(0, 4, 23, None)]);
    lines.extend([ended(0, 5, 24, Some(true)), rank_end(0, 30)]);
    text(&lines)
}

fn of_rank_1() -> Vec<u8> {
    let mut lines = vec![rank_start(1, 0, 1), job_start(1, 3)];
    lines.extend((0..4).map(|episode| ended(1, episode, 5 + episode, Some(episode > 1))));
    lines.push(rank_end(1, 40));
    text(&lines)
}

/// Returns the report of the folder as `rrun report` makes it.
fn at_once(folder: &RunFolder) -> Report {
    let merged = Merged::open(folder).unwrap();
    let context = Context {
        route: "journals".to_owned(),
        created: rfc3339(later()),
        commands: Commands::found(folder),
        is_over: true,
        ..Context::default()
    };
    Report::of(&merged, context).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Cuts anywhere, also within lines, as one who looks sees them.
    #[test]
    fn the_report_so_far_is_that_of_the_journals_so_far(
        mut cuts in proptest::collection::vec((0usize..2, 1usize..900), 1..25)
    ) {
        let run = empty();
        let whole = [of_rank_0(), of_rank_1()];
        let mut written = [0_usize, 0];
        let mut live = run.watched();
        cuts.extend([(0, usize::MAX), (1, usize::MAX)]);
        for (rank, bytes) in cuts {
            let end = written[rank].saturating_add(bytes).min(whole[rank].len());
            run.append(rank, &whole[rank][written[rank]..end]);
            written[rank] = end;
            prop_assert_eq!(looked(&mut live), at_once(&run.folder));
        }
        prop_assert_eq!(live.report(later()).unwrap().overall.episodes, 10);
    }
}

#[test]
fn what_was_read_is_not_read_again() {
    let run = empty();
    let whole = of_rank_0();
    run.append(0, &whole);
    let mut live = run.watched();
    assert!(live.refresh(now()).unwrap());
    let before = live.report(later()).unwrap();
    // The same file without its first line: whoever reads it again finds no start of the rank.
    let start = whole.iter().position(|byte| *byte == b'\n').unwrap();
    let blank = [vec![b'\n'; start], whole[start..].to_vec()].concat();
    std::fs::write(run.folder.journal(0), blank).unwrap();
    assert!(!live.refresh(now()).unwrap());
    assert_eq!(live.report(later()).unwrap(), before);
}

#[test]
fn a_journal_that_is_replaced_and_a_plan_that_changes_are_read_from_the_start() {
    let run = empty();
    run.append(0, &of_rank_0());
    let mut live = run.watched();
    looked(&mut live);
    std::fs::remove_file(run.folder.journal(0)).unwrap();
    run.append(1, &of_rank_1());
    assert!(live.refresh(now()).unwrap());
    assert_eq!(live.report(later()).unwrap(), at_once(&run.folder));
    let mut plan = plan();
    plan.jobs.pop();
    run.write_plan(&plan);
    assert!(live.refresh(now()).unwrap());
    let report = live.report(later()).unwrap();
    assert_eq!((report.per_job.len(), report.overall.episodes), (1, 0));
}

#[test]
fn a_rank_that_runs_is_alive_until_now_and_one_that_died_is_not() {
    let run = empty();
    run.write(0, &[rank_start(0, 0, 1), job_start(0, 2)]);
    run.write(0, &[ended(0, 0, 9, Some(true))]);
    let mut live = run.watched();
    looked(&mut live);
    let of = |live: &mut LiveRun| live.report(later()).unwrap().per_rank[0].lives[0].clone();
    let life = of(&mut live);
    assert_eq!((life.end, life.ended), (HowEnded::Died, at(9)));
    let _writer = Journal::open(&run.folder.journal(0)).unwrap();
    live.refresh(now()).unwrap();
    let life = of(&mut live);
    assert_eq!(life.end, HowEnded::Running);
    assert_eq!(life.ended, rfc3339(later()));
    assert!(live.is_under_way());
}

#[test]
fn the_activity_is_that_of_the_last_lines() {
    let run = empty();
    run.write(0, &[rank_start(0, 0, 1), job_start(0, 2)]);
    run.write(0, &[began(0, 0, 0, 3), began(0, 1, 1, 3)]);
    let mut live = run.watched();
    looked(&mut live);
    let seen = |live: &LiveRun| {
        let (_, rank) = live.activity.ranks().next().unwrap();
        let of = |env: &EnvActivity| (env.episode, env.is_running, env.ended, env.solved);
        (rank.job, rank.envs.values().map(of).collect::<Vec<_>>())
    };
    let job = Some(JobIndex(0));
    assert_eq!(seen(&live), (job, vec![(0, true, 0, 0), (1, true, 0, 0)]));
    // The environment runs its next episode before the line of the last one is written.
    run.write(0, &[began(0, 2, 0, 5), ended(0, 0, 6, Some(true))]);
    run.write(0, &[ended(0, 1, 6, Some(false))]);
    live.refresh(now()).unwrap();
    assert_eq!(seen(&live), (job, vec![(2, true, 1, 1), (1, false, 1, 0)]));
    run.write(0, &[rank_end(0, 9)]);
    live.refresh(now()).unwrap();
    let found = seen(&live);
    assert_eq!(found, (None, vec![(2, false, 1, 1), (1, false, 1, 0)]));
}

#[test]
fn the_ranks_are_those_of_the_latest_launch_in_whatever_order_journals_are_read() {
    let run = empty();
    let start = |rank, launch: &str, second| text_of(launch, &[rank_start(rank, 0, second)]);
    run.append(0, &[start(0, "first", 1), start(0, "second", 50)].concat());
    run.append(1, &start(1, "first", 2));
    let mut live = run.watched();
    looked(&mut live);
    let ranks = live.activity.ranks();
    let ranks: Vec<_> = ranks
        .map(|(rank, of)| (rank, of.start.launch.as_deref()))
        .collect();
    assert_eq!(ranks, [(0, Some("second"))]);
}

/// Writes what a user has asked of a launch.
pub(crate) fn ask(run: &TestRun, launch: &str, stop: bool, skip: &[usize]) {
    let commands = Commands {
        launch: launch.to_owned(),
        stop,
        skip: skip.iter().copied().map(JobIndex).collect(),
    };
    commands.write(&run.folder).unwrap();
}

/// Returns the report after another look at the run.
fn looked(live: &mut LiveRun) -> Report {
    live.refresh(now()).unwrap();
    live.report(later()).unwrap()
}

fn statuses(report: &Report) -> Vec<Status> {
    report.per_job.iter().map(|job| job.status).collect()
}

#[test]
fn a_job_that_is_skipped_says_so_until_another_launch_goes_on() {
    let run = TestRun::busy();
    let mut live = run.watched();
    looked(&mut live);
    assert!(!live.refresh(now()).unwrap(), "nothing has changed");
    ask(&run, LAUNCH, false, &[0]);
    assert!(live.refresh(now()).unwrap(), "there is a command");
    let report = live.report(later()).unwrap();
    assert_eq!(statuses(&report), [Status::Skipped, Status::Interrupted]);
    assert_eq!(report.run.stopped, None);
    let text = crate::tables::conclusion(&report);
    let skipped =
        "\n2 episodes are missing: 2 of b\n1 job was skipped on request, 3 episodes did not run: a";
    assert!(text.contains(skipped), "{text}");
    // A launch that was not told to skip the job runs it.
    run.append(
        0,
        &text_of("0b2c", &[rank_start(0, 0, 60), job_start(0, 61)]),
    );
    let report = looked(&mut live);
    assert_eq!(statuses(&report), [Status::Interrupted; 2]);
}

#[test]
fn an_unfinished_job_runs_only_as_long_as_the_run_does() {
    let run = empty();
    run.write(0, &[rank_start(0, 0, 1), job_start(0, 2)]);
    let mut live = run.watched();
    let writer = Journal::open(&run.folder.journal(0)).unwrap();
    let report = looked(&mut live);
    assert_eq!(statuses(&report), [Status::Running, Status::Pending]);
    drop(writer);
    assert!(live.refresh(now()).unwrap(), "the run has ended");
    let report = live.report(later()).unwrap();
    assert_eq!(statuses(&report), [Status::Interrupted, Status::Pending]);
}

#[test]
fn a_run_that_was_stopped_on_its_page_says_so_and_lacks_only_that() {
    let run = empty();
    run.write(0, &[rank_start(0, 0, 1), job_start(0, 2)]);
    run.write(0, &[ended(0, 0, 9, Some(true)), rank_end(0, 10)]);
    assert!(!at_once(&run.folder).lacks_only_what_was_asked());
    ask(&run, LAUNCH, true, &[]);
    let report = at_once(&run.folder);
    assert_eq!(report.run.stopped.as_deref(), Some("stopped on its page"));
    assert!(report.lacks_only_what_was_asked() && !report.complete());
    let text = crate::tables::conclusion(&report);
    let stopped = "\nthe run ended early: stopped on its page\n";
    assert!(text.contains(stopped), "{text}");
    ask(&run, "0b2c", true, &[]);
    let report = at_once(&run.folder);
    assert_eq!(report.run.stopped, None, "that was another launch");
}

#[test]
fn a_run_that_has_what_was_skipped_and_no_more_to_do_lacks_only_that() {
    let run = empty();
    let mut lines = vec![rank_start(0, 0, 1), job_start(0, 2)];
    lines.extend((0..6).map(|episode| ended(0, episode, 9, Some(true))));
    run.write(0, &lines);
    ask(&run, LAUNCH, false, &[1]);
    assert!(at_once(&run.folder).lacks_only_what_was_asked());
    ask(&run, LAUNCH, false, &[0]);
    let report = at_once(&run.folder);
    let late = [Status::Completed, Status::Pending];
    assert_eq!(statuses(&report), late, "it was too late");
    assert!(!report.lacks_only_what_was_asked(), "nobody has skipped b");
}
