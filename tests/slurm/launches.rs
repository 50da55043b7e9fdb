//! Tests of the settings that are inferred from SLURM, as the ranks see them.

use crate::slurm::job::{Job, has_slurm};

/// Prints a rank's variables.
const PLACE: &str = "echo place $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE \
                     $MASTER_ADDR $TORCHELASTIC_RUN_ID $(hostname)";

fn script(srun: &str, options: &str) -> String {
    let rrun = rig::rrun();
    format!("{srun} {rrun} {options} --no-python sh -c '{PLACE}'")
}

/// Returns the ranks' variables without the run ID, which contains the job ID, and the host names.
fn places(job: &Job) -> Vec<String> {
    let places = job.lines("place ");
    places
        .iter()
        .map(|line| {
            line.split(' ')
                .skip(1)
                .take(3)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect()
}

#[test]
#[ignore = "needs SLURM"]
fn one_task_a_node_starts_the_ranks_of_the_node() {
    if !has_slurm() {
        return;
    }
    let job = Job::submit(
        &["-N2", "--ntasks-per-node=1"],
        &script("srun", "--nproc-per-node 2"),
    );
    assert_eq!(
        places(&job),
        ["0/4 0/2 0/2", "1/4 1/2 0/2", "2/4 0/2 1/2", "3/4 1/2 1/2"]
    );
    let (_, output) = job.end();
    assert!(
        output.contains("step 0: node 1 of 2, --nproc-per-node 2, meeting at "),
        "{output}"
    );
}

#[test]
#[ignore = "needs SLURM"]
fn one_task_a_rank_puts_each_where_slurm_did() {
    if !has_slurm() {
        return;
    }
    let job = Job::submit(&["-N2", "--ntasks-per-node=2"], &script("srun", ""));
    assert_eq!(
        places(&job),
        ["0/4 0/2 0/2", "1/4 1/2 0/2", "2/4 0/2 1/2", "3/4 1/2 1/2"]
    );
}

#[test]
#[ignore = "needs SLURM"]
fn a_step_on_a_part_of_the_job_is_a_launch_on_that_part() {
    if !has_slurm() {
        return;
    }
    let job = Job::submit(
        &["-N2", "--ntasks-per-node=1"],
        &script("srun -N1 -n1 -r1", "--nproc-per-node 2"),
    );
    assert_eq!(places(&job), ["0/2 0/2 0/1", "1/2 1/2 0/1"]);
}

#[test]
#[ignore = "needs SLURM"]
fn the_batch_script_launches_on_its_own_node() {
    if !has_slurm() {
        return;
    }
    let job = Job::submit(&["-N1", "-n3"], &script("", ""));
    assert_eq!(places(&job), ["0/3 0/3 0/1", "1/3 1/3 0/1", "2/3 2/3 0/1"]);
}

#[test]
#[ignore = "needs SLURM"]
fn two_steps_of_a_job_at_the_same_time_do_not_meet() {
    if !has_slurm() {
        return;
    }
    let step = script("srun --overlap", "");
    let job = Job::submit(
        &["-N2", "--ntasks-per-node=1"],
        &format!("{step} &\n{step} &\nwait"),
    );
    assert_eq!(
        places(&job),
        ["0/2 0/1 0/2", "0/2 0/1 0/2", "1/2 0/1 1/2", "1/2 0/1 1/2"]
    );
}

#[test]
#[ignore = "needs SLURM"]
fn launchers_that_would_start_ranks_upon_ranks_are_refused() {
    if !has_slurm() {
        return;
    }
    let job = Job::submit(
        &["-N1", "--ntasks-per-node=2"],
        &script("srun", "--nproc-per-node 2"),
    );
    let (state, output) = job.end();
    assert_eq!(state, "FAILED");
    assert!(
        output.contains("SLURM runs 2 tasks on this node and each would launch --nproc-per-node 2"),
        "{output}"
    );
}

#[test]
#[ignore = "needs SLURM"]
fn a_rank_that_fails_on_one_node_ends_the_job() {
    if !has_slurm() {
        return;
    }
    let rrun = rig::rrun();
    let fails = format!(
        "srun {rrun} --nproc-per-node 2 --no-python sh -c '[ $RANK = 3 ] && exit 7; sleep 100'"
    );
    let (state, output) = Job::submit(&["-N2", "--ntasks-per-node=1"], &fails).end();
    assert_eq!(state, "FAILED");
    assert!(output.contains("exitcode  : 7 (pid: "), "{output}");
}
