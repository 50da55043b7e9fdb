//! Tells the linker where libtorch and MuJoCo are at run time, as `c10d` has found them.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let run_path =
        std::env::var("DEP_RRUN_C10D_RUN_PATH").expect("the build script of c10d says it");
    println!("cargo::rustc-link-arg={run_path}");
}
