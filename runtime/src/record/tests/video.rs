//! Videos as a reader of mp4 boxes sees them (ISO/IEC 14496-12).

use std::fs;
use std::path::Path;

use super::{SUCCESS, begin, env, episode, observation, plan, steps};
use crate::env::{EnvIndex, Step};
use crate::record::{RecordError, Recorder};

/// `(type, body)` of the boxes in `bytes`; a cut last one does not count.
fn boxes(mut bytes: &[u8]) -> Vec<([u8; 4], &[u8])> {
    let mut found = Vec::new();
    while bytes.len() >= 8 && u32_at(bytes, 0) as usize <= bytes.len() {
        let size = u32_at(bytes, 0) as usize;
        found.push((bytes[4..8].try_into().unwrap(), &bytes[8..size]));
        bytes = &bytes[size..];
    }
    found
}

fn inner<'a>(bytes: &'a [u8], path: &[&[u8; 4]]) -> &'a [u8] {
    path.iter().fold(bytes, |bytes, name| boxes(bytes).into_iter().find(|(found, _)| found == *name).unwrap().1)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Start, duration, size and flags of each frame.
fn frames(bytes: &[u8]) -> Vec<(u64, u32, u32, u32)> {
    let mut frames = Vec::new();
    for (_, moof) in boxes(bytes).into_iter().filter(|(name, _)| name == b"moof") {
        let traf = inner(moof, &[b"traf"]);
        let mut time = u64::from_be_bytes(inner(traf, &[b"tfdt"])[4..12].try_into().unwrap());
        let trun = inner(traf, &[b"trun"]);
        for entry in trun[12..].chunks_exact(16).take(u32_at(trun, 4) as usize) {
            frames.push((time, u32_at(entry, 0), u32_at(entry, 4), u32_at(entry, 8)));
            time += u64::from(u32_at(entry, 0));
        }
    }
    frames
}

pub(super) fn frames_of(path: &Path) -> usize {
    frames(&fs::read(path).unwrap()).len()
}

fn is_keyframe(flags: u32) -> bool {
    flags & 0x1_0000 == 0
}

#[test]
fn each_environment_has_a_video_with_all_frames_and_a_keyframe_at_each_episode() {
    let dir = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::start(plan(dir.path(), false, true)).unwrap();
    episode(&mut recorder, 0, 0, 14);
    episode(&mut recorder, 1, 1, 3);
    episode(&mut recorder, 0, 2, 6);
    let recorded = recorder.finish().unwrap();
    let spans: Vec<_> = recorded.iter().map(|r| r.video.clone().unwrap()).collect();
    assert_eq!(spans.iter().map(|s| (s.first_frame, s.frames)).collect::<Vec<_>>(), [(0, 15), (0, 4), (15, 7)]);
    assert!(spans[0].path.ends_with("lift_video_rank0_gpu0_env0.mp4") && spans[0].path == spans[2].path);
    assert!(spans[1].path.ends_with("lift_video_rank0_gpu0_env1.mp4"));

    let bytes = fs::read(&spans[0].path).unwrap();
    let frames = frames(&bytes);
    // 10 steps a second, 1000 ticks a step.
    let times: Vec<(u64, u32)> = frames.iter().map(|frame| (frame.0, frame.1)).collect();
    assert_eq!(times, (0..22).map(|i| (i * 1000, 1000)).collect::<Vec<_>>());
    assert!(frames.iter().all(|frame| frame.2 > 4));
    let keyframes: Vec<usize> = (0..22).filter(|i| is_keyframe(frames[*i].3)).collect();
    assert_eq!(keyframes, [0, 15]);
}

#[test]
fn the_header_says_avc1_with_parameter_sets_and_an_even_size() {
    let dir = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::start(plan(dir.path(), false, true)).unwrap();
    episode(&mut recorder, 0, 0, 3);
    let path = recorder.finish().unwrap()[0].video.clone().unwrap().path;
    let bytes = fs::read(path).unwrap();
    let media = inner(&bytes, &[b"moov", b"trak", b"mdia"]);
    assert_eq!(u32_at(inner(media, &[b"mdhd"]), 12), 10_000);
    let entry = boxes(&inner(media, &[b"minf", b"stbl", b"stsd"])[8..])[0];
    assert_eq!(&entry.0, b"avc1");
    // 32 + 31 columns, padded to 64.
    assert_eq!((u32_at(entry.1, 24) >> 16, u32_at(entry.1, 24) & 0xffff), (64, 32));
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
    let mut recorder = Recorder::start(plan(dir.path(), false, true)).unwrap();
    episode(&mut recorder, 0, 0, 3);
    let recorded = recorder.finish().unwrap();
    assert!(recorded[0].video.as_ref().unwrap().path.ends_with("lift_video_rank0_gpu0_env0_part3.mp4"));
    assert_eq!(fs::read(videos.join("lift_video_rank0_gpu0_env0.mp4")).unwrap(), b"old");
}

#[test]
fn steps_without_pictures_make_no_frames_and_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::start(plan(dir.path(), true, true)).unwrap();
    begin(&mut recorder, 0, 0, false);
    steps(&mut recorder, 0, 3, false);
    recorder.end(EnvIndex(0), SUCCESS).unwrap();
    let recorded = recorder.finish().unwrap();
    assert_eq!((recorded[0].video.clone(), recorded[0].error.clone()), (None, None));
    assert_eq!(fs::read_dir(dir.path().join("videos")).unwrap().count(), 0);
}

#[test]
fn a_size_that_changes_ends_that_video_and_leaves_the_demo() {
    let dir = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::start(plan(dir.path(), true, true)).unwrap();
    episode(&mut recorder, 0, 0, 11);
    begin(&mut recorder, 0, 1, true);
    let mut step =
        Step { observation: observation(1, true), reward: 0.0, success: false, terminated: false, truncated: false };
    let wide = step.observation.video["front"].clone();
    step.observation.video.insert("wrist".to_owned(), wide);
    recorder.step(EnvIndex(0), &[0.0, 0.0], None, &step).unwrap();
    recorder.end(EnvIndex(0), SUCCESS).unwrap();
    let recorded = recorder.finish().unwrap();
    let reason = recorded[1].error.as_deref().unwrap();
    assert!(reason.ends_with("_env0.mp4`: camera `wrist` changed from 32×31 to 32×32"), "{reason}");
    assert_eq!(recorded[1].demo.as_deref(), Some("demo_1"));
    assert_eq!(frames_of(&recorded[0].video.as_ref().unwrap().path), 13);
}

#[test]
fn an_unknown_camera_is_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = plan(dir.path(), false, true);
    plan.video.as_mut().unwrap().cameras = vec!["top".to_owned()];
    let wanted = format!("`{}` has no camera `top`: known are front, wrist", env().name);
    assert_eq!(Recorder::start(plan).unwrap_err(), RecordError::Plan(wanted));
}

#[test]
fn each_environment_needs_a_name_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let refusal = |stems: &[&str]| {
        let mut plan = plan(dir.path(), false, true);
        plan.video.as_mut().unwrap().stems = stems.iter().map(|stem| (*stem).to_owned()).collect();
        Recorder::start(plan).unwrap_err().to_string()
    };
    assert_eq!(refusal(&["a"]), "1 names of videos are given for 2 environments");
    assert_eq!(refusal(&["a", "a"]), "two environments have a video called `a`");
}
