//! Renders images: one renderer per thread, created at the first image.

use std::collections::BTreeMap;
use std::sync::Arc;

use mujoco_rs::prelude::{
    MjData, MjModel, MjrRectangle, MjvCamera, MjvOption, MjvPerturb, MjvScene,
};

use crate::env::egl::{EglDevice, EglRequest};
use crate::env::mujoco::ffi::Gl;
use crate::env::mujoco::model::{CAMERAS, SceneModel};
use crate::env::{EnvError, Frame};

/// Maximum number of geoms in a scene; the largest task has 35.
const MAX_GEOMS: usize = 200;

/// Renders the copies of one thread.
pub(super) struct Renderer {
    gl: Gl,
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
            let (height, width) = (viewport.height, viewport.width);
            let reason = "do not fit the OpenGL driver";
            return Err(EnvError::Setup(format!(
                "pictures of {height} x {width} {reason}"
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

    /// Returns a message for the user about the device that renders, if there is one.
    pub(super) fn note(&self) -> Option<&str> {
        self.gl.note.as_deref()
    }

    /// Returns the device that renders, and OpenGL's name of the renderer.
    pub(super) fn device(&self) -> (&EglDevice, &str) {
        (&self.gl.device, &self.gl.renderer)
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
    let mut rgb = Vec::with_capacity(pixels.len());
    pixels
        .chunks_exact(width * 3)
        .rev()
        .for_each(|row| rgb.extend_from_slice(row));
    Ok(Frame {
        height: height as u32,
        width: width as u32,
        rgb: rgb.into(),
    })
}
