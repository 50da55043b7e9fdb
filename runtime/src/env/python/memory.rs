//! The memory that is shared with one child: where its copies' actions and observations are, and
//! how they are read.
//!
//! ```text
//! copy now, call now | copy 0: action, state, images, images | copy 1 …
//! ```
//!
//! The process counts the places in the same way (`rrun_worker.py`). Each command names the one of
//! two places into which images are written. Those in the other one may not have been looked at
//! yet: whoever looks first copies them out, in its own thread. If nobody does, nothing is copied.

use std::collections::BTreeMap;
use std::io;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use bytes::Bytes;

use crate::env::python::hello::Hello;
use crate::env::python::message::{Entry, Reply};
use crate::env::{Frame, ImageSize, Observation, Pixels};
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
/// Places for the images of a copy.
const SLOTS: usize = 2;
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
    states: Vec<Range<usize>>,
    cameras: [Vec<Range<usize>>; SLOTS],
}

impl Layout {
    fn new(hello: &Hello, copies: usize) -> Result<Self, String> {
        let (mut free, shown) = (Places::default(), &hello.interface);
        let action = free.take(shown.action.names.len() * 4);
        let lengths = shown.state.iter().map(|(_, length)| length * 4);
        let states = lengths.map(|bytes| free.take(bytes)).collect();
        let numbers = free.0;
        let mut images = || -> Vec<_> {
            let cameras = shown.cameras.iter().map(|camera| {
                let (height, width) = (camera.height, camera.width);
                ImageSize { height, width }.rgb_bytes()
            });
            cameras.map(|bytes| free.take(bytes)).collect()
        };
        let cameras = [images(), images()];
        let copy = free.0;
        let shown = numbers + (copy - numbers) / SLOTS;
        if shown > LARGEST_OBSERVATION {
            return Err(format!(
                "shows {shown} bytes at once, expected at most {LARGEST_OBSERVATION}"
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

    /// Returns where a copy begins.
    fn begin(&self, local: usize) -> usize {
        LINE + self.copy * local
    }
}

/// The shared memory of one process.
pub struct CopyMemory {
    shared: Arc<SharedMemory>,
    layout: Layout,
    images: Vec<CopyImages>,
}

/// The images of a copy.
#[derive(Clone, Default)]
struct CopyImages {
    /// Those in each place.
    shown: [Vec<Pixels>; SLOTS],
    /// The place that was written last.
    latest: usize,
}

impl CopyMemory {
    /// Gives a process the memory that it needs.
    ///
    /// # Errors
    /// Returns why it cannot be given that, as a clause about the process.
    pub fn new(worker: &Worker, hello: &Hello, copies: usize) -> Result<Self, String> {
        let layout = Layout::new(hello, copies)?;
        let images = SLOTS * copies * hello.interface.cameras.len();
        let shared = worker.memory(layout.bytes, images.max(1)).map_err(|err| {
            let bytes = layout.bytes;
            format!("cannot be given {bytes} bytes of shared memory: {err}")
        })?;
        Ok(Self {
            shared: Arc::new(shared),
            layout,
            images: vec![CopyImages::default(); copies],
        })
    }

    /// Writes the action of a copy.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn act(&self, local: usize, action: &[f32]) -> io::Result<()> {
        let place = self.layout.begin(local) + self.layout.action.start;
        self.shared.write(place, &bytes_of(action))
    }

    /// Returns the place into which a copy may write its next images: one that nobody holds, or
    /// that of the older images, which are copied out then.
    pub fn next_slot(&mut self, local: usize) -> u8 {
        let CopyImages { shown, latest } = &mut self.images[local];
        let is_free = |images: &Vec<Pixels>| images.iter().all(Pixels::is_alone);
        *latest = shown.iter().position(is_free).unwrap_or(1 - *latest);
        for held in shown[*latest].drain(..).filter(|image| !image.is_alone()) {
            held.bytes();
        }
        *latest as u8
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

    /// Copies out all numbers that a copy has written, with one read.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn read(&self, local: usize) -> io::Result<Bytes> {
        let begin = self.layout.begin(local);
        self.shared.read(begin..begin + self.layout.numbers)
    }

    /// Returns the action that the environment took, from the bytes of [`CopyMemory::read`].
    pub fn action(&self, bytes: &[u8]) -> Vec<f32> {
        numbers(&bytes[self.layout.action.clone()])
    }

    /// Returns the observation with the numbers in the bytes of [`CopyMemory::read`].
    ///
    /// # Errors
    /// Returns the problem that the process reported, or the first value that is not a finite
    /// number.
    pub fn observe(
        &mut self,
        hello: &Hello,
        bytes: &Bytes,
        (entry, reply): (&Entry, &Reply),
        language: &Arc<str>,
    ) -> Result<Observation, String> {
        if let Some(reason) = &reply.told.wrong {
            return Err(reason.clone());
        }
        let mut state = BTreeMap::new();
        for ((name, _), range) in hello.interface.state.iter().zip(&self.layout.states) {
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
        let video = match entry.slot {
            Some(slot) => self.images(hello, usize::from(entry.local), usize::from(slot)),
            None => BTreeMap::new(),
        };
        Ok(Observation {
            state,
            video,
            language: Arc::clone(language),
            sim_state: BTreeMap::new(),
            feedback: reply.told.feedback.clone().map(Arc::new),
        })
    }

    /// Returns the images that a copy has written into a place.
    fn images(&mut self, hello: &Hello, local: usize, slot: usize) -> BTreeMap<String, Frame> {
        let begin = self.layout.begin(local);
        let cameras = hello.interface.cameras.iter();
        let frames = cameras.zip(&self.layout.cameras[slot]);
        let frames = frames.map(|(camera, place)| {
            let (shared, range) = (
                Arc::clone(&self.shared),
                begin + place.start..begin + place.end,
            );
            let copy = move || {
                shared
                    .read(range)
                    .expect("memory of a sealed size is there")
            };
            let rgb = Pixels::copied(place.len(), copy);
            self.images[local].shown[slot].push(rgb.clone());
            let (height, width) = (camera.height, camera.width);
            (camera.name.clone(), Frame { height, width, rgb })
        });
        frames.collect()
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
                let begin = layout.begin(copy);
                prop_assert_eq!(&layout.action, &(0..dim * 4));
                let images = || layout.cameras.iter().flatten();
                let parts = layout.states.iter().chain([&layout.action]).chain(images());
                ranges.extend(parts.map(|part| begin + part.start..begin + part.end));
                prop_assert!(layout.states.iter().all(|part| part.end <= layout.numbers));
                prop_assert!(images().all(|part| part.end <= layout.copy));
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
