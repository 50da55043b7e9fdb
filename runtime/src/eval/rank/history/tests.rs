//! What a history keeps, and what it forgets.

use super::*;
use jobs::journal::{EpisodeStart, JobEnd, RankStart};
use jobs::progress::Progress;
use jobs::samples;
use serde_json::json;

/// Returns what the launcher says to a rank of this launch.
pub fn env_of(launch: &str) -> RankEnv {
    RankEnv {
        launch: (!launch.is_empty()).then(|| launch.to_owned()),
        ..RankEnv::read(|_| None).unwrap()
    }
}

/// Returns the line with which a rank begins.
fn life(restart: u32, launch: Option<&str>) -> Line {
    Line::Rank(Box::new(RankStart {
        restart,
        launch: launch.map(str::to_owned),
        ..RankStart::default()
    }))
}

#[test]
fn a_launch_began_with_the_first_of_its_ranks() {
    let mut history = JournalHistory::default();
    // Rank 1 was faster; rank 2 is of an earlier launch.
    for (launch, second) in [("b", 30), ("b", 20), ("a", 10)] {
        let lines = [Line::Rank(Box::new(RankStart {
            launch: Some(launch.to_owned()),
            started: format!("2026-01-01T00:00:{second}.000Z"),
            ..RankStart::default()
        }))];
        history.add(JournalPart::of(lines.into(), &env_of("b")), false);
    }
    assert_eq!(history.launched, "2026-01-01T00:00:20.000Z");
}

#[test]
fn a_job_is_given_up_for_the_launch_in_which_it_failed() {
    let life = |restart| life(restart, None);
    let failed = |retried| {
        Line::JobEnd(Box::new(JobEnd {
            error: Some("x".to_owned()),
            retried,
            ..JobEnd::default()
        }))
    };
    let given_up = |lines: &[Line]| failed_for_good(this_launch(lines, None));
    let one = BTreeSet::from([JobIndex(0)]);
    assert_eq!(given_up(&[life(0), failed(true)]), BTreeSet::new());
    assert_eq!(given_up(&[life(0), failed(false), life(1)]), one);
    let later = given_up(&[life(0), failed(false), life(0)]);
    assert_eq!(later, BTreeSet::new());
}

#[test]
fn a_launch_is_known_by_its_name_and_one_without_by_the_restarts() {
    let lives = [(0, "a"), (0, "b"), (1, "b"), (0, "b"), (1, "c")];
    let lines = lives.map(|(restart, launch)| life(restart, Some(launch)));
    assert_eq!(this_launch(&lines[..4], Some("b")), &lines[1..4]);
    assert_eq!(this_launch(&lines, Some("c")), &lines[3..]);
    assert_eq!(this_launch(&lines[..3], None), &lines[1..3]);
}

#[test]
fn a_rank_that_reads_its_own_journal_again_keeps_what_others_did() {
    let life = |restart| life(restart, None);
    let began = |episode| {
        Line::EpisodeStart(EpisodeStart {
            episode,
            ..EpisodeStart::default()
        })
    };
    let ended = |episode| Line::from(samples::episode(0, "a", episode));
    let mut history = JournalHistory::default();
    let others = vec![life(0), ended(1), began(2), life(1)];
    history.add(JournalPart::of(others, &env_of("")), false);
    let own = |count| {
        let lines = vec![life(0), began(3), life(1), ended(4), ended(5)];
        JournalPart::of(lines.into_iter().take(count).collect(), &env_of(""))
    };
    let seen = |history: &JournalHistory| {
        let progress = Progress::of(JobIndex(0), history.about(JobIndex(0)));
        (progress.done().collect(), history.suspects.of(JobIndex(0)))
    };
    history.add(own(4), true);
    assert_eq!(seen(&history), (vec![1, 4], BTreeSet::from([2, 3])));
    history.drop_own();
    assert_eq!(seen(&history), (vec![1], BTreeSet::from([2])));
    history.add(own(5), true);
    assert_eq!(seen(&history), (vec![1, 4, 5], BTreeSet::from([2, 3])));
}

#[test]
fn a_rank_keeps_little_of_a_long_history() {
    let start = json!({"type": "episode_start", "job": "a", "episode": 1, "rank": 0,
                       "env": 0, "alone": false, "started": ""});
    let episode = Line::from(samples::episode(0, "a", 1));
    let mut history = JournalHistory::default();
    let lines = vec![serde_json::from_value(start).unwrap(), episode];
    history.add(JournalPart::of(lines, &env_of("")), false);
    let [line] = history.about(JobIndex(0))[..] else {
        panic!("only the end is kept");
    };
    assert!(Progress::of(JobIndex(0), [line]).has(1));
    assert!(size_of_val(line) < 200, "{} bytes", size_of_val(line));
}

#[test]
fn a_rank_reads_the_journals_of_others_only_if_something_can_be_for_it() {
    let of = |rank, begun_by: Option<&str>, round, restart_count, begins| {
        let plan = RunPlan {
            begun_by: begun_by.map(str::to_owned),
            ..RunPlan::default()
        };
        let mut env = env_of("a");
        (env.rank, env.round, env.restart_count) = (rank, round, restart_count);
        Source::new(&plan, &env, begins)
    };
    // The launch that began the run.
    assert_eq!(of(3, Some("a"), 0, 0, true), Source::Own);
    assert_eq!(of(3, Some("a"), 0, 1, false), Source::All);
    assert_eq!(of(0, Some("a"), 0, 0, true), Source::All);
    // A new round of it, and a rank that is restarted alone in this round.
    assert_eq!(of(3, Some("a"), 1, 1, true), Source::Shared);
    assert_eq!(of(0, Some("a"), 1, 1, true), Source::Shared);
    assert_eq!(of(3, Some("a"), 1, 2, false), Source::All);
    assert_eq!(of(0, Some("a"), 1, 2, false), Source::All);
    // Another launch.
    assert_eq!(of(3, Some("b"), 0, 0, true), Source::Shared);
    assert_eq!(of(0, Some("b"), 0, 0, true), Source::Shared);
    assert_eq!(of(3, Some("b"), 0, 1, false), Source::All);
    assert_eq!(of(3, None, 0, 0, true), Source::Shared);
}

#[test]
fn without_the_name_of_its_launch_no_rank_is_the_first() {
    let env = env_of("");
    assert_eq!(Source::new(&RunPlan::default(), &env, false), Source::All);
}
