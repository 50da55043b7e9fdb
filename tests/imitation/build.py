#!/usr/bin/env python3
"""Builds the imitation for the torch of a site-packages folder, without importing it.

    build.py [SITE_PACKAGES] [--target FOLDER]

SITE_PACKAGES has torch/ and nvidia/cu13/include; by default it is that of `.venv` in the checkout.
The result goes to target/imitation/<torch version>, where `preload` has the value for LD_PRELOAD.
Functions that libtorch asks for and that are not written here become stubs which say their name.
Nothing is done twice: each step leaves the hash of what it was made from.
"""

import argparse
import hashlib
import os
import pathlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SOURCES = HERE / "src"

RUNTIME = sorted(path.stem for path in (SOURCES / "runtime").glob("*.cc"))
VALUES = sorted(path.stem for path in (SOURCES / "values").glob("*.cc"))

# By the name of the library without its version: the prefix of its functions, our sources of it,
# the code that a stub returns, and its soname where libtorch does not name it as needed.
LIBRARIES = {
    "libcudart": (r"(__)?cuda", RUNTIME, 801, None),
    "libcublas": (r"cublas(?!Lt)", ["cublas"], None, None),
    "libcublasLt": (r"cublasLt", ["cublaslt", "product", "product_checks"], 15, None),
    "libcudnn": (r"cudnn", ["cudnn"], 3000, None),
    "libnccl": (r"nccl", ["nccl"], 3, None),
    "libcuda": (r"cu(?!da|File|blas|dnn|fft|sparse|solver|pti|rand)[A-Z]", ["driver"], 801,
                "libcuda.so.1"),
    "libnvidia-ml": (r"nvml", ["nvml"], 3, "libnvidia-ml.so.1"),
    "libcufft": (r"cufft", [], 5, None),
    "libcurand": (r"curand", [], 1, None),
    "libcusolver": (r"cusolver", [], 1, None),
    "libcusparse": (r"cusparse(?!Lt)", [], 1, None),
    "libcusparseLt": (r"cusparseLt", [], 1, None),
    "libcufile": (r"cuFile", [], 1, None),
    "libnvshmem_host": (r"nvshmem", [], 1, None),
    "libnvrtc": (r"nvrtc", [], 1, None),
    "libcupti": (r"cupti", [], 15, None),
}
CXX = ["nice", "-n", "5", os.environ.get("CXX", "g++"), "-fPIC", "-fno-delete-null-pointer-checks"]


class Torch:
    """The torch of a site-packages folder: its version, and what its libraries ask of others."""

    def __init__(self, site: pathlib.Path):
        self.site = site
        self.folder = site / "torch"
        text = (self.folder / "version.py").read_text()
        self.version = re.search(r"__version__\s*=\s*'([^']+)'", text).group(1)
        self.cuda_include = next(iter(sorted(site.glob("nvidia/cu*/include"))))
        self.libraries = sorted((self.folder / "lib").glob("*.so"))

    def undefined(self) -> dict[str, str]:
        """Functions that its libraries do not have themselves, each with its version node or ''."""
        found = {}
        for library in self.libraries:
            for word in read("nm", "-D", "-u", library).split():
                name, _, node = word.partition("@")
                found[name] = node.lstrip("@") or found.get(name, "")
        return found

    def needed(self) -> set[str]:
        text = "".join(read("readelf", "-d", library) for library in self.libraries)
        return set(re.findall(r"\(NEEDED\).*\[(.*?)\]", text))


def read(*words) -> str:
    return subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          check=True).stdout


def make(target: pathlib.Path, sources: list[pathlib.Path], words: list) -> bool:
    """Runs a command that makes `target`, unless it was made from the same sources by the same."""
    words = [str(word) for word in words]
    digest = hashlib.sha256("\0".join(words).encode())
    for source in sources:
        digest.update(source.read_bytes())
    stamp = target.with_name(target.name + ".stamp")
    if target.exists() and stamp.exists() and stamp.read_text() == digest.hexdigest():
        return False
    print("building", target.name, file=sys.stderr)
    subprocess.run(words, check=True)
    stamp.write_text(digest.hexdigest())
    return True


