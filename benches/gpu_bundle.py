"""Builds everything that a GPU machine without cargo needs to run `benches/gpu.sh`, in target/gpu,
and packs it.

    make gpu      writes target/gpu.tar.xz, to be copied along with the sources

The archive contains `rrun`, `rrun-rank`, the tests and benches for a GPU, and the shared libraries
that they load, except those of libtorch, the compiler and the C library. `extra/` contains
libraries that many machines already have (the entry points to OpenGL).
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

from programs import ROOT, build

OUT = ROOT / "target/gpu"
MOST = 60 << 20  # limit in bytes, both unpacked and packed, because it is copied to other machines
# Libraries that every machine with PyTorch has.
THEIRS = ("libc", "libm", "libdl", "librt", "libpthread", "libutil", "libresolv", "libgcc_s", "libstdc++", "ld-linux-x86-64")
TORCH = ("libtorch", "libc10", "libgomp", "libcupti", "libcudart", "libshm")
OPENGL = ("libEGL.so.1", "libGLdispatch.so.0", "libOpenGL.so.0")


def programs() -> dict[str, pathlib.Path]:
    """Builds the programs and returns their paths by the names that they get."""
    built = build("build", "--bins", "--bench", "measure", "--bench", "random_checkpoint")
    built |= build("test", "--no-run", "--test", "torch")
    wanted = {"rrun": "rrun", "rrun-rank": "rrun-rank", "measure": "measure", "random_checkpoint": "random_checkpoint", "torch": "torch_tests"}
    found = {wanted[name]: path for name, path in built.items() if name in wanted}
    missing = set(wanted.values()) - set(found)
    if missing:
        sys.exit(f"cargo has built no {', '.join(sorted(missing))}")
    return found


def libraries(program: pathlib.Path) -> dict[str, pathlib.Path]:
    """Returns the libraries that the program loads at its start, by the names that it asks for,
    without those that every such machine has."""
    listed = subprocess.run(["ldd", str(program)], check=True, stdout=subprocess.PIPE, text=True).stdout
    pairs = (line.split(" => ") for line in listed.splitlines() if " => " in line)
    found = {name.strip(): pathlib.Path(path.split(" (")[0]) for name, path in pairs}
    absent = [name for name, path in found.items() if str(path) == "not found"]
    if absent:
        sys.exit(f"{program}: {', '.join(absent)} cannot be found here")
    is_theirs = lambda name: name.split(".so")[0] in THEIRS or name.startswith(TORCH)
    return {name: path for name, path in found.items() if not is_theirs(name)}


def copy(source: pathlib.Path, target: pathlib.Path) -> None:
    shutil.copy(source.resolve(), target)
    target.chmod(0o755)
    subprocess.run(["strip", str(target)], check=True)


def main() -> None:
    found = programs()
    shutil.rmtree(OUT, ignore_errors=True)
    for folder in ("bin", "lib", "extra"):
        (OUT / folder).mkdir(parents=True)
    for name, program in found.items():
        copy(program, OUT / "bin" / name)
        for library, path in libraries(program).items():
            if not (OUT / "lib" / library).exists():
                copy(path, OUT / "lib" / library)
    for folder in map(pathlib.Path, ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib")):
        for name in OPENGL:
            if (folder / name).exists() and not (OUT / "extra" / name).exists():
                copy(folder / name, OUT / "extra" / name)
    commit = os.environ.get("RRUN_COMMIT") or "unknown"
    (OUT / "COMMIT").write_text(f"{commit}\n")
    packed = OUT.with_suffix(".tar.xz")
    with tarfile.open(packed, "w:xz", preset=6) as archive:
        archive.add(OUT, "gpu")
    for path in sorted(path for path in OUT.rglob("*") if path.is_file()):
        print(f"{path.stat().st_size / 2**20:7.1f} MiB  {path.relative_to(OUT)}")
    print(f"{packed.stat().st_size / 2**20:7.1f} MiB  {packed.relative_to(ROOT)}")
    if packed.stat().st_size > MOST:
        sys.exit(f"{packed} is larger than {MOST >> 20} MiB")


if __name__ == "__main__":
    main()
