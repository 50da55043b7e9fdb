"""Writes down how this rank was started, and does what TELL_* asks for. Imports nothing that takes time."""
import json
import os
import sys
import time

rank, attempt = os.environ.get("RANK", "x"), os.environ.get("TORCHELASTIC_RESTART_COUNT", "x")
told = {
    "argv": sys.argv,
    # What comes before is the interpreter itself, whose name each launcher finds in its own way.
    "words": sys.orig_argv[1:],
    "name": __name__,
    "unbuffered": sys.stdout.write_through,
    "cwd": os.getcwd(),
    "env": dict(os.environ),
    "session": os.getsid(0) == os.getpid() and os.getpgrp() == os.getpid(),
}
if os.environ.get("TELL_STDIN"):
    told["stdin"] = sys.stdin.read()
# One write a line: unbuffered, print writes each word and the line end by itself, and lines of ranks would mix.
sys.stdout.write(f"out {rank} {attempt}\n")
sys.stdout.flush()
sys.stderr.write(f"err {rank} {attempt}\n")
if os.environ.get("TELL_ERROR_FILE"):
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
        json.dump({"message": {"message": "boom", "extraInfo": {"py_callstack": "tb", "timestamp": "7"}}}, file)
# Last of all: who sees this file knows that the rest is there.
folder = os.environ["CONF_OUT"]
with open(os.path.join(folder, f"{rank}.{attempt}.part"), "w") as file:
    json.dump(told, file)
os.rename(file.name, os.path.join(folder, f"{rank}.{attempt}.json"))
# `RANK.ATTEMPT=CODE,…`, a negative code is a signal. Who fails waits for the others, which would be ended before their time.
for rule in filter(None, os.environ.get("TELL_EXIT", "").split(",")):
    who, code = rule.split("=")
    if who != f"{rank}.{attempt}":
        continue
    others = [os.path.join(folder, f"{other}.{attempt}.json") for other in range(int(os.environ["WORLD_SIZE"]))]
    while not all(map(os.path.exists, others)):
        time.sleep(0.01)
    if int(code) < 0:
        os.kill(os.getpid(), -int(code))
    sys.exit(int(code))
