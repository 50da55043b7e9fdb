//! Tests that read the mp4 boxes of videos.

mod encoder;
mod grid;
mod movie;

pub(super) use crate::record::tests::video::movie::{frames_in_fragments, frames_of};

use std::fs;
use std::path::{Path, PathBuf};

use rig::wait::until;

use crate::env::EnvIndex;
use crate::record::tests::video::movie::{Movie, boxes, decoded, inner, u32_at};
use crate::record::tests::{
    FAILURE, SUCCESS, begin, demo, end, env, episode, finish, observation, plan, recorded, start,
    step_to, steps,
};
use crate::record::{Finished, Recorder};

/// Returns the path of an episode's video.
fn video(dir: &Path, finished: &Finished) -> PathBuf {
    dir.join(&finished.episode.video.as_ref().unwrap().file)
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn all_pictures_of_an_episode_that_has_ended_are_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut recorder = start(plan(dir.path(), false, true));
    let mut recorded = Vec::new();
    // 11 images at 10 per second: one is left over.
    for number in 0..2 {
        episode(&mut recorder, 0, number, 10);
        until("the episode is recorded", || {
            recorded.extend(recorder.poll());
            recorded.len() > number as usize
        });
        let span = recorded[number as usize].episode.video.clone().unwrap();
        assert_eq!(
            frames_in_fragments(&dir.path().join(span.file)) as u64,
            span.first_frame + span.frames
        );
    }
    finish(recorder);
    let path = video(dir.path(), &recorded[0]);
    assert_eq!(Movie::read(&path).table(b"stts"), [1, 22, 1000]);
    assert!(decoded(&path).is_none_or(|frames| frames == 22));
}

#[test]
fn each_environment_has_a_video_with_all_frames_and_a_keyframe_at_each_episode() {
    let dir = tempfile::tempdir().unwrap();
    let recorded = recorded(plan(dir.path(), false, true), |recorder| {
        episode(recorder, 0, 0, 14);
        episode(recorder, 1, 1, 3);
        episode(recorder, 0, 2, 6);
    });
    let videos = recorded.iter().map(|one| one.episode.video.clone());
    let spans: Vec<_> = videos.map(Option::unwrap).collect();
    let frames: Vec<_> = spans.iter().map(|s| (s.first_frame, s.frames)).collect();
    assert_eq!(frames, [(0, 15), (0, 4), (15, 7)]);
    assert!(spans[0].file.ends_with("lift_video_rank0_gpu0_env0.mp4"));
    assert!(spans[1].file.ends_with("lift_video_rank0_gpu0_env1.mp4"));
    assert_eq!(spans[0].file, spans[2].file);
    let path = video(dir.path(), &recorded[0]);

    let movie = Movie::read(&path);
    assert_eq!(movie.check_pictures(), 22);
    assert_eq!(movie.keyframes(), [0, 15]);
    // 10 steps per second, 1000 ticks per step.
    assert_eq!(movie.table(b"stts"), [1, 22, 1000]);
    assert!(decoded(&path).is_none_or(|frames| frames == 22));
    assert_eq!(names(&dir.path().join("videos")).len(), 2);
}

#[test]
fn the_header_says_avc1_with_parameter_sets_and_an_even_size() {
    let dir = tempfile::tempdir().unwrap();
    let recorded = recorded(plan(dir.path(), false, true), |to| episode(to, 0, 0, 3));
    let movie = Movie::read(&video(dir.path(), &recorded[0]));
    let media = movie.media();
    // Version 1: times of 64 bits, then ticks per second, then the duration.
    let header = inner(media, &[b"mdhd"]);
    assert_eq!(
        (header[0], u32_at(header, 20), u32_at(header, 28)),
        (1, 10_000, 4000)
    );
    let entry = boxes(&inner(media, &[b"minf", b"stbl", b"stsd"])[8..])[0];
    assert_eq!(&entry.0, b"avc1");
    // 32 + 30 columns.
    assert_eq!(
        (u32_at(entry.1, 24) >> 16, u32_at(entry.1, 24) & 0xffff),
        (62, 32)
    );
    let avcc = inner(&entry.1[78..], &[b"avcC"]);
    assert_eq!((avcc[0], avcc[5], avcc[8] & 0x1f), (1, 0xe1, 7));
}

