//! Packages of `torch.export` and AOTInductor (`.pt2`): what they say about themselves, read
//! without running anything of them.
//!
//! ```text
//! policy.pt2 ─► archive ─┬─► AOTI_* (torch)          device, instruction set, GPU ─┐
//!                        ├─► rrun.inputs (exporter)  inputs, actions, batch        ├─► Package
//!                        └─► names and places of the compiled files                ┘
//! ```
//! A package is a zip file with the compiled library and its metadata. The launcher refuses one
//! that cannot run here; ranks compare it with their environment and their device, and load it.
//! Nothing else checks what the library was compiled for: an instruction that the CPU lacks ends
//! the process by SIGILL. Torch writes the metadata in torch/_inductor/codecache.py, torch 2.11:
//! `get_device_information`.

mod archive;
mod description;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::files;
use crate::installed::{TORCH, is_torch_of};
use crate::refusal::Refusal;

pub use archive::{Archive, Entry};
pub use description::{
    Batch, Cameras, Description, Input, Layout, Output, PixelKind, StateVector, TokenKind,
};

/// The command that writes packages, for errors.
pub const EXPORTER: &str = "python runtime/python/export_policy.py MODULE.py:FUNCTION OUT.pt2";

/// The key of the metadata that describes inputs and actions.
const INPUTS_KEY: &str = "rrun.inputs";

/// Largest metadata of a package in bytes; a description has a few hundred.
const MOST_METADATA: u64 = 1 << 20;

/// What a package says about itself.
#[derive(Clone, Debug)]
pub struct Package {
    /// Its path.
    pub path: PathBuf,
    /// Inputs, actions and batch sizes.
    pub description: Description,
    /// What it was compiled for.
    pub compiled_for: TorchKeys,
    /// Name of the compiled library among its files.
    pub library: String,
    files: Vec<Entry>,
}

impl Package {
    /// Reads the metadata of a package.
    ///
    /// # Errors
    /// Refuses a file that is not a package, or whose metadata is missing or wrong.
    pub fn read(path: &Path) -> Result<Self, Refusal> {
        let archive = files::open(path).and_then(|file| Archive::open(BufReader::new(file)));
        let archive = archive.map_err(unreadable);
        let read = archive.and_then(|mut archive| Self::of(path, &mut archive));
        read.map_err(|refusal| Refusal::in_file(path, refusal))
    }

    /// Reads the metadata of an open package.
    fn of<F: Read + Seek>(path: &Path, archive: &mut Archive<F>) -> Result<Self, Refusal> {
        let libraries = compiled(archive.entries());
        let libraries: Vec<_> = libraries
            .filter(|entry| entry.name.ends_with(".so"))
            .collect();
        let [library] = libraries[..] else {
            return Err(Refusal::new(format_args!(
                "it has {} compiled libraries in `data/aotinductor/`, expected 1; a package of one \
                 model without `package_cpp_only` has one",
                libraries.len()
            )));
        };
        let (folder, library_name) = split(&library.name);
        let metadata = format!("{}_metadata.json", library.name.trim_end_matches(".so"));
        let files: Vec<Entry> = compiled(archive.entries())
            .filter(|entry| split(&entry.name).0 == folder)
            .filter(|entry| !entry.name.ends_with(".cpp"))
            .cloned()
            .collect();
        if let Some(weights) = files.iter().find(|entry| entry.name.ends_with(".blob")) {
            return Err(Refusal::new(format_args!(
                "its weights are in `{}`, expected them in the library; export it without \
                 `package_constants_on_disk_format`",
                weights.name
            )));
        }
        let checked = files.iter().try_for_each(Entry::check);
        checked.map_err(unreadable)?;
        let library = library_name.to_owned();
        let of_torch = |refusal: Refusal| refusal.inside("its metadata");
        let Some(metadata) = archive.entry(&metadata).cloned() else {
            return Err(of_torch(missing("metadata")));
        };
        let bytes = archive.read(&metadata, MOST_METADATA).map_err(unreadable)?;
        let (compiled_for, others) = TorchKeys::parse(&bytes).map_err(of_torch)?;
        let Some(described) = others.get(INPUTS_KEY) else {
            return Err(Refusal::new(format_args!(
                "its metadata has no `{INPUTS_KEY}`, which says what its inputs are; `{EXPORTER}` \
                 writes it"
            )));
        };
        let description = Description::parse(described).map_err(|refusal| {
            Refusal::new(format_args!(
                "`{INPUTS_KEY}` in its metadata: {refusal}; `{EXPORTER}` writes it"
            ))
        })?;
        Ok(Self {
            path: path.to_owned(),
            description,
            compiled_for,
            library,
            files,
        })
    }

