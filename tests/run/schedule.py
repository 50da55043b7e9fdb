"""Which part runs when."""

import sys
import threading
import time

import build
import parts as of
from run_part import Run


class Schedule:
    """Two lanes, each of which takes the first part that may run now."""

    def __init__(self, waiting: list[of.Part]):
        self.waiting, self.held, self.runs = list(waiting), set(), []
        self.built, self.stage, self.has_failed = build.Built(), 0, False
        self.changed = threading.Condition()
        self.build_seconds: dict[str, float] = {}

    def lane(self) -> None:
        while part := self.take():
            run = Run(part).to_the_end(self.built)
            with self.changed:
                self.held.discard(part.holds)
                self.runs.append(run)
                self.changed.notify_all()
            print(run.line(), flush=True)

    def take(self) -> of.Part | None:
        """Waits for a part that may run; none if no part is left that will."""
        with self.changed:
            while True:
                part = next((it for it in self.waiting if self.may_run(it)), None)
                if part:
                    self.waiting.remove(part)
                    self.held |= {part.holds} - {""}
                    return part
                if not self.waiting or self.has_failed:
                    return None
                self.changed.wait()

    def may_run(self, part: of.Part) -> bool:
        needed = 2 if not part.is_early else 1 if part.needs_programs else 0
        return self.stage >= needed and part.holds not in self.held

    def build(self, chosen: list[of.Part]) -> None:
        commands = {"programs": build.programs(chosen), "test programs": build.tests(chosen)}
        for what, words in commands.items():
            begun = time.monotonic()
            if words and not self.has_failed:
                self.has_failed = not build.run(words, self.built)
                self.build_seconds[what] = time.monotonic() - begun
            with self.changed:
                self.stage += not self.has_failed
                self.changed.notify_all()

    def run(self) -> None:
        chosen = list(self.waiting)
        beside = threading.Thread(target=self.lane)
        beside.start()
        self.build(chosen)
        self.lane()
        beside.join()


def chosen(names: list[str]) -> list[of.Part]:
    parts = of.all_parts()
    known = sorted(part.name for part in parts)
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"`{unknown[0]}` is not a part of the tests: expected {', '.join(known)}")
    return [part for part in parts if not names or part.name in names]
