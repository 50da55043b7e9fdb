//! The memory that is shared with one child: where its copies' actions and observations are, and
//! how they are read.
//!
//! ```text
//! copy now, call now | copy 0: action, state, state of the next episode, images | copy 1 …
//! ```
//!
//! The process counts the places in the same way (`rrun_worker.py`).

use std::collections::BTreeMap;
use std::io;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use bytes::Bytes;

use crate::env::python::hello::Hello;
use crate::env::python::message::{Entry, Reply};
use crate::env::{Frame, ImageSize, Observation};
use crate::python::Worker;
use crate::python::memory::{Places, SharedMemory, bytes_of, numbers};

/// Maximum bytes of shared memory of one child.
const MOST_BYTES: usize = 64 << 30;
/// Maximum bytes of one observation, which is read at once: five images of the largest size.
const LARGEST_OBSERVATION: usize = 1 << 30;
/// Byte range of the copy that the child is working on and of the call that it is in, each a `u32`.
const CALL_NOW: Range<usize> = 0..8;
/// The numbers of calls, of which `rrun_worker.py` has the list.
pub const CALLS: RangeInclusive<u32> = 1..=4;
/// Bytes before the first copy.
const LINE: usize = 64;

/// Byte ranges in the memory of one child; those of parts are within a copy.
struct Layout {
    /// Size of the memory in bytes.
    bytes: usize,
    /// Size of a copy, and of its numbers, which precede its images.
    copy: usize,
    numbers: usize,
    action: Range<usize>,
    /// The state vectors, and those of the first observation of an episode that the copy has begun
    /// by itself.
    states: [Vec<Range<usize>>; 2],
    cameras: Vec<Range<usize>>,
}

impl Layout {
    fn new(hello: &Hello, copies: usize) -> Result<Self, String> {
        let (mut free, shown) = (Places::default(), &hello.interface);
        let action = free.take(shown.action.names.len() * 4);
        let mut vectors = || -> Vec<_> {
            let lengths = shown.state.iter().map(|(_, length)| length * 4);
            lengths.map(|bytes| free.take(bytes)).collect()
        };
        let (states, numbers) = ([vectors(), vectors()], free.0);
        let cameras = shown.cameras.iter().map(|camera| {
            let (height, width) = (camera.height, camera.width);
            free.take(ImageSize { height, width }.rgb_bytes())
        });
        let cameras = cameras.collect();
        let copy = free.0;
        if copy > LARGEST_OBSERVATION {
            return Err(format!(
                "shows {copy} bytes at once, expected at most {LARGEST_OBSERVATION}"
            ));
        }
        let bytes = LINE + copy * copies;
        if bytes > MOST_BYTES {
            return Err(format!(
                "needs {bytes} bytes of shared memory for {copies} copies, expected at most \
                 {MOST_BYTES}"
            ));
        }
        Ok(Self {
            bytes,
            copy,
            numbers,
            action,
            states,
            cameras,
        })
    }

    /// Returns the byte range of a copy, without its images unless `pictures`.
    fn of_copy(&self, local: usize, pictures: bool) -> Range<usize> {
        let begin = LINE + self.copy * local;
        begin..begin + if pictures { self.copy } else { self.numbers }
    }
}

/// The shared memory of one process.
pub struct CopyMemory {
    shared: SharedMemory,
    layout: Layout,
}

impl CopyMemory {
    /// Gives a process the memory that it needs.
    ///
    /// # Errors
    /// Returns why it cannot be given that, as a clause about the process.
    pub fn new(worker: &Worker, hello: &Hello, copies: usize) -> Result<Self, String> {
        let layout = Layout::new(hello, copies)?;
        let shared = worker.memory(layout.bytes, 2 * copies).map_err(|err| {
            let bytes = layout.bytes;
            format!("cannot be given {bytes} bytes of shared memory: {err}")
        })?;
        Ok(Self { shared, layout })
    }

