//! Tests of the settings that are inferred from SLURM, as the ranks see them.

use rig::need::{Need, need};

use crate::slurm::job::Job;

/// Prints a rank's variables.
const PLACE: &str = "echo place $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE \
                     $MASTER_ADDR $TORCHELASTIC_RUN_ID $(hostname)";

/// A job of two nodes with a task each.
const TWO: &[&str] = &["-N2", "--ntasks-per-node=1"];

fn script(srun: &str, options: &str) -> String {
    let rrun = rig::rrun();
    format!("{srun} {rrun} {options} --no-python sh -c '{PLACE}'")
}

/// Returns the ranks' variables without the run ID, which contains the job ID, and the host names.
#[track_caller]
fn places(options: &[&str], script: &str) -> Vec<String> {
    places_of(&Job::submit(options, script))
}

#[track_caller]
fn places_of(job: &Job) -> Vec<String> {
    let lines = job.lines("place ");
    let place = |line: &String| {
        line.split(' ')
            .skip(1)
            .take(3)
            .collect::<Vec<_>>()
            .join(" ")
    };
    lines.iter().map(place).collect()
}

#[test]
#[ignore = "needs SLURM"]
fn ranks_are_where_slurm_has_put_their_tasks() {
    if !need(Need::Slurm) {
        return;
    }
    let four = ["0/4 0/2 0/2", "1/4 1/2 0/2", "2/4 0/2 1/2", "3/4 1/2 1/2"];
    let launch = script("srun", "--nproc-per-node 2");
    assert_eq!(
        places(TWO, &launch),
        four,
        "one task a node starts its ranks"
    );
    let launch = script("srun", "");
    let tasks = ["-N2", "--ntasks-per-node=2"];
    assert_eq!(places(&tasks, &launch), four, "one task a rank");
    let launch = script("srun -N1 -n1 -r1", "--nproc-per-node 2");
    let part = ["0/2 0/2 0/1", "1/2 1/2 0/1"];
    assert_eq!(places(TWO, &launch), part, "a step on a part of the job");
    let own = ["0/3 0/3 0/1", "1/3 1/3 0/1", "2/3 2/3 0/1"];
    let launch = script("", "");
    assert_eq!(places(&["-N1", "-n3"], &launch), own, "the batch script");
}

#[test]
#[ignore = "needs SLURM"]
fn two_steps_of_a_job_at_the_same_time_do_not_meet() {
    if !need(Need::Slurm) {
        return;
    }
    let step = script("srun --overlap", "");
    assert_eq!(
        places(TWO, &format!("{step} &\n{step} &\nwait")),
        ["0/2 0/1 0/2", "0/2 0/1 0/2", "1/2 0/1 1/2", "1/2 0/1 1/2"]
    );
}
