"""Compares rrun's store server with torch's own (libuv). Each runs alone in a process, with the
same clients (see store.rs).
"""

import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys

from launch import ROOT, compiled

CLIENTS = [1, 16, 64, 256]
ROUNDS = 3
# The modes of the clients (see store.rs) with the servers they run against. The floor (see floor.c)
# supports only calls.
MODES = {"calls": ["rrun", "torch", "floor"], "bulk": ["rrun", "torch"]}
SECONDS = 1.0
TORCH = """
import sys, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False, use_libuv=True)
print(store.port, flush=True)
sys.stdin.read()
"""


def build() -> str:
    """Builds store.rs on top of what `cargo build --release` has compiled, and returns the path of
    the program."""
    words = ["--release", "--locked", "-p", "launcher", "--bench", "store", "--message-format=json-render-diagnostics"]
    built = subprocess.run(["cargo", "build", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
    return next(m["executable"] for m in messages if m.get("target", {}).get("name") == "store" and m.get("executable"))


@contextlib.contextmanager
def serving(command: list[str]):
    """Starts a server that ends with the `with` block; yields its port and pid."""
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield int(server.stdout.readline()), server.pid
    finally:
        server.stdin.close()
        server.wait()


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(words: list[str], pid: int) -> dict[str, float]:
    """Returns operations per second, latencies, and the server's CPU time per operation in
    microseconds."""
    before = cpu_seconds(pid)
    found = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    # The clients also load the server during their warm-up of 0.2 s.
    return {**found, "cpu_us": (cpu_seconds(pid) - before) * 1e6 / (found["ops_s"] * (SECONDS + 0.2))}


def row(program: str, servers: dict[str, tuple[int, int]], mode: str, clients: int) -> str:
    rounds = {name: [] for name in servers}
    for _ in range(ROUNDS):
        for name, (port, pid) in servers.items():
            rounds[name].append(measured([program, "load", mode, str(port), str(clients), str(SECONDS)], pid))
    rrun, torch, *floor = ({key: statistics.median(one[key] for one in found) for key in found[0]} for found in rounds.values())
    columns = [f"{it['ops_s']:.0f} | {it['p99_us']:.0f} µs | {it['cpu_us']:.2f} µs" for it in (rrun, torch)]
    ratios = f"{rrun['ops_s'] / torch['ops_s']:.2f} | {torch['cpu_us'] / rrun['cpu_us']:.2f}"
    least = f"{floor[0]['cpu_us']:.2f} µs" if floor else "–"
    return f"| {mode} | {clients} | {' | '.join(columns)} | {ratios} | {least} |"


def main() -> None:
    program = build()
    print("### store: operations a second, 99th percentile of latency, CPU time of the server for an operation; medians\n")
    print("| | clients | rrun: ops/s | p99 | CPU | torch: ops/s | p99 | CPU | ops/s: rrun / torch | CPU: torch / rrun | CPU: floor |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    commands = {"rrun": [program, "serve"], "torch": [sys.executable, "-c", TORCH], "floor": [compiled("floor")]}
    with contextlib.ExitStack() as ends:
        servers = {name: ends.enter_context(serving(words)) for name, words in commands.items()}
        for mode, names in MODES.items():
            for clients in CLIENTS:
                print(row(program, {name: servers[name] for name in names}, mode, clients), flush=True)
    print()
