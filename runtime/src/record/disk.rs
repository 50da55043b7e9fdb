//! Estimates the disk space of a recording before it starts.

use std::io;
use std::path::Path;

use crate::env::EnvSpec;
use crate::record::{DatasetPlan, Export, RecordError, RecordPlan, VideoPlan};

/// Bytes of metadata for an image in an mp4 file: 8 in its fragment, 8 in the index, and its part
/// of the fragment's boxes.
const FRAME_OVERHEAD: u64 = 24;
/// Bytes of the groups, attributes and headers of an episode in HDF5; the rows of LeRobot's tables
/// are far smaller.
const EPISODE_OVERHEAD: u64 = 64 << 10;
/// Best factor of lossless compression for a rendered image. The flat backgrounds of the built-in
/// scenes give 14; noise, which is not realistic, gives 1.
const LOSSLESS_AT_BEST: u64 = 20;
/// A video uses at least one part in this many of its bit rate, if its images hardly change.
const VIDEO_AT_BEST: u64 = 10;
/// Best factor of lossless compression for numbers that hardly change.
const NUMBERS_AT_BEST: u64 = 10;

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Upper bound in bytes.
    pub most: u64,
    /// Practical lower bound in bytes.
    pub least: u64,
}

impl Estimate {
    /// Estimates the space of a plan. If `plan.video.fps` is 0, the control frequency of the
    /// environment is used.
    pub fn of(plan: &RecordPlan, amount: Amount) -> Self {
        let video = plan.video.as_ref().map_or_else(Self::default, |video| {
            Self::of_video(video, &plan.env, amount)
        });
        let dataset = plan.dataset.as_ref().map_or_else(Self::default, |dataset| {
            Self::of_dataset(dataset, &plan.env, amount)
        });
        video.and(dataset)
    }

    /// Returns an error if the file system has less free space than the lower bound, and a warning
    /// if it has less than the upper bound. `folder` need not exist yet.
    pub fn check(self, folder: &Path) -> Result<Option<String>, RecordError> {
        let free = free(folder).map_err(|err| RecordError::file(folder, err))?;
        let (free_words, most, least) = (in_words(free), in_words(self.most), in_words(self.least));
        if free < self.least {
            let reason = format!("{free_words} are free, the recording needs {least} to {most}");
            return Err(RecordError::file(folder, reason));
        }
        let short = free < self.most;
        Ok(short.then(|| {
            format!(
                "`{}`: {free_words} are free, the recording needs up to {most}",
                folder.display()
            )
        }))
    }

    /// The bit rate bounds a video whatever its size.
    fn of_video(plan: &VideoPlan, env: &EnvSpec, amount: Amount) -> Self {
        let fps = u64::from(if plan.fps == 0 {
            env.control_hz.max(1)
        } else {
            plan.fps
        });
        // One image for each step, and one for the reset.
        let frames = amount.steps.saturating_add(amount.episodes);
        let streams = 1 + u64::from(plan.per_episode) + u64::from(!plan.grids.is_empty());
        let coded = frames.saturating_mul(u64::from(plan.bitrate) / 8) / fps;
        let sure = amount
            .sure_steps
            .saturating_mul(u64::from(plan.bitrate) / 8)
            / fps;
        let most = coded
            .saturating_add(frames.saturating_mul(FRAME_OVERHEAD))
            .saturating_mul(streams);
        Self {
            most,
            least: sure / VIDEO_AT_BEST,
        }
    }

