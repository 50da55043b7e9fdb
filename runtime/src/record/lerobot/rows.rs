//! Converts an episode to tables: one row for each step, and one row about the episode; and what
//! `info.json` and `modality.json` say about them.

use parquet::basic::Type;
use serde_json::{Map, Value, json};

use crate::env::{EnvSpec, Frame};
use crate::record::EpisodeEnd;
use crate::record::episode::{EpisodeColumn, EpisodeRows};
use crate::record::lerobot::table::{Column, Values};
use crate::record::lerobot::{CHUNK, camera_key, fps, plain};

/// The numbers of an episode and its rows in the dataset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    pub(super) episode: u64,
    /// Number of rows before it.
    pub(super) first: u64,
    /// Number of its task.
    pub(super) task: usize,
}

/// The features of an episode: columns of the data, beside videos.
pub(super) struct Features {
    /// State and actions, with the names of their values.
    vectors: Vec<(Column, Vec<String>)>,
    scalars: Vec<Column>,
    /// The parts of the state, for `modality.json`.
    state: Map<String, Value>,
}

impl Features {
    pub(super) fn of(
        episode: &EpisodeRows,
        end: EpisodeEnd,
        env: &EnvSpec,
        position: Position,
    ) -> Self {
        let rows = episode.rows();
        let (mut names, mut state) = (Vec::new(), Map::new());
        let mut parts: Vec<&EpisodeColumn> = Vec::new();
        for (name, column) in &episode.columns {
            let Some(name) = name.strip_prefix("obs/").map(plain) else {
                continue;
            };
            let (first, width) = (names.len(), column.width);
            match width {
                1 => names.push(name.clone()),
                _ => names.extend((0..width).map(|at| format!("{name}_{at}"))),
            }
            state.insert(name, json!({"start": first, "end": names.len()}));
            parts.push(column);
        }
        // All observed vectors, concatenated.
        let row = |at: usize| {
            let parts = parts.iter();
            parts.flat_map(move |part| &part.values[at * part.width..][..part.width])
        };
        let mut vectors = Vec::new();
        if !names.is_empty() {
            let values = (0..rows).flat_map(row);
            vectors.push(vector("observation.state", names, values));
        }
        if let Some(actions) = episode.columns.get("actions") {
            let names = env.action.names.clone();
            vectors.push(vector("action", names, &actions.values));
        }
        if let Some(processed) = episode.columns.get("processed_actions") {
            // The name does not begin with `action`, because lerobot would then treat it as a value
            // to predict.
            let names = (0..processed.width).map(|at| format!("processed_{at}"));
            let (names, values) = (names.collect(), &processed.values);
            vectors.push(vector("processed_action", names, values));
        }
        Self {
            vectors,
            scalars: scalars(episode, end, env, position),
            state,
        }
    }

    /// Returns the columns of the data.
    pub(super) fn columns(&self) -> Vec<&Column> {
        let vectors = self.vectors.iter().map(|(column, _)| column);
        vectors.chain(&self.scalars).collect()
    }

    /// Returns `features` of `info.json`.
    pub(super) fn entries(&self, episode: &EpisodeRows, env: &EnvSpec) -> Map<String, Value> {
        let entry = |column: &Column, names: Option<&[String]>| {
            let shape = [column.list.unwrap_or(1)];
            let entry = json!({"dtype": column.dtype(), "shape": shape, "names": names});
            (column.name.clone(), entry)
        };
        let vectors = self.vectors.iter();
        let vectors = vectors.map(|(column, names)| entry(column, Some(names)));
        let videos = episode.pictures.iter().filter_map(|(name, pictures)| {
            let Frame { height, width, .. } = pictures.first()?;
            let entry = json!({
                "dtype": "video",
                "shape": [height, width, 3],
                "names": ["height", "width", "channels"],
                "info": {
                    "video.height": height,
                    "video.width": width,
                    "video.codec": "h264",
                    "video.pix_fmt": "yuv420p",
                    "video.is_depth_map": false,
                    "video.fps": fps(env),
                    "video.channels": 3,
                    "has_audio": false,
                },
            });
            Some((camera_key(name), entry))
        });
        let scalars = self.scalars.iter().map(|column| entry(column, None));
        vectors.chain(videos).chain(scalars).collect()
    }

