//! The samples of a task: images, states of the arm, and the expert's plans from there.
//!
//! ```text
//! {task}/pictures.u8   [samples, 2 cameras, EDGE, EDGE, 3]
//! {task}/rows.f32      [samples, ROW]: episode, step, eef_position 3, eef_quaternion 4,
//!                      gripper_position 2, goal_position 3, object_position 3,
//!                      the plan HORIZON x 7
//! ```

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use models::gr00t::processor::{Geometry, PictureProcessor, RgbPicture};
use runtime::env::Observation;
use runtime::policy::Chunk;

use crate::Outcome;
use crate::network::EDGE;

/// Number of actions in a plan.
pub const HORIZON: usize = 16;

/// Names and lengths of the state vectors in a row. The last two are targets of the auxiliary loss.
pub const STATE: [(&str, usize); 5] = [
    ("eef_position", 3),
    ("eef_quaternion", 4),
    ("gripper_position", 2),
    ("goal_position", 3),
    ("object_position", 3),
];

/// Number of values in a row.
pub const ROW: usize = 2 + 15 + HORIZON * 7;

/// A writer that appends samples.
pub struct Writer {
    geometry: PictureProcessor,
    pictures: BufWriter<File>,
    rows: BufWriter<File>,
}

impl Writer {
    /// Creates the files in a folder, and overwrites existing ones. `vlm` contains the backbone's
    /// `preprocessor_config.json`.
    pub fn create(folder: &Path, vlm: &Path) -> Outcome<Self> {
        std::fs::create_dir_all(folder)?;
        let open = |name: &str| File::create(folder.join(name)).map(BufWriter::new);
        let geometry = Geometry::Area {
            edge: EDGE,
            crop_fraction: 1.0,
        };
        let geometry = PictureProcessor::read(geometry, &vlm.join("preprocessor_config.json"))?;
        Ok(Self {
            geometry,
            pictures: open("pictures.u8")?,
            rows: open("rows.f32")?,
        })
    }

    /// Appends the observation and the plan of one step. The cameras are sorted by name.
    pub fn add(
        &mut self,
        (episode, step): (u64, u32),
        seen: &Observation,
        plan: &Chunk,
    ) -> Outcome<()> {
        for frame in seen.video.values() {
            let picture = RgbPicture::new(frame.height as usize, frame.width as usize, &frame.rgb)?;
            self.pictures
                .write_all(&self.geometry.transform(picture).rgb)?;
        }
        let mut row = vec![episode as f32, step as f32];
        for (name, length) in STATE {
            let values = seen.state.get(name);
            row.extend((0..length).map(|at| values.map_or(0.0, |values| values[at])));
        }
        row.extend((0..HORIZON).filter_map(|at| plan.action(at)).flatten());
        Ok(row
            .iter()
            .try_for_each(|value| self.rows.write_all(&value.to_le_bytes()))?)
    }
}
