//! A second machine for runs: `rrun` with a fake rank program, which writes prepared journals.

use std::path::Path;
use std::process::Command;

use jobs::episode::Episode;

use crate::tools::runs::{Run, job};

/// Creates a whole run, and beside it `bin/rrun` with a program for ranks that writes a prepared
/// journal instead of running the jobs, and a line into `words`. `again` returns the result of each
/// episode in the second run.
pub fn install(dir: &Path, name: &str, again: impl Fn(Episode) -> Option<Episode>) {
    let jobs = [job("a", 6), job("b", 2)];
    let run = Run::at(&dir.join(name), &jobs);
    run.whole();
    let prepared = Run::at(&dir.join("prepared"), &jobs);
    let all = [(0, 6), (1, 2)].into_iter();
    let all = all.flat_map(|(job, count)| (0..count).map(move |number| (job, number)));
    let second = all.filter_map(|(job, number)| again(run.episode(job, number, 0)));
    prepared.rank(0, second);
    let script = format!(
        "shift\n\
         echo rank $RANK of $WORLD_SIZE, $OMP_NUM_THREADS threads, $MKL_CBWR$ATEN_CPU_CAPABILITY: \
         $@ >> {}\n\
         [ $RANK = 0 ] || exit 0\n\
         to=${{*#*--resume }} to=${{to%% *}}\n\
         run=$(sed -n 's/^ *\"id\": \"\\(.*\\)\",$/\\1/p' $to/plan.json)\n\
         sed s/{}/$run/ {} > $to/journal/journal_rank0.jsonl && touch $to/report.json\n\
         exit 0\n",
        dir.join("words").display(),
        prepared.plan.id,
        prepared.folder.journal(0).display()
    );
    install_with_rank(dir, &script);
}

/// Installs `bin/rrun` with a shell script as the program for ranks.
pub fn install_with_rank(dir: &Path, script: &str) {
    let rank = dir.join("rrun-rank");
    std::fs::write(&rank, format!("#!/bin/sh\n{script}")).unwrap();
    // By another process: a child of another test might inherit the descriptor of a file that this
    // process writes, and then the file could not be executed.
    let made = Command::new("install")
        .args(["-D", "-m", "755", "-t"])
        .args([&dir.join("bin"), &rank, Path::new(rig::rrun())])
        .status();
    assert!(made.unwrap().success());
    std::fs::remove_file(rank).unwrap();
}
