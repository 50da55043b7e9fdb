"""Measures `rrun eval` with `policy_type: lerobot` against `lerobot-eval`: the same checkpoint on PushT, from start to end.

Both evaluate the same number of episodes of 300 steps in four environments of their own processes, on the CPU, and write videos of 96 x 96 pixels; `rrun`
also writes a dataset. The policies have random weights and solve nothing, so that no episode ends early. They take turns, and each run is a fresh process.
`lerobot-eval` is measured with both of its kinds of vector environments, and the ratios are those to the faster one. In 0.6.1 the processes of
AsyncVectorEnv neither import gym_pusht nor find `task_description` and `task` in it, and end; here `sitecustomize` mends both, so that the faster side is there to
compare with.
"""

import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RRUN = os.environ.get("RRUN", str(ROOT / "target/release/rrun"))
POLICIES = pathlib.Path(os.environ.get("RRUN_POLICIES", ROOT / ".policies"))
VENV = POLICIES / "lerobot"
EPISODES = 8
NUM_ENVS = 4
ROUNDS = 3
MENDED = "import gym_pusht.envs\ngym_pusht.envs.PushTEnv.task_description = gym_pusht.envs.PushTEnv.task = ''\n"
OFFLINE = {**os.environ, "HF_HUB_OFFLINE": "1"}


def timed(command: list, folder: pathlib.Path, variables: dict | None = None) -> float:
    begin = time.perf_counter()
    ended = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True, env=OFFLINE | (variables or {}))
    seconds = time.perf_counter() - begin
    assert ended.returncode == 0, ended.stderr[-3000:]
    return seconds


def lerobot_eval(checkpoint: pathlib.Path, folder: pathlib.Path, is_async: bool) -> float:
    """Returns the seconds that `lerobot-eval` takes."""
    words = [f"--policy.path={checkpoint}", "--policy.device=cpu", "--env.type=pusht", f"--output_dir={folder / 'lerobot'}", "--seed=1"]
    words += ["--env.visualization_width=96", "--env.visualization_height=96"]
    words += [f"--eval.n_episodes={EPISODES}", f"--eval.batch_size={NUM_ENVS}", f"--eval.use_async_envs={str(is_async).lower()}"]
    (folder / "sitecustomize.py").write_text(MENDED if is_async else "")
    seconds = timed([VENV / "bin/lerobot-eval", *words], folder, {"PYTHONPATH": str(folder)})
    found = json.loads((folder / "lerobot/eval_info.json").read_text())["overall"]["n_episodes"]
    assert found == EPISODES, found
    return seconds


def rrun_eval(checkpoint: pathlib.Path, folder: pathlib.Path, words: list[str]) -> float:
    """Returns the seconds that `rrun eval` takes."""
    job = json.loads((ROOT / "jobs/suites/pusht_lerobot.json").read_text())["jobs"][0]
    job["policy_config_dict"] |= {"model_path": str(checkpoint), "python": str(VENV)}
    job["arena_env_args"] |= {"python": str(VENV), "mapping": str(ROOT / job["arena_env_args"]["mapping"]), "num_envs": NUM_ENVS}
    (folder / "jobs.json").write_text(json.dumps({"jobs": [{**job, "num_episodes": EPISODES}]}))
    seconds = timed([RRUN, "--nproc-per-node", 1, "eval", "--jobs", "jobs.json", "--output", "rrun", *words], folder)
    lines = [json.loads(line) for line in (folder / "rrun/episodes.jsonl").read_text().splitlines()]
    assert len(lines) == EPISODES and all(line["length"] == 300 for line in lines), [line["length"] for line in lines]
    return seconds


def main() -> None:
    print(f"### lerobot: {EPISODES} episodes of PushT in {NUM_ENVS} environments, on the CPU; seconds from start to end, medians of {ROUNDS} pairs\n")
    if not (POLICIES / "checkpoints/rrun-sources.txt").is_file():
        print("skipped: LeRobot and its checkpoints are not installed; `make policies` does it\n")
        return
    print("| policy | `lerobot-eval`, AsyncVectorEnv | SyncVectorEnv | `rrun eval` | ratio | `rrun eval --max-batch 4` | ratio |")
    print("|---|---|---|---|---|---|---|")
    sides = {
        "async": lambda checkpoint, folder: lerobot_eval(checkpoint, folder, True),
        "sync": lambda checkpoint, folder: lerobot_eval(checkpoint, folder, False),
        "alone": lambda checkpoint, folder: rrun_eval(checkpoint, folder, []),
        "batch": lambda checkpoint, folder: rrun_eval(checkpoint, folder, ["--max-batch", str(NUM_ENVS)]),
    }
    for name in ("act", "diffusion"):
        found = {side: [] for side in sides}
        for _ in range(ROUNDS):
            for side, run in sides.items():
                with tempfile.TemporaryDirectory() as folder:
                    found[side].append(run(POLICIES / "checkpoints" / name, pathlib.Path(folder)))
        seconds = {side: statistics.median(values) for side, values in found.items()}
        base = min(seconds["async"], seconds["sync"])
        cells = [f"{seconds['async']:.1f}", f"{seconds['sync']:.1f}"]
        for side in ("alone", "batch"):
            cells += [f"{seconds[side]:.1f}", f"{base / seconds[side]:.2f}"]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print()


if __name__ == "__main__":
    main()
