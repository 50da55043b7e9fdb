//! Tests with a process that is killed while it records.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::record::tests::dataset::check_with_h5py;
use crate::record::tests::video::frames_in_fragments;
use crate::record::tests::{demo, demos, episode, plan, recorded, start};

const DIR: &str = "RRUN_TEST_RECORD_UNTIL_KILLED";

/// Not a test by itself: the child process of the test below.
#[test]
#[ignore = "runs until it is killed, as a child of another test"]
fn records_until_killed() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let mut recorder = start(plan(Path::new(&dir), true, true));
    for number in 0.. {
        episode(&mut recorder, (number % 2) as usize, number, 15);
        for recorded in recorder.poll() {
            let frames = recorded.episode.video.as_ref().unwrap().frames;
            println!("recorded {} {frames}", demo(&recorded).unwrap());
        }
    }
}

#[test]
fn after_a_kill_every_finished_episode_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--nocapture", "records_until_killed"])
        .env(DIR, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let finished = lines.filter(|line| line.contains("recorded demo_")).take(9);
    assert_eq!(finished.count(), 9);
    child.kill().unwrap();
    child.wait().unwrap();

    let path = dir.path().join("dataset.hdf5");
    let file = hdf5::File::open(&path).unwrap();
    let names = file.group("data").unwrap().member_names().unwrap();
    drop(file);
    let has_all = (0..9).all(|number| names.contains(&format!("demo_{number}")));
    assert!(has_all, "{names:?}");
    check_with_h5py(&path, names.len());
    // 9 episodes of 16 frames over two environments: 5 in the first.
    let first_part = dir.path().join("videos/lift_video_rank0_gpu0_env0.mp4");
    let frames = frames_in_fragments(&first_part);
    assert!(frames >= 5 * 16, "{frames}");

    let recorded = recorded(plan(dir.path(), true, true), |to| episode(to, 0, 99, 3));
    assert_eq!(demos(&recorded), [format!("demo_{}", names.len())]);
    let video = &recorded[0].episode.video.as_ref().unwrap().file;
    let second = "lift_video_rank0_gpu0_env0_part2.mp4";
    assert!(video.ends_with(second), "{video:?}");
    check_with_h5py(&path, names.len() + 1);
    assert_eq!(frames_in_fragments(&first_part), frames);
}
