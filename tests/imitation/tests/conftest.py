"""Programs on the imitated cards: each test's own machine, and what the program's log says."""

import os
import pathlib
import subprocess
import sys
import textwrap
from dataclasses import dataclass

import pytest

HERE = pathlib.Path(__file__).resolve().parent
IMITATION = HERE.parent
sys.path.insert(0, str(IMITATION))

import changed  # noqa: E402
import report  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: for `make slow`")
    if config.getoption("--if-changed"):
        config.pluginmanager.register(changed.Skipping())


def pytest_addoption(parser):
    parser.addoption("--if-changed", action="store_true",
                     help="skip tests of the imitation that have passed with the same files")


@dataclass
class Ended:
    code: int
    out: str
    err: str
    log: report.Log

    @property
    def complaints(self) -> list[str]:
        return sorted(self.log.complaints)


class Machine:
    """Cards that a test's programs share, with variables of `with_card.sh` in small letters."""

    def __init__(self, folder: pathlib.Path):
        self.folder, self.runs = folder, 0

    def start(self, program: str, **variables) -> subprocess.Popen:
        self.runs += 1
        settings = {f"IMITATION_{name.upper()}": str(value) for name, value in variables.items()}
        if "visible" in variables:
            settings["CUDA_VISIBLE_DEVICES"] = settings.pop("IMITATION_VISIBLE")
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
            "IMITATION_SHARED": str(self.folder / "shared"),
            "IMITATION_LOG": str(self.folder / f"log{self.runs}"),
            "IMITATION_FAULT_ID": "test",
            **settings,
        }
        words = [IMITATION / "with_card.sh", sys.executable, "-c", textwrap.dedent(program)]
        return subprocess.Popen(words, env=env, text=True, stdout=subprocess.PIPE,
                                stdin=subprocess.PIPE, stderr=subprocess.PIPE)

    def end(self, process: subprocess.Popen) -> Ended:
        log = self.folder / f"log{self.runs}"
        out, err = process.communicate(timeout=120)
        return Ended(process.returncode, out, err, report.read(log))

    def try_run(self, program: str, **variables) -> Ended:
        return self.end(self.start(program, **variables))

    def run(self, program: str, **variables) -> Ended:
        """Runs a program that must succeed."""
        ended = self.try_run(program, **variables)
        assert ended.code == 0, ended.err
        return ended


@pytest.fixture
def machine(tmp_path) -> Machine:
    return Machine(tmp_path)