    /// Returns the size in bytes of the files that [`extract`](Self::extract) writes.
    pub fn extracted_bytes(&self) -> u64 {
        let sizes = self.files.iter().map(|entry| entry.size);
        sizes.fold(0, u64::saturating_add)
    }

    /// Writes the compiled files to `folder`, which must be empty.
    ///
    /// # Errors
    /// Returns the error of the file that could not be read or written.
    pub fn extract(&self, folder: &Path) -> io::Result<()> {
        let mut archive = Archive::open(BufReader::new(files::open(&self.path)?))?;
        for entry in &self.files {
            let (_, name) = split(&entry.name);
            let mut file = File::create_new(folder.join(name))?;
            archive.copy(entry, &mut file)?;
            file.flush()?;
        }
        Ok(())
    }

    /// Checks what can be checked without libtorch: the version of torch, and the instruction set
    /// of the CPU.
    ///
    /// # Errors
    /// Returns the reason why it cannot run on `machine`.
    pub fn check(&self, machine: &Machine) -> Result<(), Refusal> {
        self.check_torch(&TORCH)?;
        let fits = machine.check(&self.compiled_for, &self.description);
        fits.map_err(|refusal| self.refuse(refusal))
    }

    /// Checks that the package was exported by one of these versions of torch (`2.11`).
    ///
    /// # Errors
    /// Refuses another one.
    pub fn check_torch(&self, versions: &[&str]) -> Result<(), Refusal> {
        let found = &self.description.torch;
        if is_torch_of(versions, found) {
            return Ok(());
        }
        let wanted = versions.join(" or ");
        Err(self.refuse(format_args!(
            "it was exported by torch {found}, expected {wanted}; export it with that version"
        )))
    }

    /// Refuses this package.
    pub fn refuse(&self, reason: impl Display) -> Refusal {
        Refusal::in_file(&self.path, reason)
    }
}

/// Refuses a file that cannot be read, or is something else.
fn unreadable(err: io::Error) -> Refusal {
    match err.kind() {
        io::ErrorKind::InvalidData => Refusal::new(format_args!(
            "it is not a `.pt2` package: {err}; expected what \
             `torch._inductor.aoti_compile_and_package` writes"
        )),
        _ => Refusal::new(format_args!("cannot read it: {err}")),
    }
}

/// Returns the entries in the folder of compiled models.
fn compiled(entries: &[Entry]) -> impl Iterator<Item = &Entry> {
    entries
        .iter()
        .filter(|entry| entry.name.contains("data/aotinductor/") && !entry.name.ends_with('/'))
}

/// Splits the name of an entry into its folder and the name of the file.
fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('/').unwrap_or(("", name))
}

/// What a machine can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The architecture, as `uname -m` names it.
    pub architecture: String,
    /// Flags of the CPU, as `/proc/cpuinfo` names them; `None` if they are not known.
    pub cpu_flags: Option<BTreeSet<String>>,
}

impl Machine {
    /// Examines this machine.
    pub fn here() -> Self {
        let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            architecture: std::env::consts::ARCH.to_owned(),
            cpu_flags: cpu_flags(&text),
        }
    }

    /// Checks platform and CPU.
    fn check(&self, keys: &TorchKeys, description: &Description) -> Result<(), Refusal> {
        if keys.platform != "linux" || keys.machine != self.architecture {
            return Err(Refusal::new(format_args!(
                "it was compiled for {} on {}, but this machine is linux on {}",
                keys.platform, keys.machine, self.architecture
            )));
        }
        let Some(flags) = &self.cpu_flags else {
            return Ok(());
        };
        let of_isa = keys.cpu_isa.split_whitespace().flat_map(flags_of);
        let native = description.cpu_flags.iter().cloned();
        let needed: BTreeSet<String> = of_isa.chain(native).collect();
        let missing: Vec<&str> = needed.difference(flags).map(String::as_str).collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(Refusal::new(format_args!(
            "it was compiled for a CPU with {}, which this CPU lacks; export it on this machine, or \
             with `--isa avx2`",
            missing.join(", ")
        )))
    }
}

