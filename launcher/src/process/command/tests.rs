use std::io::{Read as _, Seek as _};

use super::*;
use crate::plan::Streams;
use crate::process::rank::RankProcess;

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
pub(crate) fn start(rank: &RankPlan) -> io::Result<RankProcess> {
    RankProcess::start(command(rank, None)?)
}

pub(crate) fn command(rank: &RankPlan, stdout: Option<File>) -> io::Result<ChildCommand> {
    let common = ChildEnvironment::inherited(&BTreeMap::new())?;
    let output = ChildOutput {
        stdout,
        stderr: None,
    };
    ChildCommand::new(rank, &common, &BTreeMap::new(), output)
}

/// Returns a rank's pid and what it writes to standard output until it ends.
pub(crate) fn output(rank: &RankPlan) -> (i32, String) {
    output_with(rank, None)
}

fn output_with(rank: &RankPlan, open_files: Option<FileLimit>) -> (i32, String) {
    let mut file = tempfile::tempfile().expect("a file");
    let command = command(rank, file.try_clone().ok()).expect("a command");
    let rank = RankProcess::start(ChildCommand {
        open_files,
        ..command
    });
    let rank = rank.expect("it starts");
    let pid = rank.pid().as_raw();
    rank.reap();
    let mut text = String::new();
    file.rewind().expect("a file");
    file.read_to_string(&mut text).expect("text");
    (pid, text)
}

#[test]
fn a_rank_has_the_limit_on_files_that_it_is_given() {
    let limit = FileLimit {
        soft: 77,
        ..FileLimit::current().expect("Linux has limits")
    };
    let (_, text) = output_with(&plan(&["sh", "-c", "ulimit -Sn"]), Some(limit));
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
    let err = start(&with_path(format!("{barred}:{allowed}")))
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
    let err = start(&plan(&[])).expect_err("no program");
    assert_eq!(err.kind(), io::ErrorKind::NotFound);
}

fn map(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
    variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[test]
fn each_variable_is_there_once_and_the_last_word_counts() {
    let launch =
        ChildEnvironment::inherited(&map(&[("A", "launch"), ("B", "launch"), ("C", "launch")]));
    let launch = launch.expect("no NUL in it");
    let own = [
        map(&[("A", "round"), ("B", "round")]),
        map(&[("A", "rank")]),
    ];
    let found = launch.with(&[&own[0], &own[1]]).expect("no NUL in it");
    let of = |name: &str| {
        found
            .iter()
            .filter(|entry| entry.to_bytes().starts_with(name.as_bytes()))
            .collect::<Vec<_>>()
    };
    assert_eq!(of("A="), [&c"A=rank".to_owned()]);
    assert_eq!(of("B="), [&c"B=round".to_owned()]);
    assert_eq!(of("C="), [&c"C=launch".to_owned()]);
    assert_eq!(of("PATH=").len(), 1);
}

#[test]
fn a_value_that_no_program_can_be_given_is_refused() {
    assert!(ChildEnvironment::inherited(&map(&[("A", "a\0b")])).is_err());
}
