//! A second machine for runs: `rrun` with a fake rank program, which writes prepared journals.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use jobs::episode::Episode;

use crate::tools::folder::{Done, Run, job, rrun_at};

/// A copy of `rrun` beside a fake rank program, which writes prepared journals instead of running
/// the jobs.
pub struct Elsewhere {
    pub run: Run,
    pub bin: PathBuf,
}

impl Elsewhere {
    /// `again` returns the result of each episode in the second run.
    pub fn new(again: impl Fn(Episode) -> Option<Episode>) -> Self {
        let run = Run::new(&[job("a", 6), job("b", 2)]);
        run.whole();
        let bin = run.dir.path().join("bin");
        fs::create_dir(&bin).unwrap();
        fs::copy(rig::rrun(), bin.join("rrun")).unwrap();
        let prepared = Run::at(
            &run.dir.path().join("prepared"),
            &[job("a", 6), job("b", 2)],
        );
        let all = (0..6)
            .map(|number| run.episode(0, number, 0))
            .chain((0..2).map(|number| run.episode(1, number, 0)));
        prepared.rank(0, all.filter_map(again));
        let script = format!(
            "#!/bin/sh\nshift\necho rank $RANK of $WORLD_SIZE, $OMP_NUM_THREADS threads, $MKL_CBWR$ATEN_CPU_CAPABILITY: $@ >> {}\n[ $RANK = 0 ] && cp {} $2/journal/ && touch $2/report.json\nexit 0\n",
            run.dir.path().join("words").display(),
            prepared.folder.journal(0).display()
        );
        fs::write(bin.join("rrun-rank"), script).unwrap();
        fs::set_permissions(bin.join("rrun-rank"), fs::Permissions::from_mode(0o755)).unwrap();
        Self { run, bin }
    }

    /// Runs `rrun verify` on the run folder.
    pub fn verify(&self, words: &[&str]) -> Done {
        self.rrun(&[&["verify", self.run.path()], words].concat())
    }

    /// Runs `rrun` with the fake rank program.
    pub fn rrun(&self, words: &[&str]) -> Done {
        rrun_at(
            &self.bin.join("rrun"),
            &[("TMPDIR", self.run.dir.path().to_str().unwrap())],
            words,
        )
    }

    pub fn words(&self) -> String {
        fs::read_to_string(self.run.dir.path().join("words")).unwrap()
    }
}
