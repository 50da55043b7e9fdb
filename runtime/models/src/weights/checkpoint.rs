//! The shards of a model directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use jobs::refusal::Refusal;

use crate::error::{lacks, refuse};
use crate::weights::header::TensorEntry;
use crate::weights::index;
use crate::weights::shard::MappedShard;

/// File name of a checkpoint in one file.
pub(super) const SINGLE: &str = "model.safetensors";
/// File name of the index of a sharded checkpoint.
pub(super) const INDEX: &str = "model.safetensors.index.json";

/// The tensors of a checkpoint by name; none is read yet.
#[derive(Debug)]
pub(super) struct Checkpoint {
    dir: PathBuf,
    shards: Vec<MappedShard>,
    /// For each tensor, the index of its shard and its position there.
    tensors: BTreeMap<String, (usize, TensorEntry)>,
}

impl Checkpoint {
    /// Maps `model.safetensors`, or the shards of its index. Checks the headers and reads no
    /// tensor.
    pub(super) fn open(dir: &Path) -> Result<Self, Refusal> {
        let mut checkpoint = Self {
            dir: dir.to_owned(),
            shards: Vec::new(),
            tensors: BTreeMap::new(),
        };
        let index = dir.join(INDEX);
        if dir.join(SINGLE).is_file() {
            checkpoint.add(&dir.join(SINGLE), None)?;
        } else if index.is_file() {
            checkpoint.add_all(&index)?;
        } else {
            return Err(lacks(dir, format!("`{SINGLE}` or `{INDEX}`")));
        }
        Ok(checkpoint)
    }

    /// Returns the model directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the index of a tensor's shard, and its position there.
    pub(super) fn find(&self, name: &str) -> Option<(usize, &TensorEntry)> {
        self.tensors.get(name).map(|(shard, entry)| (*shard, entry))
    }

    /// Returns the shards, ordered by index.
    pub(super) fn shards(&self) -> &[MappedShard] {
        &self.shards
    }

    /// Returns the names in alphabetical order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Adds the shards that an index names.
    fn add_all(&mut self, index: &Path) -> Result<(), Refusal> {
        let mut wanted = BTreeMap::<String, BTreeSet<String>>::new();
        for (name, file) in index::read(index)? {
            wanted.entry(file).or_default().insert(name);
        }
        for (file, names) in &wanted {
            let path = self.dir.join(file);
            if !path.is_file() {
                let wanted = format_args!("`{file}`, a shard of `{INDEX}`");
                return Err(lacks(&self.dir, wanted));
            }
            self.add(&path, Some((index, names)))?;
        }
        Ok(())
    }

    /// Adds one file; with an index, the file must contain exactly the tensors that the index lists
    /// for it.
    fn add(
        &mut self,
        path: &Path,
        index: Option<(&Path, &BTreeSet<String>)>,
    ) -> Result<(), Refusal> {
        let (shard, entries) = MappedShard::open(path)?;
        if let Some((index, wanted)) = index {
            let found: BTreeSet<_> = entries.iter().map(|(name, _)| name.clone()).collect();
            let bad = |reason: String| Err(refuse(index, reason));
            if let Some(name) = wanted.difference(&found).next() {
                return bad(format!("tensor `{name}` is not in `{}`", path.display()));
            }
            if let Some(name) = found.difference(wanted).next() {
                return bad(format!(
                    "tensor `{name}` of `{}` is not in the index",
                    path.display()
                ));
            }
        }
        let number = self.shards.len();
        self.shards.push(shard);
        self.tensors.extend(
            entries
                .into_iter()
                .map(|(name, entry)| (name, (number, entry))),
        );
        Ok(())
    }
}
