//! Tests of the scripts in `docs/slurm`, with a real training script if Python has torch.

use std::process::Command;

use rig::need::{Need, need};

use crate::slurm::job::Job;

/// Returns whether the examples can run; prints the reason if not.
fn has_torch() -> bool {
    let found = Command::new("python3")
        .args(["-c", "import torch.distributed"])
        .output();
    let found = found.is_ok_and(|out| out.status.success());
    if !found {
        eprintln!("skipped: python3 has no torch");
    }
    found
}

/// Returns the number of ranks that a summing example reports.
fn sums(name: &str, options: &[&str]) -> usize {
    let job = Job::example(name, options);
    job.lines("rank ")
        .iter()
        .filter(|line| line.contains(" of 4 ") && line.ends_with(" sum 4"))
        .count()
}

#[test]
#[ignore = "needs SLURM"]
fn scripts_for_torchrun_need_one_other_word() {
    if !need(Need::Slurm) || !has_torch() {
        return;
    }
    assert_eq!(
        (
            sums("torchrun.sbatch", &[]),
            sums("torchrun-c10d.sbatch", &[])
        ),
        (4, 4)
    );
    // The same with the real torchrun, if it is installed.
    if Command::new("torchrun")
        .arg("--help")
        .output()
        .is_ok_and(|out| out.status.success())
    {
        assert_eq!(
            sums("torchrun.sbatch", &["--export=ALL,LAUNCHER=torchrun"]),
            4
        );
    }
}

#[test]
#[ignore = "needs SLURM"]
fn scripts_without_a_word_about_meeting_work() {
    if !need(Need::Slurm) || !has_torch() {
        return;
    }
    assert_eq!(sums("node.sbatch", &[]), 4);
}
