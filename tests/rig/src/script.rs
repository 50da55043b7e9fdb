//! Shell scripts that call `rrun`, for cases whose answer is what a user would see.

use std::path::Path;

use crate::run::{Folder, Given};

/// The folder in which scripts run: it is their home, and programs in its `bin` go before others.
#[derive(Default)]
pub struct Scene(Folder);

impl Scene {
    /// Creates a folder that is empty but for `tmp`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        self.0.root()
    }

    /// Runs a script line by line, without GPUs. Returns what is printed and said, and exit codes
    /// other than 0, with `DIR` and `ROOT` in the place of the folder and of the checkout.
    pub fn said(&self, script: &str) -> String {
        let said: String = script.lines().map(|line| self.said_of(line)).collect();
        said.replace(self.path().to_str().unwrap(), "DIR")
            .replace(crate::root().to_str().unwrap(), "ROOT")
    }

    fn said_of(&self, line: &str) -> String {
        let rrun = Path::new(crate::rrun());
        let folders = [self.path().join("bin"), rrun.parent().unwrap().to_owned()];
        let before = std::env::join_paths(folders).unwrap();
        let path = format!("{}:{}", before.display(), std::env::var("PATH").unwrap());
        let ended = Given::new("/bin/sh")
            .words(["-c", &format!("exec 2>&1; {line}")])
            .inside(self.path())
            .env("PATH", path)
            .env("HOME", self.path().display())
            .env("TMPDIR", self.path().join("tmp").display())
            .env("CUDA_VISIBLE_DEVICES", "")
            .env("ROOT", crate::root().display())
            .env("RRUN", crate::rrun())
            .run();
        match ended.code {
            0 => ended.stdout,
            code => format!("{}exit code {code}\n", ended.stdout),
        }
    }
}
