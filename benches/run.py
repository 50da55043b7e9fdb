"""Runs the benches. Each prints a figure and its ratio to what it replaces, measured in the same
run, as medians of several rounds.

    make bench                        runs all of them, and prints tables for README.md
    .venv/bin/python benches/run.py BENCH

BENCH is one of start, teardown, memory, store, rollout, assign, overlap, bridge, cheap, policy,
policy_bridge, exported, video, record, report, serve, lerobot, tracking.
"""

import os
import pathlib
import platform
import subprocess
import sys

import assign
import bridge
import cheap
import exported
import group
import lerobot
import overlap
import policy
import policy_bridge
import record
import report
import rollout
import serve
import start
import store
import tracking
import video

BENCHES = {
    "start": start.main,
    "teardown": group.teardown,
    "memory": group.memory,
    "store": store.main,
    "rollout": rollout.main,
    "assign": assign.main,
    "overlap": overlap.main,
    "bridge": bridge.main,
    "cheap": cheap.main,
    "policy": policy.main,
    "policy_bridge": policy_bridge.main,
    "exported": exported.main,
    "video": video.main,
    "record": record.main,
    "report": report.main,
    "serve": serve.main,
    "lerobot": lerobot.main,
    "tracking": tracking.main,
}


def machine() -> str:
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    root = pathlib.Path(__file__).parent
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True)
    return f"{len(os.sched_getaffinity(0))} cores of {cpu}, {platform.system()} {platform.release()}, commit {commit.stdout.strip()}"


def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        sys.exit(f"no bench is called {unknown[0]}; there are {', '.join(BENCHES)}")
    print(f"{machine()}\n")
    for name in names or BENCHES:
        BENCHES[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
