//! Renders images: one renderer per thread, created at the first image; and a pair of pictures
//! without an evaluation, to see whether and where this machine renders.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mujoco_rs::prelude::{
    MjData, MjModel, MjrRectangle, MjvCamera, MjvOption, MjvPerturb, MjvScene,
};
use serde_json::Map;

use crate::clock::now;
use crate::env::egl::EglRequest;
use crate::env::mujoco::copy::EnvCopy;
use crate::env::mujoco::ffi::{Gl, install_log_handler};
use crate::env::mujoco::model::{CAMERAS, SceneModel};
use crate::env::mujoco::task::MujocoSettings;
use crate::env::{EnvError, Frame};

/// The task of the pictures without an evaluation.
const TASK: &str = "reach";

/// Maximum number of geoms in a scene; the largest task has 35.
const MAX_GEOMS: usize = 200;

/// Renders the copies of one thread.
pub(super) struct Renderer {
    pub(super) gl: Gl,
    scene: MjvScene,
    option: MjvOption,
    cameras: [MjvCamera; 2],
    viewport: MjrRectangle,
}

impl Renderer {
    /// Opens the OpenGL context.
    ///
    /// # Errors
    /// Returns what is missing, and what the user can do.
    pub(super) fn new(model: &SceneModel, wanted: &EglRequest) -> Result<Self, EnvError> {
        let gl = Gl::new(&model.mj, wanted)?;
        let global = &model.mj.vis().global;
        let viewport = MjrRectangle::new(0, 0, global.offwidth, global.offheight);
        if (gl.context.off_width(), gl.context.off_height()) != (viewport.width, viewport.height) {
            return Err(EnvError::Setup(format!(
                "pictures of {} x {} do not fit the OpenGL driver",
                viewport.height, viewport.width
            )));
        }
        Ok(Self {
            gl,
            scene: MjvScene::new(&model.mj, MAX_GEOMS),
            option: MjvOption::default(),
            cameras: model.cameras.map(MjvCamera::new_fixed),
            viewport,
        })
    }

    /// Renders one image for each camera.
    pub(super) fn draw(
        &mut self,
        data: &mut MjData<Arc<MjModel>>,
    ) -> Result<BTreeMap<String, Frame>, EnvError> {
        let mut video = BTreeMap::new();
        for (name, camera) in CAMERAS.iter().zip(&mut self.cameras) {
            self.scene
                .update(data, &self.option, &MjvPerturb::default(), camera);
            self.scene.render(&self.viewport, &self.gl.context);
            video.insert((*name).to_owned(), read(&self.gl, self.viewport)?);
        }
        Ok(video)
    }
}

/// Reads the rendered image. OpenGL's first row is the bottom, an image's first row the top.
fn read(gl: &Gl, viewport: MjrRectangle) -> Result<Frame, EnvError> {
    let (height, width) = (viewport.height as usize, viewport.width as usize);
    let mut pixels = vec![0_u8; height * width * 3];
    gl.context
        .read_pixels(Some(&mut pixels), None, &viewport)
        .map_err(|error| EnvError::Setup(error.to_string()))?;
    let rows: Vec<&[u8]> = pixels.chunks_exact(width * 3).rev().collect();
    Ok(Frame {
        height: height as u32,
        width: width as u32,
        rgb: rows.concat().into(),
    })
}

/// Two pictures of a task without an evaluation.
#[derive(Debug)]
pub struct DrawnPicture {
    /// OpenGL's name of the renderer (`GL_RENDERER`), as `llvmpipe (LLVM 15.0.6, 256 bits)`.
    pub renderer: String,
    /// The EGL device, as `NVIDIA, cuda:0`.
    pub device: String,
    /// Why another device renders than that of the GPU.
    pub note: Option<String>,
    /// Time for the pair, 224 x 224 each, after the first one.
    pub time: Duration,
}

/// Draws the pictures of both cameras at the start of an episode, on the device that a rank with
/// this request would use.
///
/// # Errors
/// Returns [`EnvError::Setup`] if nothing can be rendered, or if the pictures are empty.
pub fn draw_pair(wanted: &EglRequest) -> Result<DrawnPicture, EnvError> {
    install_log_handler();
    let settings = MujocoSettings::new(TASK, None, &Map::new())?;
    let model = SceneModel::new(settings)?;
    let mut copy = EnvCopy::new(&model);
    copy.reset(&model, 0);

    let mut renderer = Renderer::new(&model, wanted)?;
    // The first pair compiles shaders.
    renderer.draw(&mut copy.data)?;
    let start = now();
    let pair = renderer.draw(&mut copy.data)?;
    let time = start.elapsed();

    let Gl {
        device,
        renderer,
        note,
        ..
    } = renderer.gl;
    if is_empty(&pair) {
        let reason = format!("{renderer} drew a picture of a single colour");
        return Err(EnvError::Setup(reason));
    }
    Ok(DrawnPicture {
        renderer,
        device: device.to_string(),
        note,
        time,
    })
}

/// Returns whether a picture has one colour alone, or if there is none.
fn is_empty(pair: &BTreeMap<String, Frame>) -> bool {
    let has_one_colour = |frame: &Frame| {
        let mut pixels = frame.rgb.chunks_exact(3);
        let first = pixels.next();
        pixels.all(|pixel| Some(pixel) == first)
    };
    pair.is_empty() || pair.values().any(has_one_colour)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_of_a_task_has_a_renderer_and_more_than_one_colour() {
        let drawn = match draw_pair(&EglRequest::default()) {
            Ok(drawn) => drawn,
            Err(err) if err.to_string().contains("cannot render without a display") => {
                return rig::need::lacks("EGL", err);
            }
            Err(err) => panic!("{err}"),
        };
        assert!(
            !drawn.renderer.is_empty() && drawn.renderer != "unknown",
            "{drawn:?}"
        );
        assert!(!drawn.time.is_zero() && drawn.note.is_none(), "{drawn:?}");
    }

    #[test]
    fn one_colour_alone_is_no_picture() {
        let pair = |rgb: &[u8]| {
            let frame = Frame {
                height: 1,
                width: 2,
                rgb: rgb.to_vec().into(),
            };
            BTreeMap::from([("front".to_owned(), frame)])
        };
        assert!(is_empty(&BTreeMap::new()));
        assert!(is_empty(&pair(&[1, 2, 3, 1, 2, 3])));
        assert!(!is_empty(&pair(&[1, 2, 3, 1, 2, 4])));
    }
}
