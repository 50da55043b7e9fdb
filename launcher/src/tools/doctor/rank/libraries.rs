//! Judges which libraries the rank binary runs with.

use std::path::Path;

use jobs::rank_probe::LoadedLibraries;

use crate::tools::doctor::diagnosis::Diagnosis;
use crate::tools::doctor::rank::NAME;
use crate::tools::doctor::rank::answer::{TORCH, Unanswered};

/// Versions of torch with which `rrun-rank` works.
const KNOWN: [&str; 2] = ["2.11.", "2.12."];

pub(super) fn judged(
    binary: &Path,
    answer: &Result<LoadedLibraries, Unanswered>,
) -> Vec<Diagnosis> {
    match answer {
        Ok(libraries) => vec![
            of_binary(binary, libraries),
            of_libtorch(libraries),
            Diagnosis::ok("MuJoCo", &libraries.mujoco),
        ],
        Err(Unanswered { found, remedy }) => {
            let found = format!("`{}` does not start: {found}", binary.display());
            let remedy = remedy.unwrap_or("install rrun again with pip, or build it with `make`");
            vec![Diagnosis::failed(NAME, found, remedy)]
        }
    }
}

fn of_binary(binary: &Path, libraries: &LoadedLibraries) -> Diagnosis {
    let own = env!("CARGO_PKG_VERSION");
    let found = format!("{}, `{}`", libraries.rrun, binary.display());
    let version = libraries.rrun.split(' ').next();
    if version == Some(own) {
        return Diagnosis::ok(NAME, found);
    }
    let found = format!("{found}, but rrun is {own}");
    let remedy = "install rrun again: both programs must come from one build";
    Diagnosis::failed(NAME, found, remedy)
}

fn of_libtorch(libraries: &LoadedLibraries) -> Diagnosis {
    let name = "libtorch";
    let folder = libraries.libtorch_folder.as_deref();
    let folder = folder.unwrap_or("an unknown folder");
    let half = match libraries.has_cuda_half {
        true => "with CUDA",
        false => "CPU only",
    };
    let Some(version) = &libraries.libtorch else {
        let found = format!("of unknown version, {half}, in `{folder}`");
        return Diagnosis::warning(name, found, TORCH);
    };
    let found = format!("{version}, {half}, in `{folder}`");
    if KNOWN.iter().any(|known| version.starts_with(known)) {
        return Diagnosis::ok(name, found);
    }
    let found = format!("{found}: expected 2.11 or 2.12");
    Diagnosis::failed(name, found, TORCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::doctor::diagnosis::Health;

    fn libraries(rrun: &str, libtorch: Option<&str>) -> LoadedLibraries {
        LoadedLibraries {
            rrun: rrun.to_owned(),
            libtorch: libtorch.map(str::to_owned),
            libtorch_folder: Some("/venv/torch/lib".to_owned()),
            has_cuda_half: false,
            mujoco: "3.17.0".to_owned(),
        }
    }

    fn all(rrun: &str, libtorch: Option<&str>) -> Vec<Health> {
        let answer = Ok(libraries(rrun, libtorch));
        let all = judged(Path::new("/bin/rrun-rank"), &answer);
        all.iter().map(|one| one.health).collect()
    }

    #[test]
    fn the_supported_torch_is_ok_and_another_fails() {
        let own = concat!(env!("CARGO_PKG_VERSION"), " (1a2b3c4d5e6f)");
        assert_eq!(all(own, Some("2.11.0+cpu")), [Health::Ok; 3]);
        assert_eq!(all(own, Some("2.13.0"))[1], Health::Failed);
        assert_eq!(all(own, None)[1], Health::Warning);
        let found = of_libtorch(&libraries(own, Some("2.12.1+cu130"))).found;
        assert_eq!(found, "2.12.1+cu130, CPU only, in `/venv/torch/lib`");
    }

    #[test]
    fn a_rank_of_another_version_fails() {
        assert_eq!(all("9.9.9", Some("2.11.0"))[0], Health::Failed);
    }

    #[test]
    fn a_rank_that_does_not_start_fails_with_the_reason() {
        let unanswered = Unanswered {
            found: "`libtorch_cpu.so` is missing".to_owned(),
            remedy: Some(TORCH),
        };
        let all = judged(Path::new("/bin/rrun-rank"), &Err(unanswered));
        let found = "`/bin/rrun-rank` does not start: `libtorch_cpu.so` is missing";
        assert_eq!(all, [Diagnosis::failed(NAME, found, TORCH)]);
    }
}