class Build:
    def __init__(self, torch: Torch, folder: pathlib.Path):
        self.torch, self.folder = torch, folder
        self.headers = sorted(SOURCES.rglob("*.h"))
        (folder / "obj").mkdir(parents=True, exist_ok=True)

    def everything(self) -> list[pathlib.Path]:
        """Builds all; the libraries to preload."""
        undefined, needed = self.torch.undefined(), self.torch.needed()
        names = [source for _, sources, _, _ in LIBRARIES.values() for source in sources]
        # The longest first: those with libtorch's headers.
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self.compile, [*VALUES, *names]))
        runtime = self.link("libcudart", undefined, needed, [])
        others = [name for name in LIBRARIES if name != "libcudart"]
        preloaded = [runtime, *(self.link(name, undefined, needed, [runtime]) for name in others)]
        self.link_values(runtime)
        return preloaded

    def object(self, name: str) -> pathlib.Path:
        return self.folder / "obj" / f"{name}.o"

    def compile(self, name: str):
        source = next(SOURCES.rglob(f"{name}.cc"))
        words = [*CXX, f"-I{SOURCES}", f"-I{self.torch.cuda_include}"]
        if name in VALUES:
            include = self.torch.folder / "include"
            words += ["-std=c++20", "-O1", "-w", f"-I{include}",
                      f"-I{include}/torch/csrc/api/include"]
        else:
            words += ["-std=c++17", "-O3" if name == "product" else "-O2", "-g", "-Wall", "-Wextra",
                      "-Wno-missing-field-initializers"]
        target = self.object(name)
        make(target, [source, *self.headers], [*words, "-c", source, "-o", target])

    def link(self, name: str, undefined: dict[str, str], needed: set[str], extra: list):
        prefix, sources, code, soname = LIBRARIES[name]
        soname = soname or next((it for it in needed if it.startswith(name + ".so")), f"{name}.so")
        objects = [self.object(source) for source in sources]
        asked = {it: node for it, node in undefined.items() if re.match(prefix, it)}
        defined = {line.split()[-1] for it in objects
                   for line in read("nm", "--defined-only", it).splitlines()}
        stubs = self.folder / "obj" / f"{name}.stubs.cc"
        write_if_changed(stubs, stub_text(name, sorted(set(asked) - defined), code))
        nodes = sorted({node for node in asked.values() if node})
        script = self.folder / "obj" / f"{name}.version"
        write_if_changed(script, "".join(f"{node} {{ global: *; }};\n" for node in nodes))
        target = self.folder / soname
        words = [*CXX, "-shared", "-w", f"-Wl,-soname,{soname}", *objects, stubs, *extra, "-ldl",
                 "-lpthread", "-Wl,-rpath,$ORIGIN", "-o", target]
        if nodes:
            words.append(f"-Wl,--version-script={script}")
        make(target, [*objects, stubs, script, *extra], words)
        return target

    def link_values(self, runtime: pathlib.Path):
        objects = [self.object(name) for name in VALUES]
        libraries = [self.torch.folder / "lib" / name
                     for name in ("libtorch_cpu.so", "libc10.so", "libc10_cuda.so")]
        target = self.folder / "libimitation_values.so"
        words = [*CXX, "-shared", *objects, *libraries, runtime, "-ldl", "-Wl,-rpath,$ORIGIN",
                 "-o", target]
        make(target, [*objects, runtime], words)


def stub_text(library: str, names: list[str], code: int | None) -> str:
    """Every routine of cuBLAS is a launch; other functions fail with the library's own code."""
    if library == "libcublas":
        lines = ['extern "C" int imitation_blas(void*, const char*);']
        lines += [f'extern "C" int {it}(void* h) {{ return imitation_blas(h, "{it}"); }}'
                  for it in names]
    else:
        lines = ["namespace card { int not_imitated(const char*, int); }"]
        lines += [f'extern "C" int {it}() {{ return card::not_imitated("{it}", {code}); }}'
                  for it in names]
    return "\n".join(lines) + "\n"


def write_if_changed(path: pathlib.Path, text: str):
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = next(iter(sorted(ROOT.glob(".venv/lib/python3.*/site-packages"))), None)
    parser.add_argument("site", nargs="?", type=pathlib.Path, default=default)
    parser.add_argument("--target", type=pathlib.Path, default=ROOT / "target/imitation")
    found = parser.parse_args()
    if found.site is None:
        parser.error("there is no .venv: run ./setup.sh, or name the site-packages folder")
    return found


def main():
    asked = arguments()
    torch = Torch(asked.site.resolve())
    folder = asked.target.resolve() / torch.version
    preloaded = Build(torch, folder).everything()
    write_if_changed(folder / "preload", ":".join(map(str, preloaded)) + "\n")
    current = asked.target / "current"
    if not current.is_symlink() or os.readlink(current) != torch.version:
        current.unlink(missing_ok=True)
        current.symlink_to(torch.version)
    print(folder)


if __name__ == "__main__":
    main()
