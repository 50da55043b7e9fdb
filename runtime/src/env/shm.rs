//! Memory that this process and a simulator's process both see. The unsafe file of the bridge.
//!
//! A memfd is made empty, inherited by the child, and given its size once the child has said what it shows; then it is
//! sealed, so that nobody can cut it short under a reader (which would be a SIGBUS). Places in it are decided here,
//! never read from it: what the child writes is only ever taken for numbers and pixels, of which every bit pattern is
//! one.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A memfd without a size, closed on `exec` until it is given to a child.
pub fn create() -> io::Result<OwnedFd> {
    Ok(memfd_create("rrun-env", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?)
}

/// A mapped memfd. Its pages go back to the system when the last view of it is dropped and the child is gone.
#[derive(Debug)]
pub struct SharedMemory {
    begin: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to no thread; what happens to its bytes is said at each access.
unsafe impl Send for SharedMemory {}
// SAFETY: as above; `&self` reads and writes through raw pointers, whose races are those with the child too.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Gives the memfd its size (bytes, above 0), once and for all, and maps it.
    pub fn map(memfd: &OwnedFd, len: usize) -> io::Result<Arc<Self>> {
        ftruncate(memfd, len as u64)?;
        fcntl_add_seals(memfd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
        let begin = unsafe {
            mmap(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, memfd.as_fd(), 0)?
        };
        let begin = NonNull::new(begin.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Arc::new(Self { begin, len }))
    }

    /// The `u32` at this byte offset, a multiple of 4.
    pub fn word(&self, offset: usize) -> u32 {
        self.check(&(offset..offset + 4), 4);
        // SAFETY: inside the mapping, which is page-aligned, so the word is aligned; it lives as long as `self`, and all
        // of our accesses to it are atomic.
        unsafe { AtomicU32::from_ptr(self.begin.as_ptr().add(offset).cast()) }.load(Ordering::Relaxed)
    }

    /// Copies numbers to this byte offset, a multiple of 4.
    pub fn write(&self, offset: usize, numbers: &[f32]) {
        self.check(&(offset..offset + size_of_val(numbers)), align_of::<f32>());
        // SAFETY: the range is inside the mapping and aligned; `numbers` is ours and elsewhere. The child reads it only
        // after the packet that is sent later.
        unsafe { ptr::copy_nonoverlapping(numbers.as_ptr(), self.begin.as_ptr().add(offset).cast(), numbers.len()) }
    }

    /// Copies `count` numbers out from this byte offset, a multiple of 4.
    pub fn read(&self, offset: usize, count: usize) -> Vec<f32> {
        self.check(&(offset..offset + count * size_of::<f32>()), align_of::<f32>());
        let mut numbers = Vec::with_capacity(count);
        // SAFETY: the range is inside the mapping and aligned, the vector has room for `count`, and every bit pattern
        // is an `f32`. A child that writes meanwhile, against the protocol, makes numbers that are torn, and no more.
        unsafe {
            ptr::copy_nonoverlapping(self.begin.as_ptr().add(offset).cast(), numbers.as_mut_ptr(), count);
            numbers.set_len(count);
        }
        numbers
    }

    /// A refusal to touch what is outside; ranges come from our own layout, so it is never seen.
    fn check(&self, range: &Range<usize>, align: usize) {
        assert!(range.start <= range.end && range.end <= self.len, "bytes {range:?} are outside of {}", self.len);
        assert!(range.start.is_multiple_of(align), "byte {} is not aligned to {align}", range.start);
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: `begin` and `len` are those of the mapping, and no view is left: each holds an `Arc` of this.
        // An error could only mean that they are not.
        unsafe { munmap(self.begin.as_ptr().cast(), self.len) }.ok();
    }
}

/// Bytes that are looked at in place. `G` is what has to stay alive, and taken, while they are.
pub struct View<G> {
    memory: Arc<SharedMemory>,
    range: Range<usize>,
    _guard: G,
}

impl<G> View<G> {
    /// Looks at these bytes; `guard` keeps the child from being told to write them.
    pub fn new(memory: Arc<SharedMemory>, range: Range<usize>, guard: G) -> Self {
        memory.check(&range, 1);
        Self { memory, range, _guard: guard }
    }
}

impl<G> AsRef<[u8]> for View<G> {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `new` has checked the range, the mapping lives as long as the view, and every byte is a `u8`. Nobody
        // of this process writes there; the child is told to write a slot only when no guard of it is left. A child
        // that does it all the same changes pixels, which nothing here depends on.
        unsafe { std::slice::from_raw_parts(self.memory.begin.as_ptr().add(self.range.start), self.range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    fn memory(len: usize) -> (OwnedFd, Arc<SharedMemory>) {
        let memfd = create().unwrap();
        let memory = SharedMemory::map(&memfd, len).unwrap();
        (memfd, memory)
    }

    #[test]
    fn numbers_come_back_as_they_were_written() {
        let (_memfd, memory) = memory(4096);
        memory.write(64, &[1.5, f32::INFINITY, -0.0]);
        assert_eq!(memory.read(64, 3), [1.5, f32::INFINITY, -0.0]);
        assert_eq!(memory.word(64), 1.5f32.to_bits());
    }

    #[test]
    fn nobody_can_cut_it_short_or_lengthen_it() {
        let (memfd, _memory) = memory(8192);
        assert_eq!(ftruncate(&memfd, 0), Err(Errno::PERM));
        assert_eq!(ftruncate(&memfd, 1 << 20), Err(Errno::PERM));
    }

    #[test]
    fn a_view_outlives_its_maker() {
        let (memfd, memory) = memory(4096);
        rustix::io::pwrite(&memfd, b"abc", 100).unwrap();
        let view = View::new(Arc::clone(&memory), 100..103, ());
        drop((memory, memfd));
        assert_eq!(view.as_ref(), b"abc");
    }

    #[test]
    #[should_panic(expected = "outside")]
    fn what_is_outside_is_not_looked_at() {
        let (_memfd, memory) = memory(4096);
        View::new(memory, 4000..4097, ());
    }
}
