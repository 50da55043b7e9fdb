//! The shards of a model directory, and the index that maps tensors to them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use jobs::refusal::Refusal;
use safetensors::tensor::TensorInfo;
use serde::Deserialize;

use crate::error::{in_file, lacks, refuse};
use crate::weights::shard::MappedShard;

/// File name of a checkpoint in one file.
pub(super) const SINGLE: &str = "model.safetensors";
/// File name of the index of a sharded checkpoint.
pub(super) const INDEX: &str = "model.safetensors.index.json";

/// The tensors of a checkpoint by name; none is read yet.
#[derive(Debug)]
pub(super) struct Checkpoint {
    pub(super) dir: PathBuf,
    pub(super) shards: Vec<MappedShard>,
    /// For each tensor, the index of its shard and its position there.
    tensors: BTreeMap<String, (usize, TensorInfo)>,
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

    /// Returns the index of a tensor's shard, and its position there.
    pub(super) fn find(&self, name: &str) -> Option<(usize, &TensorInfo)> {
        self.tensors.get(name).map(|(shard, entry)| (*shard, entry))
    }

    /// Returns the names in alphabetical order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Adds the shards that an index names; a tensor's shard is a file beside it.
    fn add_all(&mut self, path: &Path) -> Result<(), Refusal> {
        let text = fs::read(path).map_err(in_file(path))?;
        let index: Index = serde_json::from_slice(&text).map_err(in_file(path))?;
        let mut wanted = BTreeMap::<String, BTreeSet<String>>::new();
        for (name, file) in index.weight_map {
            // A name without a directory cannot point outside the checkpoint.
            let is_beside = !file.contains(['/', '\\', '\0']) && !file.starts_with('.');
            if !is_beside || !file.ends_with(".safetensors") {
                let found = format_args!("tensor `{name}` is in {file:?}");
                let wanted = "expected a .safetensors file beside the index";
                return Err(refuse(path, format_args!("{found}, {wanted}")));
            }
            wanted.entry(file).or_default().insert(name);
        }
        for (file, names) in &wanted {
            let shard = self.dir.join(file);
            if !shard.is_file() {
                let wanted = format_args!("`{file}`, a shard of `{INDEX}`");
                return Err(lacks(&self.dir, wanted));
            }
            self.add(&shard, Some((path, names)))?;
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
            let (found, file) = (entries.iter().map(|(name, _)| name), path.display());
            let found: BTreeSet<_> = found.cloned().collect();
            if let Some(name) = wanted.difference(&found).next() {
                return Err(refuse(
                    index,
                    format_args!("tensor `{name}` is not in `{file}`"),
                ));
            }
            if let Some(name) = found.difference(wanted).next() {
                let reason = format_args!("tensor `{name}` of `{file}` is not in the index");
                return Err(refuse(index, reason));
            }
        }
        let number = self.shards.len();
        self.shards.push(shard);
        let entries = entries.into_iter();
        let numbered = entries.map(|(name, entry)| (name, (number, entry)));
        self.tensors.extend(numbered);
        Ok(())
    }
}

/// `model.safetensors.index.json`: the tensors with the names of their files. Of a name that is
/// there twice, the last counts. If other names are in the first one's file, that file is refused
/// for what it has without a name.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}
