//! A run at one moment, as text for a terminal.
//!
//! ```text
//! demo  under way for 1 min 12 s, 2 ranks
//! [############------------]  50 %  30 of 60 episodes, 25 episodes/min, about 1 min left
//! 21 solved, 8 not solved, 1 broke: 70.0 % (52.1 to 83.3 %)
//!
//! rank  host   device  now                      episodes    busy
//! ```
//! Jobs and ranks that need attention or are at work come first when there is not room for all.

use jobs::count::counted;
use jobs::job::Status;

use crate::live::view::{DIED, LiveView};
use crate::{JobReport, RankReport, Report};
use jobs::format;
use jobs::table::{Table, plain};

/// Characters of the bar.
const BAR: usize = 30;

/// Most reasons of errors.
const MOST_REASONS: usize = 3;

const RANKS: [&str; 6] = ["rank", "host", "device", "now", "episodes", "busy"];
const JOBS: [&str; 6] = ["job", "policy", "status", "done", "solved", "95 % interval"];

/// The room that a frame has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextSize {
    /// Characters of a line.
    pub columns: usize,
    /// Number of lines that fit.
    pub rows: usize,
}

/// Renders a frame, at most as large as `size`. Control characters in names are escaped.
pub fn frame(view: &LiveView, size: TextSize) -> String {
    let head = [title(view), progress(view), results(view.report)];
    let reasons = reasons(view.report);
    // Two headings, and an empty line before each part.
    let used = head.len() + 4 + reasons.len() + usize::from(!reasons.is_empty());
    let room = size.rows.saturating_sub(used);
    let ranks = ranks(view);
    let jobs = jobs(view.report);
    // Half of it to each, and more to ranks or jobs if there are few of the others.
    let most_ranks = room.saturating_sub(jobs.len()).max(room / 2);
    let most_jobs = room.saturating_sub(ranks.len().min(most_ranks));
    // The first lines are shown in however small a terminal.
    let least = head.len();
    let mut lines = Vec::from(head);
    let tables = [
        Table::new(RANKS, ranks).columns(&[4, 5], most_ranks),
        Table::new(JOBS, jobs).columns(&[3, 4], most_jobs),
    ];
    for part in tables.into_iter().chain([reasons]) {
        if !part.is_empty() {
            lines.push(String::new());
            lines.extend(part);
        }
    }
    lines.truncate(size.rows.max(least));
    let lines = lines.iter().map(|line| clipped(line, size.columns));
    lines.fold(String::new(), |text, line| text + &line + "\n")
}

/// Returns a line of at most so many characters.
fn clipped(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.to_owned();
    }
    let kept = line.chars().take(columns.saturating_sub(1));
    kept.chain(['…']).collect()
}

fn title(view: &LiveView) -> String {
    let report = view.report;
    let state = match (view.is_under_way, report.partial) {
        (true, _) => "under way for",
        (false, true) => "not under way, after",
        (false, false) => "complete, after",
    };
    let wall = format::seconds(view.wall_s().unwrap_or_default());
    let ranks = counted(view.activity.ranks().count(), "rank");
    plain(&format!("{}  {state} {wall}, {ranks}", view.title()))
}

fn progress(view: &LiveView) -> String {
    let overall = &view.report.overall;
    let Some(expected) = overall.expected.filter(|expected| *expected > 0) else {
        return format!("{} so far", counted(overall.episodes, "episode"));
    };
    let share = (overall.episodes as f64 / expected as f64).min(1.0);
    let filled = (share * BAR as f64) as usize;
    let (done, open) = ("#".repeat(filled), "-".repeat(BAR - filled));
    let percent = (share * 100.0) as u64;
    let mut line = format!(
        "[{done}{open}] {percent} %  {} of {expected} episodes",
        overall.episodes
    );
    if let Some(rate) = view.per_second() {
        line += &format!(", {} episodes/min", format::digits(rate * 60.0));
    }
    if let Some(left) = view.left_s() {
        line += &format!(", about {} left", format::seconds(left));
    }
    plain(&line)
}

fn results(report: &Report) -> String {
    let controls = &report.controls;
    let unsolved = controls.scored.saturating_sub(controls.successes);
    let what = match report.has_variants() {
        true => "without variations: ",
        false => "",
    };
    let solved = controls.successes;
    let mut line = format!("{what}{solved} solved, {unsolved} not solved");
    if controls.errors > 0 {
        line += &format!(", {} broke", controls.errors);
    }
    if let Some((rate, wilson)) = controls.success_rate.zip(controls.wilson95) {
        let (rate, interval) = (format::percent(rate), format::interval(wilson));
        line += &format!(": {rate} ({interval})");
    }
    plain(&line)
}

