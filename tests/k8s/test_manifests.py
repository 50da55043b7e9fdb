"""Compares the manifests of deploy/k8s with the published schemas, offline: those of Kubernetes come with the package
`kubernetes-validate`, those of JobSet with `kubeflow-trainer-api`.

What the manifests mean to rrun is tested by `tests/nodes/manifests.rs`, which needs no Python.
"""

import copy
import pathlib

import pytest

kubernetes_validate = pytest.importorskip("kubernetes_validate")
jobset_models = pytest.importorskip("kubeflow_trainer_api.models")
yaml = pytest.importorskip("yaml")

MANIFESTS = pathlib.Path(__file__).parents[2] / "deploy" / "k8s"

# The first version with everything that the manifests use, as they say, and the last one that the package has.
VERSIONS = ["1.33", kubernetes_validate.latest_version()]

# Values that the schema of JobSet names in its descriptions (jobset_types.go, v0.7 to v0.12).
STRATEGIES = {"Recreate", "BlockingRecreate"}
ACTIONS = {"FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"}


def documents():
    """The documents of all manifests, with the name of the file."""
    return [
        (path.name, document)
        for path in sorted(MANIFESTS.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
    ]


def names(pair):
    return f"{pair[0]}-{pair[1]['kind']}"


def check(document, version):
    """Raises an error for an unknown field, a missing one, or a wrong type."""
    if document["kind"] != "JobSet":
        kubernetes_validate.validate(document, version, strict=True)
        return
    check_jobset(document)
    for replicated_job in document["spec"]["replicatedJobs"]:
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": replicated_job["template"]["spec"]}
        kubernetes_validate.validate(job, version, strict=True)


def check_jobset(document):
    assert document["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
    understood = jobset_models.JobsetV1alpha2JobSet.from_dict(document).to_dict()
    assert set(document["spec"]) <= set(understood["spec"]), "the JobSet has a field that does not exist"
    for key in ("network", "failurePolicy"):
        assert understood["spec"].get(key) == document["spec"][key], f"{key} has a field that does not exist"
    for read, written in zip(understood["spec"]["replicatedJobs"], document["spec"]["replicatedJobs"], strict=True):
        assert set(read) == set(written), "a replicated job has a field that does not exist"
    policy = document["spec"]["failurePolicy"]
    assert policy["restartStrategy"] in STRATEGIES
    assert all(rule["action"] in ACTIONS for rule in policy["rules"])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("pair", documents(), ids=names)
def test_a_manifest_is_what_the_schema_says(pair, version):
    check(pair[1], version)


def the(kind):
    return copy.deepcopy(next(document for _, document in documents() if document["kind"] == kind))


def test_a_misspelt_field_is_found():
    job = the("Job")
    job["spec"]["template"]["spec"]["subDomain"] = "eval"
    with pytest.raises(kubernetes_validate.ValidationError):
        check(job, VERSIONS[0])


def test_a_value_of_the_wrong_type_is_found():
    job = the("Job")
    job["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] = 4
    with pytest.raises(kubernetes_validate.ValidationError):
        check(job, VERSIONS[0])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["network", "subDomain"], "eval"),
        (["failurePolicy", "restartStrategy"], "Blocking"),
        (["failurePolicy", "maxRestart"], 3),
        (["replicas"], 3),
    ],
)
def test_a_mistake_in_a_jobset_is_found(path, value):
    jobset = the("JobSet")
    place = jobset["spec"]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises((AssertionError, ValueError)):
        check(jobset, VERSIONS[0])


def test_a_mistake_in_the_pods_of_a_jobset_is_found():
    jobset = the("JobSet")
    template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["spec"]["terminationGracePeriod"] = 60
    with pytest.raises(kubernetes_validate.ValidationError):
        check(jobset, VERSIONS[0])