    /// Writes the action of a copy.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn act(&self, local: usize, action: &[f32]) -> io::Result<()> {
        let begin = self.layout.of_copy(local, false).start;
        let place = begin + self.layout.action.start;
        self.shared.write(place, &bytes_of(action))
    }

    /// Returns the copy that the process works on and its call, as it says itself; `None` if the
    /// memory cannot be read.
    pub fn call_now(&self) -> Option<(usize, u32)> {
        let bytes = self.shared.read(CALL_NOW).ok()?;
        let &[copy, call] = bytes.as_chunks().0 else {
            return None;
        };
        Some((u32::from_ne_bytes(copy) as usize, u32::from_ne_bytes(call)))
    }

    /// Copies out everything that a copy has written with one read: action, numbers and, if there
    /// are any, images.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn read(&self, local: usize, has_pictures: bool) -> io::Result<Bytes> {
        self.shared.read(self.layout.of_copy(local, has_pictures))
    }

    /// Returns the action that the environment took, from the bytes of [`CopyMemory::read`].
    pub fn action(&self, bytes: &[u8]) -> Vec<f32> {
        numbers(&bytes[self.layout.action.clone()])
    }

    /// Returns the observation in the bytes of [`CopyMemory::read`]. Its images share these bytes.
    ///
    /// # Errors
    /// Returns the problem that the process reported, or the first value that is not a finite
    /// number.
    pub fn observe(
        &self,
        hello: &Hello,
        bytes: &Bytes,
        (entry, reply): (&Entry, &Reply),
        language: &Arc<str>,
    ) -> Result<Observation, String> {
        if let Some(reason) = &reply.told.wrong {
            return Err(reason.clone());
        }
        let mut state = BTreeMap::new();
        let ranges = &self.layout.states[usize::from(entry.follows)];
        for ((name, _), range) in hello.interface.state.iter().zip(ranges) {
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
        let cameras = hello.interface.cameras.iter().zip(&self.layout.cameras);
        let frames = cameras.filter(|_| reply.rendered).map(|(camera, range)| {
            let frame = Frame {
                height: camera.height,
                width: camera.width,
                rgb: bytes.slice(range.clone()),
            };
            (camera.name.clone(), frame)
        });
        Ok(Observation {
            state,
            video: frames.collect(),
            language: Arc::clone(language),
            sim_state: BTreeMap::new(),
            feedback: reply.told.feedback.clone().map(Arc::new),
        })
    }
}

#[cfg(test)]
mod tests {
    use jobs::interface::CameraSpec;
    use proptest::prelude::*;

    use super::*;
    use crate::env::python::tests::hello;

    fn shows(cameras: &[(u32, u32)], states: &[usize], dim: usize) -> Hello {
        let camera = |(index, &(height, width)): (usize, &(u32, u32))| CameraSpec {
            name: format!("c{index}"),
            height,
            width,
        };
        let state = |(index, length): (usize, &usize)| (format!("s{index}"), *length);
        let mut hello = Hello::new(hello().to_string().as_bytes()).unwrap();
        hello.interface.cameras = cameras.iter().enumerate().map(camera).collect();
        hello.interface.state = states.iter().enumerate().map(state).collect();
        hello.interface.action.names = vec![String::new(); dim];
        hello
    }

    proptest! {
        #[test]
        fn nothing_overlaps_and_all_is_aligned_and_inside(
            cameras in prop::collection::vec((1u32..50, 1u32..50), 0..4),
            states in prop::collection::vec(1usize..100, 0..4),
            dim in 1usize..40, copies in 1usize..6,
        ) {
            let layout = Layout::new(&shows(&cameras, &states, dim), copies).unwrap();
            let mut ranges = vec![CALL_NOW];
            for copy in 0..copies {
                let (whole, numbers) = (layout.of_copy(copy, true), layout.of_copy(copy, false));
                prop_assert_eq!(&layout.action, &(0..dim * 4));
                let parts = layout.states.iter().flatten().chain([&layout.action]).chain(&layout.cameras);
                ranges.extend(parts.map(|part| whole.start + part.start..whole.start + part.end));
                prop_assert!(layout.states.iter().flatten().all(|part| part.end <= numbers.len()));
                prop_assert!(layout.cameras.iter().all(|part| part.end <= whole.len()));
            }
            ranges.sort_by_key(|range| range.start);
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
            prop_assert!(ranges.iter().all(|range| range.start % 64 == 0 && range.end <= layout.bytes));
        }
    }

    #[test]
    fn what_no_machine_has_is_refused() {
        let reason = |cameras: &[(u32, u32)], copies| {
            Layout::new(&shows(cameras, &[], 1), copies).err().unwrap()
        };
        let told = reason(&[(8192, 8192); 5], 4096);
        assert!(told.contains("for 4096 copies, expected at most"), "{told}");
        assert_eq!(
            reason(&[(8192, 8192); 6], 1),
            "shows 1207959616 bytes at once, expected at most 1073741824"
        );
    }
}
