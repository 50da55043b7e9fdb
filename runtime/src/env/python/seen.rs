//! Reads observations from the memory that is shared with a child.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::env::python::copy::CopyState;
use crate::env::python::hello::Hello;
use crate::env::python::layout::{CALL_NOW, Layout};
use crate::env::python::message::Reply;
use crate::env::shm::{SharedMemory, numbers};
use crate::env::{Frame, Observation};

/// The shared memory of one process.
pub struct Memory {
    /// The mapped memory.
    pub shared: SharedMemory,
    /// The byte ranges in it.
    pub layout: Layout,
}

impl Memory {
    /// Writes the action of a copy.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn act(&self, local: usize, action: &[f32]) -> io::Result<()> {
        self.shared.write(
            self.layout.copy(local, false).start + self.layout.action().start,
            action,
        )
    }

    /// Returns the copy that the process is working on and the number of its current call; `None`
    /// if the memory cannot be read.
    pub fn call_now(&self) -> Option<(u32, u32)> {
        let bytes = self.shared.read(CALL_NOW).ok()?;
        let [copy, call] = *bytes.as_chunks().0 else {
            return None;
        };
        Some((u32::from_ne_bytes(copy), u32::from_ne_bytes(call)))
    }

    /// Copies out everything that a copy has written with one read: action, numbers and, if there
    /// are any, images.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn read(&self, local: usize, reply: &Reply) -> io::Result<Bytes> {
        self.shared.read(self.layout.copy(local, reply.rendered))
    }

    /// Returns the action that the environment took, from the bytes of [`Memory::read`].
    pub fn action(&self, bytes: &[u8]) -> Vec<f32> {
        numbers(&bytes[self.layout.action()])
    }

    /// Returns the observation in the bytes of [`Memory::read`]. Its images share these bytes.
    ///
    /// # Errors
    /// Returns the problem that the process reported, or the first value that is not a finite
    /// number.
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
                return Err(format!(
                    "{} as number {at} of state `{name}`, a finite number is needed",
                    numbers[at]
                ));
            }
            state.insert(name.clone(), numbers);
        }
        if !reply.reward.is_finite() {
            return Err(format!(
                "the reward {}, a finite number is needed",
                reply.reward
            ));
        }
        if let Some(language) = &reply.told.language {
            copy.language = Arc::from(language.as_str());
        }
        let video = if reply.rendered {
            self.pictures(hello, bytes)
        } else {
            BTreeMap::new()
        };
        let feedback = reply.told.feedback.clone().map(Arc::new);
        Ok(Observation {
            state,
            video,
            language: Arc::clone(&copy.language),
            sim_state: BTreeMap::new(),
            feedback,
        })
    }

    fn pictures(&self, hello: &Hello, bytes: &Bytes) -> BTreeMap<String, Frame> {
        let frame = |((name, height, width), range): (&(String, u32, u32), _)| {
            (
                name.clone(),
                Frame {
                    height: *height,
                    width: *width,
                    rgb: bytes.slice(range),
                },
            )
        };
        hello
            .cameras
            .iter()
            .zip(self.layout.cameras())
            .map(frame)
            .collect()
    }
}
