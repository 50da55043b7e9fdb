//! The local modules that a Python file imports, found in its text: those below the folders that
//! Python looks into, and that no installed package has. Packages count as a whole. What is
//! imported by a computed name is not found.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::files;
use crate::inputs::Lookup;
use crate::inputs::versions::packages;
use crate::settings::kinds::PyName;

/// Most files that are followed; a program of more files is followed no further.
const MOST_FILES: usize = 2000;

/// Most bytes of a file that is searched for imports.
const MOST_BYTES: u64 = 4 << 20;

/// An import statement: `from ..a.b import c, d` has level 2, module `a.b` and names `c` and `d`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Import {
    level: usize,
    module: Vec<String>,
    names: Vec<String>,
}

/// The folders that Python looks into for modules.
pub(super) struct SearchPath {
    folders: Vec<PathBuf>,
    /// Names of the packages that are installed in each of the folders, as Python compares them.
    installed: BTreeMap<PathBuf, BTreeSet<String>>,
}

impl SearchPath {
    /// Creates the search path of these folders, in Python's order.
    pub(super) fn new(folders: Vec<PathBuf>) -> Self {
        let names = |folder: &PathBuf| (folder.clone(), packages(folder).into_keys().collect());
        let installed = folders.iter().map(names).collect();
        Self { folders, installed }
    }

    /// Returns the files of a module, and of all local modules that it imports.
    pub(super) fn module(&self, name: &str) -> BTreeSet<PathBuf> {
        let module: Vec<_> = name.split('.').map(str::to_owned).collect();
        self.follow(self.find(&module, &[]))
    }

    /// Returns a file and those of all local modules that it imports.
    pub(super) fn script(&self, file: &Path) -> BTreeSet<PathBuf> {
        self.follow(vec![file.to_owned()])
    }

    fn follow(&self, first: Vec<PathBuf>) -> BTreeSet<PathBuf> {
        let (mut found, mut left) = (BTreeSet::new(), first);
        let mut known = BTreeSet::new();
        while let Some(file) = left.pop() {
            if found.len() >= MOST_FILES || !found.insert(file.clone()) {
                continue;
            }
            for import in imports(&text(&file)) {
                let beside = file.parent().unwrap_or(Path::new("")).to_owned();
                if !known.insert((import.clone(), (import.level > 0).then(|| beside.clone()))) {
                    continue;
                }
                left.extend(match import.level {
                    0 => self.find(&import.module, &import.names),
                    level => {
                        let mut folder = beside;
                        for _ in 1..level {
                            folder.pop();
                        }
                        resolve(&folder, &import.module, &import.names).unwrap_or_default()
                    }
                });
            }
        }
        found
    }

    /// Returns the files of a module by its absolute name, from the first folder that has it.
    fn find(&self, module: &[String], names: &[String]) -> Vec<PathBuf> {
        let Some(first) = module.first() else {
            return Vec::new();
        };
        for folder in &self.folders {
            if self.installed[folder].contains(&normalized(first)) {
                return Vec::new();
            }
            match resolve(folder, module, names) {
                // A folder of the name is no module if there is a real one further on.
                Some(files) if !files.is_empty() => return files,
                _ => {}
            }
        }
        Vec::new()
    }
}

/// Returns the folders that Python looks into for the modules of a callable before those of its
/// installation: that of its file, the working directory, and `PYTHONPATH`, which `variables` may
/// set.
pub(super) fn folders(name: &str, variables: Option<&Value>, variable: Lookup<'_>) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Some(PyName::InFile { file, .. }) = PyName::of(name) {
        folders.extend(Path::new(&file).parent().map(Path::to_owned));
    }
    folders.push(PathBuf::new());
    let path = match variables.and_then(|variables| variables.get("PYTHONPATH")) {
        Some(own) => own.as_str().map(str::to_owned),
        None => variable("PYTHONPATH"),
    };
    folders.extend(path.iter().flat_map(std::env::split_paths));
    folders
}

/// Returns the files of a module below `folder`: all of the first package on the way, or its file.
fn resolve(folder: &Path, module: &[String], names: &[String]) -> Option<Vec<PathBuf>> {
    let mut folder = folder.to_owned();
    for part in module {
        let path = folder.join(part);
        if let Some(files) = package_or_module(&path) {
            return Some(files);
        }
        if !path.is_dir() {
            return None;
        }
        folder = path;
    }
    // A folder without `__init__.py`: its modules are imported one by one.
    let of_names = names
        .iter()
        .filter_map(|name| package_or_module(&folder.join(name)));
    Some(of_names.flatten().collect())
}

/// Returns the files of the package at a path, or the module beside it.
fn package_or_module(path: &Path) -> Option<Vec<PathBuf>> {
    if path.join("__init__.py").is_file() {
        let is_python = |file: &Path| file.extension().is_some_and(|end| end == "py");
        let mut files = files_below(path, MOST_FILES, is_python);
        files.truncate(MOST_FILES);
        return Some(files);
    }
    let file = path.with_extension("py");
    file.is_file().then(|| vec![file])
}

/// Returns the name of a package as Python compares it (PEP 503).
pub(super) fn normalized(name: &str) -> String {
    name.to_lowercase().replace(['-', '.'], "_")
}

