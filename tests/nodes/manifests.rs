//! The manifests of `deploy/k8s`, and what Kubernetes and JobSet make of them in a pod.

use std::ffi::OsString;
use std::fs;

use jobs::eval_args::EvalArgs;
use launcher::cli::{Cli, CliRequest, parse};
use launcher::cluster::{Inferred, infer};
use launcher::node::Node;
use serde_json::Value;

/// The end of all names in the DNS.
const CLUSTER: &str = "robots.svc.cluster.local";

/// UID of the Job or JobSet.
const UID: &str = "1f0c3ab2-77de-4a5e-9a3d-0242ac120002";

/// The Job of a manifest.
pub struct Manifest {
    /// The Job or JobSet.
    top: Value,
    is_jobset: bool,
    /// Number of Jobs and of pods of each Job.
    pub size: (usize, usize),
}

/// One pod.
#[derive(Clone, Debug)]
pub struct PodFacts {
    /// The host name.
    pub host: String,
    /// The rest of its name in the DNS.
    pub domain: String,
    /// The variables of its container.
    pub variables: Vec<(String, String)>,
}

/// Returns the document of this kind in a manifest.
fn document(file: &str, kind: &str) -> Value {
    let text = fs::read_to_string(rig::root().join("deploy/k8s").join(file)).unwrap();
    let read = |document| serde_saphyr::from_str::<Value>(document).unwrap();
    let mut documents = text.split("\n---\n").map(read);
    let found = documents.find(|document| document["kind"] == kind);
    found.unwrap_or_else(|| panic!("there is a {kind} in {file}"))
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn count(value: &Value) -> usize {
    usize::try_from(value.as_u64().expect("a number")).unwrap()
}

impl Manifest {
    /// Returns the Job of `indexed-job.yaml`.
    pub fn job() -> Manifest {
        Manifest::new(document("indexed-job.yaml", "Job"), false)
    }

    /// Returns the JobSet of `jobset.yaml`.
    pub fn jobset() -> Manifest {
        Manifest::new(document("jobset.yaml", "JobSet"), true)
    }

    fn new(top: Value, is_jobset: bool) -> Manifest {
        let mut manifest = Manifest {
            top,
            is_jobset,
            size: (1, 0),
        };
        if is_jobset {
            manifest.size.0 = count(&manifest.replicated()["replicas"]);
        }
        manifest.size.1 = count(&manifest.job_spec()["completions"]);
        manifest
    }

    /// Sets the number of Jobs and of pods of each Job, as a user would.
    pub fn resized(mut self, jobs: usize, pods: usize) -> Manifest {
        self.size = (jobs, pods);
        self
    }

    fn replicated(&self) -> &Value {
        &self.top["spec"]["replicatedJobs"][0]
    }

    fn job_spec(&self) -> &Value {
        match self.is_jobset {
            true => &self.replicated()["template"]["spec"],
            false => &self.top["spec"],
        }
    }

    fn pod_spec(&self) -> &Value {
        &self.job_spec()["template"]["spec"]
    }

    fn container(&self) -> &Value {
        &self.pod_spec()["containers"][0]
    }

    /// Returns the words that `rrun` gets.
    fn words(&self) -> Vec<OsString> {
        let words = self.container()["args"].as_array().expect("words");
        words.iter().map(|word| text(word).into()).collect()
    }

    /// Returns a pod as the controllers and the kubelet make it: the name from the Job, the
    /// variables from the manifest and the metadata, and `JOB_COMPLETION_INDEX`.
    pub fn pod(&self, job: usize, index: usize, restart: usize) -> PodFacts {
        let name = text(&self.top["metadata"]["name"]);
        let (job_name, subdomain) = if self.is_jobset {
            let replicated = text(&self.replicated()["name"]);
            (format!("{name}-{replicated}-{job}"), name)
        } else {
            (name.to_owned(), text(&self.pod_spec()["subdomain"]))
        };
        let (jobs, pods) = self.size;
        let metadata = |path: &str| match path {
            "metadata.labels['batch.kubernetes.io/controller-uid']" => UID.to_owned(),
            "metadata.annotations['jobset.sigs.k8s.io/job-index']" => job.to_string(),
            "metadata.annotations['jobset.sigs.k8s.io/replicatedjob-replicas']" => jobs.to_string(),
            "metadata.annotations['jobset.sigs.k8s.io/jobset-uid']" => UID.to_owned(),
            "metadata.annotations['jobset.sigs.k8s.io/restart-attempt']" => restart.to_string(),
            other => panic!("no pod has {other}"),
        };
        let variable = |variable: &Value| {
            let name = text(&variable["name"]).to_owned();
            let value = match variable["value"].as_str() {
                // The manifest has the number once more.
                Some(_) if name == "JOB_COMPLETIONS" => pods.to_string(),
                Some(value) => value.to_owned(),
                None => metadata(text(&variable["valueFrom"]["fieldRef"]["fieldPath"])),
            };
            (name, value)
        };
        let given = self.container()["env"].as_array().expect("variables");
        let mut variables: Vec<_> = given.iter().map(variable).collect();
        variables.push(("JOB_COMPLETION_INDEX".to_owned(), index.to_string()));
        PodFacts {
            host: format!("{job_name}-{index}"),
            domain: format!("{subdomain}.{CLUSTER}"),
            variables,
        }
    }

    /// Returns all pods in the order of their ranks.
    pub fn pods(&self) -> Vec<PodFacts> {
        let (jobs, pods) = self.size;
        let places = (0..jobs).flat_map(|job| (0..pods).map(move |index| (job, index)));
        places.map(|(job, index)| self.pod(job, index, 0)).collect()
    }

    /// Returns the words of the manifest, and what `rrun` infers in a pod beside them.
    fn inferred(&self, pod: &PodFacts) -> (Cli, Inferred) {
        let env = pod.variables.iter().cloned().collect();
        let CliRequest::Launch(cli) = parse(&self.words(), &env).expect("a command line") else {
            panic!("no launch")
        };
        let node = Node {
            full_name: format!("{}.{}", pod.host, pod.domain),
            ..Node::default()
        };
        let inferred = infer(&cli, &env, &node).expect("an inference");
        (*cli, inferred)
    }
}

#[test]
fn the_pods_of_a_manifest_are_one_launch_which_each_start_of_a_jobset_names_anew() {
    let set = "eval-workers-0-0.eval.robots.svc.cluster.local";
    for (manifest, first) in [
        (Manifest::job(), "eval-0.eval.robots.svc.cluster.local"),
        (Manifest::jobset(), set),
        (Manifest::jobset().resized(3, 2), set),
    ] {
        let pods = manifest.pods();
        for (rank, pod) in pods.iter().enumerate() {
            let (_, inferred) = manifest.inferred(pod);
            let meeting = inferred.meeting.expect("several pods");
            assert_eq!((meeting.node_rank, meeting.nnodes), (rank, pods.len()));
            assert_eq!((&*meeting.addr, meeting.port), (first, 29_500));
        }
    }
    let set = Manifest::jobset();
    let run_id = |restart| set.inferred(&set.pod(0, 1, restart)).1.run_id.unwrap();
    assert_eq!(run_id(0), "eval-workers.1f0c3ab2");
    assert_eq!(run_id(1), "eval-workers.1f0c3ab2.r1");
}

#[test]
fn all_pods_run_at_once_end_in_time_and_share_the_run_folder() {
    for manifest in [Manifest::job(), Manifest::jobset()] {
        let (job, pod) = (manifest.job_spec(), manifest.pod_spec());
        assert_eq!(job["parallelism"], job["completions"]);
        let given = manifest.container()["env"].as_array().expect("variables");
        let completions = given.iter().find(|it| it["name"] == "JOB_COMPLETIONS");
        let completions = text(&completions.expect("the variable")["value"]);
        assert_eq!(completions, manifest.size.1.to_string());

        let grace = count(&pod["terminationGracePeriodSeconds"]) as i64;
        let shutdown = manifest.inferred(&manifest.pod(0, 0, 0)).0.shutdown_timeout;
        let has_time = shutdown.is_some_and(|shutdown| shutdown + 5 <= grace);
        assert!(has_time, "{shutdown:?}, {grace}");

        let words = manifest.words();
        let eval = words.iter().position(|word| word == "eval").expect("eval");
        let args = EvalArgs::parse_words(&words[eval + 1..]).expect("a command line of eval");
        let mount = &manifest.container()["volumeMounts"][0];
        assert_eq!(mount["name"], pod["volumes"][0]["name"]);
        let output = args.output.expect("a folder");
        assert!(output.starts_with(text(&mount["mountPath"])), "{output:?}");
    }
}

#[test]
fn the_service_of_the_job_names_its_pods_before_they_are_ready() {
    let service = document("indexed-job.yaml", "Service");
    let subdomain = &Manifest::job().pod_spec()["subdomain"].clone();
    assert_eq!(&service["metadata"]["name"], subdomain);
    assert_eq!(service["spec"]["clusterIP"], "None");
    assert_eq!(service["spec"]["publishNotReadyAddresses"], true);
}