    /// Uses the size of all data before compression. The size of the simulator's state is not known
    /// in advance; it is assumed to be three times that of the observed state. It is written after
    /// each step, the observation before it.
    fn of_dataset(plan: &DatasetPlan, env: &EnvSpec, amount: Amount) -> Self {
        let observed: usize = env.state.iter().map(|(_, length)| length).sum();
        let numbers =
            (4 * observed + 2 * env.action.names.len() + 2) as u64 * size_of::<f32>() as u64;
        let sizes = env
            .cameras
            .iter()
            .map(|camera| u64::from(camera.height) * u64::from(camera.width) * 3);
        let pictures: u64 = if plan.cameras { sizes.sum() } else { 0 };
        let most = amount
            .steps
            .saturating_mul(numbers.saturating_add(pictures));
        let most = most.saturating_add(amount.episodes.saturating_mul(EPISODE_OVERHEAD));
        let sure = amount
            .sure_steps
            .saturating_mul(numbers / NUMBERS_AT_BEST + pictures / LOSSLESS_AT_BEST);
        Self {
            most,
            least: if plan.export == Export::Succeeded {
                0
            } else {
                sure
            },
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            most: self.most.saturating_add(other.most),
            least: self.least.saturating_add(other.least),
        }
    }
}

/// Returns the bytes that a user may still write to the file system of `folder`, which need not
/// exist yet.
fn free(folder: &Path) -> io::Result<u64> {
    let there = folder
        .ancestors()
        .find(|folder| folder.exists())
        .unwrap_or(Path::new("."));
    let there = if there.as_os_str().is_empty() {
        Path::new(".")
    } else {
        there
    };
    let system = nix::sys::statvfs::statvfs(there)?;
    Ok(system.blocks_available() as u64 * system.fragment_size() as u64)
}

/// Formats a size as `1.5 GB`.
fn in_words(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [
        (1_000_000_000_000, "TB"),
        (1_000_000_000, "GB"),
        (1_000_000, "MB"),
    ];
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{} kB", bytes.div_ceil(1000)),
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
    const MB: u64 = 1_000_000;

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
            video.bitrate = 1_500_000;
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
        assert!((5 * MB..=50 * MB).contains(&low.most), "{low:?}");
        let mut high = plan(960, true, None);
        high.video.as_mut().unwrap().bitrate = 30_000_000;
        let high = Estimate::of(&high, THOUSAND);
        assert!((100 * MB..=500 * MB).contains(&high.most), "{high:?}");
        // 8 environments: "~800 MB - 4 GB per evaluation run".
        let eight = Amount {
            steps: 8000,
            sure_steps: 16,
            episodes: 16,
        };
        let mut all = plan(960, true, None);
        all.video.as_mut().unwrap().bitrate = 30_000_000;
        assert!((800 * MB..=4000 * MB).contains(&Estimate::of(&all, eight).most));
    }

    #[test]
    fn pictures_in_a_dataset_count_before_compression() {
        let without = Estimate::of(&plan(128, false, Some(false)), THOUSAND);
        let with = Estimate::of(&plan(128, false, Some(true)), THOUSAND);
        assert_eq!(with.most - without.most, 1000 * 2 * 128 * 128 * 3);
        assert!(
            without.most > 1000 * 4 * 256 && without.most < 6 * MB,
            "{without:?}"
        );
    }

    #[test]
    fn a_full_disk_is_refused_and_a_small_one_warned_of() {
        let here = std::env::temp_dir().join("rrun_not_there/yet");
        let fits = Estimate { most: 1, least: 0 };
        assert_eq!(fits.check(&here).unwrap(), None);
        let tight = Estimate {
            most: u64::MAX,
            least: 0,
        };
        let warning = tight.check(&here).unwrap().unwrap();
        assert!(warning.contains("the recording needs up to"), "{warning}");
        let least = u64::MAX - 1;
        let refused = Estimate { least, ..tight }
            .check(&here)
            .unwrap_err()
            .to_string();
        assert!(refused.contains("rrun_not_there/yet"), "{refused}");
        assert!(refused.contains("are free"), "{refused}");
    }

    #[test]
    fn no_amount_overflows() {
        let all = Amount {
            steps: u64::MAX,
            sure_steps: u64::MAX,
            episodes: u64::MAX,
        };
        assert!(Estimate::of(&plan(128, true, Some(true)), all).most > 1 << 60);
    }
}
