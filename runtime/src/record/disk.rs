//! Estimates the disk space of a recording before it starts.

use std::path::Path;

use jobs::eval_args::ExportMode;

use crate::env::{EnvSpec, ImageSize};
use crate::record::{DatasetPlan, RecordError, RecordPlan, VideoPlan};

/// Bytes of metadata for an image in an mp4 file: 8 in its fragment, 8 in the index, and its part
/// of the fragment's boxes.
const FRAME_OVERHEAD: f64 = 24.0;
/// Bytes of the groups, attributes and headers of an episode in HDF5; the rows of LeRobot's tables
/// are far smaller.
const EPISODE_OVERHEAD: f64 = 65_536.0;
/// Best factor of lossless compression for a rendered image. The flat backgrounds of the built-in
/// scenes give 14; noise, which is not realistic, gives 1.
const LOSSLESS_AT_BEST: f64 = 20.0;
/// A video uses at least one part in this many of its bit rate, if its images hardly change.
const VIDEO_AT_BEST: f64 = 10.0;
/// Best factor of lossless compression for numbers that hardly change.
const NUMBERS_AT_BEST: f64 = 10.0;

/// The amount of data to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// Maximum number of steps of all environments together.
    pub steps: u64,
    /// Minimum number of steps of all environments together: an episode may end after its first.
    pub sure_steps: u64,
    /// Number of episodes of all environments together.
    pub episodes: u64,
}

/// Bounds of the disk space in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Upper bound.
    most: f64,
    /// Practical lower bound.
    least: f64,
}

/// Returns the bytes of the images of one step.
pub(super) fn image_bytes(env: &EnvSpec) -> u64 {
    let sizes = env.cameras.iter().map(|camera| ImageSize {
        height: camera.height,
        width: camera.width,
    });
    sizes.map(|size| size.rgb_bytes() as u64).sum()
}

impl Estimate {
    /// Estimates the space of a plan.
    pub fn of(plan: &RecordPlan, amount: Amount) -> Self {
        let mut all = Self::default();
        if let Some(video) = &plan.video {
            all.add_video(video, amount);
        }
        if let Some(dataset) = &plan.dataset {
            all.add_dataset(dataset, &plan.env, amount);
        }
        all
    }

    /// Returns an error if the file system of `folder` has less free space than the lower bound,
    /// and a warning if it has less than the upper bound.
    pub fn check(self, folder: &Path) -> Result<Option<String>, RecordError> {
        let system = nix::sys::statvfs::statvfs(folder);
        let system = system.map_err(|err| RecordError::file(folder, err))?;
        let free = system.blocks_available() as f64 * system.fragment_size() as f64;
        let [has, least, most] = [free, self.least, self.most].map(in_words);
        if free < self.least {
            let reason = format!("{has} are free, the recording needs {least} to {most}");
            return Err(RecordError::file(folder, reason));
        }
        let reason = format!("{has} are free, the recording needs up to {most}");
        let warning = RecordError::file(folder, reason).0;
        Ok((free < self.most).then_some(warning))
    }

    /// The bit rate bounds a video whatever its size.
    fn add_video(&mut self, plan: &VideoPlan, amount: Amount) {
        let image = f64::from(plan.bitrate) / 8.0 / f64::from(plan.fps);
        // One image for each step, and one for the reset.
        let images = amount.steps as f64 + amount.episodes as f64;
        let streams = 1 + u8::from(plan.per_episode) + u8::from(!plan.grids.is_empty());
        self.most += images * (image + FRAME_OVERHEAD) * f64::from(streams);
        self.least += amount.sure_steps as f64 * image / VIDEO_AT_BEST;
    }

    /// Uses the size of all data before compression. The size of the simulator's state is not known
    /// in advance; it is assumed to be three times that of the observed state. It is written after
    /// each step, the observation before it.
    fn add_dataset(&mut self, plan: &DatasetPlan, env: &EnvSpec, amount: Amount) {
        let observed: usize = env.state.iter().map(|(_, length)| length).sum();
        let numbers = (4 * observed + 2 * env.action.names.len() + 2) * size_of::<f32>();
        let numbers = numbers as f64;
        let pictures = match plan.cameras {
            true => image_bytes(env) as f64,
            false => 0.0,
        };
        self.most += amount.steps as f64 * (numbers + pictures);
        self.most += amount.episodes as f64 * EPISODE_OVERHEAD;
        if plan.export != ExportMode::Succeeded {
            let step = numbers / NUMBERS_AT_BEST + pictures / LOSSLESS_AT_BEST;
            self.least += amount.sure_steps as f64 * step;
        }
    }
}

