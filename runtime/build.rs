//! Passes the run path of libtorch and MuJoCo, which the build script of `torchlib` has found, to
//! the linker. The crate `models` uses this script, too.

fn main() {
    println!("cargo::rerun-if-env-changed=DEP_RRUN_C10D_RUN_PATH");
    let run_path =
        std::env::var("DEP_RRUN_C10D_RUN_PATH").expect("the build script of torchlib says it");
    println!("cargo::rustc-link-arg={run_path}");
}
