"""Installs the wheel as a user does: a new venv, no compiler, no variables of the developer; then runs what the README names.

`make wheel` builds the wheel. The slow tests install torch and run the demo, the quick ones install the wheel alone.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WHEELS = sorted((ROOT / "dist").glob("rrun-*.whl"), key=lambda path: path.stat().st_mtime)

# What the network of this machine needs; everything else is taken away.
NETWORK = ("PIP_", "UV_", "SSL_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE", "http_proxy", "https_proxy", "no_proxy")


def variables(home: pathlib.Path, path: str = "/usr/bin:/bin") -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name.startswith(NETWORK)}
    # Packages are downloaded once for all tests on this machine.
    caches = {"PIP_CACHE_DIR": str(pathlib.Path.home() / ".cache/pip"), "UV_CACHE_DIR": str(home / "uv")}
    return {**caches, **kept, "HOME": str(home), "PATH": path}


def run(*words, home: pathlib.Path, code: int = 0, timeout: float = 900, **more) -> subprocess.CompletedProcess:
    ended = subprocess.run([str(word) for word in words], env=variables(home) | more, cwd=home, capture_output=True, text=True, timeout=timeout)
    assert ended.returncode == code, f"{words} ended with {ended.returncode}:\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
    return ended


def files(folder: pathlib.Path) -> set[str]:
    """All files of a venv, except what Python and pip write for themselves."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(path) for path in found if "__pycache__" not in path.parts}


@pytest.fixture(scope="session")
def wheel() -> pathlib.Path:
    assert WHEELS, "there is no wheel in dist/: run `make wheel`"
    return WHEELS[-1]


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    yield folder
    # pytest keeps its folders, and this one has 5 GB.
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def venv(wheel, home) -> pathlib.Path:
    """A venv with the wheel and what it requires. No compiler is found, and nothing is built."""
    folder = home / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    begin = time.monotonic()
    run(folder / "bin/pip", "install", "--quiet", "--only-binary", ":all:", wheel, home=home, PATH=str(folder / "bin"))
    print(f"pip install: {time.monotonic() - begin:.0f} s")
    return folder


@pytest.fixture(scope="session")
def alone(wheel, home) -> tuple[pathlib.Path, set[str]]:
    """A venv with the wheel and nothing that it requires, and the files that were there before."""
    folder = home / "alone"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    before = files(folder)
    run(folder / "bin/pip", "install", "--quiet", "--no-deps", wheel, home=home)
    return folder, before


@pytest.fixture(scope="session")
def demo(venv, home) -> pathlib.Path:
    """The run folder of `rrun demo`."""
    begin = time.monotonic()
    ended = run(venv / "bin/rrun", "demo", home / "demo", home=home)
    print(f"rrun demo: {time.monotonic() - begin:.0f} s\n{ended.stdout[-1500:]}")
    assert str(home / "demo/report.html") in ended.stdout
    return home / "demo"


@pytest.mark.slow
def test_the_demo_evaluates_all_jobs_with_videos_and_a_report(demo):
    report = json.loads((demo / "report.json").read_text())
    assert report["overall"]["episodes"] == 144
    solved = {job["name"]: job["success_rate"] for job in report["per_job"]}
    assert solved["reach_expert"] == solved["push_expert"] == 1.0, solved
    assert solved["reach"] >= 0.9 and solved["reach_random"] <= 0.1, solved
    assert (demo / "report.html").is_file()
    videos = list(demo.glob("*/*.mp4"))
    assert videos and all(video.stat().st_size > 1000 for video in videos)


@pytest.mark.slow
def test_python_reads_the_results_without_torch(demo, venv, home):
    program = """
import sys, rrun
report = rrun.report(sys.argv[1])
assert "torch" not in sys.modules
print(report["overall"]["episodes"], len(rrun.episodes(sys.argv[1])))
"""
    assert run(venv / "bin/python", "-c", program, demo, home=home).stdout.split() == ["144", "144"]
    missing = run(venv / "bin/python", "-c", "import rrun; rrun.report('/nowhere')", home=home, code=1)
    assert "/nowhere/report.json does not exist; `rrun report /nowhere` writes it" in missing.stderr


def test_the_module_is_the_same_program(alone, home):
    words = [[alone[0] / "bin/rrun"], [alone[0] / "bin/python", "-m", "rrun"]]
    versions = [run(*command, "--version", home=home).stdout for command in words]
    assert versions[0] == versions[1] and versions[0].startswith("rrun "), versions


