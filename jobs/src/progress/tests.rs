use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::journal::{EpisodeStart, JobStart, RankEnd, RankStart};
use crate::samples;

fn job((length, count): (&str, u64)) -> Job {
    samples::job(match length {
        "num_episodes" => json!({length: count}),
        _ => json!({"num_episodes": null, length: count}),
    })
}

fn status(lines: &[&Line], job: &Job) -> String {
    Progress::of(job.index, lines.iter().copied()).status(job)
}

#[test]
fn the_status_before_a_launch_is_what_the_journals_have() {
    let lines = [0, 1, 2, 2].map(|episode| Line::from(samples::episode(0, "a", episode)));
    let about: Vec<_> = lines.iter().collect();
    let of = |length, lines: &[&Line]| status(lines, &job(length));
    assert_eq!(of(("num_episodes", 4), &[]), "pending");
    assert_eq!(of(("num_episodes", 4), &about), "pending, 3 done");
    assert_eq!(of(("num_episodes", 3), &about), "completed, 3 done");
    assert_eq!(of(("num_steps", 90), &about), "pending");
    let end = Line::JobEnd(Box::default());
    let ended: Vec<_> = about.iter().copied().chain([&end]).collect();
    assert_eq!(of(("num_steps", 90), &ended), "completed, 3 done");
}

#[test]
fn a_launch_that_finds_all_done_knows_when_the_last_episode_ended() {
    let jobs = [job(("num_episodes", 2))];
    let at = |minute: u64| format!("2026-11-21T10:{minute:02}:00.000Z");
    let episode = |number, minute| {
        let mut episode = samples::episode(0, "a", number);
        episode.ended = at(minute);
        Line::from(episode)
    };
    let start = |minute| {
        Line::JobStart(JobStart {
            started: at(minute),
            ..JobStart::default()
        })
    };
    let mut lines = vec![start(1), episode(1, 5), episode(0, 3)];
    assert_eq!(done_before(&lines, &jobs, &at(9)), Some(at(5)));
    assert_eq!(done_before(&lines[..2], &jobs, &at(9)), None, "one is left");
    assert_eq!(
        done_before(&lines, &jobs, &at(1)),
        None,
        "run by this launch"
    );
    lines.push(start(10));
    assert_eq!(
        done_before(&lines, &jobs, &at(9)),
        None,
        "another rank runs it"
    );
    assert_eq!(done_before(&[], &jobs, &at(9)), None);
}

#[test]
fn a_part_that_only_selects_is_complete_without_the_rest() {
    let mut part = job(("num_episodes", 9));
    part.only = Some("1-2".parse().unwrap());
    let lines = [1, 2].map(|episode| Line::from(samples::episode(0, "a", episode)));
    let about: Vec<_> = lines.iter().collect();
    assert_eq!(status(&about, &part), "completed, 2 done");
    assert_eq!(status(&about[..1], &part), "pending, 1 done");
    part.only = Some("2-3".parse().unwrap());
    let told = "pending, 1 done";
    assert_eq!(status(&about, &part), told, "1 does not count");
    part.status = Status::Failed;
    assert_eq!(status(&about, &part), "failed");
}

const JOB: JobIndex = JobIndex(0);

fn life(restart: u32) -> Line {
    Line::Rank(Box::new(RankStart {
        restart,
        ..RankStart::default()
    }))
}

fn began(episode: u64, alone: bool) -> Line {
    Line::EpisodeStart(EpisodeStart {
        episode,
        alone,
        ..EpisodeStart::default()
    })
}

fn standing(lines: &[Line]) -> [Treatment; 2] {
    let mut suspects = Suspects::default();
    suspects.add(lines);
    [0, 1].map(|episode| suspects.standing(JOB, episode))
}

#[test]
fn who_was_under_way_at_a_death_runs_alone() {
    let lines = [life(0), began(0, false), began(1, false), life(1)];
    assert_eq!(standing(&lines), [Treatment::Alone, Treatment::Alone]);
    assert_eq!(
        standing(&lines[..3]),
        [Treatment::Usual, Treatment::Usual],
        "nobody has died yet"
    );
}

#[test]
fn two_deaths_alone_or_three_in_all_are_enough() {
    let alone = [life(0), began(0, true), life(1), began(0, true), life(2)];
    assert_eq!(standing(&alone)[0], Treatment::GivenUp(2));
    let beside = [
        life(0),
        began(0, false),
        life(1),
        began(0, false),
        life(2),
        began(0, false),
        life(3),
    ];
    assert_eq!(standing(&beside)[0], Treatment::GivenUp(3));
    assert_eq!(standing(&beside[..5])[0], Treatment::Alone);
}

#[test]
fn an_orderly_end_and_another_launch_say_nothing() {
    let end = || Line::RankEnd(RankEnd::default());
    let found = standing(&[life(0), began(0, false), end(), life(1)])[0];
    assert_eq!(found, Treatment::Usual);
    let shown = standing(&[life(0), began(0, false), life(1), began(0, false), life(0)])[0];
    assert_eq!(shown, Treatment::Usual);
}

#[test]
fn a_gpu_that_fails_blames_no_episode_but_a_kernel_that_fails_does() {
    let end = |is_hardware| {
        let failure = Some("cuda:0 is lost to this process".to_owned());
        Line::RankEnd(RankEnd {
            failure,
            is_hardware,
            ..RankEnd::default()
        })
    };
    let found = standing(&[life(0), began(0, false), end(true), life(1)])[0];
    assert_eq!(found, Treatment::Usual);
    let shown = standing(&[life(0), began(0, false), end(false), life(1)])[0];
    assert_eq!(shown, Treatment::Alone);
}

#[test]
fn what_has_ended_was_not_under_way() {
    let job_end = Line::JobEnd(Box::default());
    let found = standing(&[life(0), began(0, false), job_end, life(1)])[0];
    assert_eq!(found, Treatment::Usual);
}

#[test]
fn deaths_of_several_ranks_add_up() {
    let mut suspects = Suspects::default();
    for _ in 0..3 {
        suspects.add(&[life(0), began(0, false), life(1)]);
    }
    assert_eq!(suspects.standing(JOB, 0), Treatment::GivenUp(3));
    assert_eq!(suspects.of(JOB), BTreeSet::from([0]));
}

#[test]
fn a_list_of_suspects_may_have_any_order() {
    let mut suspects = Suspects::default();
    suspects.add(&[
        life(0),
        began(0, true),
        began(1, false),
        began(2, true),
        life(1),
    ]);
    let mut list = serde_json::to_value(&suspects).unwrap();
    list.as_array_mut().unwrap().reverse();
    assert_eq!(serde_json::from_value::<Suspects>(list).unwrap(), suspects);
    assert_eq!(suspects.of(JOB), BTreeSet::from([0, 1, 2]));
}

proptest! {
    #[test]
    fn what_is_covered_is_what_a_look_at_each_says(
        envs in (0usize..12, 0usize..12), by in proptest::collection::vec((0usize..12, 0usize..12), 0..5)
    ) {
        let (envs, by) = (envs.0..envs.1, by.into_iter().map(|(first, end)| first..end).collect::<Vec<_>>());
        let wanted = envs.clone().all(|env| by.iter().any(|other| other.contains(&env)));
        prop_assert_eq!(is_covered(envs, &by), wanted);
    }
}
