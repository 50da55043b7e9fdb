//! Tests that several ranks of one node that load the same checkpoint read the disk once.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use rustix::fs::{Advice, fadvise};

use super::*;
use crate::weights::tests::ahead::{Late, ahead_by};

const RANKS: usize = 3;
/// Number of elements of each tensor.
const ELEMENTS: i64 = 1 << 20;
const TENSORS: i64 = 12;
/// Environment variable with the checkpoint's folder for a started rank.
const FOLDER: &str = "RRUN_TEST_CHECKPOINT";

fn specs() -> Vec<JointSpec> {
    (0..TENSORS)
        .map(|at| vec![(format!("t{at}"), vec![ELEMENTS])])
        .collect()
}

/// Flushes the file to the disk and tells the kernel to drop it from the page cache.
fn forget(dir: &Path) {
    let file = File::open(dir.join(SINGLE)).unwrap();
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
}

/// Runs ranks as processes that start loading together, and returns the bytes that each read from a
/// disk.
fn load(dir: &Path, ranks: usize) -> Vec<u64> {
    let (_crate, path) = module_path!().split_once("::").unwrap();
    let start = |_| {
        let mut rank = Command::new(std::env::current_exe().unwrap());
        rank.args(["--exact", &format!("{path}::{TEST}"), "--nocapture"])
            .env(FOLDER, dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        rank.spawn().unwrap()
    };
    let mut ranks: Vec<Child> = (0..ranks).map(start).collect();
    let mut lines: Vec<_> = ranks
        .iter_mut()
        .map(|rank| BufReader::new(rank.stdout.take().unwrap()).lines())
        .collect();
    for lines in &mut lines {
        assert!(
            lines.any(|line| line.unwrap().ends_with("ready")),
            "a rank ended before it was ready"
        );
    }
    for rank in &mut ranks {
        rank.stdin.take().unwrap().write_all(b"\n").unwrap();
    }
    let bytes = |line: std::io::Result<String>| line.unwrap().strip_prefix("read ")?.parse().ok();
    let read = lines
        .iter_mut()
        .map(|lines| lines.find_map(bytes).unwrap())
        .collect();
    for rank in &mut ranks {
        assert!(rank.wait().unwrap().success());
    }
    read
}

/// The test that is started again as a rank.
const TEST: &str = "ranks_of_a_node_read_the_disk_once";

#[test]
fn ranks_of_a_node_read_the_disk_once() {
    if let Some(dir) = std::env::var_os(FOLDER) {
        return load_as_a_rank(Path::new(&dir));
    }
    // Next to this program, which is on a disk; the directory for temporary files may be in memory.
    let dir = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
    let tensor = |at| (format!("t{at}"), Tensor::full([ELEMENTS], at as f64, F32));
    let named: Vec<_> = (0..TENSORS).map(tensor).collect();
    Tensor::write_safetensors(&named, dir.path().join(SINGLE)).unwrap();
    let size = fs::metadata(dir.path().join(SINGLE)).unwrap().len();
    forget(dir.path());
    let alone: u64 = load(dir.path(), 1).iter().sum();
    if alone < size * 9 / 10 {
        eprintln!(
            "skipped: of {size} bytes that were to be forgotten {alone} came from a disk again"
        );
        return;
    }
    forget(dir.path());
    let together = load(dir.path(), RANKS);
    let total: u64 = together.iter().sum();
    println!("a file of {size} bytes; one rank read {alone}, {RANKS} ranks read {together:?}");
    assert!(
        total < size * 3 / 2,
        "{RANKS} ranks read {total} bytes of a file of {size}"
    );
}

fn load_as_a_rank(dir: &Path) {
    let mut weights = Weights::open(dir, Device::Cpu, Kind::BFloat16).unwrap();
    println!("\nready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let before = read_bytes();
    let sizes = UploadSizes {
        buffer: 1 << 20,
        threads: 2,
    };
    ahead_by(&mut weights, &specs(), sizes, Late::default());
    for (at, specs) in specs().iter().enumerate() {
        let last = weights.joint(specs).double_value(&[ELEMENTS - 1]);
        assert_eq!(last, at as f64);
    }
    println!("read {}", read_bytes() - before);
}

/// Returns the bytes that the kernel has fetched from disks for this process.
fn read_bytes() -> u64 {
    let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
    io.lines()
        .find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok())
        .unwrap_or(0)
}
