//! The command of one rank: program, arguments, environment, streams.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use crate::plan::RankPlan;
use crate::process::pre_exec;

/// Where a rank's two output streams go. Standard input is always inherited.
#[derive(Debug)]
pub struct Output {
    /// Standard output.
    pub stdout: Stdio,
    /// Standard error.
    pub stderr: Stdio,
}

/// The command of `rank`, ready to spawn. Later maps of `env` win over earlier ones, the rank's own over all of them;
/// the program is looked up in the `PATH` that comes out, as `execvpe` does.
pub fn command(rank: &RankPlan, env: &[&BTreeMap<String, String>], output: Output) -> Option<Command> {
    let (program, args) = rank.argv.split_first()?;
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::inherit()).stdout(output.stdout).stderr(output.stderr);
    for variables in env {
        command.envs(*variables);
    }
    command.envs(&rank.env);
    pre_exec::prepare(&mut command);
    if let Some(cpus) = &rank.cpus {
        pre_exec::bind(&mut command, cpus);
    }
    Some(command)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::plan::Streams;

    fn rank(argv: &[&str]) -> RankPlan {
        RankPlan {
            local_rank: 0,
            argv: argv.iter().map(OsString::from).collect(),
            env: BTreeMap::from([("A".to_owned(), "rank".to_owned())]),
            redirect: Streams::default(),
            tee: Streams::default(),
            cpus: None,
            shown: true,
        }
    }

    fn output() -> Output {
        Output { stdout: Stdio::piped(), stderr: Stdio::inherit() }
    }

    #[test]
    fn the_rank_s_variables_win_over_the_launch_s() {
        let launch = BTreeMap::from([("A".to_owned(), "launch".to_owned()), ("B".to_owned(), "launch".to_owned())]);
        let mut command = command(&rank(&["/bin/sh", "-c", "echo $A $B"]), &[&launch], output()).expect("a program");
        assert_eq!(command.output().expect("sh starts").stdout, b"rank launch\n");
    }

    #[test]
    fn the_program_is_looked_up_in_the_rank_s_own_path() {
        let folder = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::symlink("/bin/echo", folder.path().join("only-here")).expect("a link");
        let path = BTreeMap::from([("PATH".to_owned(), folder.path().display().to_string())]);
        let mut command = command(&rank(&["only-here", "found"]), &[&path], output()).expect("a program");
        assert_eq!(command.output().expect("it is on the path").stdout, b"found\n");
    }

    #[test]
    fn an_empty_command_line_has_no_command() {
        assert!(command(&rank(&[]), &[], output()).is_none());
    }
}