/// Returns the flags of the first CPU; `None` where there is no line of them.
fn cpu_flags(text: &str) -> Option<BTreeSet<String>> {
    let line = text.lines().find(|line| line.starts_with("flags"))?;
    let (_, flags) = line.split_once(':')?;
    Some(flags.split_whitespace().map(str::to_owned).collect())
}

/// Returns the flags of `/proc/cpuinfo` that code for an instruction set of
/// torch/_inductor/cpu_vec_isa.py needs (`_arch_flags` there).
fn flags_of(isa: &str) -> Vec<String> {
    let flags: &[&str] = match isa {
        "AVX2" => &["avx2", "fma", "f16c"],
        "AVX512" => &["avx512f", "avx512dq", "avx512vl", "avx512bw", "fma"],
        "AMX_TILE" => &["amx_tile", "amx_bf16", "amx_int8"],
        // Without vector instructions; and those of ARM, whose CPUs all have them.
        "INVALID_VEC_ISA" | "ASIMD" | "NEON" => &[],
        other => return vec![other.to_lowercase()],
    };
    flags.iter().copied().map(str::to_owned).collect()
}

/// What the library of a package was compiled for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorchKeys {
    /// `cpu` or `cuda`.
    pub device: String,
    /// The operating system, as Python names it: `linux`.
    pub platform: String,
    /// The architecture, as `uname -m` names it: `x86_64`.
    pub machine: String,
    /// Instruction sets that the code uses: `AVX512 AVX512_VNNI`.
    pub cpu_isa: String,
    /// Compute capability of the GPU, major and minor number together (`90`); none on a CPU.
    pub compute_capability: Option<u32>,
}

impl TorchKeys {
    /// Parses the metadata of a package; returns the other keys, too.
    fn parse(bytes: &[u8]) -> Result<(Self, BTreeMap<String, String>), Refusal> {
        let keys = serde_json::from_slice(bytes)
            .map_err(|err| Refusal::new(format_args!("expected a JSON object of strings: {err}")));
        let mut keys: BTreeMap<String, String> = keys?;
        let mut take = |key: &str| keys.remove(key).ok_or_else(|| missing(key));
        let device = take("AOTI_DEVICE_KEY")?;
        if device != "cpu" && device != "cuda" {
            return Err(Refusal::new(format_args!(
                "`AOTI_DEVICE_KEY` is {device:?}, expected `cpu` or `cuda`"
            )));
        }
        let found = take("AOTI_COMPUTE_CAPABILITY")?;
        let compute_capability = match (device.as_str(), found.parse()) {
            ("cpu", _) => None,
            (_, Ok(capability)) => Some(capability),
            (_, Err(_)) => {
                return Err(Refusal::new(format_args!(
                    "`AOTI_COMPUTE_CAPABILITY` is {found:?}, expected a number such as 90"
                )));
            }
        };
        let torch = Self {
            device,
            platform: take("AOTI_PLATFORM")?,
            machine: take("AOTI_MACHINE")?,
            cpu_isa: take("AOTI_CPU_ISA")?,
            compute_capability,
        };
        Ok((torch, keys))
    }

    /// Returns whether it runs on a GPU.
    pub fn is_cuda(&self) -> bool {
        self.device == "cuda"
    }

    /// Checks the GPUs that may run it, of which the first has the index `first`; none are known if
    /// there are no capabilities.
    ///
    /// # Errors
    /// Refuses a package that was compiled for none of them.
    pub fn check_gpus(&self, first: usize, capabilities: &[u32]) -> Result<(), Refusal> {
        match (self.compute_capability, capabilities) {
            (Some(found), [wanted, ..]) if !capabilities.contains(&found) => {
                Err(Refusal::new(format_args!(
                    "it was compiled for GPUs of compute capability {found}, but GPU {first} has \
                     {wanted}; export it on such a GPU"
                )))
            }
            _ => Ok(()),
        }
    }
}

/// Refuses metadata without a key.
fn missing(key: &str) -> Refusal {
    Refusal::new(format_args!("there is no `{key}`, which torch 2.11 writes"))
}

#[cfg(test)]
mod tests;
