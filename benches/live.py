"""Measures what the page of a run costs: CPU time of the launcher and of the ranks without a page, with one that nobody
looks at, with a browser, and with a browser that takes nothing. In turn; medians."""

import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).parent.parent
RRUN = pathlib.Path(os.environ.get("RRUN_BIN", ROOT / "target/release")) / "rrun"
ROUNDS = int(os.environ.get("ROUNDS", "5"))
EPISODES = int(os.environ.get("EPISODES", "40"))
CASES = ["no page", "nobody", "one browser", "one stalled"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def stall(port: int) -> socket.socket:
    """Asks for everything on the page, once it is there, and reads nothing."""
    deadline = time.monotonic() + 60
    while True:
        stream = socket.socket()
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            stream.connect(("127.0.0.1", port))
            break
        except ConnectionRefusedError:
            stream.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    stream.sendall(100 * b"GET /news HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return stream


def browse(port: int) -> None:
    """Asks what is new, again and again, and gets every new picture, as the page's script does."""
    stall(port).close()
    url = f"http://127.0.0.1:{port}"
    seen, known = "", {}
    try:
        while True:
            with urllib.request.urlopen(f"{url}/news?seen={seen}", timeout=10) as answer:
                news = json.load(answer)
            seen = news["seen"]
            for place, version in (news["pictures"] or {}).items():
                if known.get(place) != version:
                    known[place] = version
                    urllib.request.urlopen(f"{url}/picture/{place}?{version}", timeout=10).read()
    except OSError:
        pass  # The run has ended.


def evaluate(case: str) -> dict[str, float]:
    """Runs an evaluation; returns CPU seconds of the launcher and of the ranks, and seconds in all."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = pathlib.Path(folder, "jobs.json")
        environment = {"environment": "push", "num_envs": 2, "enable_cameras": True, "camera_width": 128, "camera_height": 128}
        entries = [{"name": f"push{task}", "arena_env_args": environment, "policy_type": "scripted", "num_episodes": EPISODES // 4} for task in range(4)]
        jobs.write_text(json.dumps({"jobs": entries}))
        port = free_port()
        command = [str(RRUN), "--standalone", "--nproc-per-node=2", "--rusage", "eval", "--jobs", str(jobs), "--output", f"{folder}/out", "--export-mode=none"]
        if case != "no page":
            command += ["--page", str(port)]
        begun = time.monotonic()
        child = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, "LP_NUM_THREADS": "0"})
        held = []
        if case == "one browser":
            threading.Thread(target=browse, args=[port], daemon=True).start()
        if case == "one stalled":
            held.append(stall(port))
        said = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.monotonic() - begun
        assert status == 0, said
    found = re.findall(r"rank \d\D.*?([\d.]+) s of CPU, ([\d.]+) s in the kernel", said)
    ranks = sum(float(user) + float(system) for user, system in found)
    assert len(found) == 2, said
    # What a launcher has used includes its children.
    return {"launcher": usage.ru_utime + usage.ru_stime - ranks, "ranks": ranks, "wall": wall}


def main() -> None:
    rounds = {case: [] for case in CASES}
    for _ in range(ROUNDS):
        for case in CASES:
            rounds[case].append(evaluate(case))
    median = {case: {key: statistics.median(run[key] for run in runs) for key in runs[0]} for case, runs in rounds.items()}
    print(f"### live: the page of a run, {EPISODES} filmed episodes of `push` on 2 ranks; medians\n")
    print("| who looks | CPU of the launcher | CPU of the ranks | more than without | run in all |")
    print("|---|---|---|---|---|")
    for case, values in median.items():
        more = values["ranks"] - median["no page"]["ranks"]
        print(f"| {case} | {values['launcher']:.2f} s | {values['ranks']:.2f} s | {more:+.2f} s | {values['wall']:.1f} s |")
    print()


if __name__ == "__main__":
    main()
