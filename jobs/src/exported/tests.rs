use std::io::Cursor;

use proptest::prelude::*;

use super::*;
use crate::samples::{DESCRIPTION, description, keys, package, zip};

fn read(bytes: &[u8]) -> Result<Package, Refusal> {
    let archive = Archive::open(Cursor::new(bytes)).map_err(unreadable);
    Package::of(Path::new("policy.pt2"), &mut archive?)
}

fn refusal(bytes: &[u8]) -> String {
    read(bytes).unwrap_err().to_string()
}

#[test]
fn a_package_says_what_it_needs_and_which_files_are_extracted() {
    let bytes = package(&keys(), DESCRIPTION);
    let found = read(&bytes).unwrap();
    assert_eq!(&found.compiled_for, &keys());
    assert_eq!(found.library, "a.wrapper.so");
    assert_eq!(found.description.batch, Batch { min: 1, max: 8 });
    let vector = StateVector {
        name: "eef_position".to_owned(),
        size: 3,
    };
    let vectors = vec![vector];
    assert_eq!(found.description.inputs, [Input::State { vectors }]);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.pt2");
    std::fs::write(&path, &bytes).unwrap();
    let found = Package::read(&path).unwrap();
    let out = tempfile::tempdir().unwrap();
    found.extract(out.path()).unwrap();
    let mut names: Vec<_> = std::fs::read_dir(out.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["a.wrapper.so", "a.wrapper_metadata.json"]);
    let library = std::fs::read(out.path().join("a.wrapper.so")).unwrap();
    assert_eq!(library, b"a library");
}

#[test]
fn what_is_no_package_is_refused() {
    let text = refusal(b"a TorchScript module, perhaps");
    assert_eq!(
        text,
        "it is not a `.pt2` package: it does not end as a zip file does; expected what \
         `torch._inductor.aoti_compile_and_package` writes"
    );
    let cut = package(&keys(), DESCRIPTION);
    assert!(refusal(&cut[..cut.len() - 30]).contains("it does not end as a zip file does"));
    assert!(refusal(&zip(&[("policy/code", b"")])).starts_with("it has 0 compiled libraries"));
}

#[test]
fn a_package_without_a_description_is_refused_with_the_command_that_writes_it() {
    let metadata =
        br#"{"AOTI_DEVICE_KEY": "cpu", "AOTI_PLATFORM": "linux", "AOTI_MACHINE": "x86_64",
                        "AOTI_CPU_ISA": "AVX2", "AOTI_COMPUTE_CAPABILITY": ""}"#;
    let bytes = zip(&[
        ("p/data/aotinductor/model/a.so", b"library"),
        ("p/data/aotinductor/model/a_metadata.json", metadata),
    ]);
    assert_eq!(
        refusal(&bytes),
        format!(
            "its metadata has no `rrun.inputs`, which says what its inputs are; `{EXPORTER}` writes it"
        )
    );
}

#[test]
fn a_wrong_description_is_refused_with_its_field() {
    rig::cases::check("src/exported/refusals.txt", |given| {
        let description = serde_json::from_str(DESCRIPTION).unwrap();
        let changed = rig::cases::changed(&description, given).to_string();
        let refusal = Description::parse(&changed).unwrap_err().to_string();
        refusal.split(" at line").next().unwrap().to_owned()
    });
}

#[test]
fn a_package_of_another_torch_or_another_cpu_is_refused() {
    let check = |description: &str| {
        let package = read(&package(&keys(), description)).unwrap();
        let machine = Machine {
            architecture: "x86_64".to_owned(),
            cpu_flags: None,
        };
        package.check(&machine).map_err(|err| err.to_string())
    };
    for torch in ["2.11.0+cu130", "2.11"] {
        let description = DESCRIPTION.replace("2.11.0+cu130", torch);
        assert_eq!(check(&description), Ok(()));
    }
    assert_eq!(
        check(&DESCRIPTION.replace("2.11.0+cu130", "2.10.1")).unwrap_err(),
        "`policy.pt2`: it was exported by torch 2.10.1, expected 2.11 or 2.12; export it with that \
         version"
    );
}

