//! Compiles the C++ shims in `shim`, and tells the linker where libtorch and MuJoCo are at run
//! time.
//!
//! `operators.cc` and `package.cc` are linked into the program. `cuda.cc`, `products.cc`
//! and `upload.cc` become a shared library that is embedded in the program (`RRUN_CUDA_SHIM`), so
//! that the same program starts with and without a GPU. An empty library that stands for
//! `libtorch.so` is embedded, too (`RRUN_TORCH_STAND_IN`): compiled packages ask for that name.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const SHIM: &str = "shim";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={SHIM}");
    println!("cargo::rerun-if-env-changed=MUJOCO_DYNAMIC_LINK_DIR");
    let torch = Libtorch::find();
    let run_path = run_path(&torch);
    println!("cargo::rustc-link-arg={run_path}");
    // For the build scripts of dependent crates, because linker arguments are not passed on to
    // them.
    println!("cargo::metadata=run_path={run_path}");
    let [operators, package, cuda, products, upload] = compile(&torch);
    cc::Build::new()
        .cpp(true)
        .objects([operators, package])
        .compile("rrun_c10d");
    println!("cargo::rustc-link-search=native={}", torch.lib.display());
    println!("cargo::rustc-link-lib=torch_cpu");
    println!("cargo::rustc-link-lib=c10");
    println!(
        "cargo::rustc-env=RRUN_CUDA_SHIM={}",
        link_cuda_shim(&torch, &[cuda, products, upload]).display()
    );
    let (major, minor) = torch.version();
    println!("cargo::rustc-env=RRUN_CUDA_SHIM_TORCH={major}.{minor}");
    println!(
        "cargo::rustc-env=RRUN_TORCH_STAND_IN={}",
        link_stand_in().display()
    );
}

/// Folders of the torch wheel and of the CUDA wheels beside it, with symbolic links resolved.
struct Libtorch {
    lib: PathBuf,
    include: PathBuf,
    /// `nvidia/cu13` in the same site-packages.
    cuda: PathBuf,
}

impl Libtorch {
    fn find() -> Self {
        // The variable is set only for direct dependents of torch-sys; its value is
        // `$LIBTORCH/lib`.
        let lib =
            env::var("DEP_TCH_LIBTORCH_LIB").unwrap_or_else(|_| missing("LIBTORCH is not set"));
        let lib = canonical(Path::new(&lib));
        let torch = lib
            .parent()
            .expect("`lib` lies in the folder LIBTORCH names");
        let site_packages = torch.parent().expect("LIBTORCH is not the root folder");
        let found = Libtorch {
            include: torch.join("include"),
            cuda: site_packages.join("nvidia/cu13"),
            lib: lib.clone(),
        };
        found.require("include", &found.include.join("ATen/ATen.h"));
        found.require(
            "nvidia-cuda-runtime",
            &found.cuda.join("include/cuda_runtime.h"),
        );
        found.require(
            "nvidia-cuda-crt",
            &found.cuda.join("include/crt/host_config.h"),
        );
        found.require(
            "nvidia-cuda-cccl",
            &found.cuda.join("include/cccl/nv/target"),
        );
        found
    }

    /// Returns major and minor number of this libtorch.
    fn version(&self) -> (u32, u32) {
        let header = self.include.join("torch/headeronly/version.h");
        let text = std::fs::read_to_string(&header).unwrap_or_default();
        version(&text).unwrap_or_else(|| {
            missing(&format!(
                "{} does not say which version libtorch is",
                header.display()
            ))
        })
    }

    fn require(&self, part: &str, file: &Path) {
        if !file.exists() {
            missing(&format!(
                "{part} is not installed beside libtorch: there is no {}",
                file.display()
            ));
        }
    }
}

/// The source files, in the order of the objects that [`compile`] returns.
const SOURCES: [&str; 5] = [
    "operators.cc",
    "package.cc",
    "cuda.cc",
    "products.cc",
    "upload.cc",
];

