//! What a browser with the token may ask of the ranks.

use anyhow::{Context as _, anyhow};
use jobs::plan::RunPlan;
use serde::Deserialize;

use crate::page::state::PageState;
use crate::say;

/// What a browser asks for: `{"command": "skip", "job": "reach"}`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
enum Asked {
    /// Begin no more episodes, and end the run.
    Stop,
    /// Begin no more episodes of a job.
    Skip {
        /// Its name.
        job: String,
    },
}

/// Passes a command on to the ranks: adds it to those so far, in the file that they read.
pub(super) fn obey(body: &[u8], page: &PageState) -> anyhow::Result<()> {
    let asked = serde_json::from_slice(body).map_err(|err| anyhow!("this is no command: {err}"))?;
    let plan = RunPlan::read(&page.folder)?;
    let mut commands = page.commands();
    let mut all = commands.clone();
    all.launch.clone_from(&page.launch);
    let said = match asked {
        Asked::Stop => {
            all.stop = true;
            "page: no more episodes begin; the run ends after those that run".to_owned()
        }
        Asked::Skip { job: name } => {
            let job = plan.jobs.iter().find(|job| job.name == name);
            let job = job.with_context(|| format!("the run has no job `{name}`"))?;
            all.skip.insert(job.index);
            format!("page: no more episodes of {name} begin")
        }
    };
    all.write(&page.folder)
        .context("the command cannot be written for the ranks")?;
    *commands = all;
    say::info(said);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use jobs::layout::{RunFolder, write_whole};
    use jobs::live::Commands;
    use serde_json::json;

    use super::*;
    use crate::plan::server::PagePlan;

    const BROWSERS: usize = 16;

    /// A run with a job for each browser.
    fn page() -> (tempfile::TempDir, PageState) {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        let jobs = (0..BROWSERS).map(|index| json!({"name": format!("job{index}")}));
        let plan = RunPlan {
            schema: "rrun/plan/3".to_owned(),
            world_size: 1,
            jobs: jobs::samples::jobs(jobs),
            ..RunPlan::default()
        };
        write_whole(&folder.plan(), &serde_json::to_vec(&plan).unwrap()).unwrap();
        std::fs::create_dir(folder.live()).unwrap();
        let plan = PagePlan::new(([127, 0, 0, 1], 0).into(), Some("s3cret-and-long")).unwrap();
        let state = PageState::new(&plan, dir.path(), "0a1b");
        (dir, state)
    }

    #[test]
    fn commands_that_come_at_once_are_all_obeyed() {
        let (_dir, page) = page();
        let all_there = Barrier::new(BROWSERS);
        let press = |index: usize| {
            let body = json!({"command": "skip", "job": format!("job{index}")}).to_string();
            all_there.wait();
            obey(body.as_bytes(), &page).unwrap();
        };
        std::thread::scope(|browsers| {
            for index in 0..BROWSERS {
                let press = &press;
                browsers.spawn(move || press(index));
            }
        });
        obey(br#"{"command": "stop"}"#, &page).unwrap();
        let read = Commands::read(&page.folder, "0a1b");
        assert_eq!((read.skip.len(), read.stop), (BROWSERS, true));
        assert_eq!(page.commands().skip.len(), BROWSERS);
    }

    #[test]
    fn what_is_no_command_is_refused_with_its_reason() {
        let (_dir, page) = page();
        for (body, reason) in [
            ("", "this is no command: "),
            ("{}", "this is no command: "),
            ("[]", "this is no command: "),
            (r#"{"command": "kill"}"#, "this is no command: "),
            (r#"{"command": "skip"}"#, "this is no command: "),
            (
                r#"{"command": "skip", "job": "c"}"#,
                "the run has no job `c`",
            ),
        ] {
            let err = obey(body.as_bytes(), &page).unwrap_err().to_string();
            assert!(err.starts_with(reason), "{body}: {err}");
        }
    }
}
