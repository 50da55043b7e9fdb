//! The versions of the packages that simulators have imported: those that journals recorded, and
//! those that are installed now, without a start of an interpreter.
//!
//! ```text
//! journals ─► job_start ─► env_versions ─┐
//! sys.path of the interpreter ─► *.dist-info ─┴─► other ones
//! ```
//! A package that is not found here is left to the rank, which compares what its simulator says.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::files;
use crate::inputs::Lookup;
use crate::inputs::imports::{folders, normalized};
use crate::job::Job;
use crate::journal::{self, Line, Lines};
use crate::programs::{self, interpreter_at};
use crate::tree::plain;

/// Settings of a job in journals with versions by package.
pub const VERSIONS: [&str; 2] = ["env_versions", "policy_versions"];

/// The one of them that is compared before ranks start.
pub(crate) const OF_SIMULATOR: &str = VERSIONS[0];

/// Most bytes that are read of the beginning of a journal, and most journals.
const MOST_BYTES: u64 = 256 << 10;
const MOST_JOURNALS: usize = 64;

/// Most bytes of a package's metadata before its version.
const MOST_METADATA: u64 = 16 << 10;

/// A package with its version before and now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherVersion {
    /// Setting and package, as in `env_versions.numpy`.
    pub package: String,
    /// Its version when the run was begun.
    pub before: String,
    /// Its version now.
    pub now: String,
}

/// Returns the packages that both settings of a job name with different versions. What is imported
/// may depend on whether anything is rendered.
pub fn others(
    before: &BTreeMap<String, Value>,
    now: &BTreeMap<String, Value>,
) -> Vec<OtherVersion> {
    let mut now = by_package(now);
    let other = |(package, before): (String, String)| {
        let now = now.remove(&package).filter(|now| *now != before)?;
        Some(OtherVersion {
            package,
            before,
            now,
        })
    };
    by_package(before).into_iter().filter_map(other).collect()
}

/// Returns the versions in the settings of a job, by setting and package, as in
/// `env_versions.numpy`.
pub fn by_package(settings: &BTreeMap<String, Value>) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    for setting in VERSIONS {
        let packages = settings.get(setting).and_then(Value::as_object);
        for (package, version) in packages.into_iter().flatten() {
            versions.insert(format!("{setting}.{package}"), plain(version));
        }
    }
    versions
}

/// Returns the settings with which jobs began, as far as the beginnings of the journals have them:
/// a journal may have gigabytes.
pub(crate) fn recorded(journals: &Path) -> BTreeMap<String, BTreeMap<String, Value>> {
    let mut recorded = BTreeMap::new();
    let paths = journal::files(journals).unwrap_or_default();
    for path in paths.into_iter().take(MOST_JOURNALS) {
        let Ok(file) = files::open(&path) else {
            continue;
        };
        let mut lines = Lines::of(BufReader::new(file.take(MOST_BYTES)));
        while let Ok(Some((_, text))) = lines.next() {
            if let Ok(Line::JobStart(start)) = serde_json::from_slice(text) {
                recorded.insert(start.job, start.settings);
            }
        }
    }
    recorded
}

/// Returns the packages of a job's simulator that are installed in another version than `recorded`.
pub(crate) fn changed(
    job: &Job,
    recorded: &BTreeMap<String, Value>,
    variable: Lookup<'_>,
) -> Vec<OtherVersion> {
    let Some(versions) = recorded.get(OF_SIMULATOR).and_then(Value::as_object) else {
        return Vec::new();
    };
    let python = versions.get("python").map(plain).unwrap_or_default();
    let mut numbers = python.split('.');
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        return Vec::new();
    };
    let places = places(job, &format!("python{major}.{minor}"), variable);
    let places: Vec<_> = places.iter().map(|place| packages(place)).collect();
    let other = |(package, before): (&String, &Value)| {
        let name = normalized(package);
        let found = places.iter().find_map(|packages| packages.get(&name))?;
        let before = plain(before);
        let now: BTreeSet<_> = found.iter().filter_map(|folder| version(folder)).collect();
        let is_other = !now.is_empty() && !now.contains(&before);
        is_other.then(|| OtherVersion {
            package: format!("{OF_SIMULATOR}.{package}"),
            before,
            now: now.into_iter().collect::<Vec<_>>().join(" and "),
        })
    };
    versions.iter().filter_map(other).collect()
}

