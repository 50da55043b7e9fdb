//! Unwinds captured stacks by the unwind tables of the mapped files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder};

use crate::capture::{CapturedThread, Registers};
use crate::elf::{self, UnwindTables};
use crate::maps::Mapping;
use crate::symbols;

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{
    CacheAarch64 as Cache, UnwindRegsAarch64 as UnwindRegisters, UnwinderAarch64 as NativeUnwinder,
};
#[cfg(target_arch = "x86_64")]
use framehop::x86_64::{
    CacheX86_64 as Cache, UnwindRegsX86_64 as UnwindRegisters, UnwinderX86_64 as NativeUnwinder,
};

/// Frames beyond this number are left out.
const MAX_FRAMES: usize = 256;

/// Unwind tables and names of functions of files, shared by all processes that have mapped them.
#[derive(Debug, Default)]
pub struct Files {
    tables: BTreeMap<PathBuf, Option<Arc<UnwindTables>>>,
    /// Names by address in the file; `None` for an address without a name.
    names: BTreeMap<PathBuf, BTreeMap<u64, Option<String>>>,
}

/// An address in the code of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CodeAddress {
    /// The file, as the process names it; `None` for code that belongs to no file.
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
    /// Files whose tables the unwinder has, with the distance of their addresses in memory.
    loaded: BTreeMap<PathBuf, Option<u64>>,
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
        let Some(registers) = thread.registers else {
            return Vec::new();
        };
        loop {
            let addresses = self.addresses(registers, thread);
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

    fn addresses(&self, registers: Registers, thread: &CapturedThread) -> Vec<u64> {
        let mut read = |address| thread.stack.word(address).ok_or(());
        let mut cache = Cache::<framehop::MayAllocateDuringUnwind>::new();
        let start = unwind_registers(registers);
        let mut frames =
            self.unwinder
                .iter_frames(registers.instruction, start, &mut cache, &mut read);
        let mut addresses = Vec::new();
        while addresses.len() < MAX_FRAMES
            && let Ok(Some(frame)) = frames.next()
        {
            addresses.push(lookup_address(frame));
        }
        addresses
    }

    /// Adds the file at `address` to the unwinder. Returns whether that was necessary.
    fn load(&mut self, address: u64) -> bool {
        let Some(mapping) = self.mapping(address) else {
            return false;
        };
        let path = mapping.path.clone();
        if self.loaded.contains_key(&path) {
            return false;
        }
        let tables = self.files.tables(&self.root, &path);
        let bias = tables.as_deref().and_then(|tables| bias(mapping, tables));
        if let (Some(tables), Some(bias)) = (tables, bias) {
            let addresses = self.extent(&path);
            let name = path.to_string_lossy().into_owned();
            let sections = sections(&tables);
            self.unwinder
                .add_module(Module::new(name, addresses, bias, sections));
        }
        self.loaded.insert(path, bias);
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
    fn extent(&self, path: &Path) -> std::ops::Range<u64> {
        let of_file = || self.mappings.iter().filter(|mapping| mapping.path == path);
        let start = of_file().map(|mapping| mapping.addresses.start).min();
        let end = of_file().map(|mapping| mapping.addresses.end).max();
        start.unwrap_or(0)..end.unwrap_or(0)
    }

    fn in_file(&self, address: u64) -> CodeAddress {
        let mapping = self.mapping(address);
        let bias = mapping.and_then(|mapping| *self.loaded.get(&mapping.path)?);
        match (mapping, bias) {
            (Some(mapping), Some(bias)) => CodeAddress {
                file: Some(mapping.path.clone()),
                address: address.wrapping_sub(bias),
            },
            (Some(mapping), None) => CodeAddress {
                file: Some(mapping.path.clone()),
                address,
            },
            (None, _) => CodeAddress {
                file: None,
                address,
            },
        }
    }
}

impl Files {
    fn tables(&mut self, root: &Path, path: &Path) -> Option<Arc<UnwindTables>> {
        let file = in_root(root, path);
        let tables = self
            .tables
            .entry(file.clone())
            .or_insert_with(|| elf::unwind_tables(&file).ok().map(Arc::new));
        tables.clone()
    }

    /// Returns the names of functions at these addresses of a file. Ranks mostly stand at the same
    /// addresses, so the symbols of a file are searched once, and not for each process.
    fn names(&mut self, file: PathBuf, wanted: &[u64]) -> &BTreeMap<u64, Option<String>> {
        let known = self.names.entry(file.clone()).or_default();
        let is_new = |address: &u64| !known.contains_key(address);
        let new: Vec<u64> = wanted.iter().copied().filter(is_new).collect();
        if !new.is_empty() {
            let functions = elf::functions(&file, &new).unwrap_or_else(|_| vec![None; new.len()]);
            let name = |function: elf::Function| symbols::readable(&function.name);
            let names = functions.into_iter().map(|function| function.map(name));
            known.extend(new.into_iter().zip(names));
        }
        known
    }
}

/// Returns the names of functions at these addresses. Files are read as the process `pid` sees them.
pub fn names(
    pid: i32,
    addresses: &[CodeAddress],
    files: &mut Files,
) -> BTreeMap<CodeAddress, String> {
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let mut by_file: BTreeMap<&Path, Vec<u64>> = BTreeMap::new();
    for address in addresses {
        if let Some(file) = &address.file {
            by_file.entry(file).or_default().push(address.address);
        }
    }
    let mut names = BTreeMap::new();
    for (file, mut wanted) in by_file {
        wanted.sort_unstable();
        wanted.dedup();
        let known = files.names(in_root(&root, file), &wanted);
        for address in wanted {
            let Some(Some(name)) = known.get(&address) else {
                continue;
            };
            let at = CodeAddress {
                file: Some(file.to_path_buf()),
                address,
            };
            names.insert(at, name.clone());
        }
    }
    names
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
    let segment = tables.segments.iter().find(|segment| {
        let start = segment.offset / PAGE * PAGE;
        start == mapping.offset
    })?;
    Some(
        mapping
            .addresses
            .start
            .wrapping_sub(segment.address / PAGE * PAGE),
    )
}

fn sections(tables: &UnwindTables) -> ExplicitModuleSectionInfo<Arc<[u8]>> {
    let bytes = |section: &Option<elf::Section>| Some(Arc::clone(&section.as_ref()?.bytes));
    let addresses = |section: &Option<elf::Section>| Some(section.as_ref()?.addresses.clone());
    ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: tables.text.clone(),
        got_svma: tables.got.clone(),
        eh_frame_svma: addresses(&tables.eh_frame),
        eh_frame: bytes(&tables.eh_frame),
        eh_frame_hdr_svma: addresses(&tables.eh_frame_hdr),
        eh_frame_hdr: bytes(&tables.eh_frame_hdr),
        ..ExplicitModuleSectionInfo::default()
    }
}

/// Returns the address by which the function of a frame is found: a return address may already
/// belong to the next function.
fn lookup_address(frame: FrameAddress) -> u64 {
    frame.address_for_lookup()
}

#[cfg(target_arch = "x86_64")]
fn unwind_registers(registers: Registers) -> UnwindRegisters {
    UnwindRegisters::new(registers.instruction, registers.stack, registers.frame)
}

#[cfg(target_arch = "aarch64")]
fn unwind_registers(registers: Registers) -> UnwindRegisters {
    UnwindRegisters::new(registers.link, registers.stack, registers.frame)
}
