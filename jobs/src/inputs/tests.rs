//! A run whose inputs were edited is another run, whatever kind of input it is.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::*;
use crate::journal::Journal;
use crate::layout::RunFolder;
use crate::plan::RunPlan;
use crate::refusal::Refusal;
use crate::samples;

/// A folder with inputs, and the run folder of a job that has them.
struct World {
    dir: tempfile::TempDir,
    entry: Value,
}

impl World {
    /// Makes the files, and a job with these fields, in which `DIR` is the folder.
    fn new(files: &[(&str, &str)], fields: &Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut world = Self {
            dir,
            entry: Value::Null,
        };
        world.entry = world.entry_of(fields);
        for (name, text) in files {
            world.write(name, text);
        }
        world
    }

    fn entry_of(&self, fields: &Value) -> Value {
        let folder = self.dir.path().to_str().unwrap();
        let text = fields.to_string().replace("DIR", folder);
        samples::entry(serde_json::from_str(&text).unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn folder(&self) -> RunFolder {
        RunFolder::new(&self.path("run"))
    }

    /// Returns the plan of a start now.
    fn plan(&self) -> RunPlan {
        self.plan_of(Asker::Alone)
    }

    fn plan_of(&self, asker: Asker) -> RunPlan {
        let jobs = samples::jobs([self.entry.clone()]);
        let plan = samples::plan(&samples::eval_args(&[]), jobs);
        plan.with_inputs(&self.folder(), asker, &|_| None)
    }

    /// Begins the run, and finishes an episode.
    fn begin(&self) {
        self.plan().settle(&self.folder(), false).unwrap();
        let mut journal = Journal::open(&self.folder().journal(0)).unwrap();
        journal.append(&samples::episode(0, "a", 0).into()).unwrap();
    }

    /// Returns what a repetition says: nothing, or why it is refused.
    fn repeated(&self) -> String {
        let checked = self.plan().check(&self.folder(), false).map(drop);
        let settled = self.plan().settle(&self.folder(), false).map(drop);
        let text = |result: Result<(), Refusal>| {
            result.map_or_else(|err| err.to_string(), |()| String::new())
        };
        let (checked, settled) = (text(checked), text(settled));
        assert_eq!(checked, settled);
        settled
    }

    /// Returns what a rank finds before it begins the job.
    fn changed(&self) -> Option<String> {
        let plan = RunPlan::read(&self.folder()).unwrap();
        changed(&plan.jobs[0], &plan.inputs, &self.folder(), &|_| None)
    }

    /// Sets the time of a file to some seconds ago.
    fn age(&self, name: &str, seconds: u64) {
        let file = File::options().write(true).open(self.path(name)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds))
            .unwrap();
    }

    /// Writes down the sum of a file, as rank 0 does.
    fn hash(&self, name: &str) {
        let mut sums = SumCache::open(&self.folder().policy_files());
        let hash = |path: &Path| sha256::of_reader(File::open(path)?);
        sums.file(&self.path(name), hash).unwrap();
    }
}

/// Begins a run, edits a file of it, and returns why its repetition is refused. Accepted, the job
/// starts over once.
fn refusal(files: &[(&str, &str)], fields: Value, edited: &str) -> String {
    let world = World::new(files, &fields);
    world.begin();
    assert_eq!(world.repeated(), "", "nothing was edited: {fields}");
    let text = fs::read_to_string(world.path(edited)).unwrap();
    world.write(edited, &text.replace("1", "2"));
    let told = world.repeated();
    world.plan().settle(&world.folder(), true).unwrap();
    assert!(!told.is_empty(), "`{edited}` was edited: {fields}");
    let put_away = world
        .folder()
        .superseded()
        .join("1/journal/journal_rank0.jsonl");
    assert!(put_away.exists());
    assert!(
        !world.folder().journal(0).exists(),
        "its episodes do not count"
    );
    assert_eq!(world.repeated(), "", "it goes on: {fields}");
    told
}

const MODEL: (&str, &str) = ("model/config.json", "{\"n\": 1}");

fn gr00t(mut config: Value) -> Value {
    config["model_path"] = "DIR/model".into();
    json!({"policy_type": "gr00t", "policy_config_dict": config})
}

fn python(args: &Value) -> Value {
    let mut args = args.clone();
    args["environment"] = "DIR/sim.py:make".into();
    json!({"arena_env_args": args})
}

/// A policy of a file that is too large to be read at every start, and its contents.
fn of_large_policy() -> (World, String) {
    let large = "1".repeat(SMALL_BYTES as usize + 1);
    let job = json!({"policy_type": "torchscript", "policy_config_dict": {"model_path": "DIR/policy.pt"}});
    let world = World::new(&[("policy.pt", &large)], &job);
    (world, large)
}

#[test]
fn an_edited_file_of_a_policy_makes_it_another_run() {
    let yaml = (
        "policy.yaml",
        "denoising_steps: 1\naction_joints_config_path: joints.yaml\n",
    );
    let of_yaml = gr00t(json!({"policy_config_yaml_path": "DIR/policy.yaml"}));
    let told = refusal(&[MODEL, yaml], of_yaml.clone(), "policy.yaml");
    for text in [
        "a: `",
        "policy.yaml` SHA-256 ",
        "choose another --output, or use --accept-changed-jobs: ",
    ] {
        assert!(told.contains(text), "{told}");
    }
    let joints = ("joints.yaml", "joints: {x: 1}\n");
    refusal(&[MODEL, yaml, joints], of_yaml, "joints.yaml");
    let of_joints = gr00t(json!({"action_joints_config_path": "DIR/joints.yaml"}));
    refusal(&[MODEL, joints], of_joints, "joints.yaml");
    refusal(&[MODEL], gr00t(json!({})), "model/config.json");
    let script = json!({"policy_type": "torchscript", "policy_config_dict": {"model_path": "DIR/policy.pt"}});
    refusal(&[("policy.pt", "1")], script, "policy.pt");
}

#[test]
fn an_edited_program_of_a_policy_makes_it_another_run() {
    let files = [
        ("policy.py", "import helper\nx = 1\n"),
        ("helper.py", "y = 1\n"),
        ("weights.bin", "1"),
        ("ckpt/model.bin", "1"),
    ];
    let config = json!({"policy": "DIR/policy.py:Policy", "policy_kwargs": {"files": ["DIR/weights.bin", {"from": "DIR/ckpt"}]}});
    let job = json!({"policy_type": "python", "policy_config_dict": config});
    for (file, _) in files {
        let told = refusal(&files, job.clone(), file);
        assert!(told.contains(&format!("{file}` SHA-256 ")), "{told}");
    }
    let package = [("lib/mine/__init__.py", ""), ("lib/mine/net.py", "x = 1\n")];
    let config = json!({"policy": "mine.net:Policy", "env": {"PYTHONPATH": "DIR/lib"}});
    let job = json!({"policy_type": "python", "policy_config_dict": config});
    refusal(&package, job, "lib/mine/net.py");
}

#[test]
fn an_edited_simulator_or_mapping_makes_it_another_run() {
    let files = [
        ("sim.py", "from world import step\nx = 1\n"),
        ("world.py", "y = 1\n"),
        ("map.yaml", "video: {top: {key: image1}}\n"),
        ("scene.xml", "<mass>1</mass>\n"),
        ("dark.json", "1"),
    ];
    let args = json!({"mapping": "DIR/map.yaml", "env_kwargs": {"scene": "DIR/scene.xml", "task": "reach"}});
    let mut job = python(&args);
    job["variations"] = json!({"light": "DIR/dark.json"});
    for (file, _) in files {
        let told = refusal(&files, job.clone(), file);
        assert!(told.contains(&format!("{file}` SHA-256 ")), "{told}");
    }
}

#[test]
fn folders_with_links_to_themselves_are_looked_through_once_and_not_for_ever() {
    let files = [
        ("sim.py", "import world"),
        ("world/__init__.py", ""),
        ("data/a", "x"),
    ];
    let simulator = json!({"arena_env_args": {"environment": "DIR/sim.py:make",
                                              "env_kwargs": {"data": "DIR/data"}}});
    let world = World::new(&files, &simulator);
    for link in [
        "data/1", "data/2", "data/3", "world/1", "world/2", "world/3",
    ] {
        let link = world.path(link);
        std::os::unix::fs::symlink(link.parent().unwrap(), &link).unwrap();
    }
    world.begin();
    world.write("world/__init__.py", "edited");
    let told = world.repeated();
    assert!(told.contains("/world/__init__.py` SHA-256"), "{told}");
}

#[test]
fn an_input_that_appears_or_is_gone_is_no_change() {
    let args = json!({"env_kwargs": {"log": "DIR/log.txt", "marker": "DIR/marker"}});
    let world = World::new(&[("sim.py", ""), ("marker", "1")], &python(&args));
    world.begin();
    world.write("log.txt", "written by the simulator");
    assert_eq!(world.repeated(), "");
    world.write("log.txt", "written by the simulator again");
    fs::remove_file(world.path("marker")).unwrap();
    assert_eq!(world.repeated(), "");
}

#[test]
fn a_log_that_was_there_before_may_grow_and_not_be_rewritten() {
    let args = json!({"env_kwargs": {"log": "DIR/sim.log", "scene": "DIR/scene.xml"}});
    let files = [("sim.py", ""), ("sim.log", "1\n"), ("scene.xml", "1\n")];
    let world = World::new(&files, &python(&args));
    world.begin();
    world.write("sim.log", "1\n2\n");
    assert_eq!(world.repeated(), "");
    assert_eq!(world.changed(), None);
    world.write("sim.log", "other\n");
    assert!(world.repeated().contains("sim.log` SHA-256 "));
    assert_eq!(
        world.changed(),
        None,
        "the simulator may do that while it runs"
    );
    world.write("sim.log", "1\n");
    world.write("scene.xml", "1\n2\n");
    assert!(world.repeated().contains("scene.xml` SHA-256 "));
}

#[test]
fn a_rank_finds_what_was_changed_under_its_run() {
    let large = "1".repeat(SMALL_BYTES as usize + 1);
    let mut job = python(&json!({}));
    job["policy_type"] = json!("torchscript");
    job["policy_config_dict"] = json!({"model_path": "DIR/policy.pt"});
    let files = [
        ("sim.py", "import world\n"),
        ("world.py", ""),
        ("policy.pt", &large),
    ];
    let world = World::new(&files, &job);
    world.begin();
    assert_eq!(world.changed(), None);
    world.age("policy.pt", 100);
    assert_eq!(world.changed(), None, "a copy of another node");
    world.write("world.py", "x = 1\n");
    let told = world.changed().unwrap();
    let wanted = "world.py`, SHA-256 e3b0c44298fc… → SHA-256 ";
    assert!(told.contains(wanted), "{told}");
}

#[test]
fn a_rank_reads_a_large_file_of_another_time_if_its_sum_is_known() {
    let (world, large) = of_large_policy();
    world.begin();
    world.hash("policy.pt");
    world.age("policy.pt", 100);
    assert_eq!(world.changed(), None, "it is the same");
    world.write("policy.pt", &large.replace('1', "2"));
    assert!(world.changed().unwrap().contains("policy.pt`, "));
}

#[test]
fn what_a_run_writes_is_no_input_of_it() {
    let args = json!({"env_kwargs": {"log": "DIR/run/logs"}});
    let world = World::new(&[("sim.py", ""), ("run/logs/a", "1")], &python(&args));
    world.begin();
    world.write("run/logs/a", "2");
    assert_eq!(world.repeated(), "");
}

#[test]
fn files_that_moved_are_no_further_change() {
    let job = |place: &str| json!({"policy_type": "python", "policy_config_dict": {"policy": format!("DIR/{place}/policy.py:Policy")}});
    let text = "x = 1\n";
    let mut world = World::new(
        &[("old/policy.py", text), ("new/policy.py", text)],
        &job("old"),
    );
    world.begin();
    world.entry = world.entry_of(&job("new"));
    let told = world.repeated();
    assert!(told.contains("policy_config_dict.policy "), "{told}");
    assert!(!told.contains("SHA-256"), "{told}");
}

#[test]
fn of_large_files_the_time_counts_and_then_the_contents() {
    let (world, large) = of_large_policy();
    world.begin();
    world.hash("policy.pt");
    world.age("policy.pt", 100);
    assert_eq!(world.repeated(), "", "the same contents of another time");
    assert_eq!(world.repeated(), "", "and of that time again");
    world.write("policy.pt", &large.replace('1', "2"));
    let told = world.repeated();
    assert!(told.contains("policy.pt` "), "{told}");
    assert!(told.contains("→ SHA-256 "), "{told}");
    world.write("policy.pt", "small");
    assert!(world.repeated().contains("policy.pt` "), "{told}");
}

#[test]
fn a_large_file_of_another_time_that_nobody_has_read_is_not_trusted() {
    let (world, _) = of_large_policy();
    world.plan().settle(&world.folder(), false).unwrap();
    world.age("policy.pt", 50);
    world.begin();
    assert_eq!(
        world.repeated(),
        "",
        "before the first line, times are written again"
    );
    world.age("policy.pt", 100);
    let told = world.repeated();
    assert!(told.contains("policy.pt` 1048577 bytes of "), "{told}");
    let rank = world.plan_of(Asker::Rank).settle(&world.folder(), false);
    assert!(rank.is_ok(), "the copy of another node has its own time");
}

#[test]
fn a_large_file_is_read_once_at_a_start() {
    let (world, large) = of_large_policy();
    world.begin();
    world.hash("policy.pt");
    world.age("policy.pt", 100);
    let mut plan = world.plan();
    assert!(plan.check(&world.folder(), false).unwrap().is_empty());
    // Whoever reads it again sees this, as the next start does.
    world.write("policy.pt", &large.replace('1', "2"));
    plan.settle(&world.folder(), false).unwrap();
    assert!(world.repeated().contains("policy.pt` "));
}

mod sums {
    use super::*;
    use crate::sha256;

    #[test]
    fn what_was_read_before_is_read_again_only_when_it_has_changed() {
        let dir = tempfile::tempdir().unwrap();
        let (blob, path) = (dir.path().join("blob"), dir.path().join("cache"));
        fs::write(&blob, "first").unwrap();
        let hash = |path: &Path| sha256::of_reader(fs::File::open(path)?);
        let sum = || SumCache::open(&path).file(&blob, hash).unwrap();
        let first = sum();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace(&first.sha256, "remembered")).unwrap();
        assert_eq!(sum().sha256, "remembered");
        fs::write(&blob, "another").unwrap();
        assert_ne!(sum().sha256, "remembered");
        fs::write(&path, "no cache").unwrap();
        assert_eq!(sum().bytes, 7);
    }
}
