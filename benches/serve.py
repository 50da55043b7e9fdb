"""`rrun serve` beside a Python server of the reference's shape (serve_python.py): clients that ask again as soon as they have
an answer, over ZeroMQ, with the checkpoint of the demo and two pictures of 96 x 96 on a CPU.
"""

import contextlib
import os
import pathlib
import statistics
import subprocess
import sys
import time

from launch import ROOT

CLIENTS = [1, 8, 64]
WARM_S, ROUND_S, ROUNDS = 0.5, 2.0, 3
CHECKPOINT = ROOT / "jobs/suites/demo_policy"
WORDS = "reach the red cube"


def request() -> bytes:
    import msgpack
    import numpy as np

    from serve_python import encode

    picture = np.random.default_rng(0).integers(0, 255, (1, 1, 96, 96, 3), dtype=np.uint8)
    state = {"eef_position": 3, "eef_quaternion": 4, "gripper_position": 2}
    observation = {
        "video": {"front": picture, "wrist": picture},
        "state": {key: np.full((1, 1, width), 0.5, np.float32) for key, width in state.items()},
        "language": {"annotation.human.task_description": [[WORDS]]},
    }
    return msgpack.packb({"endpoint": "get_action", "data": {"observation": observation, "options": None}}, default=encode)


def rrun(max_batch: int) -> list[str]:
    rank = ROOT / "target/release/rrun-rank"
    return [str(rank), "serve", "--policy", str(CHECKPOINT), "--host=127.0.0.1", "--port=0", f"--max-batch={max_batch}"]


def python(kind: str) -> list[str]:
    return [sys.executable, str(pathlib.Path(__file__).with_name("serve_python.py")), kind, str(CHECKPOINT)]


@contextlib.contextmanager
def serving(command: list[str]):
    """Starts a server; gives its port."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for line in child.stdout:
            if line.strip().isdigit():
                yield int(line)
                break
            if "ready on " in line:
                yield int(line.split("ready on ")[1].split(",")[0].rsplit(":", 1)[1])
                break
        else:
            sys.exit(f"{command[0]} ended with {child.wait()} before it was ready")
    finally:
        child.kill()
        child.wait()


def ask(port: int, clients: int, body: bytes) -> tuple[float, float]:
    """Requests a second, and the 99th percentile of their latency in milliseconds."""
    import zmq

    context, poller, sent, latencies = zmq.Context(), zmq.Poller(), {}, []
    for _ in range(clients):
        socket = context.socket(zmq.REQ)
        socket.linger = 0
        socket.connect(f"tcp://127.0.0.1:{port}")
        poller.register(socket, zmq.POLLIN)
        sent[socket] = time.perf_counter()
        socket.send(body)
    begin = time.perf_counter() + WARM_S
    end = begin + ROUND_S
    while (now := time.perf_counter()) < end:
        for socket, _ in poller.poll(1000):
            answer = socket.recv()
            assert not answer.startswith(b"\x81\xa5error"), answer
            now = time.perf_counter()
            if now >= begin:
                latencies.append(now - sent[socket])
            sent[socket] = now
            socket.send(body)
    context.destroy()
    assert latencies, "no answer within the round"
    return len(latencies) / ROUND_S, statistics.quantiles(latencies, n=100)[98] * 1e3 if len(latencies) > 1 else latencies[0] * 1e3


def main() -> None:
    body = request()
    print(f"### serve: requests a second and 99th percentile of their latency, {len(body) / 1000:.0f} kB each, one thread a server; medians\n")
    print("| clients | rrun, batched | p99 | rrun, one by one | p99 | Python, eager PyTorch | p99 | Python, echo alone | p99 | batched / one by one | batched / eager | batched / echo |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    commands = [rrun(64), rrun(1), python("eager"), python("echo")]
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(serving(command)) for command in commands]
        for clients in CLIENTS:
            rounds = [[ask(port, clients, body) for port in ports] for _ in range(ROUNDS)]
            rates, tails = ([statistics.median(r[side][what] for r in rounds) for side in range(4)] for what in range(2))
            cells = " | ".join(f"{rate:.0f} | {tail:.1f} ms" for rate, tail in zip(rates, tails))
            print(f"| {clients} | {cells} | {' | '.join(f'{rates[0] / rate:.2f}' for rate in rates[1:])} |", flush=True)
    print()


if __name__ == "__main__":
    main()
