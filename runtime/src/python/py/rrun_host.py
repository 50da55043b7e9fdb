"""A Python process's end of the conversation with its rank; `python/mod.rs` draws the packets.

Python 3.8 is enough: simulators are old.
"""

import contextlib
import importlib
import importlib.util
import json
import mmap
import os
import struct
import sys
import traceback

HEAD = struct.Struct("=BBHI")  # kind, -, count, sequence
LARGEST_PACKET = 1 << 18
LONGEST_TEXT = 16_000  # bytes of a reason; a packet takes some 200 kB
NOBODY = 0xFFFF  # no copy is to blame
LINE = 64  # bytes to whose multiples places are aligned


class Refused(Exception):
    """It cannot be used as it is, and another process would find the same."""


class Wrong(Exception):
    """What was given cannot be right; says what, as the object of a sentence: "the reward as str 'x', ..."."""


def utf8(text):
    """A text as bytes. Half a surrogate pair, which UTF-8 has no bytes for, becomes `?`."""
    return text.encode("utf-8", "replace")


def packed(value):
    """A value as JSON that every reader takes."""
    return utf8(json.dumps(value, ensure_ascii=False))


class Host:
    def __init__(self, sock, memory_fd):
        self.sock, self.memory_fd = sock, memory_fd

    def tell(self, kind, body=b"", count=0, sequence=0):
        self.sock.send(HEAD.pack(ord(kind), 0, count, sequence) + body)

    def stage(self, text):
        self.tell("S", utf8(text))

    def note(self, text):
        self.tell("N", utf8(text)[:LONGEST_TEXT])

    def answer(self, sequence, body=b"", count=0):
        self.tell("A", body, count, sequence)

    def failed(self, sequence, text):
        self.tell("E", utf8(text)[:LONGEST_TEXT], 0, sequence)

    def requests(self):
        """Yields (sequence, body) until it is asked to close, or nobody is there any more."""
        # Used again and again: memory of this size is given back to the system each time.
        buffer = memoryview(bytearray(LARGEST_PACKET))
        while True:
            size = self.sock.recv_into(buffer)
            if size < HEAD.size or buffer[0] != ord("Q"):
                return
            yield HEAD.unpack_from(buffer)[3], buffer[HEAD.size : size]

    def memory(self, begin=0, end=None, access=mmap.ACCESS_WRITE):
        """A map of the shared memory, which has its size from the first request on."""
        end = os.fstat(self.memory_fd).st_size if end is None else end
        return mmap.mmap(self.memory_fd, end - begin, access=access, offset=begin)

    def gone(self, error, copy):
        """Says why this process ends."""
        is_refusal = isinstance(error, Refused)
        if is_refusal:
            text = str(error)
        else:
            traceback.print_exception(type(error), error, error.__traceback__)
            text = f"gave {error}" if isinstance(error, Wrong) else f"raised {last_line(error)}"
        self.tell("X", utf8(text)[:LONGEST_TEXT], copy, int(is_refusal))


class Places:
    """Parts of the shared memory, one after the other, each at a multiple of 64; the rank counts in the same way."""

    def __init__(self, at=0):
        self.at = at

    def take(self, size):
        begin = self.at
        self.at = -(-(begin + size) // LINE) * LINE
        return begin


def load(name):
    """The callable that `file.py:name`, `package.module:name` or `package.module.name` means."""
    place, colon, name = name.rpartition(":")
    if not colon:
        place, _, name = name.rpartition(".")
    if place.endswith(".py"):
        if not os.path.exists(place):
            raise Refused(f"there is no file `{os.path.abspath(place)}`")
        stem = os.path.splitext(os.path.basename(place))[0]
        spec = importlib.util.spec_from_file_location(stem, place)
        module = sys.modules[stem] = importlib.util.module_from_spec(spec)
        sys.path.insert(0, os.path.dirname(os.path.abspath(place)))
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(place)
    factory = module
    for part in name.split("."):
        if not hasattr(factory, part):
            there = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
            raise Refused(f"`{place}` has no `{name}`; it has {', '.join(there) or 'nothing that can be called'}")
        factory = getattr(factory, part)
    return factory


def last_line(error):
    """The exception, and the line outside of rrun that raised it."""
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(("rrun_", "<frozen"))]
    if frames:
        text += f" ({frames[-1].filename} line {frames[-1].lineno}, in {frames[-1].name})"
    return text


def run(worker, sock, memory_fd, config):
    """Runs a worker: its `start` says what it is, and its `serve` takes requests. Does not return."""
    host, it, code = Host(sock, memory_fd), None, 1
    try:
        it = worker(host, config)
        host.tell("H", packed(it.start()))
        it.serve()
        code = 0
    except BaseException as error:
        with contextlib.suppress(OSError):  # nobody may be there to be told
            host.gone(error, getattr(it, "current", NOBODY))
    finally:
        # Packages leave threads and exit handlers that hang; everything worth closing is closed.
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
