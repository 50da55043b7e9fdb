//! Tests of images that the encoder refuses, or nearly.

use crate::env::{EnvIndex, Frame};
use crate::record::tests::video::movie::frames_of;
use crate::record::tests::{
    SUCCESS, demo, end, finish, observation, plan, recorded, start, step_to,
};
use crate::record::{Finished, Recorder};

/// Records an episode of three steps with images of this size; `colour` computes each byte from its
/// position.
fn film(
    recorder: &mut Recorder,
    number: u64,
    (height, width): (u32, u32),
    colour: impl Fn(u32, u32) -> u8,
) {
    let shown = |t: u32| {
        let rgb: Vec<u8> = (0..height * width * 3).map(|at| colour(t, at)).collect();
        let mut seen = observation(t, true);
        let frame = Frame {
            height,
            width,
            rgb: rgb.into(),
        };
        seen.video = ["front", "wrist"]
            .map(|name| (name.to_owned(), frame.clone()))
            .into();
        seen
    };
    recorder
        .begin(EnvIndex(0), number, number, &shown(0))
        .unwrap();
    for t in 1..4 {
        let step = step_to(shown(t));
        recorder.step(EnvIndex(0), &[0.0, 0.0], &step).unwrap();
    }
    end(recorder, 0, number, SUCCESS);
}

/// Returns a byte that is unrelated to its neighbours.
fn noise(t: u32, at: u32) -> u8 {
    let mut mixed = (at + 1).wrapping_mul(2_654_435_761) ^ (t + 1).wrapping_mul(0x9e37_79b9);
    mixed ^= mixed >> 15;
    mixed = mixed.wrapping_mul(0x85eb_ca6b);
    (mixed ^ mixed >> 13) as u8
}

#[test]
fn pictures_too_small_for_the_encoder_stand_in_a_black_frame() {
    for size in [(1, 1), (8, 64), (64, 6), (15, 7)] {
        let dir = tempfile::tempdir().unwrap();
        let recorded = recorded(plan(dir.path(), false, true), |recorder| {
            film(recorder, 0, size, |t, at| (t * 50 + at) as u8);
        });
        let Finished {
            episode,
            warning,
            errors,
        } = &recorded[0];
        assert!(warning.is_none() && errors.is_empty(), "{size:?}");
        let video = episode.video.as_ref().unwrap();
        assert_eq!(frames_of(&dir.path().join(&video.file)), 4);
    }
}

#[test]
fn pictures_that_the_encoder_cannot_code_cost_the_video_and_no_episode() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = plan(dir.path(), true, true);
    let video = plan.video.as_mut().unwrap();
    video.per_episode = true;
    video.grids = [("grid".to_owned(), vec![0, 1])].into();
    video.bitrate = 50_000_000;
    let mut recorder = start(plan);
    let plain = |t: u32, _: u32| (t * 50) as u8;
    film(&mut recorder, 0, (96, 96), plain);
    // At high bit rates OpenH264 fails on noise, and on every image after it.
    film(&mut recorder, 1, (96, 96), noise);
    film(&mut recorder, 2, (96, 96), plain);
    // Whether the grid continues depends on the position of its key frames; it must not fail
    // either.
    let recorded = finish(recorder);
    let warned = recorded.iter().map(|one| one.warning.is_some());
    assert!(warned.eq([false, true, false]));
    let is_whole = |one: &Finished| one.errors.is_empty() && demo(one).is_some();
    assert!(recorded.iter().all(is_whole));
    let filmed = recorded.iter().map(|one| &one.episode);
    let filmed = filmed.map(|one| (one.video.is_some(), one.episode_video.is_some()));
    assert!(filmed.eq([(true, true), (false, false), (false, false)]));
}
