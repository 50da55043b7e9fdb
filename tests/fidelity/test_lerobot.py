"""Episodes of `policy_type: lerobot` are those of LeRobot's own loop: same observations and same noise, same actions to the last bit.

PushT is evaluated on a CPU with each checkpoint of `make policies`, and recorded. Then LeRobot, with nothing of rrun in it, loads the same checkpoint, and
its `select_action` gets the recorded observations one after the other, as in `lerobot-eval`.
"""

import json
import os
import pathlib
import subprocess

import h5py
import numpy as np
import pytest
from tasks import ROOT, RRUN, demonstration

POLICIES = pathlib.Path(os.environ.get("RRUN_POLICIES", ROOT / ".policies"))
VENV = POLICIES / "lerobot"
TASK = "push the T onto its outline"
STEPS = 30  # enough for several chunks

# Where results must be the same to the last bit, the threads of torch and those of the kernels it picks are those of one core.
ALIKE = {"OMP_NUM_THREADS": "1", "MKL_CBWR": "COMPATIBLE", "RRUN_SMALL_PI05": "1", "HF_HUB_OFFLINE": "1"}

# Variants: name, checkpoint, more settings of the policy.
VARIANTS = {
    "act": ("act", {}),
    "act_chunks_of_20": ("act", {"action_chunk_length": 20}),
    "act_ensemble": ("act", {"config_overrides": {"temporal_ensemble_coeff": 0.01}, "action_chunk_length": 1}),
    "diffusion": ("diffusion", {}),
    "diffusion_ddim": ("diffusion", {"config_overrides": {"noise_scheduler_type": "DDIM", "num_inference_steps": 5}}),
    "diffusion_three_steps": ("diffusion", {"action_chunk_length": 3}),
    "smolvla": ("smolvla", {}),
    "pi05": ("pi05", {}),
}

pytestmark = pytest.mark.skipif(
    not (POLICIES / "checkpoints/rrun-sources.txt").is_file(), reason="LeRobot and its checkpoints are not installed; `make policies` does it"
)


def job(checkpoint, settings, num_envs, episodes):
    environment = {"environment": "gym:gym_pusht/PushT-v0", "import": "gym_pusht", "python": str(VENV), "num_envs": num_envs}
    environment |= {"env_kwargs": {"obs_type": "pixels_agent_pos"}, "mapping": str(ROOT / "jobs/suites/simulators/pusht.yaml")}
    environment |= {"max_episode_steps": STEPS, "success": "info.is_success", "enable_cameras": True}
    settings = {"model_path": str(POLICIES / "checkpoints" / checkpoint), "python": str(VENV), "env": ALIKE, **settings}
    return {"name": checkpoint, "arena_env_args": environment, "policy_type": "lerobot", "policy_config_dict": settings, "num_episodes": episodes, "seed": 3}


def evaluate(folder, the_job, *words, ranks=1):
    folder.mkdir()
    jobs = folder / "jobs.json"
    jobs.write_text(json.dumps({"jobs": [the_job]}))
    command = [RRUN, "--nproc-per-node", str(ranks), "eval", "--jobs", jobs, "--output", folder / "out", *words]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **ALIKE})
    assert ended.returncode == 0, ended.stderr[-4000:]
    return folder / "out", [json.loads(line) for line in (folder / "out/episodes.jsonl").read_text().splitlines()]


def recorded(folder, *arguments, ranks=1):
    """The recorded episodes of a job by their numbers."""
    words = ["--no-video", "--record-cameras", *(["--shard", "episodes"] if ranks > 1 else [])]
    out, lines = evaluate(folder, job(*arguments), *words, ranks=ranks)
    assert all(line.get("error") is None for line in lines), lines
    return {line["episode"]: demonstration(out, line) for line in lines}


