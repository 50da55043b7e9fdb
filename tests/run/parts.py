"""The parts of `make test`: what each runs, with how many threads, and what it needs built."""

import os
import pathlib
import re
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LOGS = ROOT / "target/test"
PROGRAMS = ROOT / "target/release"
VENV = ROOT / ".venv/bin"
# In the words of a step: the path of the part's Rust test program.
BUILT = "BUILT"

CPUS = len(os.sched_getaffinity(0))
# Tests that mostly wait for processes that they have started: launchers, stores, servers.
WAITING = ["launch", "nodes", "serve", "tools"]
THREADS = {name: 4 * CPUS for name in WAITING} | {"eval": CPUS + 1}

# The longest first, so that none is left for the end; parts that are not named here follow.
ORDER = ["conformance", "tch", "k8s", "nodes", "eval", "launch", "serve", "tools", "imitation",
         "runtime", "launcher", "chaos", "torch", "models", "hostile"]


@dataclass
class Step:
    """One program. Its tests are those of the file `results`, or what libtest prints."""

    words: list
    results: pathlib.Path | None = None
    is_libtest: bool = False
    env: dict[str, str] = field(default_factory=dict)
    folder: pathlib.Path = ROOT


@dataclass
class Part:
    """Tests that are run, and counted, together.

    `target` is the Rust test program: a package's `lib`, or the name of one in `tests/`. `module`
    selects the tests of it whose path begins so. `holds` names what only one part may use at a
    time: processors for tests that mostly wait, and with them the port 29500.
    """

    name: str
    target: tuple[str, str] | None = None
    module: str = ""
    steps: list[Step] = field(default_factory=list)
    holds: str = ""
    needs_programs: bool = False
    # While the compiler runs, in the second lane.
    is_early: bool = False
    limit_s: int = 1800

    @property
    def threads(self) -> int:
        return THREADS.get(self.name, CPUS)


def crates() -> list[str]:
    """The packages of the workspace whose library has tests."""
    members = re.search(r"^members = \[(.*?)\]", (ROOT / "Cargo.toml").read_text(), re.M | re.S)
    folders = re.findall(r'"([^"]+)"', members[1])
    return [pathlib.Path(it).name for it in folders if (ROOT / it / "src/lib.rs").exists()]


def modules(program: str) -> list[str]:
    """The modules of a test program of `tests/`."""
    return re.findall(r"^mod (\w+);", (ROOT / f"tests/{program}.rs").read_text(), re.M)


def pytest(name: str, *words, **env: str) -> Step:
    # After five minutes, a test prints the stack of every thread.
    results = LOGS / f"{name}.xml"
    words = [VENV / "pytest", "-q", "-rs", "-o", "faulthandler_timeout=300",
             f"--junitxml={results}", *words]
    return Step(words, results, env=env)


def python_parts() -> list[Part]:
    conformance = {"CONF_VENV": str(VENV.parent), "LAUNCHER": str(PROGRAMS / "rrun"),
                   "EXPECT_BETTER": "1"}
    python, cards = VENV / "python", LOGS / "cards.lines"
    imitation = [
        Step([python, "tests/imitation/build.py"]),
        pytest("imitation", "-m", "not slow", "--if-changed", "tests/imitation"),
        Step([python, "tests/imitation/run.py", "--program", BUILT, "--results", cards], cards),
    ]
    wheel = [Step([python, "deploy/wheel/build.py"]),
             pytest("wheel", "-m", "not slow", "tests/wheel")]
    return [
        Part("run", steps=[pytest("run", "tests/run")], is_early=True),
        Part("tch", steps=[pytest("tch", "tests/tch")], is_early=True),
        Part("k8s", steps=[pytest("k8s", "tests/k8s")], is_early=True),
        Part("conformance", holds="waits", needs_programs=True, is_early=True,
             steps=[pytest("conformance", "-m", "quick", "tests/conformance", **conformance)]),
        Part("imitation", ("runtime", "torch"), "gpu", imitation, needs_programs=True),
        Part("wheel", steps=wheel, needs_programs=True),
    ]


def rust_parts() -> list[Part]:
    units = [Part(name, (name, "lib")) for name in crates()]
    outside = [Part(name, ("tests", "outside"), name, needs_programs=True,
                    holds="waits" if name in WAITING else "")
               for name in modules("outside")]
    return [*units, *outside, Part("hostile", ("runtime", "hostile")),
            Part("torch", ("runtime", "torch"), needs_programs=True)]


def all_parts() -> list[Part]:
    """All parts, in the order in which they should begin."""
    parts = [*python_parts(), *rust_parts()]
    return sorted(parts, key=lambda it: ORDER.index(it.name) if it.name in ORDER else len(ORDER))
