"""Episodes of the suites that `rrun suite` writes are those of the benchmarks' authors, to the last bit.

`rrun suite` writes the jobs, whose episodes are recorded with random actions; Meta-World's experts play, too. Then
`authors.py`, with nothing of rrun in it, sets the task and the seed as the authors do, and takes the recorded actions.
"""

import json
import pathlib
import subprocess

import numpy as np
import pytest
from tasks import ROOT, RRUN, VENVS, demonstration

# Suite, simulator, task, steps that an episode has at most, episodes, what is compared. ALOHA's episodes are shortened,
# because the authors' loop draws three pictures at each step.
SUITES = [
    ("metaworld_mt10", "metaworld", "push-v3", 500, 2, ["observation"]),
    ("metaworld_mt10", "metaworld", "window-close-v3", 500, 2, ["observation"]),
    ("metaworld_ml45_test", "metaworld", "hand-insert-v3", 500, 2, ["observation"]),
    ("gym_pusht", "pusht", "PushT-v0", 300, 3, ["agent_pos", "top"]),
    ("gymnasium_fetch", "fetch", "FetchSlide-v4", 50, 3, ["goal", "block_position"]),
    ("gym_aloha", "aloha", "AlohaInsertion-v0", 60, 2, ["agent_pos"]),
]


def venv(simulator):
    found = VENVS / simulator
    if not (found / "rrun-pins.txt").is_file():
        pytest.skip(f"{simulator} is not installed; jobs/suites/simulators/install.sh {simulator} does it")
    return found


def write(suite, simulator, task, episodes, out, *options):
    """Writes the jobs of a suite, and returns the first one."""
    command = [RRUN, "suite", suite, "--tasks", task, "--episodes", str(episodes), "--num-envs", "2"]
    command += ["--python", venv(simulator), "--output", out, *options]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    return json.loads(out.read_text())["jobs"][0]


def evaluate(jobs, out, *options):
    command = [RRUN, "--nproc-per-node", "2", "eval", "--jobs", jobs, "--output", out, "--no-video", "--shard", "episodes"]
    ended = subprocess.run([*command, *options], capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr[-4000:]
    lines = [json.loads(line) for line in (out / "episodes.jsonl").read_text().splitlines()]
    return sorted(lines, key=lambda line: line["episode"])


def replay(suite, simulator, task, job, lines, recorded, folder):
    """Plays the recorded actions as the authors would, one set of rows for each episode."""
    steps = job["arena_env_args"]["max_episode_steps"]
    (folder / "spec.json").write_text(json.dumps({"suite": suite, "task": task, "seed": job["seed"], "steps": steps}))
    actions = {f"actions_{index}": rows["processed_actions"] for index, rows in enumerate(recorded)}
    np.savez(folder / "recorded.npz", episodes=[line["episode"] for line in lines], **actions)
    authors = pathlib.Path(__file__).with_name("authors.py")
    command = [venv(simulator) / "bin/python", authors, folder / "spec.json", folder / "recorded.npz", folder / "played.npz"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-4000:]
    played = np.load(folder / "played.npz")
    begins = [f"{index}/" for index in range(len(lines))]
    return [{name.removeprefix(begin): played[name] for name in played if name.startswith(begin)} for begin in begins]


def assert_same_episode(line, recorded, played, names, steps, where):
    for name in [*(f"obs/{name}" for name in names), "rewards"]:
        found = recorded[name]
        wanted = played[name].astype(found.dtype).reshape(found.shape)
        differ = [row for row in range(len(found)) if found[row].tobytes() != wanted[row].tobytes()]
        assert not differ, f"{where}, {name}: differs in {len(differ)} of {len(found)} rows, first in row {differ[0]}"
    assert played["over"].nonzero()[0].tolist() == [line["length"] - 1], where
    assert line["success"] == played["success"].any(), where
    assert line["length"] == steps or played["success"].any(), where


@pytest.mark.parametrize(("suite", "simulator", "task", "steps", "episodes", "names"), SUITES)
def test_episodes_are_those_of_the_authors(suite, simulator, task, steps, episodes, names, tmp_path):
    options = ["--policy", "random_action", "--max-episode-steps", str(steps)]
    job = write(suite, simulator, task, episodes, tmp_path / "jobs.json", *options)
    pictures = ["--record-cameras"] if "top" in names else []
    lines = evaluate(tmp_path / "jobs.json", tmp_path / "out", *pictures)
    assert [line["episode"] for line in lines] == list(range(episodes))
    recorded = [demonstration(tmp_path / "out", line) for line in lines]
    played = replay(suite, simulator, task, job, lines, recorded, tmp_path)
    for line, rows, wanted in zip(lines, recorded, played):
        assert_same_episode(line, rows, wanted, names, steps, f"{suite} {task}, episode {line['episode']}")
    starts = {rows[f"obs/{names[0]}"][0].tobytes() for rows in recorded}
    assert len(starts) == episodes or suite == "gym_aloha", "episodes begin alike: this says little"


def test_an_expert_solves_metaworld_and_is_seen_to(tmp_path):
    expert = ["--policy", "python", "--set", "policy=jobs/suites/policies/metaworld_expert.py:Expert"]
    python = ["--set", f"python={venv('metaworld')}"]
    write("metaworld_mt10", "metaworld", "0-9", 1, tmp_path / "jobs.json", *expert, *python)
    lines = evaluate(tmp_path / "jobs.json", tmp_path / "out")
    assert len(lines) == 10
    for line in lines:
        assert line["success"] and line["length"] < 500, line["job"]


def test_an_experts_episode_ends_where_the_authors_end_it(tmp_path):
    expert = ["--policy", "python", "--set", "policy=jobs/suites/policies/metaworld_expert.py:Expert"]
    python = ["--set", f"python={venv('metaworld')}"]
    job = write("metaworld_mt10", "metaworld", "drawer-open-v3", 2, tmp_path / "jobs.json", *expert, *python)
    lines = evaluate(tmp_path / "jobs.json", tmp_path / "out")
    recorded = [demonstration(tmp_path / "out", line) for line in lines]
    played = replay("metaworld_mt10", "metaworld", "drawer-open-v3", job, lines, recorded, tmp_path)
    for line, rows, wanted in zip(lines, recorded, played):
        assert wanted["success"].tolist() == [False] * (line["length"] - 1) + [True]
        assert_same_episode(line, rows, wanted, ["observation"], 500, f"episode {line['episode']}")
