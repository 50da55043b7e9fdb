//! Tests the queries to git.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use jobs::plan::Git;

fn git(folder: &Path, words: &[&str]) {
    let set = [
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "commit.gpgsign=false",
    ];
    let status = Command::new("git")
        .args(set)
        .args(words)
        .current_dir(folder)
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success(), "{words:?}");
}

/// As [`Git::here`], with time for a busy machine.
fn asked(folder: &Path) -> Option<Git> {
    Git::by("git".as_ref(), folder, Duration::from_secs(60))
}

#[test]
fn commit_and_changes_are_read_and_a_folder_without_them_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(asked(dir.path()), None);
    git(dir.path(), &["init", "--quiet"]);
    assert_eq!(asked(dir.path()), None);
    std::fs::write(dir.path().join("a"), "1").unwrap();
    git(dir.path(), &["add", "a"]);
    git(dir.path(), &["commit", "--quiet", "-m", "a"]);
    std::fs::write(dir.path().join("untracked"), "1").unwrap();
    let clean = asked(dir.path()).unwrap();
    assert!(clean.commit.len() >= 40 && !clean.dirty, "{clean:?}");
    std::fs::write(dir.path().join("a"), "2").unwrap();
    assert_eq!(
        asked(dir.path()),
        Some(Git {
            dirty: true,
            ..clean
        })
    );
}

#[test]
fn a_git_that_does_not_answer_or_is_not_there_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let slow = dir.path().join("git");
    std::fs::write(&slow, "#!/bin/sh\necho $$ >pid\nexec sleep 600\n").unwrap();
    std::fs::set_permissions(&slow, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(
        Git::by(slow.as_ref(), dir.path(), Duration::from_millis(300)),
        None
    );
    // A busy machine may have ended it before its first word.
    let pid = std::fs::read_to_string(dir.path().join("pid")).unwrap_or_default();
    assert!(
        pid.is_empty() || !Path::new("/proc").join(pid.trim()).exists(),
        "{pid}"
    );
    assert_eq!(
        Git::by("/nowhere/git".as_ref(), dir.path(), Duration::from_secs(60)),
        None
    );
}
