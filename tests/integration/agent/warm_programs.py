"""Programs for the warm pool's tests: one that says what it finds, and such as end in every way there is."""

# What a process and an interpreter know about themselves, without what differs from one task to the next.
LOOK = r"""
import gc, json, locale, logging, os, resource, signal, site, stat, sys, tempfile, threading, warnings
import multiprocessing
def proc(name):
    return dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)[name]
main = sys.modules["__main__"]
def kind(number):
    mode = os.fstat(number).st_mode
    return [name for name in ("S_ISFIFO", "S_ISCHR", "S_ISREG", "S_ISSOCK") if getattr(stat, name)(mode)]
def opened(number):
    try:
        return kind(number)
    except OSError:
        return None
place = os.environ["DET_TASK_DIR"]
def plain(value):
    text = json.dumps(value).replace(place, "TASK").replace(os.environ["DET_ALLOCATION_ID"], "ALLOCATION")
    return json.loads(text.replace(os.environ["TMPDIR"], "TMP"))  # a short name, drawn for each task
env = dict(os.environ)
EACH = ("DET_TRIAL_ID", "DET_TASK_ID", "DET_SLOT_IDS", "DET_UNIQUE_PORT_OFFSET", "DETLAB_WARM_POOL", "DETLAB_X")
shown = dict(item.split("=", 1) for item in open("/proc/self/environ").read().split("\0") if item)
import torch, numpy
torch.optim.SGD([torch.zeros(1, requires_grad=True)]).step()  # imports more, which sets filters of its own
print(json.dumps(plain({
    "env": {k: v for k, v in env.items() if k not in EACH},
    "shown_env": shown == env,
    "cmdline": [w for w in open("/proc/self/cmdline").read().split("\0") if w],
    "cwd": os.getcwd(),
    "ids": [os.getresuid(), os.getresgid(), os.getgroups()],
    "group_leader": os.getpgid(0) == os.getpid(),
    "session": "detlab.launch.task" in open(f"/proc/{os.getsid(0)}/cmdline").read(),
    "umask": os.umask(0o022),
    "fds": {n: opened(n) for n in range(0, 64) if opened(n)},
    "flags": os.get_blocking(0), "readable": sys.stdin.read(),
    "limits": [resource.getrlimit(getattr(resource, n)) for n in sorted(dir(resource)) if n.startswith("RLIMIT_")],
    "nice": os.getpriority(os.PRIO_PROCESS, 0), "affinity": sorted(os.sched_getaffinity(0)),
    "signals": {n: proc(n) for n in ("SigBlk", "SigIgn", "SigCgt", "ShdPnd", "SigPnd")},
    "handlers": {int(n): str(signal.getsignal(n)) for n in signal.valid_signals() if int(n) < 32},
    "capabilities": [proc(n) for n in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")],
    "dumpable": os.stat("/proc/self/environ").st_uid == os.getuid(),
    "argv": sys.argv,
    "orig_argv": sys.orig_argv,
    "executable": sys.executable,
    "path": sys.path,
    "flags_py": str(sys.flags),
    "prefix": [sys.prefix, sys.exec_prefix, sys.base_prefix],
    "warnoptions": sys.warnoptions,
    "filters": [str(f).replace(str(place), "") for f in warnings.filters],
    "main": sorted(k for k in vars(main) if k not in ("plain",)), "main_file": getattr(main, "__file__", None),
    "main_spec": getattr(main.__spec__, "name", None),
    "main_loader": type(main.__loader__).__name__,
    "main_package": main.__package__,
    "name": __name__, "main_is_ours": vars(main) is globals(), "doc": __doc__, "annotations": __annotations__,
    "builtins_kind": type(__builtins__).__name__,
    "user_site": [site.ENABLE_USER_SITE, site.USER_SITE, site.USER_BASE],
    "stdio": [
        (s.encoding, s.errors, s.line_buffering, s.write_through, s.name, s.mode)
        for s in (sys.stdin, sys.stdout, sys.stderr)
    ],
    "hooks": [sys.excepthook is sys.__excepthook__, threading.excepthook is threading.__excepthook__],
    "root_handlers": len(logging.getLogger().handlers), "root_level": logging.getLogger().level,
    "with_handlers": sorted(n for n, l in logging.Logger.manager.loggerDict.items() if getattr(l, "handlers", [])),
    "locale": locale.setlocale(locale.LC_ALL), "tempdir": tempfile.gettempdir(), "recursion": sys.getrecursionlimit(),
    "switch": sys.getswitchinterval(), "gc": [gc.isenabled(), gc.get_threshold()],
    "main_thread": threading.current_thread() is threading.main_thread(),
    "threads": [t.name for t in threading.enumerate()],
    "native": threading.main_thread().native_id == os.getpid(),
    "kernel_threads": proc("Threads"),
    "children": multiprocessing.active_children(), "original_dir": multiprocessing.process.ORIGINAL_DIR,
    "start_method": multiprocessing.get_start_method(), "process_name": multiprocessing.current_process().name,
    "torch_threads": [torch.get_num_threads(), torch.get_num_interop_threads()], "cuda": torch.cuda.is_initialized(),
    "grad": torch.is_grad_enabled(),
    "dtype": str(torch.get_default_dtype()),
    "deterministic": torch.are_deterministic_algorithms_enabled(),
    "numpy_err": numpy.geterr(),
    # But those of a Docker engine that another test has on this machine: they come and go.
    "mounts": sorted(l.split()[1] for l in open("/proc/self/mounts") if "/detlab-docker-" not in l.split()[1]),
    "oom": open("/proc/self/oom_score_adj").read(), "cgroup": open("/proc/self/cgroup").read(),
})))
"""

