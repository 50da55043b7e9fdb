//! Converts an episode to tables: one row for each step, and one row about the episode.

use crate::record::EpisodeEnd;
use crate::record::episode::EpisodeRows;
use crate::record::lerobot::CHUNK;
use crate::record::lerobot::features::{PROCESSED, STATE, state_parts};
use crate::record::lerobot::table::{ColumnValues, TableColumn};

/// The position of an episode in its dataset.
#[derive(Clone, Copy, Debug)]
pub(super) struct EpisodePosition {
    /// Number of the episode.
    pub(super) index: u64,
    /// Number of rows before it.
    pub(super) first: u64,
    /// Rows per second.
    pub(super) fps: u64,
}

impl EpisodePosition {
    /// Returns the features of the rows of `episode`.
    pub(super) fn rows(
        &self,
        episode: &EpisodeRows,
        end: EpisodeEnd,
        task: i64,
    ) -> Vec<TableColumn> {
        let rows = episode.rows();
        let mut columns = Vec::new();
        let parts: Vec<_> = state_parts(episode)
            .map(|(name, _)| &episode.columns[&format!("obs/{name}")])
            .collect();
        let width: usize = parts.iter().map(|part| part.width).sum();
        if width > 0 {
            let row = |at: usize| {
                parts
                    .iter()
                    .flat_map(move |part| &part.values[at * part.width..(at + 1) * part.width])
            };
            let values = (0..rows).flat_map(row).copied().collect();
            columns.push(TableColumn::feature(
                STATE,
                ColumnValues::F32(values),
                width,
            ));
        }
        for (name, key) in [("action", "actions"), (PROCESSED, "processed_actions")] {
            if let Some(column) = episode.columns.get(key) {
                let values = ColumnValues::F32(column.values.clone());
                columns.push(TableColumn::feature(name, values, column.width));
            }
        }
        let last = |at: usize| at + 1 == rows;
        let numbers = || 0..rows as i64;
        let times = numbers().map(|row| (row as f64 / self.fps as f64) as f32);
        let scalars = [
            ("next.reward", ColumnValues::F32(episode.rewards.clone())),
            (
                "next.done",
                ColumnValues::Bool(episode.dones.iter().map(|done| *done != 0).collect()),
            ),
            (
                "next.success",
                ColumnValues::Bool((0..rows).map(|at| end.success && last(at)).collect()),
            ),
            ("timestamp", ColumnValues::F32(times.collect())),
            ("frame_index", ColumnValues::I64(numbers().collect())),
            (
                "episode_index",
                ColumnValues::I64(vec![self.index as i64; rows]),
            ),
            (
                "index",
                ColumnValues::I64(numbers().map(|row| row + self.first as i64).collect()),
            ),
            ("task_index", ColumnValues::I64(vec![task; rows])),
        ];
        columns.extend(
            scalars
                .into_iter()
                .map(|(name, values)| TableColumn::feature(name, values, 1)),
        );
        columns
    }

    /// Returns the row of `meta/episodes`.
    pub(super) fn row<'a>(
        &self,
        episode: &EpisodeRows,
        videos: impl Iterator<Item = &'a String>,
    ) -> Vec<TableColumn> {
        let number =
            |name: &str, value: u64| TableColumn::of(name, ColumnValues::I64(vec![value as i64]));
        let (chunk, file, rows) = (
            self.index / CHUNK,
            self.index % CHUNK,
            episode.rows() as u64,
        );
        let mut columns = vec![
            number("episode_index", self.index),
            TableColumn::of_lists(
                "tasks",
                ColumnValues::Text(vec![episode.meta.language.to_string()]),
                1,
            ),
            number("length", rows),
            number("data/chunk_index", chunk),
            number("data/file_index", file),
            number("dataset_from_index", self.first),
            number("dataset_to_index", self.first + rows),
        ];
        for key in videos {
            let seconds = |name: &str, value| {
                TableColumn::of(
                    format!("videos/{key}/{name}"),
                    ColumnValues::F64(vec![value]),
                )
            };
            columns.push(number(&format!("videos/{key}/chunk_index"), chunk));
            columns.push(number(&format!("videos/{key}/file_index"), file));
            columns.push(seconds("from_timestamp", 0.0));
            columns.push(seconds("to_timestamp", rows as f64 / self.fps as f64));
        }
        columns.extend([
            number("meta/episodes/chunk_index", chunk),
            number("meta/episodes/file_index", file),
        ]);
        columns
    }
}

/// Converts values to f64 for statistics.
pub(super) fn in_f64(values: &ColumnValues) -> Vec<f64> {
    match values {
        ColumnValues::F32(values) => values.iter().map(|value| f64::from(*value)).collect(),
        ColumnValues::F64(values) => values.clone(),
        ColumnValues::I64(values) => values.iter().map(|value| *value as f64).collect(),
        ColumnValues::Bool(values) => values
            .iter()
            .map(|value| f64::from(u8::from(*value)))
            .collect(),
        ColumnValues::Text(_) => Vec::new(),
    }
}
