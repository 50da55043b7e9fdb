use super::*;
use crate::tests::write_program;
use crate::tools::doctor::diagnosis::Health;

const LONG: Duration = Duration::from_secs(60);

fn needed(python: &Path, modules: &[&str]) -> NeededPython {
    NeededPython {
        python: python.to_owned(),
        variables: vec![("RRUN_DOCTOR_TEST".to_owned(), Some("yes".to_owned()))],
        modules: modules.iter().map(|name| (*name).to_owned()).collect(),
        user: "environment `gym:a`".to_owned(),
    }
}

/// Makes a shell script in the place of an interpreter.
fn script(folder: &Path, text: &str) -> PathBuf {
    let python = folder.join("bin/python");
    std::fs::create_dir_all(python.parent().unwrap()).unwrap();
    write_program(&python, text);
    python
}

#[test]
fn a_python_that_imports_is_told_with_versions() {
    let found = imported("Python", &needed(Path::new("python3"), &["json"]), LONG);
    assert_eq!(found.health, Health::Ok, "{found:?}");
    assert!(found.found.contains("for environment `gym:a` imports json"));
}

#[test]
fn a_module_that_is_missing_fails_with_its_name() {
    let modules = ["json", "rrun_has_no_such_module"];
    let found = imported("Python", &needed(Path::new("python3"), &modules), LONG);
    assert_eq!(found.health, Health::Failed);
    let expected = "does not import rrun_has_no_such_module: ModuleNotFoundError: No module";
    assert!(found.found.contains(expected), "{found:?}");
    assert!(found.remedy.unwrap().contains("-m pip install"));
}

#[test]
fn a_python_that_hangs_is_ended_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let python = script(folder.path(), "sleep 600");
    let limit = Duration::from_millis(200);
    let found = imported("simulator a", &needed(&python, &["json"]), limit);
    assert_eq!(found.health, Health::Failed);
    assert!(
        found.found.ends_with("it did not end within 0 s"),
        "{found:?}"
    );
    assert_eq!(found.name, "simulator a");
}

#[test]
fn a_wrapper_that_prints_nonsense_fails_with_its_last_words() {
    let folder = tempfile::tempdir().unwrap();
    let python = script(folder.path(), "echo 'rrun-doctor {'; echo oops >&2; exit 3");
    let found = imported("Python", &needed(&python, &["json"]), LONG);
    assert!(found.found.ends_with("exit status: 3: oops"), "{found:?}");
}

#[test]
fn venvs_are_found_by_name() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["pusht", "mine"] {
        script(&folder.path().join(name), "true");
    }
    std::fs::create_dir(folder.path().join("half")).unwrap();
    let found = in_folder("simulator", Some(folder.path().to_owned()));
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["simulator mine", "simulator pusht"]);
    assert_eq!(found[0].1.modules, ["gymnasium"]);
    assert_eq!(found[1].1.modules, ["gymnasium", "gym_pusht"]);
    assert!(in_folder("policy", None).is_empty());
}

#[test]
fn an_interpreter_has_the_name_of_its_venv() {
    let folder = tempfile::tempdir().unwrap();
    let python = script(&folder.path().join("isaac"), "true");
    assert_eq!(short(&python), "python");
    std::fs::write(folder.path().join("isaac/pyvenv.cfg"), "").unwrap();
    assert_eq!(short(&python), "isaac");
    assert_eq!(short(Path::new("python3")), "python3");
}
