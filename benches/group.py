"""Measures two properties of a running launch: how long it takes to end after one rank has failed,
and the memory of the launcher.
"""

import contextlib
import os
import pathlib
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator

from launch import RRUN, TORCHRUN, command, ranks

LAUNCHERS = {"rrun": RRUN, "torchrun": TORCHRUN}
TEARDOWN = {4: {"rrun": 11, "torchrun": 3}, 64: {"rrun": 11, "torchrun": 3}}
MEMORY = [1, 64]


class Launch:
    """A launch whose ranks are all waiting in their `main` and obey SIGTERM."""

    def __init__(self, launcher: pathlib.Path, nproc: int, folder: str) -> None:
        self.fifo = pathlib.Path(folder, "fifo")
        os.mkfifo(self.fifo)
        words = command(launcher, nproc, ranks(), "stay", str(self.fifo))
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.pids = [int(self.process.stdout.readline()) for _ in range(nproc)]

    def fail(self) -> float:
        """Makes rank 0 exit with 1; returns the seconds until all other ranks and the launcher are
        gone."""
        self.fifo.write_text("go")
        exited = int(self.process.stdout.readline())
        self.process.wait()
        gone = time.monotonic_ns()
        left = [pid for pid in self.pids if os.path.exists(f"/proc/{pid}")]
        assert not left and self.process.returncode == 1, f"{left} left, exit code {self.process.returncode}"
        return (gone - exited) / 1e9

    def memory(self) -> dict[str, float]:
        """Returns the memory of the launcher in MiB."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        return {name: int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM", "RssAnon")}


@contextlib.contextmanager
def launched(launcher: pathlib.Path, nproc: int) -> Iterator[Launch]:
    with tempfile.TemporaryDirectory() as folder:
        launch = Launch(launcher, nproc, folder)
        yield launch
        if launch.process.poll() is None:
            launch.fail()
        launch.process.stdout.close()


def teardown() -> None:
    print("### teardown: from the exit of one rank with code 1 until all ranks and the launcher are gone; medians\n")
    print("| ranks | rrun | torchrun | torchrun / rrun |")
    print("|---|---|---|---|")
    for nproc, rounds in TEARDOWN.items():
        taken = {name: [] for name in rounds}
        for turn in range(max(rounds.values())):
            for name in (name for name in rounds if turn < rounds[name]):
                with launched(LAUNCHERS[name], nproc) as launch:
                    taken[name].append(launch.fail())
        rrun, torchrun = (statistics.median(taken[name]) for name in ("rrun", "torchrun"))
        print(f"| {nproc} | {rrun * 1e3:.1f} ms | {torchrun * 1e3:.0f} ms | {torchrun / rrun:.0f} |", flush=True)
    print()


def memory() -> None:
    print("### memory of the launcher while its ranks run, in MiB\n")
    print("| ranks | rrun: resident | most so far | of it anonymous | torchrun: resident | most so far | torchrun / rrun |")
    print("|---|---|---|---|---|---|---|")
    for nproc in MEMORY:
        found = {}
        for name, launcher in LAUNCHERS.items():
            with launched(launcher, nproc) as launch:
                found[name] = launch.memory()
        rrun, torchrun = found["rrun"], found["torchrun"]
        ours = f"{rrun['VmRSS']:.1f} | {rrun['VmHWM']:.1f} | {rrun['RssAnon']:.1f}"
        theirs = f"{torchrun['VmRSS']:.0f} | {torchrun['VmHWM']:.0f} | {torchrun['VmRSS'] / rrun['VmRSS']:.0f}"
        print(f"| {nproc} | {ours} | {theirs} |", flush=True)
    print()
