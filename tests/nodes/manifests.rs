//! The manifests of `deploy/k8s`, and what Kubernetes and JobSet make of them in a pod.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use jobs::eval_args::EvalArgs;
use launcher::cli::{Cli, CliRequest, Environment, parse};
use launcher::kubernetes::Kubernetes;
use launcher::node::Node;
use serde_json::Value;

/// The end of all names in the DNS.
const CLUSTER: &str = "robots.svc.cluster.local";

/// UID of the Job or JobSet.
const UID: &str = "1f0c3ab2-77de-4a5e-9a3d-0242ac120002";

/// The Job of a manifest.
pub struct Manifest {
    documents: Vec<Value>,
    /// Name of the Job or JobSet.
    name: String,
    /// Number of Jobs and of pods of each Job.
    pub size: (usize, usize),
    is_jobset: bool,
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

fn read(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy/k8s")
        .join(file);
    let text = fs::read_to_string(path).unwrap();
    text.split("\n---\n")
        .map(|document| serde_saphyr::from_str(document).unwrap())
        .collect()
}

fn count(value: &Value) -> usize {
    usize::try_from(value.as_u64().expect("a number")).unwrap()
}

impl Manifest {
    /// Returns the Job of `indexed-job.yaml`.
    pub fn job() -> Manifest {
        Manifest::new(read("indexed-job.yaml"), "Job")
    }

    /// Returns the JobSet of `jobset.yaml`.
    pub fn jobset() -> Manifest {
        Manifest::new(read("jobset.yaml"), "JobSet")
    }

    fn new(documents: Vec<Value>, kind: &str) -> Manifest {
        let manifest = Manifest {
            documents,
            name: String::new(),
            size: (1, 0),
            is_jobset: kind == "JobSet",
        };
        let top = manifest.document(kind);
        let name = top["metadata"]["name"].as_str().expect("a name").to_owned();
        let jobs = match kind {
            "JobSet" => count(&top["spec"]["replicatedJobs"][0]["replicas"]),
            _ => 1,
        };
        let pods = count(&manifest.job_spec()["completions"]);
        Manifest {
            name,
            size: (jobs, pods),
            ..manifest
        }
        .checked()
    }

    /// Sets the number of Jobs and of pods of each Job, as a user would.
    pub fn resized(mut self, jobs: usize, pods: usize) -> Manifest {
        self.size = (jobs, pods);
        self
    }

    fn checked(self) -> Manifest {
        assert_eq!(self.job_spec()["completionMode"], "Indexed");
        assert_eq!(
            self.job_spec()["parallelism"],
            self.job_spec()["completions"],
            "all pods run at the same time"
        );
        self
    }

    fn document(&self, kind: &str) -> &Value {
        let found = self
            .documents
            .iter()
            .find(|document| document["kind"] == kind);
        found.unwrap_or_else(|| panic!("there is a {kind}"))
    }

    fn job_spec(&self) -> &Value {
        if self.is_jobset {
            &self.document("JobSet")["spec"]["replicatedJobs"][0]["template"]["spec"]
        } else {
            &self.document("Job")["spec"]
        }
    }

    fn pod_spec(&self) -> &Value {
        &self.job_spec()["template"]["spec"]
    }

    fn container(&self) -> &Value {
        &self.pod_spec()["containers"][0]
    }

    /// Returns the words that `rrun` gets.
    pub fn words(&self) -> Vec<String> {
        let words = self.container()["args"].as_array().expect("words");
        words
            .iter()
            .map(|word| word.as_str().expect("a word").to_owned())
            .collect()
    }

