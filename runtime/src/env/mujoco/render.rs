//! Renders images: one renderer per thread, created at the first image.

use std::collections::BTreeMap;
use std::sync::Arc;

use mujoco_rs::prelude::{
    MjData, MjModel, MjrRectangle, MjvCamera, MjvOption, MjvPerturb, MjvScene,
};

use crate::env::egl::EglRequest;
use crate::env::mujoco::ffi::Gl;
use crate::env::mujoco::model::{CAMERAS, SceneModel};
use crate::env::{EnvError, Frame};

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
