//! Describes the columns and videos of a dataset: `info.json` and `modality.json`.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::env::EnvSpec;
use crate::record::RecordError;
use crate::record::episode::EpisodeRows;
use crate::record::lerobot::camera;

/// Feature of all observed state vectors, concatenated.
pub(super) const STATE: &str = "observation.state";
/// Prefix of the feature of a camera.
pub(super) const CAMERA: &str = "observation.images.";
/// Feature of the action after the environment's processing. Its name does not begin with `action`,
/// because lerobot would then treat it as a value to predict.
pub(super) const PROCESSED: &str = "processed_action";

/// The features of a dataset, which its first episode determines.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DatasetFeatures {
    entries: Map<String, Value>,
    modality: Value,
}

impl DatasetFeatures {
    /// Returns the features of an episode.
    pub(super) fn of(episode: &EpisodeRows, env: &EnvSpec) -> Self {
        let mut entries = Map::new();
        let vector = |names: Vec<String>| json!({"dtype": "float32", "shape": [names.len()], "names": names});
        let mut state = Map::new();
        let mut names = Vec::new();
        for (name, width) in state_parts(episode) {
            let first = names.len();
            match width {
                1 => names.push(plain(name)),
                _ => names.extend((0..width).map(|at| format!("{}_{at}", plain(name)))),
            }
            state.insert(plain(name), json!({"start": first, "end": names.len()}));
        }
        if !names.is_empty() {
            entries.insert(STATE.to_owned(), vector(names));
        }
        let actions = env.action.names.len();
        entries.insert("action".to_owned(), vector(env.action.names.clone()));
        if let Some(processed) = episode.columns.get("processed_actions") {
            let names = (0..processed.width).map(|at| format!("processed_{at}"));
            entries.insert(PROCESSED.to_owned(), vector(names.collect()));
        }
        let mut video = Map::new();
        for (name, pictures) in &episode.pictures {
            let Some((height, width)) = camera::size(pictures) else {
                continue;
            };
            let key = format!("{CAMERA}{}", plain(name));
            video.insert(plain(name), json!({"original_key": key}));
            let info = json!({
                "video.height": height, "video.width": width, "video.codec": "h264", "video.pix_fmt": "yuv420p",
                "video.is_depth_map": false, "video.fps": env.control_hz.max(1), "video.channels": 3,
                "has_audio": false,
            });
            let names = ["height", "width", "channels"];
            entries.insert(key, json!({"dtype": "video", "shape": [height, width, 3], "names": names, "info": info}));
        }
        let scalar = |dtype: &str| json!({"dtype": dtype, "shape": [1], "names": null});
        let scalars = [
            ("next.reward", "float32"),
            ("next.done", "bool"),
            ("next.success", "bool"),
        ];
        let standard = [
            ("timestamp", "float32"),
            ("frame_index", "int64"),
            ("episode_index", "int64"),
        ];
        let standard = standard
            .into_iter()
            .chain([("index", "int64"), ("task_index", "int64")]);
        entries.extend(
            scalars
                .into_iter()
                .chain(standard)
                .map(|(name, dtype)| (name.to_owned(), scalar(dtype))),
        );
        let modality = json!({
            "state": state,
            "action": {"action": {"start": 0, "end": actions}},
            "video": video,
            "annotation": {"human.task_description": {"original_key": "task_index"}},
        });
        Self { entries, modality }
    }

    /// Returns the `features` of `info.json`.
    pub(super) fn entries(&self) -> &Map<String, Value> {
        &self.entries
    }

    /// Returns the contents of `modality.json`.
    pub(super) fn modality(&self) -> &Value {
        &self.modality
    }

    /// Checks that an episode with these features fits into a dataset with `entries`.
    pub(super) fn check(&self, entries: &Map<String, Value>) -> Result<(), RecordError> {
        let names: BTreeSet<&String> = entries.keys().chain(self.entries.keys()).collect();
        let differs = |name: &&String| entries.get(*name) != self.entries.get(*name);
        let Some(name) = names.into_iter().find(differs) else {
            return Ok(());
        };
        Err(RecordError(format!(
            "`{name}` is {} in the episode and {} in the dataset",
            shape_of(self.entries.get(name)),
            shape_of(entries.get(name))
        )))
    }
}

fn shape_of(entry: Option<&Value>) -> String {
    entry.map_or_else(|| "missing".to_owned(), |entry| entry["shape"].to_string())
}

/// Returns names and lengths of the observed vectors, in their order in [`STATE`].
pub(super) fn state_parts(episode: &EpisodeRows) -> impl Iterator<Item = (&str, usize)> {
    episode
        .columns
        .iter()
        .filter_map(|(name, column)| Some((name.strip_prefix("obs/")?, column.width)))
}

/// Replaces slashes, which lerobot does not allow in names.
pub(super) fn plain(name: &str) -> String {
    name.replace('/', ".")
}
