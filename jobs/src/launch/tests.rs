use std::process::Command;

use super::*;

fn folder() -> (tempfile::TempDir, RunFolder) {
    let dir = tempfile::tempdir().unwrap();
    let folder = RunFolder::new(dir.path());
    (dir, folder)
}

fn take(folder: &RunFolder, launch: &str) -> Result<LaunchLock, LockError> {
    LaunchLock::take(folder, launch, |_| panic!("nothing here is unknown"))
}

fn files(folder: &RunFolder) -> usize {
    others(folder, None).unwrap().len()
}

/// Writes a lock file whose process may or may not be alive: it is on another machine, and its file
/// is not locked.
fn foreign(folder: &RunFolder, launch: &str) -> PathBuf {
    fs::create_dir_all(folder.launches()).unwrap();
    let holder = LockHolder {
        host: "gpu07".to_owned(),
        pid: 1234,
        user: "jane".to_owned(),
        boot: "another".to_owned(),
        since: "2026-11-22T10:00:00.000Z".to_owned(),
        ..LockHolder::this_process(launch)
    };
    let path = folder.launches().join(holder.file_name());
    fs::write(&path, serde_json::to_vec(&holder).unwrap()).unwrap();
    path
}

#[test]
fn a_second_launch_is_refused_by_the_name_of_the_first_and_leaves_nothing() {
    let (_dir, folder) = folder();
    let first = take(&folder, "aa").unwrap();
    let text = take(&folder, "bb").unwrap_err().to_string();
    let who = format!("is in use by process {} on ", std::process::id());
    for told in [&who, "launch aa since 20", "another --output"] {
        assert!(text.contains(told), "{text}");
    }
    assert_eq!(files(&folder), 1);
    assert_eq!(holder(&folder).unwrap().launch, "aa");
    assert!(other_holder(&folder, Some("aa")).is_none());
    drop(first);
    assert_eq!((files(&folder), holder(&folder)), (0, None));
    drop(take(&folder, "bb").unwrap());
}

#[test]
fn nodes_of_one_launch_hold_a_folder_together() {
    let (_dir, folder) = folder();
    let _first = take(&folder, "aa").unwrap();
    // The lock of another node; a launch that starts now would see both.
    let other = foreign(&folder, "aa");
    let holder = living(&folder, "aa", |_| panic!("nothing is unknown"));
    assert_eq!(holder.unwrap(), None);
    assert!(other.exists());
}

#[test]
fn a_lock_of_a_process_that_was_killed_is_taken_over_at_once() {
    let (_dir, folder) = folder();
    let lock = take(&folder, "aa").unwrap();
    let path = lock.path.clone();
    let text = fs::read(&path).unwrap();
    drop(lock);
    fs::write(&path, text).unwrap();
    let next = take(&folder, "bb").unwrap();
    assert!(!path.exists() && next.path.exists());
}

#[test]
fn a_lock_that_a_child_of_a_killed_process_still_has_is_waited_for() {
    let (_dir, folder) = folder();
    let lock = take(&folder, "aa").unwrap();
    let path = lock.path.clone();
    drop(lock);
    let mut dead = Command::new("true").spawn().unwrap();
    dead.wait().unwrap();
    let holder = LockHolder {
        pid: dead.id(),
        is_locked: true,
        ..LockHolder::this_process("aa")
    };
    fs::write(&path, serde_json::to_vec(&holder).unwrap()).unwrap();
    let locked = File::open(&path).unwrap();
    locked.lock().unwrap();
    // As a child that was forked and has not called `exec` yet: it ends by itself.
    let sleeping = Command::new("sleep").arg("0.2").stdin(locked).spawn();
    let mut child = sleeping.unwrap();
    assert_eq!(holder.life(&path), HolderState::Lives);
    let next = take(&folder, "bb").unwrap();
    assert!(!path.exists() && next.path.exists());
    child.wait().unwrap();
}

#[test]
fn a_lock_of_another_machine_that_is_touched_refuses_and_one_that_is_not_is_waited_for() {
    let (_dir, folder) = folder();
    let path = foreign(&folder, "aa");
    let touched = File::open(&path).unwrap();
    let (mut heard, mut moment) = (Vec::new(), SystemTime::now());
    let refused = LaunchLock::take(&folder, "bb", |text| {
        heard.push(text.to_owned());
        // The clock of the other machine may be wrong.
        moment -= Duration::from_secs(3600);
        touched.set_modified(moment).unwrap();
    });
    // The message comes between two looks at the lock, so the touch is noticed.
    let text = refused.unwrap_err().to_string();
    let who = "process 1234 on gpu07 (user jane), launch aa since 2026-11-22T10:00:00.000Z";
    assert!(text.contains(who), "{text}");
    let waits = "waiting up to 25 s to see whether process 1234 on gpu07";
    assert!(heard[0].starts_with(waits), "{heard:?}");
    assert!(path.exists());
}

#[test]
#[ignore = "waits for as long as a machine may be silent"]
fn a_lock_of_another_machine_that_nobody_touches_is_removed() {
    let (_dir, folder) = folder();
    let path = foreign(&folder, "aa");
    let _lock = LaunchLock::take(&folder, "bb", |_| ()).unwrap();
    assert!(!path.exists());
}

#[test]
fn a_holder_that_was_taken_for_dead_learns_of_it() {
    let (_dir, folder) = folder();
    let lock = take(&folder, "aa").unwrap();
    fs::remove_file(&lock.path).unwrap();
    lock.touching.as_ref().unwrap().thread().unpark();
    let wait = || {
        #[expect(clippy::disallowed_methods, reason = "polls a thread, with an end")]
        thread::sleep(Duration::from_millis(10));
        lock.is_lost()
    };
    assert!((0..1000).any(|_| wait()));
}

#[test]
fn what_lies_in_the_folder_of_locks_and_is_none_locks_nothing() {
    let (_dir, folder) = folder();
    fs::create_dir_all(folder.launches().join("x-y-1.json")).unwrap();
    fs::write(folder.launches().join("x-y-2.json"), "rubbish").unwrap();
    fs::write(folder.launches().join("notes.txt"), "").unwrap();
    let fifo = folder.launches().join("x-y-3.json");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    drop(take(&folder, "aa").unwrap());
    assert_eq!(holder(&folder), None);
}

#[test]
fn a_folder_with_links_out_of_it_is_refused_and_one_that_is_a_link_is_not() {
    let (dir, folder) = folder();
    for place in [
        "journal/journal_rank0.jsonl",
        "logs",
        "reach/dataset_reach.hdf5",
    ] {
        let link = folder.root().join(place);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("/nowhere/victim", &link).unwrap();
        let text = take(&folder, "aa").unwrap_err().to_string();
        let told = format!("`{}` is a symbolic link", link.display());
        assert!(text.starts_with(&told), "{text}");
        fs::remove_file(link).unwrap();
    }
    let (_other, elsewhere) = self::folder();
    let named = elsewhere.root().join("named");
    std::os::unix::fs::symlink(dir.path(), &named).unwrap();
    drop(take(&RunFolder::new(&named), "aa").unwrap());
}

#[test]
fn of_many_that_begin_together_one_at_most_gets_the_folder() {
    let (_dir, folder) = folder();
    let taken = rig::together(8, |number| {
        LaunchLock::take(&folder, &format!("launch{number}"), |_| ())
    });
    assert_eq!(taken.iter().filter(|lock| lock.is_ok()).count(), 1);
}
