"""`make test`: runs every part, whatever fails, and prints one table at the end.

    make test                              all parts
    make test PART=launch                  one of them; PART="jobs report" two
    .venv/bin/python tests/run --list      their names

The output of each part goes to target/test/PART.log. The exit code is the number of failures.
"""

import argparse
import sys
import time

import parts as of
import table
from schedule import Schedule, chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help="all of them by default")
    parser.add_argument("--list", action="store_true", help="print the names of the parts")
    asked = parser.parse_args()
    if asked.list:
        print(*sorted(part.name for part in of.all_parts()), sep="\n")
        return
    begun = time.monotonic()
    of.LOGS.mkdir(parents=True, exist_ok=True)
    schedule = Schedule(chosen(asked.parts))
    schedule.run()
    failed = table.show(schedule, time.monotonic() - begun)
    sys.exit(min(failed, 99))


if __name__ == "__main__":
    main()
