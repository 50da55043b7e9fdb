use super::*;
use crate::tools::doctor::diagnosis::Health;

#[test]
fn what_a_folder_is_short_of_or_does_not_keep_is_told() {
    let room = |free, files| {
        let free = Some(free);
        Room { free, files }.judged()
    };
    let mounted = |kind: &str| {
        let mount = Mount {
            point: "/data".to_owned(),
            kind: kind.to_owned(),
        };
        writable(Path::new("/data/out"), Path::new("/data"), Some(&mount))
    };
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
fn a_folder_is_examined_and_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let all = examined(&folder.path().join("new/run"));
    let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, [NAME, "file locks", "disk space", "write speed"]);
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
