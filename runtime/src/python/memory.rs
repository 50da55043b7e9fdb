//! Memory that this process shares with a Python process, of a simulator or of a policy: a memfd,
//! and the unsafe code for it.
//!
//! The simulator may write to it at any moment. So this module creates no reference into it, and
//! makes no access that the compiler knows of. Bytes are copied out by one CPU instruction
//! (x86-64) or by the kernel (elsewhere, and for short and for first writes). What a simulator
//! does meanwhile changes values and nothing else. What is written often, the batches of a policy,
//! is copied in by the same instruction.
//!
//! Buffers are reused after the last reference to their bytes is dropped, because new pages cost
//! more than the copy.
//!
//! A memfd is inherited by the child, holds its configuration until it has read it, and is sized
//! after the child has said what it is; then it is sealed. Offsets into it are computed here,
//! never read from it. Every bit pattern is a valid number, and every byte a valid colour.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{Errno, pread, pwrite};
use rustix::process::{Resource, getrlimit};

/// Creates a memfd without a size, with close-on-exec until it is given to a child.
pub fn create() -> io::Result<OwnedFd> {
    Ok(memfd_create(
        "rrun-env",
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    )?)
}

/// Writes what the process finds in its memory when it starts.
pub fn fill(memfd: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    check_limit(bytes.len())?;
    write_all(memfd, 0, bytes)
}

fn write_all(memfd: &OwnedFd, offset: usize, bytes: &[u8]) -> io::Result<()> {
    let mut written = 0;
    while written < bytes.len() {
        match pwrite(memfd, &bytes[written..], (offset + written) as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => written += count,
            Err(Errno::INTR) => {}
            Err(err) => return Err(err.into()),
        }
    }
    Ok(())
}

/// Refuses a size that exceeds `ulimit -f`: a memfd counts as a file, and exceeding the limit
/// raises a signal that ends this process (SIGXFSZ).
fn check_limit(len: usize) -> io::Result<()> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < len as u64 => {
            let reason = format!("files may have {limit} bytes here (`ulimit -f`)");
            Err(io::Error::new(io::ErrorKind::FileTooLarge, reason))
        }
        _ => Ok(()),
    }
}

/// Parts of the memory, one after the other; the process counts in the same way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Places(pub usize);

impl Places {
    /// Takes the next part. It begins at a multiple of 64 bytes: a cache line, and more than the
    /// alignment of any number.
    pub fn take(&mut self, bytes: usize) -> Range<usize> {
        let begin = self.0;
        self.0 = (begin + bytes).next_multiple_of(64);
        begin..begin + bytes
    }
}

/// A mapping of the memfd, from which or into which bytes are copied.
#[cfg(target_arch = "x86_64")]
#[derive(Debug)]
struct Mapping {
    begin: std::ptr::NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is not bound to a thread. Its copies need no ordering: another process may
// read and write the same bytes at any moment anyway.
#[cfg(target_arch = "x86_64")]
unsafe impl Send for Mapping {}
// SAFETY: as above.
#[cfg(target_arch = "x86_64")]
unsafe impl Sync for Mapping {}

#[cfg(target_arch = "x86_64")]
impl Mapping {
    /// Maps a memfd, which must be sealed against shrinking: an access beyond a shorter end would
    /// raise SIGBUS.
    fn new(memfd: &OwnedFd, len: usize, access: rustix::mm::ProtFlags) -> io::Result<Self> {
        use rustix::mm::{MapFlags, mmap};
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no memory in use.
        let begin = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                access,
                MapFlags::SHARED,
                memfd,
                0,
            )?
        };
        let begin = std::ptr::NonNull::new(begin.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { begin, len })
    }

    /// Appends the bytes of `range` to `bytes`, which must have room. Takes a third of the time of
    /// `pread`, which copies page by page.
    fn append(&self, range: &Range<usize>, bytes: &mut Vec<u8>) {
        assert!(
            range.start <= range.end
                && range.end <= self.len
                && bytes.capacity() - bytes.len() >= range.len()
        );
        // SAFETY: source and destination are as long as the assertion says, and do not overlap,
        // because the mapping is not part of a vector. The bytes may change while they are copied:
        // the compiler knows of no access to them, because the assembly instruction makes it, and
        // every byte is a valid `u8`. The direction flag is clear by the calling convention.
        unsafe {
            std::arch::asm!(
                "rep movsb",
                inout("rcx") range.len() => _,
                inout("rsi") self.begin.as_ptr().add(range.start) => _,
                inout("rdi") bytes.as_mut_ptr().add(bytes.len()) => _,
                options(nostack, preserves_flags)
            );
            bytes.set_len(bytes.len() + range.len());
        }
    }

    /// Copies bytes to an offset of a mapping that was made for writing. `pwrite`, which looks every
    /// page up, takes five times as long (32 pictures of 224 × 224: 640 µs and 130 µs).
    fn put(&self, offset: usize, bytes: &[u8]) {
        assert!(offset <= self.len && bytes.len() <= self.len - offset);
        // SAFETY: source and destination are as long as the assertion says, and do not overlap,
        // because the mapping is not part of a slice. The compiler knows of no access to the
        // mapping, as above; no reference to it exists.
        unsafe {
            std::arch::asm!(
                "rep movsb",
                inout("rcx") bytes.len() => _,
                inout("rsi") bytes.as_ptr() => _,
                inout("rdi") self.begin.as_ptr().add(offset) => _,
                options(nostack, preserves_flags)
            );
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `begin` and `len` are those of the mapping, to which no reference exists. An
        // error could only mean that they are not.
        unsafe { rustix::mm::munmap(self.begin.as_ptr().cast(), self.len) }.ok();
    }
}