/// Compiles [`SOURCES`] in parallel and returns the objects. Each takes up to 9 s and 0.9 GB.
fn compile(torch: &Libtorch) -> [PathBuf; 5] {
    let api = torch.include.join("torch/csrc/api/include");
    let (cuda, cccl) = (torch.cuda.join("include"), torch.cuda.join("include/cccl"));
    let objects = cpp()
        .pic(true)
        .warnings(false) // libtorch's headers are not ours to mend
        .define("_GLIBCXX_USE_CXX11_ABI", "1")
        .include(Path::new(SHIM).join("cuda_stub"))
        .includes([&torch.include, &api, &cuda, &cccl])
        .files(SOURCES.map(|file| Path::new(SHIM).join(file)))
        .compile_intermediates();
    objects.try_into().expect("each file makes one object")
}

/// Parses the major and minor version from libtorch's `version.h`.
fn version(text: &str) -> Option<(u32, u32)> {
    let number = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("#define ")?.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    Some((
        number("TORCH_VERSION_MAJOR ")?,
        number("TORCH_VERSION_MINOR ")?,
    ))
}

/// Returns a C++ build that is always optimised and has no debug information: the shims only
/// forward calls, and would take megabytes with `-g`.
fn cpp() -> cc::Build {
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").opt_level(1).debug(false);
    build
}

fn link_cuda_shim(torch: &Libtorch, objects: &[PathBuf]) -> PathBuf {
    let shim = Path::new(&env::var("OUT_DIR").expect("cargo sets OUT_DIR")).join("librrun_cuda.so");
    let mut link: Command = cpp().get_compiler().to_command();
    link.args(["-shared", "-Wl,-s", "-o"])
        .arg(&shim)
        .args(objects);
    link.arg(format!("-L{}", torch.lib.display())).args([
        "-ltorch_cuda",
        "-ltorch_cpu",
        "-lc10_cuda",
        "-lc10",
    ]);
    link.arg(format!("-L{}", torch.cuda.join("lib").display()))
        .arg("-l:libcudart.so.13");
    let status = link
        .status()
        .expect("the compiler that made the object can be started again");
    assert!(status.success(), "cannot link {}: {status}", shim.display());
    shim
}

/// Makes an empty library whose name is `libtorch.so`.
fn link_stand_in() -> PathBuf {
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let library = Path::new(&out).join("librrun_stand_in.so");
    let mut link: Command = cpp().get_compiler().to_command();
    link.args(["-shared", "-nostdlib", "-Wl,-s", "-Wl,-soname,libtorch.so"])
        .arg("-o")
        .arg(&library)
        .args(["-x", "c", "/dev/null"]);
    let status = link
        .status()
        .expect("the compiler that made the objects can be started again");
    assert!(
        status.success(),
        "cannot link {}: {status}",
        library.display()
    );
    library
}

/// Returns the linker argument for the run path: first the folders beside an installed program,
/// then those where this machine has the libraries.
///
/// The linker writes it as DT_RUNPATH, so LD_LIBRARY_PATH takes precedence. Tests and benches get
/// it, too.
fn run_path(torch: &Libtorch) -> String {
    let mut folders = vec![
        "$ORIGIN/../lib/torch".to_owned(),
        "$ORIGIN/../lib/mujoco".to_owned(),
    ];
    folders.push(torch.lib.display().to_string());
    if let Ok(mujoco) = env::var("MUJOCO_DYNAMIC_LINK_DIR") {
        folders.push(canonical(Path::new(&mujoco)).display().to_string());
    }
    format!("-Wl,-rpath,{}", folders.join(":"))
}

fn canonical(folder: &Path) -> PathBuf {
    folder
        .canonicalize()
        .unwrap_or_else(|err| missing(&format!("cannot find {}: {err}", folder.display())))
}

fn missing(what: &str) -> ! {
    panic!("\n\n    {what}\n    run ./setup.sh, then build again\n\n")
}
