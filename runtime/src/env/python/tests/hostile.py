"""A simulator's process that keeps none of the rules: stands in for the interpreter, and is told by $RRUN_HOSTILE which.

A rule `…@n` is broken by the n-th process and the later ones; those before it behave.
"""

import json
import mmap
import os
import signal
import socket
import struct
import sys
import threading
import time

sock = socket.socket(fileno=int(sys.argv[-3]))
memory_fd = int(sys.argv[-2])
rule = os.environ["RRUN_HOSTILE"]
SIDE = 8

INTERFACE = {
    "states": {"position": 3},
    "cameras": {"front": [SIDE, SIDE]},
    "actions": {"names": ["x", "y"], "low": [-1.0, -1.0], "high": [1.0, 1.0]},
    "control_hz": 20,
    "max_episode_steps": 50,
    "language": "go",
    "name": "x",
}
HELLO = {"interface": INTERFACE, "together": False, "notes": [], "versions": {}}


def stay():
    while True:
        time.sleep(3600)


def send(kind, body=b"", count=0, sequence=0):
    sock.send(struct.pack("=BBHI", ord(kind), 0, count, sequence) + body)


def hello(**changes):
    send("H", json.dumps({**HELLO, "interface": {**INTERFACE, **changes}}).encode())


if rule == "silent":
    stay()
if rule == "stages":
    while True:
        send("S", b"again" * 40_000)
if rule == "orphan stages":
    if os.fork() == 0:
        while True:
            send("S", b"again")
    os._exit(5)
if rule == "early answer":
    send("A")
    stay()
if rule == "seals":
    import fcntl

    fcntl.fcntl(memory_fd, 1033, 4)  # F_ADD_SEALS, F_SEAL_GROW
    hello()
if rule == "giant":
    hello(cameras={f"c{number}": [8192, 8192] for number in range(500)})
if rule == "long hello":
    hello(language="x" * 190_000)
if rule == "half a hello":
    send("H", json.dumps(HELLO).encode()[:100])
    stay()
if rule == "nested":
    send("H", b"[" * 100_000)
    stay()
if rule == "long refusal":
    send("X", "é".encode() * 100_000, 0xFFFF, 1)
    stay()
if rule == "hello twice":
    hello()
    hello()

if rule != "hello twice":
    hello()
memory = None
if rule == "never reads":
    stay()
while True:
    packet = sock.recv(1 << 18)
    if packet[:1] != b"Q":
        break
    memory = memory or mmap.mmap(memory_fd, os.fstat(memory_fd).st_size)
    _, _, count, sequence = struct.unpack_from("=BBHI", packet)
    entries = list(struct.iter_unpack("=HBB4xQQ", packet[8:]))
    replies = [(local, kind, 8 if render else 0, 0.0, 0) for local, kind, render, _, _ in entries]
    head = struct.pack("=BBHI", ord("A"), 0, count, sequence)
    body = b"".join(struct.pack("=HBBfI", *reply) for reply in replies)
    if entries[0][1] == 1:  # a step
        if rule == "wrong copy":
            body = struct.pack("=HBBfI", 60_000, 1, 8, 0.0, 0)
        elif rule == "no picture":
            body = struct.pack("=HBBfI", 0, 1, 0, 0.0, 0)
        elif rule == "wrong number":
            head = struct.pack("=BBHI", ord("A"), 0, count, sequence + 1)
        elif rule == "more replies":
            head = struct.pack("=BBHI", ord("A"), 0, 65_535, sequence)
        elif rule == "long text":
            body = struct.pack("=HBBfI", 0, 1, 8, 0.0, 0xFFFF_FFFF)
        elif rule == "flood":
            while True:
                sock.send(head + body)
        elif rule == "junk":
            sock.send(b"\xff" * 200_000)  # no kind of packet begins so
        elif rule == "closes":
            sock.close()
            stay()
        elif rule == "shuts down":
            sock.shutdown(socket.SHUT_WR)
            stay()
        elif rule == "stops":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif rule == "orphan":
            if os.fork() == 0:
                os.setsid()
                threading.Timer(30, os._exit, [0]).start()
                while True:
                    sock.send(head + body)
            os._exit(6)
        elif rule == "calls":
            memory[:8] = struct.pack("=II", 0xFFFF_FFFF, 0xFFFF_FFFF)
            os._exit(7)
        elif rule == "writes":
            def scribble():
                while True:
                    memory[64:] = os.urandom(len(memory) - 64)

            threading.Thread(target=scribble, daemon=True).start()
    sock.send(head + body)
os._exit(0)