    /// Returns the contents of `modality.json`.
    pub(super) fn modality(&self, episode: &EpisodeRows, env: &EnvSpec) -> Value {
        let video = |name: &String| (plain(name), json!({"original_key": camera_key(name)}));
        let video: Map<_, _> = episode.pictures.keys().map(video).collect();
        json!({
            "state": self.state,
            "action": {"action": {"start": 0, "end": env.action.names.len()}},
            "video": video,
            "annotation": {"human.task_description": {"original_key": "task_index"}},
        })
    }
}

/// Returns a feature of several values per row. lerobot stores one of shape [1] as a plain column.
fn vector<'a>(
    name: &str,
    names: Vec<String>,
    values: impl IntoIterator<Item = &'a f32>,
) -> (Column, Vec<String>) {
    let values = values.into_iter().map(|value| f64::from(*value));
    let mut column = Column::numbers(name, Type::FLOAT, values);
    column.list = (names.len() != 1).then_some(names.len());
    (column, names)
}

fn scalars(
    episode: &EpisodeRows,
    end: EpisodeEnd,
    env: &EnvSpec,
    position: Position,
) -> Vec<Column> {
    let rows = episode.rows();
    let flag = |holds: bool| f64::from(u8::from(holds));
    let numbers = || (0..rows).map(|row| row as f64);
    let same = |value: f64| vec![value; rows];
    let rewards = episode.rewards.iter().copied().map(f64::from);
    let dones = episode.dones.iter().copied().map(f64::from);
    let success = (1..=rows).map(|row| flag(end.success && row == rows));
    let seconds = numbers().map(|row| f64::from((row / fps(env) as f64) as f32));
    let index = numbers().map(|row| row + position.first as f64);
    vec![
        Column::numbers("next.reward", Type::FLOAT, rewards),
        Column::numbers("next.done", Type::BOOLEAN, dones),
        Column::numbers("next.success", Type::BOOLEAN, success),
        Column::numbers("timestamp", Type::FLOAT, seconds),
        Column::numbers("frame_index", Type::INT64, numbers()),
        Column::numbers("episode_index", Type::INT64, same(position.episode as f64)),
        Column::numbers("index", Type::INT64, index),
        Column::numbers("task_index", Type::INT64, same(position.task as f64)),
    ]
}

/// Returns the row of `meta/episodes`.
pub(super) fn about(episode: &EpisodeRows, env: &EnvSpec, position: Position) -> Vec<Column> {
    let number = |name: &str, value: u64| Column::numbers(name, Type::INT64, [value as f64]);
    let (chunk, file) = (position.episode / CHUNK, position.episode % CHUNK);
    let (first, rows) = (position.first, episode.rows() as u64);
    let language = vec![episode.language.to_string()];
    let mut tasks = Column::of("tasks", Values::Text(language));
    tasks.list = Some(1);
    let mut columns = vec![
        number("episode_index", position.episode),
        tasks,
        number("length", rows),
        number("data/chunk_index", chunk),
        number("data/file_index", file),
        number("dataset_from_index", first),
        number("dataset_to_index", first + rows),
    ];
    for name in episode.pictures.keys() {
        let key = format!("videos/{}", camera_key(name));
        let end = rows as f64 / fps(env) as f64;
        columns.extend([
            number(&format!("{key}/chunk_index"), chunk),
            number(&format!("{key}/file_index"), file),
            Column::numbers(format!("{key}/from_timestamp"), Type::DOUBLE, [0.0]),
            Column::numbers(format!("{key}/to_timestamp"), Type::DOUBLE, [end]),
        ]);
    }
    columns.extend([
        number("meta/episodes/chunk_index", chunk),
        number("meta/episodes/file_index", file),
    ]);
    columns
}
