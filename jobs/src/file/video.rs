//! Reads `video_cfg` of a job.

use std::path::PathBuf;

use serde_json::Value;

use crate::fields::{FieldError, FileFields};
use crate::job::VideoSettings;

/// Names in `video_cfg` that are read.
pub(crate) const KNOWN: &[&str] = &[
    "save_video",
    "video_base_dir",
    "use_high_res_cameras",
    "cameras",
    "fps",
    "per_episode",
    "grid",
];

/// Names of RLinf that are accepted without effect: `rrun` does not draw the text that RLinf's
/// videos show.
pub(crate) const UNUSED: &[&str] = &["info_on_video", "extra_info_on_video", "record_every"];

pub(super) fn settings(fields: &mut FileFields) -> Result<VideoSettings, FieldError> {
    let place = fields.place("video_cfg");
    let value = match fields.take("video_cfg") {
        None | Some(Value::Null) => return Ok(VideoSettings::default()),
        Some(value) => value,
    };
    let mut video = FileFields::new(&place, value)?;
    let settings = VideoSettings {
        save: video.bool("save_video")?,
        base_dir: base_dir(&mut video)?,
        use_high_res_cameras: video.bool("use_high_res_cameras")?,
        cameras: cameras(&mut video)?,
        fps: video.at_most("fps", 1000)?.map(|fps| fps as u32),
        per_episode: video.bool("per_episode")?.unwrap_or(false),
        grid: video.bool("grid")?.unwrap_or(false),
    };
    for name in UNUSED {
        video.take(name);
    }
    video.finish(KNOWN)?;
    Ok(settings)
}

fn base_dir(video: &mut FileFields) -> Result<Option<PathBuf>, FieldError> {
    match video.optional_string("video_base_dir")? {
        Some(dir) if dir.contains('\0') => Err(video.refuse("video_base_dir", "it is not a path")),
        dir => Ok(dir.map(Into::into)),
    }
}

fn cameras(video: &mut FileFields) -> Result<Option<Vec<String>>, FieldError> {
    let wrong = |video: &FileFields, found| {
        Err(video.wrong("cameras", found, "expected a list of names or null"))
    };
    match video.take("cameras") {
        None | Some(Value::Null) => Ok(None),
        Some(found @ Value::Array(items)) => {
            let names: Option<Vec<_>> = items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect();
            names.map_or_else(|| wrong(video, Some(found)), |names| Ok(Some(names)))
        }
        found => wrong(video, found),
    }
}
