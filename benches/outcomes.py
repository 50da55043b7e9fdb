"""Do two builds give the same episodes? Runs jobs with the policies and simulators that need nothing but
`./setup.sh test`, on one and on three ranks, and compares what came out: outcomes of all episodes, and every
array of the datasets, to the bit. Of the policies, `exported` is missing: to compile a package takes a minute.

    .venv/bin/python benches/outcomes.py OLD NEW

OLD and NEW are programs `rrun` with `rrun-rank` beside them. Exits with 1 if an episode differs.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

import h5py

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "tests/fixtures"
PYTHON = ROOT / ".venv/bin/python"
SERVERS = {"gr00t_remote_closedloop": "gr00t_server.py", "pi0_remote": "openpi_server.py",
           "xpolicylab_remote": "xpolicylab_server.py", "vla_eval_remote": "vla_eval_server.py"}
# What an episode is, without where and when it ran.
OUTCOME = ("job", "episode", "seed", "rebuild", "success", "success_at_end", "end", "length", "return",
           "max_reward", "metrics", "language_instruction", "error")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextlib.contextmanager
def server(program: str, folder: pathlib.Path):
    """A policy server of the tests; gives its port."""
    port = free_port()
    settings = json.dumps({"port": port, "log": str(folder / f"{program}.log")})
    with subprocess.Popen([PYTHON, FIXTURES / "remote" / program, settings], stdout=subprocess.DEVNULL) as child:
        try:
            while child.poll() is None:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
            yield port
        finally:
            child.kill()


@contextlib.contextmanager
def planner(folder: pathlib.Path):
    """The chat server of the tests; gives its address."""
    words = [PYTHON, FIXTURES / "chat_server.py", "--log", folder / "chat.log"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield f"http://127.0.0.1:{child.stdout.readline().strip()}/v1"
        finally:
            child.kill()


def task(name: str, **more) -> dict:
    return {"environment": name, "num_envs": 3, **more}


def simulator(name: str, **more) -> dict:
    return {"environment": f"{FIXTURES / 'envs' / name}", "python": str(PYTHON), "num_envs": 2,
            "max_episode_steps": 20, **more}


def checkpoint(folder: pathlib.Path) -> str:
    """A checkpoint for the stand-in of LeRobot in the tests, which draws noise and looks back."""
    folder.mkdir()
    features = {"observation.images.front": {"type": "VISUAL", "shape": [3, 32, 32]},
                "observation.state": {"type": "STATE", "shape": [3]}}
    config = {"type": "diffusion", "n_obs_steps": 3, "n_action_steps": 3, "input_features": features,
              "output_features": {"action": {"type": "ACTION", "shape": [7]}}}
    steps = {"steps": [{"registry_name": "device_processor", "config": {}}]}
    for name, content in {"config": config, "policy_preprocessor": steps, "policy_postprocessor": {}}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return str(folder)


def of_rank(expert: pathlib.Path, lerobot: str) -> dict[str, tuple]:
    """Jobs that need no server: arguments of the environment, policy, its settings, and the rest."""
    gr00t = {"model_path": str(ROOT / "jobs/suites/demo_policy"), "action_chunk_length": 6}
    module = {"model_path": str(FIXTURES / "modules/hungry.pt"), "cameras": [], "state_keys": ["eef_position"],
              "max_tokens": 8}
    python = {"policy": f"{FIXTURES / 'policies/toy.py'}:Reaching", "python": str(ROOT / ".venv"), "policy_kwargs": {}}
    lerobot = {"model_path": lerobot, "python": str(ROOT / ".venv"),
               "env": {"PYTHONPATH": str(FIXTURES / "lerobot")},
               "mapping": {"states": {"observation.state": "eef_position"}}}
    small = {"camera_height": 32, "camera_width": 32, "max_episode_steps": 20}
    tasks = ("reach", "push", "pick_and_place")
    return {
        **{f"{name}_{policy}": (task(name), policy) for name in tasks for policy in ("scripted", "random_action")},
        "zero": (task("reach"), "zero_action"),
        "replay": (task("reach"), "replay_action", {"replay_file_path": str(expert)}, {"num_episodes": None}),
        "gr00t": (task("reach"), "gr00t", gr00t),
        "gr00t_late": (task("push"), "gr00t", gr00t, {"latency": {"steps": 2}}),
        "torchscript": (task("reach"), "torchscript", module),
        "python": (task("reach"), "python", python),
        "lerobot": (task("reach", **small), "lerobot", lerobot),
        "variants": (task("reach", **small), "random_action", {}, {"variations": [{"light_intensity": 900}]}),
        "rebuilt": (task("reach"), "scripted", {}, {"num_rebuilds": 2}),
        "steps": (task("push"), "scripted", {}, {"num_episodes": None, "num_steps": 150}),
        "gymnasium": ({"environment": "gym:CartPole-v1", "python": str(PYTHON), "num_envs": 3,
                       "success": "terminated"}, "random_action"),
        "toy": (simulator("toy.py:Toy"), "random_action"),
    }


def of_servers(ports: dict[str, int], chat: str) -> dict[str, tuple]:
    """Jobs with a policy behind a connection, as `of_rank`."""
    seen = {"env_kwargs": {"length": 7}, "max_episode_steps": 50,
            "mapping": {"video": {"top": "pixels.top"}, "state": {"position": "position"}}}
    openpi = {"openpi_embodiment_adapter": "custom", "target_image_size": [24, 24],
              "observation_mapping": {"observation/image": "top", "observation/state": "position"}}
    xpolicylab = {"observation_mapping": {"vision/cam_head": "top", "state/arm_joint_state": "position"}}
    own = {"gr00t_remote_closedloop": {"action_chunk_length": 3}, "pi0_remote": {"action_chunk_length": 3, **openpi},
           "xpolicylab_remote": {"action_chunk_length": 3, **xpolicylab}, "vla_eval_remote": {"action_chunk_length": 3}}
    planner = {"model_url": chat, "model": "tiny-vlm", "retry_wait_s": 0.01}
    return {
        **{policy: (simulator("toy.py:Toy", **seen), policy,
                    {"remote_host": "127.0.0.1", "remote_port": ports[policy], **settings})
           for policy, settings in own.items()},
        "openai_agent": (simulator("corridor.py:Corridor", max_episode_steps=30), "openai_agent", planner),
    }


def jobs_file(path: pathlib.Path, jobs: dict[str, tuple]) -> pathlib.Path:
    written = []
    for name, (args, policy, *more) in jobs.items():
        settings, rest = [*more, {}, {}][:2]
        job = {"name": name, "arena_env_args": args, "policy_type": policy, "policy_config_dict": settings,
               "num_episodes": 6, "seed": 7, **rest}
        written.append({key: value for key, value in job.items() if value is not None})
    path.write_text(json.dumps({"jobs": written}))
    return path


def evaluate(rrun: str, ranks: int, jobs: pathlib.Path, output: pathlib.Path) -> None:
    words = [rrun, "--nproc-per-node", str(ranks), "eval", "--jobs", jobs, "--output", output, "--no-video",
             "--shard", "episodes"]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, env=env)
    if done.returncode != 0:
        sys.exit(f"{rrun} has failed\n{done.stdout[-2000:]}{done.stderr[-4000:]}")


def digest(demo: h5py.Group) -> str:
    """Names, types and bytes of all arrays of an episode."""
    found = hashlib.sha256()

    def add(name: str, item) -> None:
        if isinstance(item, h5py.Dataset):
            found.update(f"{name} {item.dtype} {item.shape}".encode())
            found.update(item[()].tobytes() if item.dtype != object else repr(item[()]).encode())

    demo.visititems(add)
    return found.hexdigest()[:16]


def results(output: pathlib.Path) -> dict[tuple, dict]:
    """What each episode of a run came to."""
    files, found = {}, {}
    for line in (output / "episodes.jsonl").read_text().splitlines():
        episode = json.loads(line)
        outcome = {field: episode[field] for field in OUTCOME if field in episode}
        outcome.get("metrics", {}).pop("planner_latency_s", None)
        if at := episode.get("dataset"):
            file = files.setdefault(at["file"], None) or h5py.File(output / at["file"])
            files[at["file"]] = file
            outcome["arrays"] = digest(file["data"][at["demo"]])
        found[episode["job"], episode["episode"]] = outcome
    return found


def compare(old: dict[tuple, dict], new: dict[tuple, dict], ranks: int) -> int:
    """Prints a line for each job; returns how many episodes differ."""
    wrong = 0
    for job in dict.fromkeys(job for job, _ in [*old, *new]):
        episodes = [at for at in dict.fromkeys([*old, *new]) if at[0] == job]
        differ = [at for at in episodes if old.get(at) != new.get(at)]
        solved = sum(bool(old.get(at, {}).get("success")) for at in episodes)
        errors = sum("error" in old.get(at, {}) for at in episodes)
        print(f"{ranks} ranks  {job:24} {len(episodes):3} episodes, {solved} solved, {errors} errors: "
              + ("the same" if not differ else f"{len(differ)} differ"), flush=True)
        if differ:
            print(f"    old: {old.get(differ[0])}\n    new: {new.get(differ[0])}")
        wrong += len(differ)
    return wrong


def main(old: str, new: str) -> int:
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        folder = pathlib.Path(scratch)
        expert = jobs_file(folder / "expert.json", {"expert": (task("reach"), "scripted")})
        evaluate(old, 1, expert, folder / "expert")
        dataset = next((folder / "expert/expert").glob("*.hdf5"))
        ports = {policy: stack.enter_context(server(program, folder)) for policy, program in SERVERS.items()}
        chat = stack.enter_context(planner(folder))
        jobs = {**of_rank(dataset, checkpoint(folder / "lerobot")), **of_servers(ports, chat)}
        path = jobs_file(folder / "jobs.json", jobs)
        for ranks in (1, 3):
            outputs = [folder / f"{name}{ranks}" for name in ("old", "new")]
            for rrun, output in zip((old, new), outputs):
                evaluate(rrun, ranks, path, output)
            wrong += compare(*map(results, outputs), ranks)
    print("all episodes are the same" if wrong == 0 else f"{wrong} episodes differ")
    return int(wrong != 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
