//! Unwinds captured stacks by the unwind tables of the mapped files.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use framehop::{Module, Unwinder};

use crate::capture::CapturedThread;
use crate::elf::{self, UnwindTables};

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{CacheAarch64 as Cache, UnwinderAarch64 as NativeUnwinder};
#[cfg(target_arch = "x86_64")]
use framehop::x86_64::{CacheX86_64 as Cache, UnwinderX86_64 as NativeUnwinder};

/// Frames beyond this number are left out.
const MAX_FRAMES: usize = 256;

/// Mappings beyond this number are ignored; a process with all of PyTorch has about 2 000.
const MAX_MAPPINGS: usize = 65_536;

/// A mapping of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its addresses in the process.
    pub addresses: Range<u64>,
    /// Offset in the file of its first byte.
    pub offset: u64,
    /// Whether it contains code.
    pub is_executable: bool,
    /// Path of the file as the process sees it, or a name such as `[stack]`.
    pub path: PathBuf,
}

/// Parses the contents of `/proc/<pid>/maps`. Anonymous mappings and unreadable lines are left out.
pub fn mappings(text: &str) -> Vec<Mapping> {
    text.lines()
        .filter_map(mapping)
        .take(MAX_MAPPINGS)
        .collect()
}

/// Parses one line: `55e0-55f0 r-xp 00001000 08:01 1234   /usr/bin/cat`.
fn mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let offset = hex(fields.next()?)?;
    let path = fields.nth(2)?.trim_start();
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    (!path.is_empty()).then_some(Mapping {
        addresses: hex(start)?..hex(end)?,
        offset,
        is_executable: permissions.contains('x'),
        path: PathBuf::from(path),
    })
}

fn hex(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

/// Unwind tables and names of functions of files, shared by all processes that have mapped them:
/// ranks mostly stand at the same addresses.
#[derive(Debug, Default)]
pub struct Files {
    tables: BTreeMap<PathBuf, Option<Arc<UnwindTables>>>,
    names: BTreeMap<CodeAddress, Option<String>>,
}

/// An address in the code of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CodeAddress {
    /// The file, as this process names it; `None` for code that belongs to no file.
    pub file: Option<PathBuf>,
    /// The address in the file, or in memory if it belongs to no file.
    pub address: u64,
}

/// Unwinds the stacks of one process.
pub struct ProcessUnwinder<'a> {
    root: PathBuf,
    mappings: &'a [Mapping],
    files: &'a mut Files,
    unwinder: NativeUnwinder<Arc<[u8]>>,
    /// Files whose tables the unwinder has, with their path for this process and the distance of their
    /// addresses in memory.
    loaded: BTreeMap<PathBuf, (PathBuf, Option<u64>)>,
}