/// Returns the rows of the ranks, those that died first.
fn ranks(view: &LiveView) -> Vec<[String; 6]> {
    let ranks = view.activity.ranks().map(|(rank, activity)| {
        let (class, now) = view.rank_state(rank, activity);
        let found = view.report.per_rank.iter().find(|found| found.rank == rank);
        let busy = found.and_then(RankReport::busy);
        let row = [
            rank.to_string(),
            activity.start.host.clone(),
            activity.start.device.clone(),
            now,
            found.map_or(0, |found| found.episodes).to_string(),
            busy.map(format::percent).unwrap_or_default(),
        ];
        (class, row)
    });
    let (died, others): (Vec<_>, Vec<_>) = ranks.partition(|(class, _)| *class == DIED);
    died.into_iter().chain(others).map(|(_, row)| row).collect()
}

/// Returns the rows of the jobs: those that failed, then those that run, that wait, that are done.
fn jobs(report: &Report) -> Vec<[String; 6]> {
    let order = |status: Status| match status {
        Status::Failed => 0,
        Status::Running | Status::Interrupted => 1,
        Status::Pending => 2,
        _ => 3,
    };
    let mut jobs: Vec<_> = report.per_job.iter().collect();
    jobs.sort_by_key(|job| order(job.status));
    jobs.into_iter().map(job).collect()
}

fn job(job: &JobReport) -> [String; 6] {
    let rates = &job.rates;
    let expected = rates
        .expected
        .map_or("?".to_owned(), |count| count.to_string());
    [
        job.name.clone(),
        job.policy_type.clone(),
        format::word(job.status),
        format!("{} of {expected}", rates.episodes),
        rates.success_rate.map(format::percent).unwrap_or_default(),
        rates.wilson95.map(format::interval).unwrap_or_default(),
    ]
}

fn reasons(report: &Report) -> Vec<String> {
    let all = &report.failures_by_reason;
    let line = |reason: &crate::Reason| {
        let first = reason.reason.lines().next().unwrap_or_default();
        plain(&format!("{} × {first}", reason.count))
    };
    let mut lines: Vec<_> = all.iter().take(MOST_REASONS).map(line).collect();
    if all.len() > MOST_REASONS {
        lines.push(format!("and {} more reasons", all.len() - MOST_REASONS));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use jobs::layout::RunFolder;
    use jobs::time::{Moment, now};

    use super::*;
    use crate::live::tests::{LAUNCH, ask, later};
    use crate::tests::TestRun;

    const LARGE: TextSize = TextSize {
        columns: 100,
        rows: 40,
    };

    fn text(size: TextSize) -> String {
        text_of(&TestRun::busy(), "/runs/jobs", size)
    }

    /// Returns a frame of a run that is under way in this folder.
    fn text_of(run: &TestRun, folder: &str, size: TextSize) -> String {
        let _held = run.held();
        let folder = RunFolder::new(Path::new(folder));
        let mut live = run.watched();
        live.refresh(now()).unwrap();
        let report = live.report(later()).unwrap();
        let now = Moment::parse("2026-11-21T10:00:30.000Z");
        let view = LiveView {
            folder: &folder,
            is_under_way: true,
            ..live.view(&report, now)
        };
        frame(&view, size)
    }

    #[test]
    fn a_frame_tells_how_far_the_run_is_and_what_everybody_does() {
        insta::assert_snapshot!(text(LARGE));
    }

    #[test]
    fn two_runs_of_one_jobs_file_have_two_names() {
        let text = text_of(&TestRun::busy(), "/runs/tonight", LARGE);
        assert!(text.starts_with("jobs (tonight)  under way for "), "{text}");
    }

    #[test]
    fn nobody_waits_for_the_episodes_of_a_job_that_is_skipped() {
        let run = TestRun::busy();
        ask(&run, LAUNCH, false, &[0]);
        let text = text_of(&run, "/runs/jobs", LARGE);
        // Two of b at 10.9 a minute.
        assert!(text.contains("about 11.0 s left\n"), "{text}");
        assert!(text.contains("a    scripted  skipped  3 of 6"), "{text}");
    }

    #[test]
    fn a_small_terminal_gets_the_first_lines_and_counts_the_others() {
        let small = text(TextSize {
            columns: 30,
            rows: 12,
        });
        assert!(small.lines().count() <= 12, "{small}");
        assert!(
            small.lines().all(|line| line.chars().count() <= 30),
            "{small}"
        );
        let tiny = text(TextSize {
            columns: 10,
            rows: 1,
        });
        assert_eq!(tiny.lines().count(), 3, "{tiny}");
    }
}