def actions_of_lerobot(folder, checkpoint, settings, episodes):
    """The actions of LeRobot's own loop for the recorded observations, by episode."""
    rows = {}
    for number, episode in episodes.items():
        rows |= {f"pixels_{number}": episode["obs/top"], f"agent_pos_{number}": episode["obs/agent_pos"], f"seed_{number}": episode["@seed"]}
    np.savez(folder / "seen.npz", **rows)
    spec = {"model_path": str(POLICIES / "checkpoints" / checkpoint), "task": TASK, "overrides": settings.get("config_overrides", {})}
    spec["overrides"] |= {"n_action_steps": settings["action_chunk_length"]} if "action_chunk_length" in settings else {}
    (folder / "spec.json").write_text(json.dumps(spec))
    plain = pathlib.Path(__file__).with_name("plain_lerobot.py")
    command = [VENV / "bin/python", plain, folder / "spec.json", folder / "seen.npz", folder / "actions.npz"]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **ALIKE})
    assert ended.returncode == 0, ended.stderr[-4000:]
    return np.load(folder / "actions.npz")


@pytest.mark.parametrize("variant", VARIANTS)
def test_actions_are_those_of_lerobots_own_loop(variant, tmp_path):
    checkpoint, settings = VARIANTS[variant]
    episodes = recorded(tmp_path / "rrun", checkpoint, settings, 2, 3)
    assert len(episodes) == 3
    wanted = actions_of_lerobot(tmp_path, checkpoint, settings, episodes)
    for number, episode in episodes.items():
        found, own = episode["actions"], wanted[f"actions_{number}"]
        assert found.shape == own.shape == (STEPS, 2), (found.shape, own.shape)
        differ = [step for step in range(STEPS) if found[step].tobytes() != own[step].tobytes()]
        assert not differ, f"{variant}, episode {number}: steps {differ} differ, {found[differ[0]]} and {own[differ[0]]}"
        assert len(np.unique(own, axis=0)) > 2, "actions that never change would prove nothing"


@pytest.mark.parametrize("checkpoint", ["diffusion", "smolvla"])
def test_actions_do_not_depend_on_environments_and_ranks(checkpoint, tmp_path):
    alone = recorded(tmp_path / "alone", checkpoint, {}, 1, 4)
    shared = recorded(tmp_path / "shared", checkpoint, {}, 3, 4, ranks=2)
    assert alone.keys() == shared.keys()
    for number, episode in alone.items():
        assert episode["actions"].tobytes() == shared[number]["actions"].tobytes(), f"episode {number}"


@pytest.mark.parametrize("checkpoint", ["act", "diffusion", "smolvla", "pi05"])
def test_rows_of_one_batch_get_the_actions_that_they_get_alone(checkpoint, tmp_path):
    settings = {"action_chunk_length": STEPS} if checkpoint == "act" else {}
    alone, batch = [], []
    for words, episodes in (([], alone), (["--max-batch", "4"], batch)):
        out, lines = evaluate(tmp_path / f"rows{len(words)}", job(checkpoint, settings, 4, 4), "--no-video", *words)
        with h5py.File(out / lines[0]["dataset"]["file"]) as file:
            by_number = {line["episode"]: file["data"][line["dataset"]["demo"]]["actions"][:5] for line in lines}
        episodes.extend(by_number[number] for number in sorted(by_number))
    # The last bits of a matrix product depend on its number of rows.
    assert np.allclose(alone, batch, rtol=0, atol=0.05), np.abs(np.array(alone) - np.array(batch)).max()


def test_an_evaluation_ends_with_videos_and_a_report(tmp_path):
    for name, the_job in (("pusht", job("act", {}, 2, 2)), ("table_top", table_top())):
        out, lines = evaluate(tmp_path / name, the_job)
        assert len(lines) == 2 and all(line.get("error") is None for line in lines), lines
        for line in lines:
            video = line["video"]
            assert video["frames"] == line["length"] + 1 and (out / video["file"]).stat().st_size > 1000, video
        report = json.loads((out / "report.json").read_text())
        assert report["overall"]["episodes"] == 2 and (out / "report.html").is_file()


def table_top():
    settings = {"model_path": str(POLICIES / "checkpoints/act_table_top"), "python": str(VENV)}
    settings["mapping"] = {"states": {"observation.state": ["joint_position", "gripper_position"]}}
    environment = {"environment": "push", "num_envs": 2, "enable_cameras": True, "camera_height": 96, "camera_width": 96, "max_episode_steps": STEPS}
    return {"name": "push", "arena_env_args": environment, "policy_type": "lerobot", "policy_config_dict": settings, "num_episodes": 2, "seed": 3}