impl<'a> ProcessUnwinder<'a> {
    /// Creates the unwinder of the process `pid` with these mappings.
    pub fn new(pid: i32, mappings: &'a [Mapping], files: &'a mut Files) -> ProcessUnwinder<'a> {
        ProcessUnwinder {
            root: PathBuf::from(format!("/proc/{pid}/root")),
            mappings,
            files,
            unwinder: NativeUnwinder::new(),
            loaded: BTreeMap::new(),
        }
    }

    /// Returns the addresses of the frames of `thread`, innermost first.
    pub fn unwind(&mut self, thread: &CapturedThread) -> Vec<CodeAddress> {
        loop {
            let addresses = self.addresses(thread);
            // A file is loaded when the first frame in its code is met; then the frames behind it
            // have to be found anew.
            let is_new = addresses.iter().any(|address| self.load(*address));
            if !is_new {
                return addresses
                    .into_iter()
                    .map(|address| self.in_file(address))
                    .collect();
            }
        }
    }

    fn addresses(&self, thread: &CapturedThread) -> Vec<u64> {
        let Some((instruction, registers)) = thread.registers else {
            return Vec::new();
        };
        let mut read = |address| thread.stack.word(address).ok_or(());
        let mut cache = Cache::<framehop::MayAllocateDuringUnwind>::new();
        let unwinder = &self.unwinder;
        let mut frames = unwinder.iter_frames(instruction, registers, &mut cache, &mut read);
        let mut addresses = Vec::new();
        while addresses.len() < MAX_FRAMES
            && let Ok(Some(frame)) = frames.next()
        {
            // A return address may already belong to the next function.
            addresses.push(frame.address_for_lookup());
        }
        addresses
    }

    /// Adds the file at `address` to the unwinder. Returns whether that was necessary.
    fn load(&mut self, address: u64) -> bool {
        let Some(mapping) = self.mapping(address) else {
            return false;
        };
        let path = &mapping.path;
        if self.loaded.contains_key(path) {
            return false;
        }
        let file = in_root(&self.root, path);
        let tables = self.files.tables.entry(file.clone());
        let tables = tables.or_insert_with(|| elf::unwind_tables(&file).map(Arc::new));
        let tables = tables.clone();
        let bias = tables.as_deref().and_then(|tables| bias(mapping, tables));
        if let (Some(tables), Some(bias)) = (tables, bias) {
            let name = path.to_string_lossy().into_owned();
            let module = Module::new(name, self.extent(path), bias, tables.sections.clone());
            self.unwinder.add_module(module);
        }
        self.loaded.insert(path.clone(), (file, bias));
        true
    }

    fn mapping(&self, address: u64) -> Option<&'a Mapping> {
        let code = self
            .mappings
            .iter()
            .filter(|mapping| mapping.is_executable && mapping.path.is_absolute());
        code.into_iter()
            .find(|mapping| mapping.addresses.contains(&address))
    }

    /// Returns the addresses from the first to the last mapping of the file.
    fn extent(&self, path: &Path) -> Range<u64> {
        let of_file = || self.mappings.iter().filter(|mapping| mapping.path == path);
        let start = of_file().map(|mapping| mapping.addresses.start).min();
        let end = of_file().map(|mapping| mapping.addresses.end).max();
        start.unwrap_or(0)..end.unwrap_or(0)
    }

    fn in_file(&self, address: u64) -> CodeAddress {
        let mapping = self.mapping(address);
        let loaded = mapping.and_then(|mapping| self.loaded.get(&mapping.path));
        CodeAddress {
            file: loaded.map(|(file, _)| file.clone()),
            address: address.wrapping_sub(loaded.and_then(|(_, bias)| *bias).unwrap_or(0)),
        }
    }
}

impl Files {
    /// Finds the names of functions at these addresses, of those that are new.
    pub fn learn<'a>(&mut self, addresses: impl Iterator<Item = &'a CodeAddress>) {
        let mut by_file: BTreeMap<&Path, BTreeSet<u64>> = BTreeMap::new();
        for at in addresses.filter(|at| !self.names.contains_key(at)) {
            if let Some(file) = &at.file {
                by_file.entry(file).or_default().insert(at.address);
            }
        }
        for (file, addresses) in by_file {
            let addresses: Vec<u64> = addresses.into_iter().collect();
            let names = elf::functions(file, &addresses);
            for (address, name) in addresses.into_iter().zip(names) {
                let file = Some(file.to_path_buf());
                self.names.insert(CodeAddress { file, address }, name);
            }
        }
    }

    /// Returns the name of the function at this address, if it is known.
    pub fn name(&self, at: &CodeAddress) -> Option<&String> {
        self.names.get(at)?.as_ref()
    }
}

/// Returns the path of a file of the process, which may have another root folder. The same files of
/// several processes should be read once, so the process's root is only used if it is needed.
fn in_root(root: &Path, path: &Path) -> PathBuf {
    if path.is_file() {
        return path.to_path_buf();
    }
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Returns how far the addresses in memory are from those in the file.
fn bias(mapping: &Mapping, tables: &UnwindTables) -> Option<u64> {
    const PAGE: u64 = 4096;
    let is_it = |(offset, _): &&(u64, u64)| offset / PAGE * PAGE == mapping.offset;
    let (_, address) = tables.segments.iter().find(is_it)?;
    let start = mapping.addresses.start;
    Some(start.wrapping_sub(address / PAGE * PAGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_has_addresses_offset_and_path() {
        let text = "55e0a000-55e0f000 r-xp 00002000 fe:00 397 \
                    /usr/bin/a program (deleted)\n7ffd0000-7ffd1000 rw-p 00000000 00:00 0 \n";
        let expected = Mapping {
            addresses: 0x55e0_a000..0x55e0_f000,
            offset: 0x2000,
            is_executable: true,
            path: PathBuf::from("/usr/bin/a program"),
        };
        assert_eq!(mappings(text), [expected]);
    }

    #[test]
    fn lines_that_are_no_mappings_are_left_out() {
        assert_eq!(
            mappings("\n-\nx-y r-xp 0 0 0 /a\n1-2\n1-2 r-xp z 0 0 /a"),
            []
        );
    }
}
