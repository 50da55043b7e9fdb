"""What `make test` prints at the end."""

from run_part import Run

SLOWEST = 20
# Names of skipped tests that are printed beside one reason.
MOST_NAMES = 4


def show(schedule, seconds: float) -> int:
    """Prints failures, skipped tests, the slowest and the table; returns the number of failures."""
    runs = sorted(schedule.runs, key=lambda run: run.part.name)
    failures = [(run, test) for run in runs for test in run.tests if test.outcome == "failed"]
    for run, test in failures:
        print(f"\n--- {run.part.name}: {test.name}\n{test.text.rstrip()}")
    print()
    for reason, tests in sorted(skipped(runs).items()):
        shown = ", ".join(tests) if len(tests) <= MOST_NAMES else f"{len(tests)} tests"
        print(f"skipped: {reason}: {shown}")
    if len(runs) > 1:
        print("\n" + "\n".join(slowest(runs)))
    print("\n" + "\n".join(rows(runs)) + "\n")
    for what, built in schedule.build_seconds.items():
        print(f"the {what} were built in {built:.0f} s")
    not_run = [part.name for part in schedule.waiting]
    count = len(failures) + schedule.has_failed
    if schedule.has_failed:
        print("the build failed, see above; not run: " + ", ".join(not_run))
    names = ", ".join(test.name for _, test in failures)
    print(f"{count} failed{': ' if names else ''}{names}; {seconds:.0f} s")
    return count


def skipped(runs: list[Run]) -> dict[str, list[str]]:
    """The names of the tests that did not run, by their reason."""
    found: dict[str, list[str]] = {}
    for run in runs:
        for test in run.tests:
            if test.outcome == "skipped":
                found.setdefault(test.text, []).append(test.name)
    return found


def slowest(runs: list[Run]) -> list[str]:
    tests = [(test.seconds, run.part.name, test.name) for run in runs for test in run.tests]
    tests.sort(reverse=True)
    return [f"{seconds:6.1f} s  {part:12} {name}" for seconds, part, name in tests[:SLOWEST]]


def rows(runs: list[Run]) -> list[str]:
    kinds = ["passed", "failed", "skipped", "ignored"]
    head = ["part", *kinds, "seconds"]
    body = [[run.part.name, *(run.counts[kind] for kind in kinds), f"{run.seconds:.0f}"]
            for run in runs]
    total = ["sum", *(sum(row[column] for row in body) for column in range(1, 5)), ""]
    return [f"{row[0]:12}" + "".join(f"{str(it):>9}" for it in row[1:])
            for row in [head, *body, total]]
