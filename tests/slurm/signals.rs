//! Tests of the signals that SLURM sends, and of those that reach the ranks.

use rig::need::{Need, need};

use crate::slurm::job::Job;

/// A rank that prints the signals it gets, and exits after SIGTERM.
const RANK: &str = "trap \"echo told TERM; exit 0\" TERM; trap \"echo told USR1\" USR1; echo ready $RANK; \
                    i=0; while [ $i -lt 600 ] && [ ! -e done ]; do sleep 0.1; i=$((i+1)); done; echo through";

fn step() -> String {
    let rrun = rig::rrun();
    format!("srun {rrun} --nproc-per-node 2 --no-python sh -c '{RANK}'")
}

#[test]
#[ignore = "needs SLURM"]
fn a_cancelled_job_s_ranks_have_time_to_save() {
    if !need(Need::Slurm) {
        return;
    }
    let job = Job::submit(&["-N2", "--ntasks-per-node=1"], &step());
    (0..4).for_each(|rank| job.wait_for(&format!("ready {rank}")));
    job.signal(&[]);
    let output = job.ends("CANCELLED");
    assert_eq!(output.matches("told TERM").count(), 4, "{output}");
}

#[test]
#[ignore = "needs SLURM"]
fn sigusr1_to_the_step_reaches_the_ranks_once_and_ends_nothing() {
    if !need(Need::Slurm) {
        return;
    }
    let job = Job::submit(&["-N1", "-n1"], &step());
    (0..2).for_each(|rank| job.wait_for(&format!("ready {rank}")));
    job.signal(&["-s", "USR1"]);
    job.wait_until("both ranks told", || {
        job.output().matches("told USR1").count() == 2
    });
    job.signal(&["-s", "TERM"]);
    let (_, output) = job.end();
    assert!(
        output.contains("rrun: SIGUSR1 received by rrun and by the ranks; the launch continues"),
        "{output}"
    );
    assert_eq!(output.matches("told USR1").count(), 2, "{output}");
}

#[test]
#[ignore = "needs SLURM"]
fn sigusr1_to_the_script_is_passed_on_by_the_launcher() {
    if !need(Need::Slurm) {
        return;
    }
    let rrun = rig::rrun();
    let launch = format!("{rrun} --nproc-per-node 2 --no-python sh -c '{RANK}' & rrun=$!");
    let script =
        format!("{launch}\ntrap 'kill -USR1 $rrun' USR1\nwait $rrun; touch done; wait $rrun");
    let job = Job::submit(&["-N1", "-n1"], &script);
    (0..2).for_each(|rank| job.wait_for(&format!("ready {rank}")));
    job.signal(&["--batch", "-s", "USR1"]);
    job.wait_for("rrun: SIGUSR1 received and passed on to the ranks; the launch continues");
    let output = job.ends("COMPLETED");
    assert_eq!(output.matches("told USR1").count(), 2, "{output}");
}