/// A memfd of a fixed size. Its pages are freed after this value is dropped and the child has
/// exited.
#[derive(Debug)]
pub struct SharedMemory {
    memfd: Arc<OwnedFd>,
    #[cfg(target_arch = "x86_64")]
    mapping: Mapping,
    /// For [`SharedMemory::overwrite`].
    #[cfg(target_arch = "x86_64")]
    for_writing: Option<Mapping>,
    /// Its length in bytes.
    len: usize,
    buffers: Arc<Buffers>,
}

/// A pool of unused buffers.
#[derive(Debug)]
struct Buffers {
    free: Mutex<Vec<Vec<u8>>>,
    /// Maximum number of buffers kept; recordings may use many more for a while.
    most: usize,
}

impl Buffers {
    /// Returns an empty buffer.
    fn take(&self) -> Vec<u8> {
        self.free
            .lock()
            .ok()
            .and_then(|mut free| free.pop())
            .unwrap_or_default()
    }

    fn give_back(&self, mut buffer: Vec<u8>) {
        if let Ok(mut free) = self.free.lock()
            && free.len() < self.most
        {
            buffer.clear();
            free.push(buffer);
        }
    }
}

/// Bytes that were copied out; their buffer returns to the pool when the last reference is dropped.
struct Copied {
    bytes: Vec<u8>,
    buffers: Arc<Buffers>,
}

impl AsRef<[u8]> for Copied {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        self.buffers.give_back(std::mem::take(&mut self.bytes));
    }
}

impl SharedMemory {
    /// Sets the size of the memfd (in bytes, above 0) for good. At most `buffers` unused buffers
    /// are kept.
    ///
    /// # Errors
    /// Returns an error if the size exceeds `ulimit -f`, or the error of the system: a child may
    /// have sealed the memfd.
    pub fn with_size(memfd: &Arc<OwnedFd>, len: usize, buffers: usize) -> io::Result<Self> {
        check_limit(len)?;
        // What the process was started with is not left in it.
        ftruncate(memfd, 0)?;
        ftruncate(memfd, len as u64)?;
        fcntl_add_seals(memfd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let buffers = Arc::new(Buffers {
            free: Mutex::default(),
            most: buffers,
        });
        Ok(Self {
            memfd: Arc::clone(memfd),
            #[cfg(target_arch = "x86_64")]
            mapping: Mapping::new(memfd, len, rustix::mm::ProtFlags::READ)?,
            #[cfg(target_arch = "x86_64")]
            for_writing: None,
            len,
            buffers,
        })
    }

    /// Maps the memory for writing, too, which makes [`SharedMemory::overwrite`] fast.
    ///
    /// # Errors
    /// Returns the error of the system: a child may have sealed the memfd.
    pub fn map_for_writing(&mut self) -> io::Result<()> {
        #[cfg(target_arch = "x86_64")]
        {
            use rustix::mm::ProtFlags;
            let access = ProtFlags::READ | ProtFlags::WRITE;
            self.for_writing = Some(Mapping::new(&self.memfd, self.len, access)?);
        }
        Ok(())
    }

    /// Copies the bytes of `range` out.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn read(&self, range: Range<usize>) -> io::Result<Bytes> {
        self.check(&range);
        let mut copied = Copied {
            bytes: self.buffers.take(),
            buffers: Arc::clone(&self.buffers),
        };
        let bytes = &mut copied.bytes;
        bytes.try_reserve_exact(range.len())?;
        #[cfg(target_arch = "x86_64")]
        self.mapping.append(&range, bytes);
        while bytes.len() < range.len() {
            let place = (range.start + bytes.len()) as u64;
            match pread(&self.memfd, spare_capacity(bytes), place) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(err) => return Err(err.into()),
            }
        }
        // The buffer may be larger than the range.
        bytes.truncate(range.len());
        Ok(Bytes::from_owner(copied))
    }

    /// Writes bytes at an offset.
    ///
    /// # Errors
    /// Returns the error of the system: it may be out of memory.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        self.check(&(offset..offset + bytes.len()));
        write_all(&self.memfd, offset, bytes)
    }

    /// Writes bytes where [`SharedMemory::write`] has written before. The pages exist then;
    /// a page that the system had no memory for would raise SIGBUS.
    ///
    /// # Errors
    /// As [`SharedMemory::write`].
    pub fn overwrite(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        #[cfg(target_arch = "x86_64")]
        if let Some(mapping) = &self.for_writing {
            mapping.put(offset, bytes);
            return Ok(());
        }
        self.write(offset, bytes)
    }

    /// Panics if `range` is out of bounds, which cannot happen because all ranges come from our own
    /// layout.
    fn check(&self, range: &Range<usize>) {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "bytes {range:?} are outside of {}",
            self.len
        );
    }
}

