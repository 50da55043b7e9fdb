"""What programs say of their tests: libtest's JSON, pytest's JUnit file, lines of our own."""

import collections
import json
import pathlib
import re
import xml.etree.ElementTree as xml
from dataclasses import dataclass

# A test that cannot run here says so, and passes: the line begins with this word.
SKIPPED = re.compile(r"^skipped\b[:,]?\s*(?P<why>.*)$", re.MULTILINE)

EVENT = re.compile(r'\{ ?"type": ?"(?:test|suite)".*')


@dataclass
class Result:
    """`outcome` is one of passed, failed, skipped (`text` says why) and ignored."""

    name: str
    outcome: str
    seconds: float = 0.0
    text: str = ""


class Libtest:
    """Reads what a Rust test program prints with `--format json --report-time --show-output`."""

    def __init__(self):
        self.tests: list[Result] = []
        self.running: dict[str, None] = {}

    def read(self, line: str) -> str:
        """Takes a line, and returns what people should read of it."""
        before, event = parted(line)
        if event.get("type") != "test":
            return before
        name, what = event["name"], event["event"]
        if what == "started":
            self.running[name] = None
            return before
        if what == "timeout":
            return f"{before}test {name} has been running for over 60 seconds\n"
        self.running.pop(name, None)
        said, seconds = event.get("stdout", ""), event.get("exec_time", 0.0)
        self.tests.append(rust_test(name, what, seconds, said or event.get("message", "")))
        shown = f"{before}test {name} ... {what} {seconds:.2f} s\n"
        return shown + indented(said) if said else shown

    def finished(self) -> list[Result]:
        """All tests, when the program has ended."""
        text = "it was running when the program ended\n"
        return self.tests + [Result(name, "failed", 0.0, text) for name in self.running]


def parted(line: str) -> tuple[str, dict]:
    """An event, and what processes that a test has started printed before it without a newline."""
    if found := EVENT.search(line):
        try:
            return line[:found.start()], json.loads(found[0])
        except json.JSONDecodeError:
            pass
    return line, {}


def rust_test(name: str, event: str, seconds: float, said: str) -> Result:
    if event == "failed":
        return Result(name, "failed", seconds, said)
    if event == "ignored":
        return Result(name, "ignored", seconds, said)
    if found := SKIPPED.search(said):
        return Result(name, "skipped", seconds, found["why"] or "it does not say why")
    return Result(name, "passed", seconds)


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def of_file(path: pathlib.Path | None) -> list[Result]:
    """Reads the tests of a file: pytest's `--junitxml`, or a `Result` in JSON on each line. There
    are none if the program could not write it."""
    if path is None or not path.exists():
        return []
    if path.suffix == ".xml":
        return [pytest_test(case) for case in xml.parse(path).getroot().iter("testcase")]
    return [Result(**json.loads(line)) for line in path.read_text().splitlines()]


def pytest_test(case: xml.Element) -> Result:
    name = f"{case.get('classname', '')}::{case.get('name')}".lstrip(":")
    seconds = float(case.get("time", 0))
    for kind in ("failure", "error"):
        if (found := case.find(kind)) is not None:
            return Result(name, "failed", seconds, found.text or found.get("message", ""))
    skipped = case.find("skipped")
    if skipped is not None and skipped.get("type") != "pytest.xfail":
        return Result(name, "skipped", seconds, skipped.get("message", ""))
    return Result(name, "passed", seconds)


def counted(tests: list[Result]) -> collections.Counter:
    return collections.Counter(test.outcome for test in tests)
