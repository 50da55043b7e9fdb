"""Compares `rrun serve` with a Python server of the reference's design (serve_python.py).

Clients over ZeroMQ send the next request as soon as they have an answer, with the demo checkpoint
and two images of 96 x 96 on a CPU. A second table compares the ranks' own ports with the port that they share, for a
policy that costs nothing: what passing connections on costs.
"""

import contextlib
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from launch import ROOT

CLIENTS = [1, 8, 64]
RANKS = 4
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
    """Starts a server; yields its port and pid."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for line in child.stdout:
            if line.strip().isdigit():
                yield [int(line)], child.pid
                break
            if "ready on " in line:
                yield [int(line.split("ready on ")[1].split(",")[0].rsplit(":", 1)[1])], child.pid
                break
        else:
            sys.exit(f"{command[0]} ended with {child.wait()} before it was ready")
    finally:
        child.kill()
        child.wait()


@contextlib.contextmanager
def launched(ranks: int):
    """Starts ranks behind a front port; yields that port and those of the ranks, and the pid of the launcher."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as interface:
        interface.write('{"actions": {"names": ["x"]}}')
        interface.flush()
        command = [str(ROOT / "target/release/rrun"), f"--nproc-per-node={ranks}", "serve", "--host=127.0.0.1"]
        command += ["--front-port=0", "--policy=zero_action", f"--interface={interface.name}"]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            own = []
            for line in child.stderr:
                if "ready on " in line:
                    own.append(int(line.split("ready on ")[1].split(",")[0].rsplit(":", 1)[1]))
                if f"{ranks} of {ranks} take connections" in line:
                    break
            else:
                sys.exit(f"rrun ended with {child.wait()} before its ranks were ready")
            yield int(line.split("front port ")[1].split(": ")[0].rsplit(":", 1)[1]), own, child.pid
        finally:
            child.terminate()
            child.wait()


def cpu_s(pid: int) -> float:
    """Returns the CPU time of a process so far in seconds, see proc_pid_stat(5)."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(server: tuple[list[int], int], clients: int, body: bytes) -> tuple[float, float, float]:
    """Returns requests per second, the 99th percentile of their latency in milliseconds, and the
    server's CPU time for each request in milliseconds. Clients take the ports in turn."""
    import zmq

    ports, pid = server
    used = cpu_s(pid)

    context, poller, sent, latencies = zmq.Context(), zmq.Poller(), {}, []
    answers = 0
    for index in range(clients):
        socket = context.socket(zmq.REQ)
        socket.linger = 0
        socket.connect(f"tcp://127.0.0.1:{ports[index % len(ports)]}")
        poller.register(socket, zmq.POLLIN)
        sent[socket] = time.perf_counter()
        socket.send(body)
    begin = time.perf_counter() + WARM_S
    end = begin + ROUND_S
    while (now := time.perf_counter()) < end:
        for socket, _ in poller.poll(1000):
            answer = socket.recv()
            assert not answer.startswith(b"\x81\xa5error"), answer
            answers += 1
            now = time.perf_counter()
            if now >= begin:
                latencies.append(now - sent[socket])
            sent[socket] = now
            socket.send(body)
    context.destroy()
    assert len(latencies) > 1, "no answers within the round"
    tail = statistics.quantiles(latencies, n=100)[98] * 1e3
    return len(latencies) / ROUND_S, tail, (cpu_s(pid) - used) / answers * 1e3


def front() -> None:
    import msgpack

    body = msgpack.packb({"endpoint": "get_action", "data": {"observation": {"video": {}, "state": {}, "language": {"task": [["go"]]}}}})
    print(f"### serve: {RANKS} ranks, requests a second and 99th percentile of their latency, CPU time of the launcher for each; medians\n")
    print("| clients | front port | p99 | launcher | own ports | p99 | requests: front / own |")
    print(f"|{'---|' * 7}")
    with launched(RANKS) as (port, own, launcher):
        for clients in CLIENTS:
            rounds = [[ask((ports, launcher), clients, body) for ports in ([port], own)] for _ in range(ROUNDS)]
            (rate, tail, cpu), (own_rate, own_tail, _) = ([statistics.median(r[side][what] for r in rounds) for what in range(3)] for side in range(2))
            print(f"| {clients} | {rate:.0f} | {tail:.1f} ms | {cpu:.4f} ms | {own_rate:.0f} | {own_tail:.1f} ms | {rate / own_rate:.2f} |", flush=True)
    print()


def main() -> None:
    body = request()
    print(f"### serve: requests of {len(body) / 1000:.0f} kB a second, 99th percentile of their latency, CPU time of the server for each; medians\n")
    sides = {"rrun, batched": rrun(64), "rrun, one by one": rrun(1), "Python, eager PyTorch": python("eager"), "Python, echo": python("echo")}
    heads = " | ".join(f"{name} | p99 | CPU" for name in sides)
    print(f"| clients | {heads} | requests: batched / one by one | / eager | / echo | CPU: one by one / batched | eager / batched |")
    print(f"|{'---|' * (3 * len(sides) + 6)}")
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(serving(command)) for command in sides.values()]
        for clients in CLIENTS:
            rounds = [[ask(server, clients, body) for server in servers] for _ in range(ROUNDS)]
            rates, tails, cpu = ([statistics.median(r[side][what] for r in rounds) for side in range(4)] for what in range(3))
            cells = " | ".join(f"{rate:.0f} | {tail:.1f} ms | {ms:.2f} ms" for rate, tail, ms in zip(rates, tails, cpu))
            ratios = [rates[0] / rate for rate in rates[1:]] + [cpu[1] / cpu[0], cpu[2] / cpu[0]]
            print(f"| {clients} | {cells} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |", flush=True)
    print()


if __name__ == "__main__":
    main()