WHERE = """
import json, os, sys
print(json.dumps({"torch": "torch" in sys.modules, "pid": os.getpid(), "parent": os.getppid()}))
"""

# Ways to end; cold and forked, the exit code and every line must be the same.
ENDS = {
    "an exception through functions": """
def outer(x):
    return inner(x) + 1
def inner(x):
    return 1 / x
print("before")
outer(0)
""",
    "an exception from another": """
try:
    {}["a"]
except KeyError as error:
    raise ValueError("second") from error
""",
    "an exception while another is handled": """
try:
    int("x")
except ValueError:
    undefined_name
""",
    "a syntax error": "print('never')\nx = = 1\n",
    "a module that is not there": "import no_such_module_here\n",
    "exit with a message": "import sys\nsys.exit('cannot go on')\n",
    "exit with a code": "import sys\nprint('x', end='')\nsys.exit(3)\n",
    "exit with nothing": "raise SystemExit\n",
    "exit with minus one": "import sys\nsys.exit(-1)\n",
    "exit at once": "import os\nos._exit(7)\n",
    "killed": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "terminated": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n",
    "a crash": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
    "aborted": "import os\nos.abort()\n",
    "interrupted": "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n",
    "an interrupt that is raised": "import atexit\natexit.register(print, 'bye')\nraise KeyboardInterrupt\n",
    "a hook of its own": """
import sys
sys.excepthook = lambda kind, error, trace: print("hook", kind.__name__, error, trace.tb_lineno, trace.tb_frame)
raise ValueError("x")
""",
    "threads and functions at the end": """
import atexit, threading, time
atexit.register(print, "atexit")
threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
print("main ends")
""",
    "an exception in a thread": """
import threading
t = threading.Thread(target=lambda: 1 / 0, name="worker")
t.start(); t.join()
""",
    "an exception at the end": "import atexit\natexit.register(lambda: 1 / 0)\n",
    "warnings and logs": """
import logging, warnings
warnings.warn("careful")
warnings.warn("old", DeprecationWarning)
logging.warning("first")
logging.info("not shown")
""",
    "a traceback that is printed": """
import traceback, inspect
try:
    1 / 0
except ZeroDivisionError:
    traceback.print_exc()
print([frame.function for frame in inspect.stack()][:1])
""",
    "what is flushed by the end": """
import ctypes, sys
class Last:
    def __del__(self):
        print("del", file=sys.__stdout__)
last = Last()
ctypes.CDLL(None).printf(b"from c\\n")
file = open(1, "w", closefd=False)
file.write("left open\\n")
""",
    "what is flushed by the end of a module": """
import atexit, builtins, sys, types
class Last:
    def __init__(self, name):
        self.name = name
    def __del__(self, print=print, file=sys.__stdout__):
        print("del", self.name, file=file)
helper = types.ModuleType("helper")
sys.modules["helper"] = helper
helper.thing, helper.itself = Last("in a module"), helper
sys.extra, builtins.extra = Last("in sys"), Last("in builtins")
atexit.register(print, "at exit")
""",
    "what is flushed by the end of a ring": """
import atexit, sys
class Last:
    def __del__(self, print=print, file=sys.__stdout__):
        print("del in a ring", file=file)
ring = [Last()]
ring.append(ring)
atexit.register(print, "at exit")
""",
    "exit with a large code": "import sys\nsys.exit(256 + 9)\n",
    "exit with a code that no number of C holds": "import sys\nsys.exit(2**70)\n",
    "exit with true": "import sys\nsys.exit(True)\n",
    "a file that is written to by an object's method at the end": """
import atexit
class Log:
    def __init__(self):
        self.file = open(1, "w", closefd=False)
        self.file.write("begun\\n")
    def end(self):
        self.file.write("ended\\n")
atexit.register(Log().end)
""",
    "a file that is printed to at the end": """
import atexit
atexit.register(print, "at exit", file=open(1, "w", closefd=False))
""",
    "a file in a context's variable": """
import contextvars
held = contextvars.ContextVar("held")
held.set(open(1, "w", closefd=False))
held.get().write("in a context\\n")
""",
    "a file in a module of the zygote": """
import json
json.file = open(1, "w", closefd=False)
json.file.write("in json\\n")
""",
    "a file that a hook for errors holds": """
import sys
file = open(1, "w", closefd=False)
file.write("held by a hook\\n")
sys.excepthook = lambda *error, file=file: None
""",
    "a file that a hook for errors in threads holds": """
import threading
file = open(1, "w", closefd=False)
file.write("held by a hook for threads\\n")
threading.excepthook = lambda *error, file=file: None
""",
    "a file that a list of the interpreter holds": """
import sys
def hook(path, file=open(1, "w", closefd=False)):
    raise ImportError(path)
hook.__defaults__[0].write("in a list\\n")
sys.path_hooks.append(hook)
""",
    "a stdout that cannot be flushed": "import os\nprint('lost', end='')\nos.close(1)\n",
    "an object that fails at the end": """
class Last:
    def __del__(self):
        raise ValueError("at the end")
last = Last()
""",
    "an exit that says no number": "import sys\nsys.exit(1.5)\n",
    "a thread that nobody waits for": """
import threading, time
def work():
    while True:
        time.sleep(0.001)
threading.Thread(target=work, daemon=True).start()
print("main ends")
""",
    "a fork that ends by itself": """
import os, sys
pid = os.fork()
if not pid:
    sys.exit(4)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
sys.exit(5)
""",
    "a broken stdout": "import os\nos.close(1)\nprint('lost')\n",
}