/// Converts bytes to numbers; an incomplete number at the end is dropped.
pub fn numbers(bytes: &[u8]) -> Vec<f32> {
    let (numbers, _) = bytes.as_chunks();
    let numbers = numbers.iter().map(|number| f32::from_ne_bytes(*number));
    numbers.collect()
}

/// Converts numbers to bytes.
pub fn bytes_of(numbers: &[f32]) -> Vec<u8> {
    let bytes = numbers.iter().map(|number| number.to_ne_bytes());
    bytes.collect::<Vec<_>>().into_flattened()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(len: usize) -> SharedMemory {
        SharedMemory::with_size(&Arc::new(create().unwrap()), len, 1).unwrap()
    }

    #[test]
    fn numbers_come_back_as_they_were_written() {
        let memory = memory(4096);
        memory
            .write(64, &bytes_of(&[1.5, f32::INFINITY, -0.0]))
            .unwrap();
        let seen = numbers(&memory.read(64..76).unwrap());
        assert_eq!(seen, [1.5, f32::INFINITY, -0.0]);
        assert_eq!(memory.read(60..64).unwrap()[..], [0; 4]);
    }

    #[test]
    fn nobody_can_cut_it_short_or_lengthen_it() {
        let memory = memory(8192);
        for length in [0, 1 << 20] {
            assert_eq!(ftruncate(&memory.memfd, length), Err(Errno::PERM));
        }
    }

    #[test]
    fn a_memfd_that_its_child_has_sealed_is_an_error() {
        let sealed = |seals| {
            let memfd = Arc::new(create().unwrap());
            fcntl_add_seals(&memfd, seals).unwrap();
            SharedMemory::with_size(&memfd, 4096, 1)
        };
        let refused = sealed(SealFlags::GROW).unwrap_err();
        let unwritten = sealed(SealFlags::WRITE)
            .unwrap()
            .write(0, &bytes_of(&[1.0]))
            .unwrap_err();
        for err in [refused, unwritten] {
            assert_eq!(err.kind(), io::ErrorKind::PermissionDenied);
        }
    }

    #[test]
    fn what_is_overwritten_is_seen_by_whoever_reads_the_memory() {
        let mut memory = memory(8192);
        memory.write(4090, b"0123456789").unwrap();
        memory.overwrite(4092, b"abc").unwrap();
        memory.map_for_writing().unwrap();
        memory.overwrite(4094, b"xyz").unwrap();
        let mut seen = [0; 10];
        rustix::io::pread(&memory.memfd, &mut seen, 4090).unwrap();
        assert_eq!(&seen, b"01abxyz789");
        assert_eq!(memory.read(4090..4100).unwrap()[..], seen);
        memory.overwrite(8190, b"ab").unwrap();
        memory.overwrite(8192, b"").unwrap();
    }

    #[test]
    #[should_panic(expected = "assertion")]
    fn nothing_is_written_outside() {
        let mut memory = memory(4096);
        memory.map_for_writing().unwrap();
        memory.overwrite(4095, b"ab").ok();
    }

    #[test]
    fn what_was_read_stays_as_it_was() {
        let memory = memory(4096);
        rustix::io::pwrite(&memory.memfd, b"abc", 100).unwrap();
        let seen = memory.read(100..103).unwrap();
        rustix::io::pwrite(&memory.memfd, b"xyz", 100).unwrap();
        assert_eq!(seen[..], *b"abc");
        assert_eq!(memory.read(100..103).unwrap()[..], *b"xyz");
    }

    #[test]
    fn a_buffer_is_used_again_when_the_last_part_of_it_is_dropped() {
        let memory = memory(4096);
        rustix::io::pwrite(&memory.memfd, b"abc", 0).unwrap();
        let first = memory.read(0..2000).unwrap();
        let (place, part) = (first.as_ptr(), first.slice(0..3));
        drop(first);
        let second = memory.read(0..2000).unwrap();
        assert_ne!(second.as_ptr(), place, "a part of the first is still there");
        assert_eq!(&part[..], b"abc");
        drop(part);
        drop(second);
        let kept = memory.buffers.free.lock().unwrap().len();
        assert_eq!(kept, 1, "no more are kept than was said");
        assert_eq!(memory.read(0..3000).unwrap().len(), 3000);
        assert_eq!(memory.read(0..3).unwrap()[..], *b"abc");
    }

    #[test]
    #[should_panic(expected = "outside")]
    fn what_is_outside_is_not_looked_at() {
        memory(4096).read(4000..4097).ok();
    }
}
