use super::*;
use crate::tools::doctor::diagnosis::Health;

fn room(free: u64, files: Option<u64>) -> Diagnosis {
    let room = Room {
        free: Some(free),
        files,
    };
    room.judged()
}

fn mounted(kind: &str) -> Diagnosis {
    let mount = Mount {
        point: "/data".to_owned(),
        kind: kind.to_owned(),
    };
    writable(Path::new("/data/out"), Path::new("/data"), Some(&mount))
}

#[test]
fn a_full_disk_fails_and_a_small_one_is_a_warning() {
    assert_eq!(
        room(100 << 30, None),
        Diagnosis::ok("disk space", "100.0 GiB free")
    );
    assert_eq!(room(2 << 30, Some(1 << 20)).health, Health::Warning);
    assert_eq!(room(1 << 20, None).health, Health::Failed);
    let few = room(100 << 30, Some(5));
    assert_eq!(few.found, "100.0 GiB free, room for 5 more files");
}

#[test]
fn the_place_of_a_folder_that_does_not_exist_is_named() {
    let found = mounted("ext4");
    assert_eq!(found.health, Health::Ok);
    assert_eq!(
        found.found,
        "`/data/out` does not exist yet; `/data` can be written, ext4 at /data"
    );
}

#[test]
fn what_does_not_last_is_told() {
    assert_eq!(mounted("tmpfs").health, Health::Warning);
    assert_eq!(mounted("overlay").health, Health::Note);
}

#[test]
fn a_file_system_without_locks_is_a_warning() {
    assert_eq!(locks(Ok(())).health, Health::Ok);
    let found = locks(Err("locks are not supported".to_owned()));
    assert_eq!(found.health, Health::Warning);
    assert!(found.remedy.unwrap().contains("nolock"));
}

#[test]
fn a_file_server_with_another_time_is_a_warning() {
    assert_eq!(skew(0.3), None);
    let found = skew(-61.2).unwrap();
    assert_eq!(found.found, "the file server's clock differs by -61 s");
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
