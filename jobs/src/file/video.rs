//! Names in `video_cfg` of a job.

/// Those that are read.
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
