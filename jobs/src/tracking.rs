//! The options of `eval` about experiment trackers, which show the results of a run over time.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

/// A program that shows the results of runs over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tracker {
    /// TensorBoard; its event files are written without Python.
    Tensorboard,
    /// Weights & Biases, by the package `wandb`.
    Wandb,
    /// Hugging Face's trackio, by its package.
    Trackio,
    /// MLflow, by the package `mlflow` or `mlflow-skinny`.
    Mlflow,
}

impl Tracker {
    /// Returns its word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tensorboard => "tensorboard",
            Self::Wandb => "wandb",
            Self::Trackio => "trackio",
            Self::Mlflow => "mlflow",
        }
    }

    /// Returns the Python package that it needs, which is also the name of its module; `None` if it
    /// needs none.
    pub fn package(self) -> Option<&'static str> {
        match self {
            Self::Tensorboard => None,
            Self::Wandb | Self::Trackio | Self::Mlflow => Some(self.name()),
        }
    }
}

/// The options of `eval` about experiment trackers. `--resume` does not take them over, because
/// they send results elsewhere.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[command(next_help_heading = "Tracking")]
pub struct TrackingArgs {
    /// Log rates and speed over time to these experiment trackers; a tracker that fails never stops
    /// the run
    #[arg(long, value_enum, value_name = "TRACKER,…", value_delimiter = ',')]
    pub track: Vec<Tracker>,

    /// Name of the run in the trackers [default: name of the run folder]
    #[arg(long, value_name = "NAME", requires = "track")]
    pub track_name: Option<String>,

    /// Interpreter or venv that has wandb, trackio or mlflow [default: python3]
    #[arg(long, value_name = "PYTHON", requires = "track")]
    pub track_python: Option<PathBuf>,

    /// Also upload small videos at the end of the run, to wandb and mlflow
    #[arg(long, requires = "track")]
    pub track_videos: bool,

    /// The words of these options, for the command that resumes a run.
    #[arg(skip)]
    #[serde(skip)]
    pub words: Vec<String>,
}

impl TrackingArgs {
    /// Returns the chosen trackers, each once.
    pub fn trackers(&self) -> Vec<Tracker> {
        let mut trackers = self.track.clone();
        trackers.sort_unstable();
        trackers.dedup();
        trackers
    }

    /// Returns whether no tracker is chosen.
    pub fn is_off(&self) -> bool {
        self.track.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use crate::eval_args::EvalArgs;
    use crate::tracking::{Tracker, TrackingArgs};

    fn parsed(words: &[&str]) -> Result<TrackingArgs, String> {
        let words: Vec<_> = ["--jobs", "a"]
            .iter()
            .chain(words)
            .map(Into::into)
            .collect();
        match EvalArgs::parse_words(&words) {
            Ok(args) => {
                assert!(args.given.is_empty(), "taken over: {:?}", args.given);
                Ok(args.tracking)
            }
            Err(err) => Err(err.to_string()),
        }
    }

    #[test]
    fn trackers_are_listed_or_repeated_and_count_once() {
        let tracking = parsed(&["--track", "wandb,tensorboard", "--track", "wandb"]).unwrap();
        assert_eq!(tracking.trackers(), [Tracker::Tensorboard, Tracker::Wandb]);
        assert!(parsed(&[]).unwrap().is_off());
        let refusal = parsed(&["--track", "wandbx"]).unwrap_err();
        let told = "tensorboard, wandb, trackio, mlflow";
        assert!(refusal.contains(told), "{refusal}");
        let alone = parsed(&["--track-name", "tonight"]).unwrap_err();
        assert!(alone.contains("--track <TRACKER,…>"), "{alone}");
    }

    #[test]
    fn the_words_of_the_options_are_read_as_the_same_options() {
        let words = [
            "--track=mlflow,wandb",
            "--track-name=a b",
            "--track_python",
            "/venv",
            "--track-videos",
        ];
        let tracking = parsed(&words).unwrap();
        let words: Vec<_> = tracking.words.iter().map(String::as_str).collect();
        let again = parsed(&words).unwrap();
        assert_eq!(again, tracking);
        assert_eq!(again.track_name.as_deref(), Some("a b"));
        assert!(again.track_videos && parsed(&[]).unwrap().words.is_empty());
    }
}