/// Returns the folders in which the interpreter of an environment looks for packages, in its order.
fn places(job: &Job, version: &str, variable: Lookup<'_>) -> Vec<PathBuf> {
    let variables = job.env_args.get("env");
    let mut places = folders(&job.environment, variables, variable);
    let given = job.env_args.get("python").and_then(Value::as_str);
    let python = interpreter_at(given.unwrap_or("python3").as_ref());
    let path = variable("PATH");
    // The packages of a venv are there even if its link to the interpreter dangles on this machine.
    let python = if programs::has_slash(&python) {
        Some(python)
    } else {
        programs::find(&python, path.as_ref().map(OsStr::new))
    };
    let Some(python) = python else {
        return places;
    };
    let venv = python.parent().and_then(Path::parent).map(Path::to_owned);
    let config = venv.as_ref().map(|venv| venv.join("pyvenv.cfg"));
    let config = config.and_then(|config| files::read_text(&config, MOST_METADATA).ok());
    let config = config.map(|config| config.replace(' ', ""));
    let with_system = "include-system-site-packages=true";
    let is_alone = config
        .as_ref()
        .is_some_and(|config| !config.contains(with_system));
    let mut prefixes: Vec<_> = venv.filter(|_| config.is_some()).into_iter().collect();
    if !is_alone {
        let home = variable("HOME").map(|home| Path::new(&home).join(".local"));
        let real = python.canonicalize().unwrap_or(python);
        let prefix = real.parent().and_then(Path::parent).map(Path::to_owned);
        let local = prefix.as_ref().map(|prefix| prefix.join("local"));
        prefixes.extend([home, local, prefix].into_iter().flatten());
    }
    for prefix in prefixes {
        for below in ["lib", "lib64"] {
            places.push(prefix.join(below).join(version).join("site-packages"));
            places.push(prefix.join(below).join(version).join("dist-packages"));
        }
        places.push(prefix.join("lib/python3/dist-packages"));
    }
    places
}

/// Returns the metadata folders of the packages in a folder, by name.
pub(super) fn packages(place: &Path) -> BTreeMap<String, Vec<PathBuf>> {
    let mut packages: BTreeMap<_, Vec<_>> = BTreeMap::new();
    // An empty path is the working directory.
    for entry in fs::read_dir(Path::new(".").join(place))
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name().to_string_lossy().into_owned();
        let ends = [".dist-info", ".egg-info"];
        let stem = ends.iter().find_map(|end| name.strip_suffix(end));
        if let Some(package) = stem.and_then(|stem| stem.split('-').next()) {
            let known = packages.entry(normalized(package)).or_default();
            known.push(entry.path());
        }
    }
    packages
}

/// Returns the version in the metadata of a package.
fn version(folder: &Path) -> Option<String> {
    let file = ["METADATA", "PKG-INFO"]
        .iter()
        .find_map(|name| files::open(&folder.join(name)).ok())
        .or_else(|| files::open(folder).ok())?;
    let mut text = Vec::new();
    file.take(MOST_METADATA).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    let version = text.lines().find_map(|line| line.strip_prefix("Version:"));
    version.map(|version| version.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use serde_json::json;

    fn job(args: &Value) -> Job {
        let mut args = args.clone();
        args["environment"] = "gym:Pusher-v5".into();
        samples::job(json!({"arena_env_args": args, "policy_type": "zero_action"}))
    }

    fn settings(versions: &Value) -> BTreeMap<String, Value> {
        [(OF_SIMULATOR.to_owned(), versions.clone())].into()
    }

    fn install(folder: &Path, package: &str, version: &str) {
        let folder = folder.join(format!("{package}-{version}.dist-info"));
        fs::create_dir_all(&folder).unwrap();
        let text = format!("Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n");
        fs::write(folder.join("METADATA"), text).unwrap();
    }

    #[test]
    fn packages_that_are_installed_in_another_version_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let packages = dir.path().join("venv/lib/python3.12/site-packages");
        fs::create_dir_all(dir.path().join("venv/bin")).unwrap();
        fs::write(dir.path().join("venv/pyvenv.cfg"), "home = /usr/bin\n").unwrap();
        std::os::unix::fs::symlink("/nowhere/python", dir.path().join("venv/bin/python")).unwrap();
        install(&packages, "numpy", "2.1.0");
        install(&packages, "My_Sim", "1.0");
        let job = job(&json!({"python": dir.path().join("venv")}));
        let recorded = json!({"python": "3.12.3", "numpy": "2.1.0", "my_sim": "1.0", "gone": "1"});
        let found = || changed(&job, &settings(&recorded), &|_| None);
        assert_eq!(found(), []);
        fs::remove_dir_all(packages.join("My_Sim-1.0.dist-info")).unwrap();
        install(&packages, "My_Sim", "1.1");
        let expected = OtherVersion {
            package: "env_versions.my_sim".to_owned(),
            before: "1.0".to_owned(),
            now: "1.1".to_owned(),
        };
        assert_eq!(found(), [expected]);
    }

    #[test]
    fn the_first_place_of_a_package_counts() {
        let dir = tempfile::tempdir().unwrap();
        let (first, later) = (dir.path().join("first"), dir.path().join("later"));
        install(&first, "sim", "2.0");
        install(&later, "sim", "1.0");
        let path = std::env::join_paths([&first, &later]).unwrap();
        let job = job(&json!({"env": {"PYTHONPATH": path.to_str().unwrap()}}));
        let found = |version: &str| {
            let recorded = json!({"python": "3.12.3", "sim": version});
            changed(&job, &settings(&recorded), &|_| None).len()
        };
        assert_eq!((found("1.0"), found("2.0")), (1, 0));
    }

    #[test]
    fn packages_that_only_one_start_has_imported_are_not_compared() {
        let before = json!({"numpy": "1", "torch": "2", "gone": "3"});
        let now = json!({"numpy": "1", "torch": "3", "new": "1"});
        let found = others(&settings(&before), &settings(&now));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].package, "env_versions.torch");
    }
}
