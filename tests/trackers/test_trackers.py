"""One evaluation on two ranks, logged by all trackers with their own packages, and read back with them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from read_wandb import history

ROOT = Path(__file__).resolve().parents[2]
RRUN = Path(os.environ.get("RRUN_BIN", ROOT / "target/release")) / "rrun"
LIMIT_S = 600


def job(name, episodes):
    return {"name": name, "arena_env_args": {"environment": name}, "policy_type": "scripted", "num_episodes": episodes}


class Run:
    def __init__(self, folder):
        self.folder, self.out = folder, folder / "tonight"
        self.uri = f"sqlite:///{folder}/mlflow.db"

    def rrun(self, jobs, *words):
        (self.folder / "jobs.json").write_text(json.dumps({"jobs": jobs}))
        command = [RRUN, "--nproc-per-node", "2", "eval", "--jobs", "jobs.json", "--output", self.out, "--export-mode=none"]
        command += ["--track", "tensorboard,wandb,trackio,mlflow", "--track-videos"]
        env = {
            **os.environ,
            "WANDB_MODE": "offline",
            **dict.fromkeys(("WANDB_PROJECT", "TRACKIO_PROJECT", "MLFLOW_EXPERIMENT_NAME"), "nightly"),
            "TRACKIO_DIR": str(self.folder / "trackio"),
            "MLFLOW_TRACKING_URI": self.uri,
            "WANDB_API_KEY": "0123456789" * 4,
        }
        command += ["--track-python", sys.executable, *words]
        ended = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=LIMIT_S)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "warning: " not in ended.stderr, ended.stderr
        return ended

    def report(self):
        return json.loads((self.out / "report.json").read_text())

    def wanted(self):
        """The last values of each tracker."""
        report = self.report()
        values = {}
        for place, rates in [("overall", report["overall"]), *((f"tasks/{job['name']}", job) for job in report["per_job"])]:
            low, high = rates["wilson95"]
            values[f"{place}/episodes"] = rates["episodes"]
            values[f"{place}/errors"] = rates["errors"]
            values[f"{place}/success_rate"] = rates["success_rate"]
            values[f"{place}/success_rate_low"], values[f"{place}/success_rate_high"] = low, high
        return values


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = Run(tmp_path_factory.mktemp("trackers"))
    run.first = run.rrun([job("reach", 20), job("push", 20)])
    run.rrun([job("reach", 20), job("push", 24)], "--accept-changed-jobs")
    return run


def test_tensorboard(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.out / "tensorboard"))
    events.Reload()
    tags = events.Tags()
    for name, value in run.wanted().items():
        assert events.Scalars(name)[-1].value == pytest.approx(value, rel=1e-6), name
    steps = [scalar.step for scalar in events.Scalars("overall/success_rate")]
    assert steps == sorted(steps) and steps[-1] == 44 and len(set(steps)) > 2
    assert {"config/text_summary", "config"} & set(tags["tensors"])
    text = events.Tensors("tasks")[-1].tensor_proto.string_val[0].decode()
    assert "| push | 24 |" in text


def test_wandb(run):
    files = sorted(run.folder.glob("wandb/offline-run-*/*.wandb"))
    plan = json.loads((run.out / "plan.json").read_text())
    assert [file.stem for file in files] == [f"run-{plan['id']}"] * 2  # one run for both launches
    rows, artifacts = history(files[-1])
    last = [row for row in rows if "overall/mean_task_success_rate" in row][-1]
    assert {name: last[name] for name in run.wanted()} == run.wanted()
    assert last["episodes"] == 44
    assert "videos" in artifacts


def test_trackio(run, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(run.folder / "trackio"))
    from trackio import SQLiteStorage

    (name,) = SQLiteStorage.get_runs("nightly")  # one run for both launches
    assert name.startswith("tonight-")
    rows = [row for row in SQLiteStorage.get_logs("nightly", name) if "overall/mean_task_success_rate" in row]
    assert {name: rows[-1][name] for name in run.wanted()} == run.wanted()
    assert rows[-1]["step"] == 44


def test_mlflow(run):
    from mlflow import MlflowClient

    client = MlflowClient(run.uri)
    experiment = client.get_experiment_by_name("nightly")
    (found,) = client.search_runs([experiment.experiment_id])  # one run for both launches
    assert found.info.status == "FINISHED" and found.info.run_name == "tonight"
    assert {name: found.data.metrics[name] for name in run.wanted()} == run.wanted()
    assert client.get_metric_history(found.info.run_id, "overall/success_rate")[-1].step == 44
    assert found.data.params["world_size"] == "2"
    names = {artifact.path for artifact in client.list_artifacts(found.info.run_id)}
    assert {"config.json", "tasks.md", "files.json", "videos"} <= names


def test_the_key_is_nowhere(run):
    for path in run.out.rglob("*"):
        if path.is_file():
            assert b"0123456789" * 4 not in path.read_bytes(), path


def test_the_user_is_told_where_to_look(run):
    for text in ("tensorboard --logdir", "wandb sync", "trackio show --project nightly", f"in {run.uri}"):
        assert text in run.first.stderr, run.first.stderr
