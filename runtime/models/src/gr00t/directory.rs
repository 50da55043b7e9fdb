//! Finds the files of a checkpoint.

use std::path::{Path, PathBuf};

use jobs::refusal::Refusal;

use crate::error::lacks;
use crate::gr00t::{ModelConfig, VlmConfig};

/// A model directory and the files of its backbone.
#[derive(Clone, Debug)]
pub struct ModelDir {
    /// The model directory itself.
    pub root: PathBuf,
    /// The directory of the backbone's files, if there is one.
    pub vlm: Option<PathBuf>,
}

impl ModelDir {
    /// Finds the backbone's files: in `vlm` if given, else in `vlm/` inside the model directory,
    /// else nowhere.
    ///
    /// # Errors
    /// Returns [`Refusal`] if `root` has no `config.json`, or if `vlm` is given and has
    /// none.
    pub fn open(root: &Path, vlm: Option<&Path>) -> Result<Self, Refusal> {
        need(root, "config.json")?;
        let inside = root.join("vlm");
        let vlm = match vlm {
            Some(given) => {
                need(given, "config.json")?;
                Some(given.to_owned())
            }
            None => inside.is_dir().then_some(inside),
        };
        let root = root.to_owned();
        Ok(Self { root, vlm })
    }

    /// Reads the sizes of the network and of its backbone and checks them against each other.
    /// Without a backbone directory, the released sizes are used.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names the file and the field.
    pub fn configs(&self) -> Result<(ModelConfig, VlmConfig), Refusal> {
        let path = self.root.join("config.json");
        let model = ModelConfig::read(&path)?;
        let backbone = self.vlm.as_ref().map(|dir| dir.join("config.json"));
        let vlm = match backbone.filter(|path| path.is_file()) {
            Some(path) => VlmConfig::read(&path)?,
            None => VlmConfig::released(),
        };
        model.check_backbone(&path, &vlm)?;
        Ok((model, vlm))
    }
}

/// Finds the folder of the processor's files: the model directory, or `processor/` in it, where
/// training leaves them.
pub(crate) fn processor_dir(root: &Path) -> Result<PathBuf, Refusal> {
    let mut places = [root.to_owned(), root.join("processor")].into_iter();
    let found = places.find(|dir| dir.join("processor_config.json").is_file());
    let wanted = "`processor_config.json`, nor has `processor/` in it";
    found.ok_or_else(|| lacks(root, wanted))
}

/// Refuses a directory without the file.
fn need(dir: &Path, name: &str) -> Result<(), Refusal> {
    match dir.join(name).is_file() {
        true => Ok(()),
        false => Err(lacks(dir, format_args!("`{name}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a directory that contains these empty files.
    fn directory(files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        dir
    }

    #[test]
    fn the_given_backbone_goes_before_the_one_inside() {
        let (model, vlm) = (
            directory(&["config.json", "vlm/config.json"]),
            directory(&["config.json"]),
        );
        assert_eq!(
            ModelDir::open(model.path(), Some(vlm.path())).unwrap().vlm,
            Some(vlm.path().to_owned())
        );
        assert_eq!(
            ModelDir::open(model.path(), None).unwrap().vlm,
            Some(model.path().join("vlm"))
        );
    }

    #[test]
    fn without_a_backbone_its_released_sizes_hold() {
        let model = directory(&["config.json"]);
        std::fs::write(
            model.path().join("config.json"),
            ModelConfig::released().to_json().to_string(),
        )
        .unwrap();
        let dir = ModelDir::open(model.path(), None).unwrap();
        assert_eq!(dir.configs().unwrap().1, VlmConfig::released());
    }

    #[test]
    fn a_directory_without_a_configuration_is_refused() {
        let (empty, model) = (directory(&[]), directory(&["config.json"]));
        let text = ModelDir::open(empty.path(), None).unwrap_err().to_string();
        assert_eq!(
            text,
            format!("`{}` has no `config.json`", empty.path().display())
        );
        assert!(ModelDir::open(model.path(), Some(empty.path())).is_err());
    }

    #[test]
    fn the_processor_may_lie_where_training_leaves_it() {
        let flat = directory(&[
            "config.json",
            "processor_config.json",
            "processor/statistics.json",
        ]);
        let nested = directory(&["config.json", "processor/processor_config.json"]);
        assert_eq!(processor_dir(flat.path()).unwrap(), flat.path());
        assert_eq!(
            processor_dir(nested.path()).unwrap(),
            nested.path().join("processor")
        );
    }
}