/// Formats a size as `1.5 GB`.
fn in_words(bytes: f64) -> String {
    match [(1e12, "TB"), (1e9, "GB"), (1e6, "MB")]
        .into_iter()
        .find(|(unit, _)| bytes >= *unit)
    {
        Some((unit, name)) => format!("{:.1} {name}", bytes / unit),
        None => format!("{:.0} kB", (bytes / 1e3).ceil()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1000 steps of one environment, the unit of document s001.
    const THOUSAND: Amount = Amount {
        steps: 1000,
        sure_steps: 1000,
        episodes: 2,
    };
    const MB: f64 = 1e6;

    /// Returns the plan of a robot with two cameras of this size, and with or without a video and a
    /// dataset, which may have pictures.
    fn plan(size: u32, video: bool, pictures: Option<bool>) -> RecordPlan {
        let mut plan = crate::record::tests::plan(Path::new(""), pictures.is_some(), video);
        plan.num_envs = 1;
        plan.env.state = vec![("proprio".to_owned(), 256)];
        plan.env.action.names = vec!["x".to_owned(); 23];
        plan.env.control_hz = 30;
        for camera in &mut plan.env.cameras {
            (camera.height, camera.width) = (size, size);
        }
        if let Some(video) = &mut plan.video {
            (video.bitrate, video.fps) = (1_500_000, 30);
            video.stems.truncate(1);
        }
        if let (Some(dataset), Some(pictures)) = (&mut plan.dataset, pictures) {
            dataset.cameras = pictures;
        }
        plan
    }

    #[test]
    fn a_video_is_within_what_the_guide_says_or_smaller() {
        // From the guide: "Low-res (128x128): ~10-50 MB per 1000 steps, high-res: ~100-500 MB".
        let low = Estimate::of(&plan(128, true, None), THOUSAND);
        assert!((5.0 * MB..=50.0 * MB).contains(&low.most), "{low:?}");
        let mut high = plan(960, true, None);
        high.video.as_mut().unwrap().bitrate = 30_000_000;
        let high = Estimate::of(&high, THOUSAND);
        assert!((100.0 * MB..=500.0 * MB).contains(&high.most), "{high:?}");
        // 8 environments: "~800 MB - 4 GB per evaluation run".
        let eight = Amount {
            steps: 8000,
            sure_steps: 16,
            episodes: 16,
        };
        let mut all = plan(960, true, None);
        all.video.as_mut().unwrap().bitrate = 30_000_000;
        assert!((800.0 * MB..=4000.0 * MB).contains(&Estimate::of(&all, eight).most));
    }

    #[test]
    fn pictures_in_a_dataset_count_before_compression() {
        let without = Estimate::of(&plan(128, false, Some(false)), THOUSAND);
        let with = Estimate::of(&plan(128, false, Some(true)), THOUSAND);
        let pictures = f64::from(1000 * 2 * 128 * 128 * 3);
        assert_eq!(with.most - without.most, pictures);
        assert!((1.1 * MB..6.0 * MB).contains(&without.most), "{without:?}");
    }

    #[test]
    fn a_full_disk_is_refused_and_a_small_one_warned_of() {
        let here = std::env::temp_dir();
        let check = |most, least| Estimate { most, least }.check(&here);
        assert_eq!(check(1.0, 0.0).unwrap(), None);
        let warning = check(1e30, 0.0).unwrap().unwrap();
        assert!(warning.contains("the recording needs up to"), "{warning}");
        let refused = check(1e30, 1e29).unwrap_err().to_string();
        let place = format!("`{}`: ", here.display());
        assert!(refused.starts_with(&place), "{refused}");
        assert!(refused.contains("are free"), "{refused}");
    }
}
