//! Writes one episode as a group of a robomimic dataset, with the names and shapes of Isaac Lab's
//! recorder (isaaclab/utils/datasets/hdf5_dataset_file_handler.py):
//!
//! ```text
//! demo_<n>  attrs num_samples seed success │ of rrun: episode env language terminated truncated
//! ├ actions, processed_actions    [T, A]  f32
//! ├ obs/<name>                    [T, D]  f32   before the action
//! ├ obs/<camera>                  [T, H, W, 3]  u8
//! ├ states/<path>                 [T, D]  f32   after the action
//! ├ initial_state/<path>          [1, D]  f32   after the reset
//! ├ rewards, dones                [T]     f32, u8
//! └ success                       [1]     bool  read by Isaac Lab-Arena's `success_rate`
//! ```

use std::str::FromStr as _;

use hdf5::types::VarLenUnicode;
use hdf5::{Dataset, Error, Group, H5Type, Location, Result};

use crate::env::Frame;
use crate::record::EpisodeEnd;
use crate::record::episode::{EpisodeColumn, EpisodeRows};

/// gzip level. It is low because the recorder thread shares the cores with the simulators.
const GZIP: u8 = 2;
/// Maximum number of values in one chunk of numbers: 4 MiB, nearly always the whole episode.
const CHUNK_VALUES: usize = 1 << 20;

/// Writes all data of an episode below `demo`.
pub(super) fn write(demo: &Group, episode: &EpisodeRows, end: EpisodeEnd) -> Result<()> {
    for (name, column) in &episode.columns {
        write_column(demo, name, episode.rows(), column)?;
    }
    for (name, values) in &episode.initial {
        let row = EpisodeColumn {
            width: values.len(),
            values: values.clone(),
        };
        write_column(demo, &format!("initial_state/{name}"), 1, &row)?;
    }
    for (name, pictures) in &episode.pictures {
        write_pictures(demo, &format!("obs/{name}"), pictures)?;
    }
    write_line(demo, "rewards", &episode.rewards)?;
    write_line(demo, "dones", &episode.dones)?;
    write_line(demo, "success", &[end.success])?;
    write_attributes(demo, episode, end)
}

/// Sets a text attribute as h5py does: one UTF-8 string of variable length.
pub(super) fn set_text(at: &Location, name: &str, text: &str) -> Result<()> {
    // HDF5 ends a string at its first NUL.
    let text = text.replace('\0', "");
    let text = VarLenUnicode::from_str(&text)
        .map_err(|err| Error::Internal(format!("attribute `{name}`: {err}")))?;
    at.new_attr::<VarLenUnicode>()
        .create(name)?
        .write_scalar(&text)
}

/// Sets a number or boolean attribute.
pub(super) fn set<T: H5Type>(at: &Location, name: &str, value: T) -> Result<()> {
    at.new_attr::<T>().create(name)?.write_scalar(&value)
}

fn write_attributes(demo: &Group, episode: &EpisodeRows, end: EpisodeEnd) -> Result<()> {
    set(demo, "num_samples", episode.rows() as i64)?;
    // Python's integers are stored as i64; only a seed beyond that range is written unsigned.
    match i64::try_from(episode.seed) {
        Ok(seed) => set(demo, "seed", seed)?,
        Err(_) => set(demo, "seed", episode.seed)?,
    }
    set(demo, "success", end.success)?;
    set(demo, "terminated", end.terminated)?;
    set(demo, "truncated", end.truncated)?;
    set(demo, "episode", episode.episode)?;
    set(demo, "env", episode.env.0 as u64)?;
    set_text(demo, "language", &episode.language)
}

fn write_column(demo: &Group, name: &str, rows: usize, column: &EpisodeColumn) -> Result<()> {
    let width = column.width;
    if rows == 0 || width == 0 {
        return Ok(());
    }
    let chunk = rows.min((CHUNK_VALUES / width).max(1));
    let dataset = demo.new_dataset::<f32>().chunk((chunk, width));
    let dataset = dataset.shuffle().deflate(GZIP).shape((rows, width));
    fill(&dataset.create(name)?, &column.values)
}

fn write_pictures(demo: &Group, name: &str, pictures: &[Frame]) -> Result<()> {
    let Some(first) = pictures.first() else {
        return Ok(());
    };
    let (height, width) = (first.height as usize, first.width as usize);
    let dataset = demo.new_dataset::<u8>().chunk((1, height, width, 3));
    let shape = (pictures.len(), height, width, 3);
    let dataset = dataset.deflate(GZIP).shape(shape).create(name)?;
    let bytes: Vec<&[u8]> = pictures.iter().map(|frame| &frame.rgb[..]).collect();
    fill(&dataset, &bytes.concat())
}

fn write_line<T: H5Type>(demo: &Group, name: &str, values: &[T]) -> Result<()> {
    if values.is_empty() {
        return Ok(());
    }
    let chunk = values.len().min(CHUNK_VALUES);
    let dataset = demo.new_dataset::<T>().chunk(chunk).deflate(GZIP);
    fill(&dataset.shape(values.len()).create(name)?, values)
}

/// Writes all values to the file. Without the flush they would be written when the dataset is
/// closed, where the library swallows errors.
fn fill<T: H5Type>(dataset: &Dataset, values: &[T]) -> Result<()> {
    dataset.write_raw(values)?;
    dataset.flush()
}
