//! Sample values for tests, here and in other crates, which change them as they need.

use serde_json::{Value, json};

use crate::episode::{End, Episode};
use crate::eval_args::EvalArgs;
use crate::exported::{Description, TorchKeys};
use crate::file::{self, JobFile};
use crate::job::{Job, JobIndex};
use crate::plan::RunPlan;

/// The folder of the compiled model in a package.
const MODEL: &str = "policy/data/aotinductor/model";

/// The description of a package with one state vector of three values.
pub const DESCRIPTION: &str = r#"{"format": 1, "torch": "2.11.0+cu130", "batch": {"min": 1, "max": 8},
    "inputs": [{"kind": "state", "vectors": [{"name": "eef_position", "size": 3}]}],
    "output": {"horizon": 4, "action_dim": 7}}"#;

/// Returns an entry of a jobs file with these fields besides or instead of its own, which are three
/// episodes of `reach` with the scripted policy. A field that is null is left out.
///
/// # Panics
///
/// If the fields are no object.
pub fn entry(fields: Value) -> Value {
    let mut entry = json!({"name": "a", "arena_env_args": {"environment": "reach"},
                           "policy_type": "scripted", "num_episodes": 3});
    let Value::Object(fields) = fields else {
        panic!("no object: {fields}")
    };
    let entry_fields = entry.as_object_mut().expect("it is one");
    entry_fields.extend(fields);
    entry_fields.retain(|_, value| !value.is_null());
    entry
}

/// Returns the job of an [`entry`] with these fields.
///
/// # Panics
///
/// If they are refused.
pub fn job(fields: Value) -> Job {
    jobs([fields]).remove(0)
}

/// Returns the jobs of an [`entry`] for each of these fields.
///
/// # Panics
///
/// If they are refused.
pub fn jobs(fields: impl IntoIterator<Item = Value>) -> Vec<Job> {
    let entries: Vec<_> = fields.into_iter().map(entry).collect();
    file::parse(&json!({ "jobs": entries })).unwrap_or_else(|err| panic!("{err}"))
}

/// Returns what `rrun eval --jobs jobs.json` reads with these words besides.
///
/// # Panics
///
/// If they are refused.
pub fn eval_args(words: &[&str]) -> EvalArgs {
    let words = ["--jobs", "jobs.json"].iter().chain(words);
    let words: Vec<_> = words.map(Into::into).collect();
    EvalArgs::parse_words(&words).unwrap_or_else(|err| panic!("{err}"))
}

/// Returns the plan of jobs for two ranks.
pub fn plan(args: &EvalArgs, jobs: Vec<Job>) -> RunPlan {
    let file = JobFile {
        path: "jobs.json".into(),
        sha256: String::new(),
        jobs,
        model_server: None,
    };
    RunPlan::new(args, file, 2, String::new())
}

/// Returns the solved episode `number` of the job at `index`: ten steps on rank 0, nothing
/// recorded, no end time.
pub fn episode(index: usize, job: &str, number: u64) -> Episode {
    Episode {
        job: job.to_owned(),
        job_index: JobIndex(index),
        episode: number,
        seed: 1,
        success: Some(true),
        end: End::Success,
        length: 10,
        return_: 2.0,
        wall_s: 1.0,
        infer_calls: 1,
        ..Episode::default()
    }
}

/// Returns [`DESCRIPTION`].
///
/// # Panics
/// Never: the text is a description.
pub fn description() -> Description {
    Description::parse(DESCRIPTION).expect("the text above is a description")
}

/// Returns the keys of a package for any CPU of x86-64.
pub fn keys() -> TorchKeys {
    TorchKeys {
        device: "cpu".to_owned(),
        platform: "linux".to_owned(),
        machine: "x86_64".to_owned(),
        cpu_isa: "INVALID_VEC_ISA".to_owned(),
        compute_capability: None,
    }
}

/// Returns a package with these keys and this description, whose library is a text.
pub fn package(keys: &TorchKeys, description: &str) -> Vec<u8> {
    let capability = keys.compute_capability;
    let metadata = serde_json::json!({
        "AOTI_DEVICE_KEY": keys.device,
        "AOTI_PLATFORM": keys.platform,
        "AOTI_MACHINE": keys.machine,
        "AOTI_CPU_ISA": keys.cpu_isa,
        "AOTI_COMPUTE_CAPABILITY": capability.map(|number| number.to_string()).unwrap_or_default(),
        "rrun.inputs": description,
    });
    let metadata = metadata.to_string();
    zip(&[
        (&format!("{MODEL}/a.wrapper.cpp"), b"int main() {}"),
        (
            &format!("{MODEL}/a.wrapper_metadata.json"),
            metadata.as_bytes(),
        ),
        (&format!("{MODEL}/a.wrapper.so"), b"a library"),
        ("policy/byteorder", b"little"),
    ])
}

/// Returns a zip file of stored entries.
pub fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let header = (bytes.len() as u32).to_le_bytes();
        let size = (content.len() as u32).to_le_bytes();
        let length = (name.len() as u16).to_le_bytes();
        // Version, flags, method, time, date and checksum before; no extra field after.
        let fields = [&[0; 14][..], &size, &size, &length, &[0; 2]].concat();
        bytes.extend([b"PK\x03\x04", &fields[..], name.as_bytes(), content].concat());
        // Comment, disk, internal and external attributes.
        let place = [&fields[..], &[0; 10], &header, name.as_bytes()].concat();
        directory.extend([b"PK\x01\x02\x14\x00", &place[..]].concat());
    }
    let (start, size) = (bytes.len() as u32, directory.len() as u32);
    let count = (files.len() as u16).to_le_bytes();
    let place = [size.to_le_bytes(), start.to_le_bytes()].concat();
    let end = [b"PK\x05\x06\0\0\0\0", &count[..], &count, &place, &[0; 2]].concat();
    [bytes, directory, end].concat()
}
