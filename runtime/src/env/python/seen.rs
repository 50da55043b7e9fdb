//! What a child wrote into a slot, as an observation.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::copy::CopyState;
use super::hello::Hello;
use super::layout::Layout;
use super::message::Reply;
use crate::env::shm::{SharedMemory, View};
use crate::env::{Frame, Observation};

/// The memory of one process.
pub struct Memory {
    /// The bytes.
    pub shared: Arc<SharedMemory>,
    /// What is where.
    pub layout: Layout,
}

impl Memory {
    /// Reads a slot. Numbers are copied, pictures are looked at in place as long as slots last.
    ///
    /// # Errors
    /// What the process says is wrong, or the first number that is none.
    pub fn observe(
        &self,
        (hello, local, slot): (&Hello, usize, u8),
        reply: &Reply,
        copy: &mut CopyState,
    ) -> Result<Observation, String> {
        if let Some(reason) = &reply.told.wrong {
            return Err(reason.clone());
        }
        let mut state = BTreeMap::new();
        for ((name, _), (offset, length)) in hello.state.iter().zip(self.layout.states(local, slot)) {
            let numbers = self.shared.read(offset, length);
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
        let video = if reply.rendered { self.pictures(hello, local, slot, copy) } else { BTreeMap::new() };
        let feedback = reply.told.feedback.clone().map(Arc::new);
        Ok(Observation { state, video, language: Arc::clone(&copy.language), sim_state: BTreeMap::new(), feedback })
    }

    fn pictures(&self, hello: &Hello, local: usize, slot: u8, copy: &mut CopyState) -> BTreeMap<String, Frame> {
        let token = if hello.cameras.is_empty() { None } else { copy.hold(slot) };
        let ranges = self.layout.cameras(local, slot);
        let frames = hello.cameras.iter().zip(ranges).map(|((name, height, width), range)| {
            let shared = Arc::clone(&self.shared);
            let rgb = match &token {
                Some(token) => Bytes::from_owner(View::new(shared, range, Arc::clone(token))),
                None => Bytes::copy_from_slice(View::new(shared, range, ()).as_ref()),
            };
            (name.clone(), Frame { height: *height, width: *width, rgb })
        });
        frames.collect()
    }
}
