//! Reads observations from the memory that is shared with a child.

use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;

use crate::env::python::copy::CopyState;
use crate::env::python::hello::Hello;
use crate::env::python::layout::{CALL_NOW, MemoryLayout};
use crate::env::python::message::Reply;
use crate::env::{Frame, Observation};
use crate::python::memory::{SharedMemory, numbers};

/// What a process is doing, as it says itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallNow {
    /// The copy that it is working on.
    pub copy: u32,
    /// Number of its current call; `rrun_worker.py` has the list.
    pub call: u32,
}

impl CallNow {
    /// The numbers of calls; any other means that the process is in none.
    pub const CALLS: RangeInclusive<u32> = 1..=4;
}

/// The shared memory of one process.
pub struct ProcessMemory {
    /// The mapped memory.
    pub shared: SharedMemory,
    /// The byte ranges in it.
    pub layout: MemoryLayout,
}

impl ProcessMemory {
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

    /// Returns what the process is doing; `None` if the memory cannot be read.
    pub fn call_now(&self) -> Option<CallNow> {
        let bytes = self.shared.read(CALL_NOW).ok()?;
        let [copy, call] = *bytes.as_chunks().0 else {
            return None;
        };
        Some(CallNow {
            copy: u32::from_ne_bytes(copy),
            call: u32::from_ne_bytes(call),
        })
    }

    /// Copies out everything that a copy has written with one read: action, numbers and, if there
    /// are any, images.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn read(&self, local: usize, reply: &Reply) -> io::Result<Bytes> {
        self.shared.read(self.layout.copy(local, reply.rendered))
    }

    /// Returns the action that the environment took, from the bytes of [`ProcessMemory::read`].
    pub fn action(&self, bytes: &[u8]) -> Vec<f32> {
        numbers(&bytes[self.layout.action()])
    }

    /// Returns the observation in the bytes of [`ProcessMemory::read`]. Its images share these bytes.
    /// `follows` says that it is the first of an episode that the copy has begun by itself.
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
        follows: bool,
    ) -> Result<Observation, String> {
        if let Some(reason) = &reply.told.wrong {
            return Err(reason.clone());
        }
        let mut state = BTreeMap::new();
        let ranges = match follows {
            true => self.layout.next_states(),
            false => self.layout.states(),
        };
        for ((name, _), range) in hello.state.iter().zip(ranges) {
            let numbers = numbers(&bytes[range.clone()]);
            if let Some(at) = numbers.iter().position(|number| !number.is_finite()) {
                let found = format!("{} as number {at} of state `{name}`", numbers[at]);
                return Err(format!("{found}, expected a finite number"));
            }
            state.insert(name.clone(), numbers);
        }
        if !reply.reward.is_finite() {
            let reward = reply.reward;
            return Err(format!("the reward {reward}, expected a finite number"));
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