#[test]
fn numbers_of_64_bits_are_read() {
    // What a writer does whose offsets do not fit into 32 bits.
    let mut bytes = zip(&[("a", b"content")]);
    let end = bytes.len() - 22;
    let directory = u32::from_le_bytes(bytes[end + 16..end + 20].try_into().unwrap());
    let mut entry = bytes[directory as usize..end].to_vec();
    entry[24..28].fill(0xff);
    entry[42..46].fill(0xff);
    entry[30] = 20;
    entry.extend_from_slice(&[1, 0, 16, 0]);
    entry.extend_from_slice(&[7u64.to_le_bytes(), 0u64.to_le_bytes()].concat());
    bytes.truncate(directory as usize);
    bytes.extend_from_slice(&entry);
    let record = bytes.len() as u64;
    let mut end_64 = b"PK\x06\x06".to_vec();
    end_64.resize(40, 0);
    end_64.extend_from_slice(&(entry.len() as u64).to_le_bytes());
    end_64.extend_from_slice(&u64::from(directory).to_le_bytes());
    bytes.extend_from_slice(&end_64);
    bytes.extend_from_slice(b"PK\x06\x07\x00\x00\x00\x00");
    bytes.extend_from_slice(&[record.to_le_bytes().to_vec(), vec![1, 0, 0, 0]].concat());
    bytes.extend_from_slice(b"PK\x05\x06");
    bytes.extend_from_slice(&[vec![0; 4], vec![0xff; 12], vec![0; 2]].concat());
    let mut archive = Archive::open(Cursor::new(&bytes)).unwrap();
    let entry = archive.entry("a").unwrap().clone();
    assert_eq!(archive.read(&entry, 100).unwrap(), b"content");
}

#[test]
fn a_compressed_library_is_refused() {
    let mut bytes = package(&keys(), DESCRIPTION);
    let name = b"a.wrapper.so";
    let at = bytes
        .windows(name.len())
        .rposition(|part| part == name)
        .unwrap();
    let start = bytes[..at]
        .windows(4)
        .rposition(|part| part == b"PK\x01\x02")
        .unwrap();
    bytes[start + 10] = 8;
    assert!(refusal(&bytes).contains("a.wrapper.so` is compressed or encrypted"));
}

#[test]
fn a_cpu_that_lacks_what_the_compiler_used_is_refused_with_its_name() {
    let full = "fpu fma f16c avx2 avx512f avx512dq avx512vl avx512bw avx512_vnni";
    let checked = |flags: &str, package: &TorchKeys, native: &[&str]| {
        let machine = Machine {
            architecture: "x86_64".to_owned(),
            cpu_flags: cpu_flags(&format!("processor : 0\nflags\t\t: {flags}\n")),
        };
        let mut description = description();
        description.cpu_flags = native.iter().map(|flag| (*flag).to_owned()).collect();
        let checked = machine.check(package, &description);
        checked.map_or_else(|refusal| refusal.to_string(), |()| String::new())
    };
    let mut package = TorchKeys {
        cpu_isa: "AVX512 AVX512_VNNI".to_owned(),
        ..keys()
    };
    assert_eq!(checked(full, &package, &[]), "");
    assert_eq!(
        checked("fpu fma f16c avx2", &package, &[]),
        "it was compiled for a CPU with avx512_vnni, avx512bw, avx512dq, avx512f, avx512vl, \
         which this CPU lacks; export it on this machine, or with `--isa avx2`"
    );
    let native = checked(full, &package, &["avx512_bf16"]);
    assert!(native.contains("a CPU with avx512_bf16, which"), "{native}");
    package.machine = "aarch64".to_owned();
    let wanted = "it was compiled for linux on aarch64, but this machine is linux on x86_64";
    assert_eq!(checked(full, &package, &[]), wanted);
}

#[test]
fn this_machine_has_flags() {
    let here = Machine::here();
    let is_known = here.cpu_flags.is_some_and(|flags| flags.contains("fpu"));
    assert!(is_known || here.architecture != "x86_64");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn a_damaged_package_is_refused_or_read_and_takes_no_memory_that_it_does_not_have(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), cut in 0usize..400
    ) {
        let mut bytes = package(&keys(), DESCRIPTION);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(bytes.len() - cut.min(bytes.len()));
        if let Ok(package) = read(&bytes) {
            let mut archive = Archive::open(Cursor::new(&bytes)).unwrap();
            for entry in &package.files {
                let mut copy = Vec::new();
                let copied = archive.copy(entry, &mut copy);
                prop_assert!(copied.is_err() || copy.len() as u64 == entry.size);
                prop_assert!(copy.len() <= bytes.len());
            }
        }
    }
}
