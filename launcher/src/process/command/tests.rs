use std::io::{Read as _, Seek as _};

use super::*;
use crate::plan::Streams;
use crate::process::rank::RankProcess;
use crate::process::start::ParallelStart;

/// Returns the plan of a rank without variables of its own.
pub(crate) fn plan(argv: &[&str]) -> RankPlan {
    RankPlan {
        local_rank: 0,
        argv: argv.iter().map(OsString::from).collect(),
        env: BTreeMap::new(),
        redirect: Streams::default(),
        tee: Streams::default(),
        cpus: None,
        shown: true,
    }
}

/// Starts a single rank.
pub(crate) fn start(rank: &RankPlan, stdout: OutputStream) -> io::Result<RankProcess> {
    let common = ChildEnvironment::inherited(&BTreeMap::new())?;
    let output = ChildOutput {
        stdout,
        stderr: OutputStream::Inherit,
    };
    let mut start = ParallelStart::new()?;
    start.spawn(ChildCommand::new(rank, &common, &BTreeMap::new(), output)?)?;
    let (mut ranks, failed) = start.finish();
    failed.map_or_else(|| Ok(ranks.remove(0)), |failed| Err(failed.err))
}

/// Returns a rank's pid and what it writes to standard output until it ends.
pub(crate) fn output(rank: &RankPlan) -> (i32, String) {
    let mut file = tempfile::tempfile().expect("a file");
    let rank =
        start(rank, OutputStream::File(file.try_clone().expect("a copy"))).expect("it starts");
    let pid = rank.pid().as_raw();
    rank.reap();
    let mut text = String::new();
    file.rewind().expect("a file");
    file.read_to_string(&mut text).expect("text");
    (pid, text)
}

#[test]
fn a_rank_has_the_limit_on_files_that_it_is_given() {
    let common = ChildEnvironment::inherited(&BTreeMap::new()).expect("an environment");
    let limit = FileLimit {
        soft: 77,
        ..FileLimit::current().expect("Linux has limits")
    };
    let mut file = tempfile::tempfile().expect("a file");
    let output = ChildOutput {
        stdout: OutputStream::File(file.try_clone().expect("a copy")),
        stderr: OutputStream::Inherit,
    };
    let plan = plan(&["sh", "-c", "ulimit -Sn"]);
    let command = ChildCommand::new(&plan, &common, &BTreeMap::new(), output).expect("a command");
    let mut start = ParallelStart::new().expect("signals can be blocked");
    start
        .spawn(command.with_open_files(Some(limit)))
        .expect("it starts");
    start.finish().0.remove(0).reap();
    let mut text = String::new();
    file.rewind().expect("a file");
    file.read_to_string(&mut text).expect("text");
    assert_eq!(text, "77\n");
}

#[test]
fn a_script_that_names_no_interpreter_is_run_by_the_shell() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script");
    // Another process writes the script: a child that another test forks meanwhile would
    // inherit a file that is open for writing here, and such a file cannot be executed.
    let write = "echo 'echo \"$1\"' > \"$0\" && chmod 700 \"$0\"";
    assert!(
        std::process::Command::new("sh")
            .args(["-c", write])
            .arg(&script)
            .status()
            .expect("sh")
            .success()
    );
    assert_eq!(
        output(&plan(&[script.to_str().expect("text"), "word"])).1,
        "word\n"
    );
}

#[test]
fn a_file_that_may_not_be_executed_is_passed_over_for_one_that_may() {
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    std::fs::write(folders[0].path().join("both"), "").expect("a file");
    let [barred, allowed] = folders.each_ref().map(|folder| folder.path().display());
    let with_path = |path: String| RankPlan {
        env: BTreeMap::from([("PATH".to_owned(), path)]),
        ..plan(&["both", "found"])
    };
    let err = start(
        &with_path(format!("{barred}:{allowed}")),
        OutputStream::Null,
    )
    .map(RankProcess::reap)
    .expect_err("one may not be executed, the other is not there");
    assert_eq!(err.kind(), io::ErrorKind::PermissionDenied);
    std::os::unix::fs::symlink("/bin/echo", folders[1].path().join("both")).expect("a link");
    assert_eq!(
        output(&with_path(format!("{barred}:{allowed}"))).1,
        "found\n"
    );
}

#[test]
fn an_empty_command_line_has_no_command() {
    let err = start(&plan(&[]), OutputStream::Null).expect_err("no program");
    assert_eq!(err.to_string(), "there is no program");
}
