//! Checks that the packages of the experiment trackers are installed, so that nobody finds out the
//! next morning that there is nothing to see.

use std::process::Command;

use jobs::tracking::TrackingArgs;

use crate::cli::Environment;
use crate::plan::missing::modules::missing_of;
use crate::plan::missing::{PYTHON, interpreter_at};
use crate::plan::python::find;

/// Leaves out the working directory: wandb writes its files into a folder `wandb` there, which
/// would pass for the package.
const BEFORE: &str = "import sys; sys.path[:] = [path for path in sys.path if path]\n";

/// The package of a tracker that is not installed, or no interpreter to have it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MissingTracker {
    /// There is no such interpreter.
    #[error(
        "--track {tracker} needs Python: {found}; name an interpreter or a venv with --track-python"
    )]
    Python {
        /// Word of the tracker.
        tracker: &'static str,
        /// What was looked for, as a clause.
        found: String,
    },
    /// The interpreter does not find the package.
    #[error(
        "--track {package}: `{python}` finds no module `{package}`; `pip install {package}` there, \
         or name another interpreter with --track-python"
    )]
    Package {
        /// Package and module.
        package: &'static str,
        /// The interpreter.
        python: String,
    },
}

/// Checks the interpreter of the trackers and their packages. Without an answer of the interpreter
/// the check is left to rank 0, which says what fails.
///
/// # Errors
/// Returns the first thing that is certainly missing.
pub fn check_trackers(tracking: &TrackingArgs, env: &Environment) -> Result<(), MissingTracker> {
    let trackers = tracking.trackers();
    let packages: Vec<_> = trackers.iter().filter_map(|it| it.package()).collect();
    let Some(tracker) = packages.first().copied() else {
        return Ok(());
    };
    let given = tracking.track_python.as_deref();
    let python = interpreter_at(given.unwrap_or(PYTHON.as_ref()));
    if find(python.as_os_str(), env).is_none() {
        let found = match given {
            Some(given) => format!("`{}` is neither an interpreter nor a venv", given.display()),
            None => format!("there is no `{PYTHON}` in PATH"),
        };
        return Err(MissingTracker::Python { tracker, found });
    }
    let missing = missing_of(&mut Command::new(&python), &packages, BEFORE);
    let is_missing = |package: &&str| missing.iter().flatten().any(|name| name == package);
    match packages.into_iter().find(is_missing) {
        Some(package) => Err(MissingTracker::Package {
            package,
            python: python.display().to_string(),
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &str) -> String {
        let words = crate::tests::words(&format!("--jobs a {words}"));
        let args = jobs::eval_args::EvalArgs::parse_words(&words).unwrap();
        let path = std::env::var("PATH").unwrap();
        let env = Environment::from([("PATH", path.as_str())]);
        match check_trackers(&args.tracking, &env) {
            Ok(()) => "found".to_owned(),
            Err(err) => err.to_string(),
        }
    }

    #[test]
    fn an_interpreter_is_needed_by_others_than_tensorboard() {
        for (words, wanted) in [
            ("", "found"),
            ("--track tensorboard --track-python /no", "found"),
            (
                "--track tensorboard,mlflow --track-python /no/venv",
                "--track mlflow needs Python: `/no/venv` is neither an interpreter nor a venv; \
                 name an interpreter or a venv with --track-python",
            ),
        ] {
            assert_eq!(check(words), wanted, "{words}");
        }
    }

    #[test]
    fn a_package_that_is_not_installed_is_refused_with_the_command_that_installs_it() {
        let venv = tempfile::tempdir().unwrap();
        let bin = venv.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        // The system's interpreter, without the packages of any venv.
        crate::tests::write_program(&bin.join("python"), "exec python3 -S \"$@\"");
        let text = check(&format!(
            "--track wandb --track-python {}",
            venv.path().display()
        ));
        assert!(
            text.starts_with("--track wandb: `") && text.contains("finds no module `wandb`"),
            "{text}"
        );
        assert!(text.contains("`pip install wandb` there"), "{text}");
    }
}
