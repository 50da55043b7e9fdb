use super::*;
use crate::tools::doctor::diagnosis::Health;

#[test]
fn what_a_folder_is_short_of_or_does_not_keep_is_told() {
    let room = |free, files| {
        let free = Some(free);
        Room { free, files }.judged()
    };
    let mounted = |kind: &str| {
        let mount = Some(("/data".to_owned(), kind.to_owned()));
        writable(Path::new("/data/out"), Path::new("/data"), mount)
    };
    let synced = |ms| journal(Ok(Duration::from_millis(ms)));
    let without_locks = || locks(Err("locks are not supported".to_owned()));
    let there = "`/data/out` does not exist yet; `/data` can be written, ext4 at /data";
    for (found, health, told) in [
        (room(100 << 30, None), Health::Ok, "100.0 GiB free"),
        (room(2 << 30, Some(1 << 20)), Health::Warning, ""),
        (room(1 << 20, None), Health::Failed, ""),
        (
            room(100 << 30, Some(5)),
            Health::Warning,
            "100.0 GiB free, room for 5 more files",
        ),
        (mounted("ext4"), Health::Ok, there),
        (mounted("tmpfs"), Health::Warning, ""),
        (mounted("overlay"), Health::Note, ""),
        (locks(Ok(())), Health::Ok, ""),
        (synced(3), Health::Ok, "a line is synced in 3.0 ms"),
        (synced(201), Health::Warning, ""),
        (
            journal(Err(io::Error::other("full"))),
            Health::Failed,
            "a test file cannot be written: full",
        ),
        (without_locks(), Health::Warning, ""),
        (
            skew(-61.2).unwrap(),
            Health::Warning,
            "the file server's clock differs by -61 s",
        ),
    ] {
        assert_eq!(found.health, health, "{found:?}");
        assert!(told.is_empty() || found.found == told, "{found:?}");
    }
    assert!(without_locks().remedy.unwrap().contains("nolock"));
    assert_eq!(skew(0.3), None);
}

#[test]
fn the_last_mount_at_the_longest_point_counts() {
    let mounts = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:26 / /my\\040data rw - nfs4 server:/export rw,vers=4.2
31 30 0:27 / /my\\040data rw shared:5 - lustre mgs:/fs rw
";
    let found = |folder: &str| mount_of(Path::new(folder), mounts);
    let at = |point: &str, kind: &str| Some((point.to_owned(), kind.to_owned()));
    assert_eq!(found("/home/a"), at("/", "ext4"));
    assert_eq!(found("/my data/runs"), at("/my data", "lustre"));
    assert_eq!(found("/my database"), at("/", "ext4"));
    assert_eq!(mount_of(Path::new("/a"), "no mounts"), None);
    let here = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(mount_of(Path::new("/"), &here).is_some());
}

#[test]
fn a_folder_is_examined_and_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let all = examined(&folder.path().join("new/run"));
    let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, [NAME, "file locks", "disk space", "journal"]);
    assert!(all[0].health < Health::Failed, "{all:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_folder_in_which_nobody_can_write_fails() {
    // Not even root makes files there.
    let all = examined(Path::new("/proc/rrun/outputs"));
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].health, Health::Failed);
    let found = &all[0].found;
    assert!(
        found.starts_with("`/proc/rrun/outputs` does not exist yet; `/proc` cannot be written: "),
        "{found}"
    );
}

#[test]
fn a_file_is_no_folder() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let all = examined(&file.path().join("run"));
    assert_eq!(all[0].health, Health::Failed);
}
