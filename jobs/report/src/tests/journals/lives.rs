//! Tests how long ranks lived, and what they did in each life.

use super::*;

#[test]
fn a_rank_that_died_and_came_again_has_two_lives_and_the_job_was_cut_with_the_first() {
    let report = night().report();
    assert!(report.complete());
    let rank = &report.per_rank[0];
    assert_eq!(
        (
            rank.starts,
            rank.restarts,
            rank.deaths,
            rank.jobs,
            rank.episodes
        ),
        (2, 1, 1, 1, 4)
    );
    let lives: Vec<_> = rank
        .lives
        .iter()
        .map(|life| (life.started.clone(), life.ended.clone(), life.end))
        .collect();
    assert_eq!(
        lives,
        [
            (at(0), at(9), HowEnded::Died),
            (at(20), at(40), HowEnded::Done)
        ]
    );
    let spans: Vec<_> = rank
        .spans
        .iter()
        .map(|span| {
            (
                span.job.as_str(),
                span.started.clone(),
                span.ended.clone(),
                span.whole,
            )
        })
        .collect();
    assert_eq!(
        spans,
        [("a", at(1), at(9), false), ("a", at(21), at(30), true)]
    );
    assert_eq!(
        (rank.busy_s, rank.idle_s),
        (8.0 + 12.5, 9.0 + 20.0 - 20.5),
        "by its lines, and as it said"
    );
    assert_eq!(
        (rank.peak_vram_bytes, rank.node, rank.device.as_str()),
        (Some(30), 0, "cuda:0")
    );
}

#[test]
fn memory_of_policy_and_environments_is_apart_and_the_highest_counts() {
    let at_end = |rank, envs, end: JobEnd| {
        let memory = JobEnd {
            rank,
            peak_env_bytes: envs,
            peak_vram_allocated_bytes: Some(7),
            wall_s: 10.0,
            ..end
        };
        Line::JobEnd(Box::new(JobEnd {
            out_of_memory: 1,
            out_of_memory_batch: Some(4 - rank as u64),
            ..memory
        }))
    };
    let first = JobEnd {
        gpu_busy: Some(0.25),
        peak_env_vram_bytes: Some(5),
        ..JobEnd::default()
    };
    let second = JobEnd {
        gpu_busy: Some(0.75),
        env_vram_is_estimate: true,
        ..first.clone()
    };
    let lines = [
        at_end(0, Some(30), first),
        at_end(1, Some(20), second),
        end(1, None),
    ];
    let report = report(&lines);
    let job = &report.per_job[0];
    assert_eq!(
        (job.peak_env_bytes, job.peak_vram_allocated_bytes),
        (Some(30), Some(7))
    );
    assert_eq!(
        (job.peak_env_vram_bytes, job.env_vram_is_estimate),
        (Some(5), true)
    );
    assert_eq!(
        (job.out_of_memory, job.out_of_memory_batch, job.gpu_busy),
        (2, Some(3), Some(0.5))
    );
    let other = &report.per_job[1];
    assert_eq!(
        (other.peak_env_bytes, other.out_of_memory, other.gpu_busy),
        (None, 0, None)
    );
}

#[test]
fn a_finished_command_that_is_repeated_leaves_times_and_ranks_as_they_were() {
    let folder = night();
    let before = folder.report();
    for rank in 0..3 {
        folder.journal(rank, &[rank_start(rank, 0, 1200), rank_end(rank, 1210)]);
    }
    let Report { run, per_rank, .. } = folder.report();
    assert_eq!((run.ended, run.wall_s), (Some(at(40)), Some(40.0)));
    assert_eq!(
        (per_rank, &run.hosts),
        (before.per_rank, &before.run.hosts),
        "the third rank has done nothing"
    );
    assert_eq!((run.launches.len(), run.world_size), (2, 2));
}

#[test]
fn a_rank_that_waited_while_another_worked_is_no_repeat() {
    let folder = night();
    folder.journal(2, &[rank_start(2, 0, 0), rank_end(2, 40)]);
    let report = folder.report();
    assert_eq!(
        (
            report.per_rank.len(),
            report.per_rank[2].starts,
            report.per_rank[2].episodes
        ),
        (3, 1, 0)
    );
}

#[test]
fn a_launch_that_had_something_to_do_counts_with_the_pause_before_it() {
    let folder = night();
    folder.journal(
        0,
        &[
            rank_start(0, 0, 100),
            job_start(0, 0, 101),
            job_end(0, 0, 102),
            rank_end(0, 103),
        ],
    );
    let report = folder.report();
    assert_eq!(
        (report.run.wall_s, report.per_rank[0].starts),
        (Some(103.0), 3)
    );
}

#[test]
fn a_rank_at_work_has_not_died() {
    let folder = JournalFolder::new();
    let mut journal = Journal::open(&folder.run().journal(0)).unwrap();
    journal.append(&rank_start(0, 0, 0)).unwrap();
    journal.append(&job_start(0, 0, 3)).unwrap();
    assert_eq!(folder.report().per_rank[0].lives[0].end, HowEnded::Running);
    drop(journal);
    let rank = folder.report().per_rank.remove(0);
    assert_eq!(
        (rank.lives[0].end, rank.deaths, rank.lives[0].ended.clone()),
        (HowEnded::Died, 1, at(3))
    );
}

#[test]
fn a_job_that_could_not_be_begun_has_a_span_all_the_same() {
    let folder = JournalFolder::new();
    folder.journal(0, &[rank_start(0, 0, 0), job_end(0, 0, 5)]);
    let span = folder.report().per_rank[0].spans[0].clone();
    assert_eq!((span.started, span.ended, span.whole), (at(3), at(5), true));
}
