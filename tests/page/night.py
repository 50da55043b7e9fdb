"""A run folder in which something went wrong: a real run of two ranks, whose journals then tell of a rank that died, of an
episode that broke, of one that is missing and of a job that failed. The report is a function of plan and journals."""

import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]

EPISODES = {"reach": 12, "push": 10, "pick_and_place": 6}
SMALL = {"enable_cameras": True, "camera_width": 96, "camera_height": 96, "max_episode_steps": 60}


def jobs():
    """Those of the demo, with fewer episodes, films of what random actions do, and a name that wants to be escaped."""
    suite = json.loads((ROOT / "jobs/suites/demo.json").read_text())["jobs"]
    for job in suite:
        environment = job["arena_env_args"]
        job["num_episodes"] = EPISODES[environment["environment"]]
        if job["policy_type"] == "random_action":
            environment.update(SMALL)
        if job["name"] == "reach_random":
            job["name"] = "reach #1 & <i>random"
    return suite


def make(folder, rrun):
    folder.mkdir()
    (folder / "night.json").write_text(json.dumps({"jobs": jobs()}))
    environment = {**os.environ, "LP_NUM_THREADS": "0", "TZ": "Europe/Berlin"}
    run = [rrun, "--nproc-per-node", "2", "eval", "--jobs", folder / "night.json", "--output", folder]
    subprocess.run(run, check=True, cwd=ROOT, env=environment, timeout=600, stdout=subprocess.DEVNULL)
    for rank, tell in [(0, breaks), (1, dies)]:
        path = folder / "journal" / f"journal_rank{rank}.jsonl"
        lines = tell([json.loads(line) for line in path.read_text().splitlines()])
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "log").mkdir()
    (folder / "log/rank1.log").write_text("no EGL\n")
    # It knows of fewer episodes than the report that is there.
    again = [rrun, "report", folder, "--force"]
    subprocess.run(again, check=True, env=environment, timeout=60, stdout=subprocess.DEVNULL)
    return folder


def breaks(lines):
    """An episode broke, another is missing."""
    of = [line for line in lines if line["type"] == "episode"]
    broken = f"process 4312 of environment {of[3]['env']} exited with signal 11 (SIGSEGV)"
    of[3].update(success=None, end="error", error=broken)
    return [line for line in lines if line is not of[5]]


def dies(lines):
    """The rank died within its first job and began again; its last job failed."""
    start = next(line for line in lines if line["type"] == "job_start")
    at = lines.index([line for line in lines if line["type"] == "episode"][5]) + 1
    again = {**lines[0], "restart": 1, "started": moment(lines[at - 1])}
    failed = [line for line in lines if line["type"] == "job_end"][-1]
    failed.update(error="no EGL display\n  eglInitialize: EGL_NOT_INITIALIZED", log="log/rank1.log")
    left = [*lines[:at], again, {**start, "started": again["started"]}, *lines[at:]]
    # A job that has all its episodes has not failed.
    left.remove([line for line in lines if line["type"] == "episode" and line["job"] == failed["job"]][-1])
    return left


def moment(line):
    return next(line[key] for key in ("ended", "started", "at") if key in line)
