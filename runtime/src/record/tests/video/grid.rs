//! Tests of the video of several environments.

use crate::record::tests::video::movie::{Movie, boxes, decoded, frames_of, inner, u32_at};
use crate::record::tests::{SUCCESS, begin, end, finish, plan, start, steps};

#[test]
fn a_grid_shows_every_picture_of_its_environments_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = plan(dir.path(), false, true);
    let stem = "lift_video_rank0_gpu0_grid".to_owned();
    plan.video.as_mut().unwrap().grids = [(stem, vec![1, 0])].into();
    let mut recorder = start(plan);
    begin(&mut recorder, 0, 0, true);
    begin(&mut recorder, 1, 1, true);
    steps(&mut recorder, 0, 1, true);
    steps(&mut recorder, 1, 1, true);
    end(&mut recorder, 1, 0, SUCCESS);
    steps(&mut recorder, 0, 3, true);
    end(&mut recorder, 0, 0, SUCCESS);
    finish(recorder);
    let path = dir.path().join("videos/lift_video_rank0_gpu0_grid.mp4");
    // Both after the reset, both after a step, then three of the first alone while the second does
    // not move.
    assert_eq!(frames_of(&path), 5);
    assert!(decoded(&path).is_none_or(|frames| frames == 5));
    let movie = Movie::read(&path);
    let entry = boxes(&inner(movie.media(), &[b"minf", b"stbl", b"stsd"])[8..])[0].1;
    // Two environments of 62 columns side by side.
    assert_eq!(
        (u32_at(entry, 24) >> 16, u32_at(entry, 24) & 0xffff),
        (124, 32)
    );
}