@pytest.mark.slow
def test_a_rank_runs_under_torchrun_of_the_same_venv(venv, home):
    job = {"name": "reach", "arena_env_args": {"environment": "reach"}, "policy_type": "scripted", "num_episodes": 4}
    (home / "jobs.json").write_text(json.dumps({"jobs": [job]}))
    rank = next(venv.glob("lib/python3.*/site-packages/rrun/rrun-rank"))
    words = ["--nproc-per-node", 2, "--no-python", rank, "eval", "--shard", "episodes", "--jobs", "jobs.json", "--output", "torchrun"]
    run(venv / "bin/torchrun", *words, home=home)
    report = json.loads((home / "torchrun/report.json").read_text())
    assert report["overall"]["episodes"] == 4 and report["run"]["world_size"] == 2


@pytest.mark.slow
def test_a_module_is_exported_and_evaluated(venv, home):
    if shutil.which("g++", path="/usr/bin:/bin") is None:
        pytest.skip("AOTInductor needs a compiler")
    (home / "policy.py").write_text('''
import torch
from rrun.export_policy import camera, state

class Policy(torch.nn.Module):
    def forward(self, picture, state):
        return torch.zeros(state.shape[0], 4, 7) + picture.float().mean() * 0

def make():
    return Policy().eval(), [camera("front", 224, 224), state({"eef_position": 3})]
''')
    run(venv / "bin/python", "-m", "rrun.export_policy", "policy.py:make", "policy.pt2", home=home)
    job = {"name": "reach", "arena_env_args": {"environment": "reach", "enable_cameras": True}, "policy_type": "exported",
           "policy_config_dict": {"model_path": "policy.pt2"}, "num_episodes": 1}
    (home / "exported.json").write_text(json.dumps({"jobs": [job]}))
    run(venv / "bin/rrun", "eval", "--jobs", "exported.json", "--output", "exported", home=home)
    assert json.loads((home / "exported/report.json").read_text())["overall"]["episodes"] == 1


@pytest.mark.slow
def test_paths_of_the_guide_lead_into_the_package(venv, home):
    words = ["--dry-run=json", "eval", "--jobs", "jobs/suites/demo.json", "--output", "planned"]
    plan = json.loads(run(venv / "bin/rrun", *words, home=home).stdout)
    assert plan["nnodes"] == 1, plan
    run(venv / "bin/rrun", "eval", "--jobs", "jobs/suites/demo.json", "--only", "reach:0", "--output", "guide", home=home)
    lines = (home / "guide/episodes.jsonl").read_text().splitlines()
    assert len(lines) == 1, lines


@pytest.mark.slow
def test_another_torch_is_refused_by_its_version(venv, home):
    version = next(venv.glob("lib/python3.*/site-packages/torch/version.py"))
    text = version.read_text()
    try:
        version.write_text(text.replace("__version__ = '2.", "__version__ = '3."))
        refused = run(venv / "bin/rrun", "demo", home / "refused", home=home, code=1)
    finally:
        version.write_text(text)
    assert "is torch 3." in refused.stderr and "pip install 'torch>=2.11,<2.13'" in refused.stderr, refused.stderr


def test_the_wheel_has_the_licences_of_what_is_inside(wheel):
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("THIRD_PARTY.txt"))
        text = archive.read(name).decode()
    for part in ["hdf5-metno-src", "openh264-sys2", "tch ", "tokenizers "]:
        assert part in text, part


def test_uninstalling_leaves_nothing(alone, home):
    folder, before = alone
    assert (folder / "bin/rrun").is_file()
    refused = run(folder / "bin/rrun", "demo", home / "refused", home=home, code=1)
    assert "torch" in refused.stderr and "is missing" in refused.stderr, refused.stderr
    run(folder / "bin/pip", "uninstall", "--quiet", "--yes", "rrun", home=home)
    assert files(folder) == before


@pytest.mark.slow
def test_uv_installs_it_too(wheel, home):
    tools = home / "tools"
    subprocess.run([sys.executable, "-m", "venv", tools], check=True)
    run(tools / "bin/pip", "install", "--quiet", "uv", home=home)
    run(tools / "bin/uv", "venv", "--quiet", "--python", sys.executable, "by_uv", home=home)
    run(tools / "bin/uv", "pip", "install", "--quiet", "--python", "by_uv/bin/python", "--only-binary", ":all:", wheel, home=home)
    run(home / "by_uv/bin/rrun", "demo", home / "demo_uv", home=home)
    assert json.loads((home / "demo_uv/report.json").read_text())["overall"]["episodes"] == 144
    run(tools / "bin/uv", "pip", "uninstall", "--quiet", "--python", "by_uv/bin/python", "rrun", home=home)
    assert not list((home / "by_uv").glob("lib/python3.*/site-packages/rrun*"))
    assert not (home / "by_uv/bin/rrun").exists()
