"""The simulators that are compared, and how each is run under rrun and without it."""

import dataclasses
import json
import os
import pathlib
import subprocess

import h5py
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
RRUN = os.environ.get("RRUN", str(ROOT / "target/release/rrun"))
VENVS = pathlib.Path(os.environ.get("RRUN_SIMULATORS", ROOT / ".simulators"))

# An environment is reset with these bits of an episode's seed (docs/own_simulator.md).
SEED_BITS = (1 << 31) - 1


@dataclasses.dataclass(frozen=True)
class Task:
    """An id of gymnasium, and what of it is compared."""

    name: str
    venv: str  # as `jobs/suites/simulators/install.sh` calls it
    id: str
    success: str
    steps: int  # of an episode that only the time limit ends
    observe: tuple = ("observation",)
    module: str = ""
    kwargs: dict = dataclasses.field(default_factory=dict)
    pictures: bool = False  # whether the observation has some
    episodes: int = 4

    def python(self):
        """The interpreter of the simulator's venv, None if it is not installed."""
        venv = VENVS / self.venv
        return venv / "bin/python" if (venv / "rrun-pins.txt").is_file() else None

    def job(self, policy, **fields):
        """This environment as it is: its own names, no mapping."""
        args = {"environment": f"gym:{self.id}", "python": str(VENVS / self.venv), "num_envs": 2}
        args |= {"success": self.success, "env_kwargs": self.kwargs, "enable_cameras": self.pictures}
        if self.module:
            args["import"] = self.module
        return {"name": self.name, "arena_env_args": args, "policy_type": policy, "seed": 7, **fields}


TASKS = [
    Task(
        name="pusht",
        venv="pusht",
        id="gym_pusht/PushT-v0",
        module="gym_pusht",
        kwargs={"obs_type": "pixels_agent_pos", "observation_width": 96, "observation_height": 96},
        observe=("pixels", "agent_pos"),
        pictures=True,
        success="info.is_success",
        steps=300,
    ),
    Task(name="pusher", venv="pusher", id="Pusher-v5", success="reward>=-0.15", steps=100),
    Task(
        name="fetch",
        venv="fetch",
        id="FetchPickAndPlace-v4",
        module="gymnasium_robotics",
        observe=("observation", "achieved_goal", "desired_goal"),
        success="info.is_success",
        steps=50,
    ),
    # It has no success of its own. By this rule the first step is one, and the episode goes on after it.
    Task(name="cartpole", venv="pusher", id="CartPole-v1", success="reward>=1", steps=500),
]


@dataclasses.dataclass
class Episode:
    """One episode as rrun recorded it, and as plain gymnasium played its actions again."""

    task: Task
    number: int
    recorded: dict  # datasets and attributes of the demonstration
    line: dict  # of episodes.jsonl
    played: dict = None


def run(task, job, folder):
    """Evaluates the job on two ranks, which share its episodes, and plays what was recorded."""
    jobs = folder / "jobs.json"
    jobs.write_text(json.dumps({"jobs": [job]}))
    out = folder / "out"
    # A replay stays whole, so it has no use for a share.
    share = ["--shard", "episodes"] if "num_episodes" in job else []
    command = [RRUN, "--nproc-per-node", "2", "eval", "--jobs", jobs, "--output", out, "--no-video", "--record-cameras"]
    ended = subprocess.run([*command, *share], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-4000:]
    lines = [json.loads(line) for line in (out / "episodes.jsonl").read_text().splitlines()]
    episodes = [Episode(task, line["episode"], demonstration(out, line), line) for line in lines]
    play(task, episodes, folder)
    return episodes


def demonstration(out, line):
    rows = {}
    with h5py.File(out / line["dataset"]["file"]) as file:
        demo = file["data"][line["dataset"]["demo"]]
        demo.visititems(lambda name, item: rows.update({name: item[:]}) if isinstance(item, h5py.Dataset) else None)
        return rows | {f"@{name}": value for name, value in demo.attrs.items()}


def play(task, episodes, folder):
    """Fills in `played`, by the simulator's own interpreter."""
    spec = {"id": task.id, "import": task.module, "kwargs": task.kwargs}
    spec |= {"success": task.success, "observe": task.observe}
    (folder / "task.json").write_text(json.dumps(spec))
    recorded = {f"actions_{index}": episode.recorded["processed_actions"] for index, episode in enumerate(episodes)}
    seeds = [int(episode.recorded["@seed"]) & SEED_BITS for episode in episodes]
    np.savez(folder / "recorded.npz", seeds=seeds, **recorded)
    plain = pathlib.Path(__file__).with_name("plain.py")
    command = [task.python(), plain, folder / "task.json", folder / "recorded.npz", folder / "played.npz"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-4000:]
    played = np.load(folder / "played.npz")
    for index, episode in enumerate(episodes):
        begin = f"{index}/"
        episode.played = {name.removeprefix(begin): played[name] for name in played if name.startswith(begin)}
