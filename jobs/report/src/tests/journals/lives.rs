//! Tests how long ranks lived, and what they did in each life.

use super::*;

#[test]
fn a_rank_that_died_and_came_again_has_two_lives_and_the_job_was_cut_with_the_first() {
    let report = night().report();
    assert!(report.complete());
    let rank = &report.per_rank[0];
    assert_eq!((rank.starts, rank.restarts, rank.deaths), (2, 1, 1));
    assert_eq!((rank.jobs, rank.episodes), (1, 4));
    let lives = rank.lives.iter();
    let lives: Vec<_> = lives
        .map(|life| (life.started.clone(), life.ended.clone(), life.end))
        .collect();
    let [died, done] = [HowEnded::Died, HowEnded::Done];
    assert_eq!(lives, [(at(0), at(9), died), (at(20), at(40), done)]);
    let spans = rank.spans.iter();
    let spans: Vec<_> = spans
        .map(|span| (span.started.clone(), span.ended.clone(), span.whole))
        .collect();
    assert_eq!(spans, [(at(1), at(9), false), (at(21), at(30), true)]);
    assert_eq!(rank.spans[0].job, "a");
    assert_eq!(rank.busy_s, 8.0 + 12.5, "by its lines, and as it said");
    assert_eq!(rank.idle_s, 9.0 + 20.0 - 20.5);
    assert_eq!((rank.costs.peak_vram_bytes, rank.node), (Some(30), 0));
    assert_eq!(rank.device, "cuda:0");
}

#[test]
fn memory_of_policy_and_environments_is_apart_and_the_highest_counts() {
    let at_end = |rank: usize, envs, gpu_busy, env_vram_is_estimate| {
        Line::JobEnd(Box::new(JobEnd {
            job: "a".to_owned(),
            rank,
            costs: Costs {
                peak_env_bytes: Some(envs),
                peak_vram_allocated_bytes: Some(7),
                peak_env_vram_bytes: Some(5),
                env_vram_is_estimate,
                out_of_memory: 1,
                out_of_memory_batch: Some(4 - rank as u64),
                ..Costs::default()
            },
            gpu_busy: Some(gpu_busy),
            wall_s: 10.0,
            ..JobEnd::default()
        }))
    };
    let report = report(&[
        at_end(0, 30, 0.25, false),
        at_end(1, 20, 0.75, true),
        end(1, None),
    ]);
    let [job, other] = &report.per_job[..] else {
        panic!("two jobs")
    };
    let costs = &job.costs;
    assert_eq!(costs.peak_env_bytes, Some(30));
    assert_eq!(costs.peak_vram_allocated_bytes, Some(7));
    assert_eq!(costs.peak_env_vram_bytes, Some(5));
    assert!(costs.env_vram_is_estimate);
    let shortages = (costs.out_of_memory, costs.out_of_memory_batch);
    assert_eq!(shortages, (2, Some(3)));
    assert_eq!((job.gpu_busy, other.gpu_busy), (Some(0.5), None));
    let costs = &other.costs;
    assert_eq!((costs.peak_env_bytes, costs.out_of_memory), (None, 0));
}

#[test]
fn a_finished_command_that_is_repeated_leaves_times_and_ranks_as_they_were() {
    let run = night();
    let before = run.report();
    for rank in 0..3 {
        run.journal(rank, &[began_rank(rank, 0, 1200), rank_end(rank, 1210)]);
    }
    let Report { run, per_rank, .. } = run.report();
    assert_eq!((run.ended, run.wall_s), (Some(at(40)), Some(40.0)));
    assert_eq!(per_rank, before.per_rank, "the third rank has done nothing");
    assert_eq!(run.hosts, before.run.hosts);
    assert_eq!((run.launches.len(), run.world_size), (2, 2));
}

#[test]
fn a_rank_that_waited_while_another_worked_is_no_repeat() {
    let run = night();
    run.journal(2, &[began_rank(2, 0, 0), rank_end(2, 40)]);
    let ranks = run.report().per_rank;
    assert_eq!((ranks.len(), ranks[2].starts, ranks[2].episodes), (3, 1, 0));
}

#[test]
fn a_launch_that_had_something_to_do_counts_with_the_pause_before_it() {
    let run = night();
    run.journal(0, &[began_rank(0, 0, 100), began_job(0, 0, 101)]);
    run.journal(0, &[ended_job(0, 0, 102), rank_end(0, 103)]);
    let report = run.report();
    assert_eq!(report.run.wall_s, Some(103.0));
    assert_eq!(report.per_rank[0].starts, 3);
}

#[test]
fn a_rank_at_work_has_not_died() {
    let run = empty();
    let mut journal = Journal::open(&run.folder.journal(0)).unwrap();
    journal.append(&began_rank(0, 0, 0)).unwrap();
    journal.append(&began_job(0, 0, 3)).unwrap();
    assert_eq!(run.report().per_rank[0].lives[0].end, HowEnded::Running);
    drop(journal);
    let rank = run.report().per_rank.remove(0);
    let life = &rank.lives[0];
    assert_eq!((life.end, rank.deaths), (HowEnded::Died, 1));
    assert_eq!(life.ended, at(3));
}

#[test]
fn a_job_that_could_not_be_begun_has_a_span_all_the_same() {
    let run = empty();
    run.journal(0, &[began_rank(0, 0, 0), ended_job(0, 0, 5)]);
    let span = run.report().per_rank[0].spans[0].clone();
    assert_eq!((span.started, span.ended, span.whole), (at(3), at(5), true));
}