    /// Returns a pod as the controllers and the kubelet make it: the name from the Job, the
    /// variables from the manifest and the metadata, and `JOB_COMPLETION_INDEX`.
    pub fn pod(&self, job: usize, index: usize, restart: usize) -> PodFacts {
        let (job_name, subdomain) = if self.is_jobset {
            let replicated = self.document("JobSet")["spec"]["replicatedJobs"][0]["name"]
                .as_str()
                .expect("a name");
            (
                format!("{}-{replicated}-{job}", self.name),
                self.name.clone(),
            )
        } else {
            let subdomain = self.pod_spec()["subdomain"].as_str().expect("a subdomain");
            (self.name.clone(), subdomain.to_owned())
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
            let name = variable["name"].as_str().expect("a name").to_owned();
            let value = match variable["value"].as_str() {
                // The manifest has the number once more.
                Some(_) if name == "JOB_COMPLETIONS" => pods.to_string(),
                Some(value) => value.to_owned(),
                None => metadata(
                    variable["valueFrom"]["fieldRef"]["fieldPath"]
                        .as_str()
                        .expect("a path"),
                ),
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
    pub fn pods(&self, restart: usize) -> Vec<PodFacts> {
        let (jobs, pods) = self.size;
        let places = (0..jobs).flat_map(|job| (0..pods).map(move |index| (job, index)));
        places
            .map(|(job, index)| self.pod(job, index, restart))
            .collect()
    }
}

/// Returns what `rrun` infers in a pod with the words of the manifest.
fn inferred(manifest: &Manifest, pod: &PodFacts) -> Cli {
    let env = pod
        .variables
        .iter()
        .fold(Environment::default(), |env, (name, value)| {
            env.with(name, value)
        });
    let words = manifest.words().into_iter().map(OsString::from).collect();
    let CliRequest::Launch(cli) = parse(words, &env).expect("a command line") else {
        panic!("no launch")
    };
    let node = Node {
        full_name: format!("{}.{}", pod.host, pod.domain),
        ..Node::default()
    };
    Kubernetes::new(&cli, &env, &node)
        .expect("an inference")
        .cli
}

#[track_caller]
fn numbers_its_pods(manifest: &Manifest, first: &str) {
    let (jobs, pods) = manifest.size;
    for (rank, pod) in manifest.pods(0).iter().enumerate() {
        let cli = inferred(manifest, pod);
        assert_eq!(
            (cli.nnodes, cli.node_rank),
            ((jobs * pods).to_string(), rank as i64)
        );
        assert_eq!(
            (cli.master_addr.as_deref(), cli.master_port),
            (Some(first), Some(29_500))
        );
    }
}

#[test]
fn the_pods_of_the_indexed_job_are_one_launch() {
    numbers_its_pods(&Manifest::job(), "eval-0.eval.robots.svc.cluster.local");
}

#[test]
fn the_pods_of_the_jobset_are_one_launch() {
    let first = "eval-workers-0-0.eval.robots.svc.cluster.local";
    numbers_its_pods(&Manifest::jobset(), first);
    numbers_its_pods(&Manifest::jobset().resized(3, 2), first);
}

#[test]
fn each_start_of_the_jobset_has_its_own_run_id() {
    let manifest = Manifest::jobset();
    let run_id = |restart| inferred(&manifest, &manifest.pod(0, 1, restart)).rdzv_id;
    assert_eq!(
        [run_id(0), run_id(1)],
        ["eval-workers.1f0c3ab2", "eval-workers.1f0c3ab2.r1"]
    );
}

#[test]
fn the_number_of_pods_is_the_same_wherever_it_is_written() {
    for manifest in [Manifest::job(), Manifest::jobset()] {
        let given = manifest.container()["env"].as_array().expect("variables");
        let completions = given
            .iter()
            .find(|variable| variable["name"] == "JOB_COMPLETIONS");
        let value = completions.expect("the variable")["value"].as_str();
        assert_eq!(value, Some(manifest.size.1.to_string().as_str()));
    }
}

#[test]
fn ranks_may_take_less_time_to_end_than_the_pod() {
    for manifest in [Manifest::job(), Manifest::jobset()] {
        let grace = count(&manifest.pod_spec()["terminationGracePeriodSeconds"]) as i64;
        let shutdown = inferred(&manifest, &manifest.pod(0, 0, 0)).shutdown_timeout;
        assert!(
            shutdown.is_some_and(|shutdown| shutdown + 5 <= grace),
            "{shutdown:?}, {grace}"
        );
    }
}

#[test]
fn the_service_of_the_job_names_its_pods_before_they_are_ready() {
    let manifest = Manifest::job();
    let service = manifest.document("Service");
    assert_eq!(
        service["metadata"]["name"],
        manifest.pod_spec()["subdomain"]
    );
    assert_eq!(service["spec"]["clusterIP"], "None");
    assert_eq!(service["spec"]["publishNotReadyAddresses"], true);
    assert_eq!(
        service["spec"]["selector"]["batch.kubernetes.io/job-name"],
        manifest.document("Job")["metadata"]["name"]
    );
}

#[test]
fn the_run_folder_is_on_the_volume_that_all_pods_share() {
    for manifest in [Manifest::job(), Manifest::jobset()] {
        let claim = manifest.document("PersistentVolumeClaim");
        assert_eq!(claim["spec"]["accessModes"][0], "ReadWriteMany");
        let volume = &manifest.pod_spec()["volumes"][0];
        assert_eq!(
            volume["persistentVolumeClaim"]["claimName"],
            claim["metadata"]["name"]
        );
        let mount = &manifest.container()["volumeMounts"][0];
        assert_eq!(mount["name"], volume["name"]);
        let words = manifest.words();
        let eval = words.iter().position(|word| word == "eval").expect("eval");
        let words: Vec<OsString> = words[eval + 1..].iter().map(OsString::from).collect();
        let args = EvalArgs::parse_words(&words).expect("a command line of eval");
        let output = args.output.expect("a folder");
        assert!(output.starts_with(mount["mountPath"].as_str().expect("a path")));
    }
}
