"""Runs one part: its output goes to target/test/PART.log while it runs."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import threading
import time
from dataclasses import replace

import outcomes
from build import Built
from outcomes import Result
from parts import BUILT, LOGS, ROOT, Part, Step

# Marks the processes of a part, those in sessions of their own, too.
MARK = "RRUN_TEST_PART"
# Seconds that processes may go on after the program that has started them.
GRACE_S = 10
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
            except (LookupError, OSError, subprocess.CalledProcessError) as cause:
                self.tests.append(Result(self.part.name, "failed", 0.0, str(cause)))
        self.seconds = time.monotonic() - begun
        return self

    @property
    def log_path(self) -> pathlib.Path:
        return LOGS / f"{self.part.name}.log"

    def steps(self, built: Built) -> list[Step]:
        """The steps of Python parts as they are, or the one of a Rust part."""
        part = self.part
        program = built.find(part.target) if part.target else None
        if part.steps:
            return [replace(step, words=[program.path if it == BUILT else it for it in step.words])
                    for step in part.steps]
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
        mark = f"{os.getpid()}-{self.part.name}"
        env = {**os.environ, **{name: str(value) for name, value in step.env.items()}, MARK: mark}
        log.write(f"$ {' '.join(map(str, step.words))[:400]}\n")
        with subprocess.Popen(list(map(str, step.words)), cwd=step.folder, env=env, text=True,
                              errors="replace", stdin=subprocess.DEVNULL, start_new_session=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            is_read = threading.Event()
            watch = threading.Thread(target=self.watch, args=[process, mark, is_read, log])
            watch.start()
            for line in process.stdout:
                log.write(read.read(line) if step.is_libtest else line)
                log.flush()
            is_read.set()
        watch.join()
        found = outcomes.of_file(step.results) + read.finished()
        self.tests += found
        if process.returncode != 0 and not outcomes.counted(found)["failed"]:
            self.tests.append(Result(program_name(step), "failed", 0.0, self.said(process)))

    def watch(self, process: subprocess.Popen, mark: str, is_read: threading.Event, log) -> None:
        """Ends what runs longer than the part may, or than its program, and says what it was."""
        try:
            process.wait(max(0, self.deadline - time.monotonic()))
            if is_read.wait(GRACE_S):
                return
            why = "the program has ended, but not these processes:"
        except subprocess.TimeoutExpired:
            why = f"not done within {self.part.limit_s} s; these processes run:"
        words = ["ps", "--forest", "-o", "pid,etimes,stat,wchan:20,args", "-p",
                 ",".join(marked(mark))]
        shown = subprocess.run(words, text=True, capture_output=True).stdout
        log.write(f"\n{why}\n{shown}")
        log.flush()
        # Again and again: a process has no variables while it becomes another program.
        while not is_read.is_set():
            for pid in marked(mark):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            is_read.wait(0.5)

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


def marked(mark: str) -> list[str]:
    """The processes that a part has started, whatever their parents and sessions are now."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"{MARK}={mark}".encode() in variables:
            found.append(folder.name)
    return found
