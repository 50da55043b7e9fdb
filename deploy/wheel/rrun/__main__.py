"""Runs the program `rrun` of this package: `python -m rrun`."""

import os
import pathlib
import sys
import sysconfig


def main() -> None:
    # The scripts of the environment that has the package; of a user's installation; or beside the interpreter.
    schemes = ["posix_prefix", "posix_user", "venv"]
    folders = [sysconfig.get_path("scripts")]
    folders += [sysconfig.get_path("scripts", scheme) for scheme in schemes if scheme in sysconfig.get_scheme_names()]
    # `pip install --target FOLDER` writes programs to FOLDER/bin.
    folders.append(str(pathlib.Path(__file__).resolve().parent.parent / "bin"))
    programs = [pathlib.Path(folder) / "rrun" for folder in folders]
    program = next((program for program in programs if program.is_file()), None)
    if program is None:
        sys.exit(f"rrun: the program `rrun` is in none of {', '.join(dict.fromkeys(folders))}")
    os.execv(program, ["rrun", *sys.argv[1:]])


main()
