"""Compares rrun's store server with torch's own (libuv). Each runs alone in a process, with the
same clients (see store.rs).
"""

import contextlib
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys

import programs
from launch import compiled, preloaded

CLIENTS = [1, 16, 64, 256, 1024, 4096]
ROUNDS = 3
# The modes of the clients (see store.rs) with the servers they run against. The floor (see floor.c)
# supports only calls.
MODES = {"calls": ["rrun", "torch", "floor"], "bulk": ["rrun", "torch"]}
SECONDS = 1.0
# Clients and rounds of barriers.
BARRIERS = {64: 400, 1024: 40, 4096: 10}
# Ranks of an evaluation, and seconds between two heartbeats of one (runtime/src/eval/monitor/peers).
BEATS = {16: 1, 256: 1, 1024: 1, 4096: 2, 16384: 8}
TORCH = """
import sys, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False, use_libuv=True)
print(store.port, flush=True)
sys.stdin.read()
"""


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


def of_server(words: list[str], pid: int) -> dict[str, float]:
    """Returns what a client printed, and the server's CPU time in seconds."""
    before = cpu_seconds(pid)
    found = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return {**found, "cpu": cpu_seconds(pid) - before}


def resident_kib(pid: int) -> int:
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def medians(found: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(one[key] for one in found) for key in found[0]}


def barriers(program: str, commands: dict[str, list[str]]) -> None:
    print("\n### store, barriers: all add to one counter and wait for one key; CPU time of the server for each client\n")
    print("| clients | rrun: barrier, p50 | CPU | most memory for a client | torch: barrier, p50 | CPU | most memory for a client | CPU: torch / rrun |")
    print("|---|---|---|---|---|---|---|---|")
    for clients, rounds in BARRIERS.items():
        columns, cpu = [], {}
        for name in ["rrun", "torch"]:
            found = []
            for _ in range(ROUNDS):
                with serving(commands[name]) as (port, pid):
                    alone = resident_kib(pid)
                    one = of_server([program, "barrier", str(port), str(clients), str(rounds)], pid)
                    found.append({**one, "kib": (resident_kib(pid) - alone) / clients})
            one = medians(found)
            cpu[name] = one["cpu"] / one["ops"] * 1e6
            columns += [f"{one['p50_us'] / 1e3:.1f} ms", f"{cpu[name]:.1f} µs", f"{one['kib']:.1f} KiB"]
        print(f"| {clients} | {' | '.join(columns)} | {cpu['torch'] / cpu['rrun']:.2f} |", flush=True)


def beats(program: str, commands: dict[str, list[str]]) -> None:
    print("\n### ranks: their heartbeats at the store, and rank 0 reading all of them; real connections, simulated ranks\n")
    print("| ranks | a beat every | beats/s | CPU of the server | question: p50 | p99 | rank 0 reads all in |")
    print("|---|---|---|---|---|---|---|")
    for ranks, pace in BEATS.items():
        seconds = max(6, 3 * pace)
        with serving(commands["rrun"]) as (port, pid):
            one = of_server([program, "beats", str(port), str(ranks), str(seconds), str(pace)], pid)
        share = one["cpu"] / seconds
        words = [f"{pace} s", f"{ranks / pace:.0f}", f"{share:.1%}", f"{one['p50_us'] / 1e3:.1f} ms", f"{one['p99_us'] / 1e3:.1f} ms"]
        print(f"| {ranks} | {' | '.join(words)} | {one['look_ms']:.1f} ms |", flush=True)


def row(program: str, servers: dict[str, tuple[int, int]], mode: str, clients: int) -> str:
    rounds = {name: [] for name in servers}
    for _ in range(ROUNDS):
        for name, (port, pid) in servers.items():
            rounds[name].append(measured([program, "load", mode, str(port), str(clients), str(SECONDS)], pid))
    found = {name: medians(of) for name, of in rounds.items()}
    figures = lambda it: f"{it['ops_s']:.0f} | {it['p99_us']:.0f} µs | {it['cpu_us']:.2f} µs"
    rrun, torch = found["rrun"], found["torch"]
    columns = [figures(rrun), figures(torch)]
    ratios = f"{rrun['ops_s'] / torch['ops_s']:.2f} | {torch['cpu_us'] / rrun['cpu_us']:.2f}"
    least = f"{found['floor']['cpu_us']:.2f} µs" if "floor" in found else "–"
    return f"| {mode} | {clients} | {' | '.join(columns)} | {ratios} | {least} |"


def raise_limit() -> None:
    """Raises the limit on open files, which the servers inherit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> None:
    program = programs.program("store")
    raise_limit()
    print("### store: operations a second, 99th percentile of latency, CPU time of the server for an operation; medians\n")
    print("| | clients | rrun: ops/s | p99 | CPU | torch: ops/s | p99 | CPU | ops/s: rrun / torch | CPU: torch / rrun | CPU: floor |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    torch = ["env", f"LD_PRELOAD={preloaded('numeric')}", sys.executable, "-c", TORCH]
    commands = {"rrun": [program, "serve"], "torch": torch, "floor": [compiled("floor")]}
    with contextlib.ExitStack() as ends:
        servers = {name: ends.enter_context(serving(words)) for name, words in commands.items()}
        for mode, names in MODES.items():
            for clients in CLIENTS:
                print(row(program, {name: servers[name] for name in names}, mode, clients), flush=True)
    barriers(program, commands)
    beats(program, commands)
    print()
