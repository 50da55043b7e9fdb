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

mod archive;
mod description;
mod machine;

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::files;
use crate::refusal::Refusal;

pub use archive::{Archive, Entry};
pub use description::{
    Batch, Description, Input, Layout, Output, PixelKind, StateVector, TokenKind,
};
pub use machine::{Machine, TorchKeys};

/// The command that writes packages, for errors.
pub const EXPORTER: &str = "python runtime/python/export_policy.py MODULE.py:FUNCTION OUT.pt2";

/// The key of the metadata that describes inputs and actions.
const INPUTS_KEY: &str = "rrun.inputs";

/// Largest metadata of a package in bytes; a description has a few hundred.
const MOST_METADATA: u64 = 1 << 20;

/// The versions of libtorch that `rrun-rank` is built with, as major and minor number.
pub const TORCH_VERSIONS: &[&str] = &["2.11", "2.12"];

/// What a package says about itself.
#[derive(Clone, Debug)]
pub struct Package {
    path: PathBuf,
    /// Inputs, actions and batch sizes.
    pub description: Description,
    /// What it was compiled for.
    pub compiled_for: TorchKeys,
    library: String,
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
        read.map_err(|refusal| refusal.inside(format_args!("`{}`", path.display())))
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
            return Err(of_torch(machine::missing("metadata")));
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

    /// Returns the path of the package.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name of the compiled library among its files.
    pub fn library(&self) -> &str {
        &self.library
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
        self.check_torch(TORCH_VERSIONS)?;
        let fits = machine.check(&self.compiled_for, &self.description);
        fits.map_err(|refusal| self.refuse(refusal))
    }

    /// Checks that the package was exported by one of these versions of torch (`2.11`).
    ///
    /// # Errors
    /// Refuses another one.
    pub fn check_torch(&self, versions: &[&str]) -> Result<(), Refusal> {
        let found = &self.description.torch;
        let mut numbers = found.splitn(3, '.');
        let minor = [numbers.next(), numbers.next()].map(Option::unwrap_or_default);
        if versions.contains(&minor.join(".").as_str()) {
            return Ok(());
        }
        let wanted = versions.join(" or ");
        Err(self.refuse(format_args!(
            "it was exported by torch {found}, expected {wanted}; export it with that version"
        )))
    }

    /// Refuses this package.
    pub fn refuse(&self, reason: impl Display) -> Refusal {
        Refusal::at(format_args!("`{}`", self.path.display()), reason)
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

#[doc(hidden)]
pub mod testing;
#[cfg(test)]
mod tests;