#[test]
fn a_file_that_is_there_is_never_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let videos = dir.path().join("videos");
    fs::create_dir(&videos).unwrap();
    fs::write(videos.join("lift_video_rank0_gpu0_env0.mp4"), "old").unwrap();
    fs::write(videos.join("lift_video_rank0_gpu0_env0_part2.mp4"), "older").unwrap();
    let recorded = recorded(plan(dir.path(), false, true), |to| episode(to, 0, 0, 3));
    let path = video(dir.path(), &recorded[0]);
    assert!(path.ends_with("lift_video_rank0_gpu0_env0_part3.mp4"));
    let old = fs::read(videos.join("lift_video_rank0_gpu0_env0.mp4"));
    assert_eq!(old.unwrap(), b"old");
}

#[test]
fn steps_without_pictures_make_no_frames_and_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let recorded = recorded(plan(dir.path(), true, true), |recorder| {
        begin(recorder, 0, 0, false);
        steps(recorder, 0, 3, false);
        end(recorder, 0, 0, SUCCESS);
    });
    assert_eq!(recorded[0].episode.video, None);
    assert_eq!(recorded[0].errors, [""; 0]);
    assert_eq!(fs::read_dir(dir.path().join("videos")).unwrap().count(), 0);
}

#[test]
fn a_size_that_changes_ends_that_video_and_leaves_the_demo() {
    let dir = tempfile::tempdir().unwrap();
    let mut step = step_to(observation(1, true));
    let wide = step.observation.video["front"].clone();
    step.observation.video.insert("wrist".to_owned(), wide);
    let recorded = recorded(plan(dir.path(), true, true), |recorder| {
        episode(recorder, 0, 0, 11);
        begin(recorder, 0, 1, true);
        recorder.step(EnvIndex(0), &[0.0, 0.0], &step).unwrap();
        end(recorder, 0, 0, SUCCESS);
    });
    let reason = recorded[1].warning.as_deref().unwrap();
    let wanted =
        "_env0.mp4` has nothing from episode 1 on: camera `wrist` changed from 32×30 to 32×32";
    assert!(reason.ends_with(wanted), "{reason}");
    assert_eq!(recorded[1].episode.video, None);
    assert_eq!(recorded[1].errors, [""; 0]);
    assert_eq!(demo(&recorded[1]), Some("demo_1"));
    assert_eq!(frames_of(&video(dir.path(), &recorded[0])), 13);
}

#[test]
fn a_plan_that_cannot_be_is_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = plan(dir.path(), false, true);
    plan.video.as_mut().unwrap().cameras = vec!["top".to_owned()];
    let wanted = format!("`{}` has no camera `top`; it has front, wrist", env().name);
    assert_eq!(Recorder::start(plan).unwrap_err().to_string(), wanted);
}

#[test]
fn an_episode_has_a_file_of_its_own_that_says_how_it_ended() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = plan(dir.path(), false, true);
    plan.video.as_mut().unwrap().per_episode = true;
    let recorded = recorded(plan, |recorder| {
        episode(recorder, 0, 4, 14);
        begin(recorder, 0, 5, true);
        steps(recorder, 0, 3, true);
        end(recorder, 0, 0, FAILURE);
        begin(recorder, 1, 6, true);
        steps(recorder, 1, 2, true);
        recorder.forget(EnvIndex(1)).unwrap();
        begin(recorder, 1, 7, true);
    });
    let videos = dir.path().join("videos");
    let stem = "lift_video_rank0_gpu0_env";
    let own = ["0_episode4_success.mp4", "0_episode5_failure.mp4"];
    let wanted = ["0.mp4", own[0], own[1], "1.mp4"];
    assert_eq!(names(&videos), wanted.map(|name| format!("{stem}{name}")));
    let files = [0, 1].map(|at: usize| recorded[at].episode.episode_video.clone().unwrap());
    assert_eq!(files, own.map(|name| format!("videos/{stem}{name}")));
    let files = files.map(|file| dir.path().join(file));
    assert_eq!(files.each_ref().map(|file| frames_of(file)), [15, 4]);
    assert!(decoded(&files[1]).is_none_or(|frames| frames == 4));
    assert_eq!(recorded[1].episode.video.as_ref().unwrap().first_frame, 15);
    assert_eq!(frames_of(&videos.join(format!("{stem}1.mp4"))), 4);
}

#[test]
fn a_loop_that_is_faster_than_the_encoder_waits_and_it_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = plan(dir.path(), false, true);
    // Capacity of the channel: 8 images of 4096×4096 (the size in the environment's specification;
    // the actual images are smaller).
    plan.env
        .cameras
        .iter_mut()
        .for_each(|camera| (camera.height, camera.width) = (4096, 4096));
    let mut recorder = start(plan);
    begin(&mut recorder, 0, 0, true);
    steps(&mut recorder, 0, 2000, true);
    let waits = recorder.waits();
    assert!(waits.count > 0 && waits.time > std::time::Duration::ZERO);
}
