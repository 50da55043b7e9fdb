//! What a child wrote into shared memory, as an observation.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::copy::CopyState;
use super::hello::Hello;
use super::layout::{CALL_NOW, Layout};
use super::message::Reply;
use crate::env::shm::{SharedMemory, numbers};
use crate::env::{Frame, Observation};

/// The memory of one process.
pub struct Memory {
    /// The bytes.
    pub shared: SharedMemory,
    /// What is where.
    pub layout: Layout,
}

impl Memory {
    /// Hands an action to a copy.
    ///
    /// # Errors
    /// Those of the system.
    pub fn act(&self, local: usize, action: &[f32]) -> io::Result<()> {
        self.shared.write(self.layout.copy(local, false).start + self.layout.action().start, action)
    }

    /// The copy that the process is busy with and the number of what it is calling, if that can be read.
    pub fn call_now(&self) -> Option<(u32, u32)> {
        let bytes = self.shared.read(CALL_NOW).ok()?;
        let [copy, call] = *bytes.as_chunks().0 else { return None };
        Some((u32::from_ne_bytes(copy), u32::from_ne_bytes(call)))
    }

    /// Copies out what a copy has written, at once: action, numbers and, if there are any, pictures.
    ///
    /// # Errors
    /// Those of the system.
    pub fn read(&self, local: usize, reply: &Reply) -> io::Result<Bytes> {
        self.shared.read(self.layout.copy(local, reply.rendered))
    }

    /// What the environment took, out of what was read.
    pub fn action(&self, bytes: &[u8]) -> Vec<f32> {
        numbers(&bytes[self.layout.action()])
    }

    /// The observation in what was read. Pictures are parts of the same bytes.
    ///
    /// # Errors
    /// What the process says is wrong, or the first number that is none.
    pub fn observe(
        &self,
        hello: &Hello,
        bytes: &Bytes,
        reply: &Reply,
        copy: &mut CopyState,
    ) -> Result<Observation, String> {
        if let Some(reason) = &reply.told.wrong {
            return Err(reason.clone());
        }
        let mut state = BTreeMap::new();
        for ((name, _), range) in hello.state.iter().zip(self.layout.states()) {
            let numbers = numbers(&bytes[range]);
            if let Some(at) = numbers.iter().position(|number| !number.is_finite()) {
                return Err(format!("{} as number {at} of state `{name}`, a finite number is needed", numbers[at]));
            }
            state.insert(name.clone(), numbers);
        }
        if !reply.reward.is_finite() {
            return Err(format!("the reward {}, a finite number is needed", reply.reward));
        }
        if let Some(language) = &reply.told.language {
            copy.language = Arc::from(language.as_str());
        }
        let video = if reply.rendered { self.pictures(hello, bytes) } else { BTreeMap::new() };
        let feedback = reply.told.feedback.clone().map(Arc::new);
        Ok(Observation { state, video, language: Arc::clone(&copy.language), sim_state: BTreeMap::new(), feedback })
    }

    fn pictures(&self, hello: &Hello, bytes: &Bytes) -> BTreeMap<String, Frame> {
        let frame = |((name, height, width), range): (&(String, u32, u32), _)| {
            (name.clone(), Frame { height: *height, width: *width, rgb: bytes.slice(range) })
        };
        hello.cameras.iter().zip(self.layout.cameras()).map(frame).collect()
    }
}
