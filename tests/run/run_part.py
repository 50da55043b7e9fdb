"""Runs one part: its output goes to target/test/PART.log while it runs."""

import os
import pathlib
import re
import signal
import subprocess
import threading
import time

import outcomes
from build import Built
from outcomes import Result
from parts import LOGS, ROOT, Part, Step

# Lines of a log that are repeated for a program that fails without a failed test.
LAST = 40


class Run:
    """How a part went. It is run once."""

    def __init__(self, part: Part):
        self.part = part
        self.tests: list[Result] = []
        self.seconds = 0.0
        self.deadline = 0.0

    def to_the_end(self, built: Built) -> "Run":
        begun = time.monotonic()
        self.deadline = begun + self.part.limit_s
        with open(self.log_path, "w") as log:
            try:
                for step in self.steps(built):
                    self.step(step, log)
            except LookupError as missing:
                self.tests.append(Result(self.part.name, "failed", 0.0, str(missing)))
        self.seconds = time.monotonic() - begun
        return self

    @property
    def log_path(self) -> pathlib.Path:
        return LOGS / f"{self.part.name}.log"

    def steps(self, built: Built) -> list[Step]:
        """The steps of Python parts as they are, or the one of a Rust part."""
        part = self.part
        if part.steps:
            return part.steps
        program = built.find(part.target)
        names = program.tests(part.module)
        words = [program.path, "-Zunstable-options", "--format=json", "--report-time",
                 "--show-output", f"--test-threads={part.threads}", "--exact", *names]
        # The variable makes stable test programs take the options that are not stable.
        env = {**cargo_variables(), "RUSTC_BOOTSTRAP": "1", "CARGO_MANIFEST_DIR": program.folder}
        return [Step(words, None, True, env, program.folder)]

    def step(self, step: Step, log) -> None:
        if step.results:
            step.results.unlink(missing_ok=True)
        read = outcomes.Libtest()
        env = {**os.environ, **{name: str(value) for name, value in step.env.items()}}
        log.write(f"$ {' '.join(map(str, step.words))[:400]}\n")
        with subprocess.Popen(list(map(str, step.words)), cwd=step.folder, env=env, text=True,
                              errors="replace", stdin=subprocess.DEVNULL, start_new_session=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            limit = threading.Timer(self.deadline - time.monotonic(), self.end, [process, log])
            limit.start()
            for line in process.stdout:
                log.write(read.read(line) if step.is_libtest else line)
                log.flush()
        limit.cancel()
        found = outcomes.of_file(step.results) + read.finished()
        self.tests += found
        if process.returncode != 0 and not outcomes.counted(found)["failed"]:
            self.tests.append(Result(program_name(step), "failed", 0.0, self.said(process)))

    def end(self, process: subprocess.Popen, log) -> None:
        """Says what still runs, and ends it: the time of the part is over."""
        log.write(f"\nnot done within {self.part.limit_s} s; these processes run:\n")
        log.write(listed(process.pid))
        log.flush()
        os.killpg(process.pid, signal.SIGKILL)

    def said(self, process: subprocess.Popen) -> str:
        last = self.log_path.read_text().splitlines()[-LAST:]
        return f"exit code {process.returncode}; its last lines:\n" + "\n".join(last) + "\n"

    @property
    def counts(self):
        return outcomes.counted(self.tests)

    def line(self) -> str:
        counts = self.counts
        shown = [f"{counts[it]} {it}" for it in ("passed", "failed", "skipped") if counts[it]]
        return f"{self.part.name:12} {self.seconds:5.0f} s  {', '.join(shown) or 'no tests'}"


def program_name(step: Step) -> str:
    words = [os.path.basename(str(word)) for word in step.words]
    return words[1] if words[0].startswith("python") else words[0]


def cargo_variables() -> dict[str, str]:
    """What cargo sets for programs that it runs: `[env]` of .cargo/config.toml."""
    text = (ROOT / ".cargo/config.toml").read_text()
    plain = re.findall(r'^(\w+) = "(.*)"', text, re.M)
    paths = re.findall(r'^(\w+) = \{ value = "(.*)", relative = true \}', text, re.M)
    return dict(plain) | {name: str(ROOT / path) for name, path in paths}


def listed(session: int) -> str:
    """The processes of a session, as `ps` shows them."""
    words = ["ps", "--forest", "-o", "pid,etimes,stat,wchan:20,args", "-s", str(session)]
    return subprocess.run(words, text=True, capture_output=True).stdout
