# Runs as `python -u -c`: short, so that `ps` stays readable. The modules come through shared memory.
import json, linecache, os, socket, sys, types
f = int(sys.argv[2])
c = json.loads(os.pread(f, os.fstat(f).st_size, 0))
for n, t in c["modules"]:
    m = sys.modules[n] = types.ModuleType(n)
    m.__file__ = n + ".py"
    linecache.cache[m.__file__] = (len(t), None, t.splitlines(True), m.__file__)
    exec(compile(t, m.__file__, "exec"), m.__dict__)
s = socket.socket(fileno=int(sys.argv[1]))
s.set_inheritable(False)
os.set_inheritable(f, False)
sys.modules["rrun_host"].run(m.Worker, s, f, c["config"])  # that of the last one
