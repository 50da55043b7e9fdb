//! Finds downloaded models of the Hugging Face hub in the cache of `huggingface_hub`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::files;
use crate::policies::OBJECT;
use crate::refusal::Refusal;

/// Most bytes of the name of a commit, which has 40 digits.
const MOST_COMMIT: u64 = 1 << 10;

/// Returns the folder of a checkpoint: `model_path` of a policy, or the snapshot of the downloaded
/// model that it names. `variable` looks up environment variables.
///
/// # Errors
/// Refuses what is neither, with the name of the setting.
pub fn checkpoint(
    path: &Path,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<PathBuf, Refusal> {
    if path.is_dir() {
        return Ok(path.to_owned());
    }
    let (name, is_name) = (path.to_string_lossy(), is_name(path));
    if let Some(folder) = snapshot(&name, variable).filter(|_| is_name) {
        return Ok(folder);
    }
    // What would be in a folder that is here is hardly a model of the Hub.
    let is_of_here = path.parent().is_some_and(Path::is_dir);
    let wanted = match (is_name, is_of_here) {
        (true, false) => {
            format!("expected a folder or a downloaded model: `hf download {name}` downloads it")
        }
        (true, true) => format!(
            "expected the folder of a checkpoint, or a model of the Hub after `hf download {name}`"
        ),
        (false, _) => "expected the folder of a checkpoint".to_owned(),
    };
    Err(Refusal::new(format_args!(
        "`{OBJECT}.model_path` is `{name}`, which is not a folder; {wanted}"
    )))
}

/// Returns whether a path that is not a folder may be the name of a model, such as
/// `nvidia/GR00T-N1.7-3B`.
fn is_name(path: &Path) -> bool {
    let name = path.to_string_lossy();
    name.split('/').count() == 2 && !path.is_absolute() && !name.starts_with('.')
}

/// Returns the snapshot folder of a model's `main` revision; `variable` looks up environment
/// variables.
fn snapshot(name: &str, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let model = cache(variable).join(format!("models--{}", name.replace('/', "--")));
    let commit = files::read_text(&model.join("refs/main"), MOST_COMMIT).ok()?;
    Some(model.join("snapshots").join(commit.trim())).filter(|folder| folder.is_dir())
}

/// Returns the cache folder: `HF_HUB_CACHE`, otherwise `HF_HOME/hub`, otherwise
/// `~/.cache/huggingface/hub`.
fn cache(variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let below = |name: &str, rest: &str| {
        let folder = variable(name).filter(|value| !value.is_empty())?;
        Some(Path::new(&folder).join(rest))
    };
    below("HF_HUB_CACHE", "")
        .or_else(|| below("HF_HOME", "hub"))
        .or_else(|| below("XDG_CACHE_HOME", "huggingface/hub"))
        .or_else(|| below("HOME", ".cache/huggingface/hub"))
        .unwrap_or_else(|| PathBuf::from("huggingface/hub"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_of_the_hub_is_found_where_it_was_downloaded_to() {
        let dir = tempfile::tempdir().unwrap();
        let model = dir.path().join("hub/models--nvidia--GR00T-N1.7-3B");
        std::fs::create_dir_all(model.join("refs")).unwrap();
        std::fs::create_dir_all(model.join("snapshots/abc")).unwrap();
        std::fs::write(model.join("refs/main"), "abc\n").unwrap();
        let found = |set: &str, below: &str, name: &str| {
            let folder = dir.path().join(below).into_os_string();
            snapshot(name, |variable| (variable == set).then(|| folder.clone()))
        };
        let there = Some(model.join("snapshots/abc"));
        assert_eq!(found("HF_HUB_CACHE", "hub", "nvidia/GR00T-N1.7-3B"), there);
        assert_eq!(found("HF_HOME", "", "nvidia/GR00T-N1.7-3B"), there);
        assert_eq!(found("HF_HOME", "", "nvidia/other"), None);
        assert_eq!(found("HOME", "", "nvidia/GR00T-N1.7-3B"), None);
    }

    #[test]
    fn a_name_has_two_parts() {
        assert!(is_name(Path::new("nvidia/GR00T-N1.7-3B")));
        assert!(
            !["/a/b", "./a", "a", "a/b/c"]
                .into_iter()
                .any(|path| is_name(Path::new(path)))
        );
    }
}
