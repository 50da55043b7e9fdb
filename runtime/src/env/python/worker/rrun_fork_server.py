"""A fork server: imports what an environment needs, once, and forks a process whenever it is asked.

It says hello when it can be asked, and is refused if its copies would not be as good as processes of their own. Then it takes, as often as they come, packets with the label of a process and four descriptors: a pipe, and the process's socket, shared memory and output. Into the pipe go two i32: the PID (or a negative errno), and later the status as wait(2) gives it. The process is reaped when the other end of the pipe is closed, so that the PID is not used again before. If that happens before the process has ended, it is killed.
"""

import contextlib
import ctypes
import errno
import gc
import json
import os
import random
import select
import signal
import socket
import struct
import sys
import traceback

import numpy as np

import rrun_host
import rrun_simulator as simulator
import rrun_worker

NUMBER = struct.Struct("=i")
PR_SET_PDEATHSIG = 1
# Their state in the kernel and on the GPU does not survive a fork.
DRIVERS = "libcuda.so", "libEGL", "libvulkan"


class Child:
    """A process that was forked, and the pipe that its end is told to."""

    def __init__(self, pid, status):
        self.pid, self.status, self.pidfd = pid, status, os.pidfd_open(pid)
        self.has_ended, self.is_wanted = False, True


class Server:
    def __init__(self, sock):
        self.sock, self.pid = sock, os.getpid()
        self.prctl = ctypes.CDLL(None).prctl
        self.children = {}  # by their pidfd and by their pipe
        self.poll = select.poll()
        self.poll.register(sock, select.POLLIN)

    def run(self):
        while True:
            # One event at a time: what it does may close the descriptor of the next.
            fd, _ = self.poll.poll()[0]
            if fd == self.sock.fileno():
                self.take()
            else:
                self.on_child(self.children[fd], fd)

    def take(self):
        """Forks the process that a packet asks for."""
        label, fds, _, _ = socket.recv_fds(self.sock, 1 << 16, 4, socket.MSG_CMSG_CLOEXEC)
        if not label:
            os._exit(0)  # nobody is there any more
        try:
            if len(fds) < 4:  # the system drops those for which there is no number left
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            self.fork(label.decode(), *fds)
        except OSError as error:
            if fds:
                tell(fds[0], -(error.errno or errno.EAGAIN))
                os.close(fds[0])
        for fd in fds[1:]:
            os.close(fd)

    def fork(self, label, status, *theirs):
        pid = os.fork()
        if pid == 0:
            os.close(status)
            self.become(label, *theirs)
        # The process does the same: whoever is first, its group is there before its PID is told.
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        try:
            child = Child(pid, status)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        self.children[status] = self.children[child.pidfd] = child
        self.poll.register(status, 0)  # POLLERR comes unasked, when the other end is closed
        self.poll.register(child.pidfd, select.POLLIN)
        tell(status, pid)

    def on_child(self, child, fd):
        self.poll.unregister(fd)
        if fd == child.pidfd:
            child.has_ended = True
            tell(child.status, raw_status(os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)))
        else:
            child.is_wanted = False
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
        if child.has_ended and not child.is_wanted:
            os.waitpid(child.pid, 0)
            for fd in (child.pidfd, child.status):
                del self.children[fd]
                os.close(fd)

    def become(self, label, sock, memory, output):
        """In the new process: leaves everything of the server's, and goes on as a process that was started directly."""
        try:
            if self.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0 or os.getppid() != self.pid:
                os._exit(1)  # the server may have ended before it could take this process along
            os.setpgid(0, 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            self.sock.close()
            for fd in self.children:
                os.close(fd)
            np.random.seed()
            random.seed()
            rename(label)
            sys.argv[1:] = [str(sock), str(memory), label]
            config = json.loads(os.pread(memory, os.fstat(memory).st_size, 0))["config"]
            rrun_host.run(rrun_worker.Worker, socket.socket(fileno=sock), memory, config)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)


def tell(pipe, number):
    # Its other end may be closed, which is an event of its own.
    with contextlib.suppress(BrokenPipeError):
        os.write(pipe, NUMBER.pack(number))


def raw_status(result):
    """The status as wait(2) gives it."""
    if result.si_code == os.CLD_EXITED:
        return result.si_status << 8
    return result.si_status | (0x80 if result.si_code == os.CLD_DUMPED else 0)


def rename(label):
    """Writes the label of a process over the server's, where `ps` looks."""
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    own = sys.argv[-1].encode()
    at = ctypes.string_at(begin, end - begin).rfind(own)
    if at >= 0:
        ctypes.memmove(begin + at, label.encode()[: len(own)].ljust(len(own)), len(own))


# --- what may be forked -------------------------------------------------------------------------------------------------


def descriptors():
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found[name] = os.readlink(f"/proc/self/fd/{name}")
    return found


def number_of_threads():
    return len(os.listdir("/proc/self/task"))


def stop_pools():
    """Thread pools that are prepared for a fork, such as OpenBLAS's, end their threads before it and start others when they need them."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def generators():
    """The random generators that modules have."""
    kinds = random.Random, np.random.Generator, np.random.RandomState
    known = [getattr(random, "_inst", None), getattr(np.random.mtrand, "_rand", None)]
    for name, module in list(sys.modules.items()):
        for key, value in list(getattr(module, "__dict__", {}).items()):
            if isinstance(value, kinds) and not isinstance(value, random.SystemRandom) and not any(value is one for one in known):
                yield f"{name}.{key}"


def random_state():
    kind, keys, *rest = np.random.get_state()
    return random.getstate(), kind, keys.tobytes(), rest


class Before:
    """What this process was before it imported anything of the environment's."""

    def __init__(self):
        self.descriptors, self.random = descriptors(), random_state()
        self.generators = set(generators())

    def objection(self):
        """Why this process cannot be forked, or None."""
        opened = [place for fd, place in descriptors().items() if self.descriptors.get(fd) != place]
        if opened:
            return f"the import has opened {opened[0]}"
        with open("/proc/self/maps") as file:
            maps = file.read().splitlines()
        for line in maps:
            driver = next((name for name in DRIVERS if name in line), None)
            if driver:
                return f"the import has loaded {driver}"
            if line.split()[1][1] == "w" and line.split()[1][3] == "s":
                return f"the import has memory that it shares: {line.split()[-1]}"
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
            return "the import has started a process"
        if random_state() != self.random:
            return "the import has used a global random generator"
        new = sorted(set(generators()) - self.generators)
        if new:
            return f"the import has made the random generator {new[0]}"
        if number_of_threads() > 1:
            stop_pools()
        if number_of_threads() > 1:
            return f"the import has started threads; {number_of_threads()} run"
        return None


def missing():
    """What this interpreter lacks, or None."""
    for module, name in ((socket, "recv_fds"), (os, "pidfd_open")):
        if not hasattr(module, name):
            return f"this Python has no {module.__name__}.{name}"
    return None


class Worker:
    def __init__(self, host, config):
        os.close(host.memory_fd)  # nothing that its children are to have
        self.host, self.config = host, config

    def start(self):
        reason = missing() or self.imported(Before())
        if reason:
            raise rrun_host.Refused(reason)
        gc.freeze()  # a collection writes into every object that it looks at, and a written page is shared no more

    def imported(self, before):
        for name in self.config["imports"]:
            self.host.stage(f"import {name}")
            __import__(name)
        self.host.stage(f"make {self.config['environment']}")
        simulator.load(self.config["environment"])
        simulator.versions()  # fills its cache
        return before.objection()

    def serve(self):
        Server(self.host.sock).run()
