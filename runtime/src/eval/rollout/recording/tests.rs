//! What is written of episodes that the recorder has finished.

use jobs::episode::DemoRef;
use jobs::job::JobIndex;
use jobs::journal::{self, Accepted, Journal};
use jobs::samples;

use super::*;
use crate::eval::lease::Leases;
use crate::eval::tests::leases::{begin, claim, client, serve, work};

fn finished(env: usize, demo: Option<&str>) -> Finished {
    let demo = demo.map(|demo| DemoRef {
        file: "a/dataset_a.hdf5".to_owned(),
        demo: demo.to_owned(),
    });
    let mut episode = samples::episode(env, "a", env as u64);
    (episode.env, episode.dataset) = (env, demo);
    Finished {
        episode,
        warning: None,
        errors: Vec::new(),
    }
}

/// Has these episodes written, one of each environment and job, and returns the result with the
/// environments of those that are in the journal.
fn written(leases: Option<Leases>, all: Vec<Finished>) -> (Result<(), Stop>, Vec<usize>) {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(&dir.path().join("journal_rank0.jsonl")).unwrap();
    let mut out = Ledger::new(journal, crate::eval::tests::monitor());
    out.leases = leases;
    let mut recording = Recording {
        recorder: None,
        every_frame: false,
        is_torn: false,
    };
    let result = recording.write_all(all, &mut out);
    let journals = journal::read_all(dir.path(), &Accepted::default()).unwrap();
    let lines = journals[0].lines.iter();
    let envs = lines.map(|line| match line {
        jobs::journal::Line::Episode(episode) => episode.env,
        line => panic!("{line:?} is no episode"),
    });
    (result, envs.collect())
}

#[test]
fn no_demonstration_behind_one_that_was_taken_over_gets_a_line() {
    let (work, store) = (work(12, 1, 4), serve());
    let mut leases = client(&store, 0, &work);
    begin(&mut leases, &work, &[]);
    // The rank is restarted while its old process hangs, and takes all over.
    let mut again = client(&store, 0, &work);
    for _ in 0..7 {
        claim(&mut again);
    }
    assert!(!leases.may_write(JobIndex(0), 0).unwrap());
    // Only the first one is of the leased job.
    let all = vec![
        finished(0, Some("demo_0")),
        finished(1, Some("demo_1")),
        finished(2, None),
    ];
    let (result, envs) = written(Some(leases), all);
    assert!(matches!(result, Err(Stop::Overtaken)), "{result:?}");
    assert_eq!(envs, [2]);
}

#[test]
fn an_episode_that_could_not_be_recorded_costs_no_other() {
    let lost = Finished {
        errors: vec!["it is full".to_owned()],
        ..finished(0, None)
    };
    let (result, envs) = written(None, vec![lost, finished(1, Some("demo_0"))]);
    let result = result.unwrap_err().to_string();
    assert_eq!(result, "episode 0 is not recorded: it is full");
    assert_eq!(envs, [1]);
}