fn text(file: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = files::open(file) {
        // What is read before an error is searched.
        let _ = file.take(MOST_BYTES).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the import statements of a Python program. A line of a text that looks like one counts,
/// too.
fn imports(text: &str) -> BTreeSet<Import> {
    let mut found = BTreeSet::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mut statement = without_comment(line).trim().to_owned();
        if !statement.contains("import") {
            continue;
        }
        let is_open = |text: &str| text.contains('(') && !text.contains(')');
        while statement.starts_with("from ") && (is_open(&statement) || statement.ends_with('\\')) {
            let Some(next) = lines.next() else { break };
            let (first, next) = (
                statement.trim_end_matches('\\'),
                without_comment(next).trim(),
            );
            statement = format!("{first} {next}");
        }
        for part in statement.split(';') {
            found.extend(import(part.trim()));
        }
    }
    found
}

fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or(line)
}

/// Parses one statement.
fn import(statement: &str) -> Vec<Import> {
    let name = |text: &str| text.split_whitespace().next().map(str::to_owned);
    let dotted = |text: &str| {
        let parts = text.split('.').filter(|_| !text.is_empty());
        parts.map(str::to_owned).collect::<Vec<_>>()
    };
    if let Some(modules) = statement.strip_prefix("import ") {
        let import = |module: String| Import {
            level: 0,
            module: dotted(&module),
            names: Vec::new(),
        };
        return modules.split(',').filter_map(name).map(import).collect();
    }
    let Some((from, names)) = statement
        .strip_prefix("from ")
        .and_then(|rest| rest.split_once(" import"))
    else {
        return Vec::new();
    };
    let from = from.trim();
    let module = from.trim_start_matches('.');
    let names = names.trim().trim_matches(['(', ')']);
    vec![Import {
        level: from.len() - module.len(),
        module: dotted(module),
        names: names.split(',').filter_map(name).collect(),
    }]
}

/// Lists the files below a folder that count, without hidden and compiled ones. Ends early with one
/// more than `most`.
pub(super) fn files_below(
    folder: &Path,
    most: usize,
    counts: impl Fn(&Path) -> bool,
) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    let mut known = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        // A link to a folder above would go on for ever.
        if !folder.canonicalize().is_ok_and(|real| known.insert(real)) {
            continue;
        }
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().starts_with('.') || name == "__pycache__" {
                continue;
            }
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() && counts(&path) {
                files.push(path);
            }
            if files.len() > most {
                return files;
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Makes a folder with files of these texts.
    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    /// Returns the names of the files that a script in a folder consists of.
    fn files_of(dir: &tempfile::TempDir, script: &str) -> Vec<String> {
        let path = SearchPath::new(vec![dir.path().to_owned()]);
        let found = path.script(&dir.path().join(script));
        let below = |file: &PathBuf| file.strip_prefix(dir.path()).unwrap().display().to_string();
        found.iter().map(below).collect()
    }

    #[test]
    fn modules_beside_a_script_and_what_they_import_belong_to_it() {
        let dir = folder(&[
            (
                "policy.py",
                "import numpy as np, helper  # not: unused\nimport json; import late\n",
            ),
            (
                "helper.py",
                "def f():\n    from tools import (\n        a,\n        b)\n",
            ),
            ("late.py", ""),
            ("tools/a.py", "from . import c\n"),
            ("tools/b.py", "from .d import x, \\\n    y\n"),
            ("tools/c.py", ""),
            ("tools/d.py", "import policy\n"),
            ("tools/unused.py", ""),
            ("unused.py", ""),
        ]);
        let expected = [
            "helper.py",
            "late.py",
            "policy.py",
            "tools/a.py",
            "tools/b.py",
            "tools/c.py",
            "tools/d.py",
        ];
        assert_eq!(files_of(&dir, "policy.py"), expected);
    }

    #[test]
    fn a_package_counts_as_a_whole_and_so_does_one_that_it_imports() {
        let dir = folder(&[
            ("sim.py", "from world.physics import step\n"),
            ("world/__init__.py", ""),
            (
                "world/physics/__init__.py",
                "from ...robots.arm import Arm\n",
            ),
            ("world/assets/table.py", "import robots\n"),
            ("world/notes.txt", "import unused"),
            ("world/.hidden.py", ""),
            ("robots/__init__.py", ""),
            ("robots/arm.py", ""),
        ]);
        let expected = [
            "robots/__init__.py",
            "robots/arm.py",
            "sim.py",
            "world/__init__.py",
            "world/assets/table.py",
            "world/physics/__init__.py",
        ];
        assert_eq!(files_of(&dir, "sim.py"), expected);
        let path = SearchPath::new(vec![dir.path().to_owned()]);
        assert_eq!(path.module("world.physics").len(), 5);
        assert_eq!(path.module("nowhere.to_be.found").len(), 0);
    }

    #[test]
    fn a_package_with_a_version_is_no_local_one() {
        let dir = folder(&[
            ("sim.py", "import My_Sim, mine\n"),
            ("My_Sim/__init__.py", ""),
            ("my_sim-1.2.dist-info/METADATA", ""),
            ("mine.py", ""),
        ]);
        assert_eq!(files_of(&dir, "sim.py"), ["mine.py", "sim.py"]);
    }

    #[test]
    fn no_text_makes_it_panic() {
        for text in [
            "from",
            "from . import",
            "import",
            "import ,",
            "from .import x",
            "from (",
            "from a import (\n",
        ] {
            let _ = imports(text);
        }
        let found = import("from .. import x").first().map(|one| one.level);
        assert_eq!(found, Some(2));
    }
}
