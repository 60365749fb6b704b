"""Whose uid a task has, what it can reach, what it cannot; and what an unprivileged agent refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from agent_helpers import AgentProcess, trial, wait_until

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="uids can only be changed by root")


def exited(allocation):
    return lambda: allocation.exits


def report(master, task):
    master.wait_for(exited(task), timeout=60)
    assert task.exits[0].exit_code == 0, (task.exits, master.texts(task))
    return json.loads(master.texts(task, "stdout")[-1])


LOOK = """
import json, os, sys
def can(action):
    try:
        action()
        return True
    except OSError:
        return False
import numpy, torch
task = os.environ["DET_TASK_DIR"]
print(json.dumps({
    "uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups(), "home": os.environ["HOME"],
    "torch": torch.ones(3).sum().item(), "numpy": numpy.ones(2).sum(),
    "secret": can(lambda: open(os.environ["SECRET"]).read()),
    "agent_key": can(lambda: open(os.path.join(os.path.dirname(os.path.dirname(task)), "key.json")).read()),
    "others": can(lambda: os.listdir(os.environ["OTHER"])),
    "own": can(lambda: open(os.path.join(task, "work", "x"), "w").write("x")),
    "home_works": can(lambda: open(os.path.expanduser("~/x"), "w").write("x")),
    "setuid_root": can(lambda: os.setuid(0)),
    "root_home": os.listdir("/root") if can(lambda: os.listdir("/root")) else None,
}))
"""


@needs_root
def test_each_user_has_a_uid_and_reaches_torch_but_no_secret(master, agent, open_tmp):
    secret = open_tmp / "secret"
    secret.write_text("s")
    secret.chmod(0o600)
    other = master.launch(trial("NeverExits"), owner="bob", slots=["cpu1"])
    master.wait_for(lambda: "up" in master.texts(other))
    task = master.launch(
        [sys.executable, "-c", LOOK], environment={"SECRET": str(secret), "OTHER": str(agent.task_dir(other))}
    )
    seen = report(master, task)
    assert seen["uid"] in range(23000, 23100)
    assert seen["gid"] == seen["uid"]
    assert seen["groups"] == []
    assert (seen["torch"], seen["numpy"]) == (3.0, 2.0)
    assert seen["own"]
    assert seen["home_works"]
    assert not seen["secret"]
    assert not seen["agent_key"]
    assert not seen["others"]
    assert not seen["setuid_root"]
    # /root is closed to the user; if Python lives in it, only that part of it is there.
    if seen["root_home"] is not None and not Path("/root").stat().st_mode & 0o001:
        assert set(seen["root_home"]) <= {Path(p).relative_to("/root").parts[0] for p in (sys.base_prefix,)}
    bobs = agent.processes(other)
    assert {Path(f"/proc/{p.pid}").stat().st_uid for p in bobs} == {agent.task_dir(other).stat().st_uid}
    assert agent.task_dir(other).stat().st_uid != seen["uid"]
    assert agent.task_dir(other).stat().st_mode & 0o777 == 0o700
    master.send_kill(other)
    master.wait_for(exited(other))


WHO = """
import getpass, grp, json, os, pwd, subprocess
run = lambda *words: subprocess.run(words, capture_output=True, text=True)
me = pwd.getpwuid(os.getuid())
os.environ.pop("USER"), os.environ.pop("LOGNAME")
print(json.dumps({
    "name": me.pw_name, "home": me.pw_dir == os.environ["HOME"], "gid": me.pw_gid == os.getgid(),
    "group": grp.getgrgid(os.getgid()).gr_name, "getuser": getpass.getuser(), "id": run("id", "-un").stdout.strip(),
    "git": [run("git", *words).returncode for words in (
        ("init", "-q", "repo"), ("-C", "repo", "-c", "user.email=a@b", "commit", "-qm", "x", "--allow-empty"))],
    "ssh": "No user exists" in run("ssh", "-o", "BatchMode=yes", "-G", "example.org").stderr,
    "root": pwd.getpwuid(0).pw_name, "writable": os.access("/etc/passwd", os.W_OK),
    "shadow": os.access("/etc/shadow", 4),
    "left": [name for folder in ("/run", "/dev/shm") for name in os.listdir(folder) if "detlab-account" in name],
}))
"""


@needs_root
@pytest.mark.parametrize(("owner", "name"), [("carol", "carol"), ("root", None), ("bad:name\nx", None)])
def test_a_task_has_an_account_on_its_node_for_git_and_ssh(master, agent, owner, name):
    """`getpass.getuser()` raised KeyError, ssh said "No user exists for uid 23000", git asked who one is."""
    before = Path("/etc/passwd").read_bytes()
    task = master.launch([sys.executable, "-c", WHO], owner=owner)
    seen = report(master, task)
    name = name or f"det{agent.task_dir(task).stat().st_uid}"
    assert (seen["name"], seen["getuser"], seen["id"], seen["group"]) == (name,) * 4
    assert seen["home"]
    assert seen["gid"]
    assert not seen["ssh"]
    assert set(seen["git"]) == {0}
    assert (seen["root"], seen["writable"], seen["shadow"], seen["left"]) == ("root", False, False, [])
    assert Path("/etc/passwd").read_bytes() == before, "no other process sees it"


SHOW = [sys.executable, "-c", "import os; print(os.getuid())"]


@needs_root
def test_a_task_runs_under_the_uid_that_the_master_says(master, agent):
    uids = [report(master, master.launch(SHOW, owner=owner)) for owner in ("alice", "bob", "alice")]
    assert uids == [master.uids[owner] for owner in ("alice", "bob", "alice")]
    assert not (agent.directory / "users.json").exists(), "the master keeps them"
    assert master.hellos[-1].uids == {}


@needs_root
@pytest.mark.parametrize(
    ("uid", "account", "why"),
    [
        (0, False, "uid 0"),
        (0, True, "uid 0"),
        (33, True, "system's"),
        (999, False, "uid-range"),
        (65534, False, "account 'nobody'"),
        (None, False, "update the master"),
    ],
)
def test_uids_of_root_of_the_system_and_of_accounts_are_refused(master, agent, uid, account, why):
    task = master.launch(SHOW, uid=uid, account=account)
    master.wait_for(exited(task))
    assert task.exits[0].reason == "refused"
    assert why in task.exits[0].message


@needs_root
def test_a_node_says_what_it_gave_before_and_gives_nobody_the_files_of_another(master, open_tmp):
    agent = AgentProcess(master, open_tmp / "agent")
    agent.directory.mkdir()
    (agent.directory / "users.json").write_text(json.dumps({"alice": master.uids_from + 1, "bob": master.uids_from}))
    agent.start()
    try:
        master.wait_for(master.connected)
        assert master.hellos[-1].uids == {"alice": 23001, "bob": 23000}
        task = master.launch(SHOW)
        master.wait_for(exited(task))
        assert task.exits[0].reason == "refused"
        assert all(word in task.exits[0].message for word in ("23001", "23000", "'alice'", "chown -R"))
        assert report(master, master.launch(SHOW, uid=23001)) == 23001
    finally:
        agent.end()


@needs_root
def test_a_system_account_of_the_same_name_is_not_used(master, agent):
    task = master.launch([sys.executable, "-c", "import os; print(os.getuid())"], owner="root")
    assert report(master, task) in range(23000, 23100)


@needs_root
def test_the_experiments_variables_never_reach_root(master, agent, open_tmp):
    """A PYTHONPATH or LD_PRELOAD of the experiment would run its code as root, before the uid changes."""
    trap = open_tmp / "trap"
    trap.mkdir()
    trap.chmod(0o777)
    code = f"import os; open('{trap}/' + str(os.getuid()), 'w').close()"
    (trap / "sitecustomize.py").write_text(code)
    task = master.launch(
        [sys.executable, "-c", "import os; print(os.getuid())"],
        environment={"PYTHONPATH": str(trap), "HOME": str(trap), "DET_TASK_DIR": "/nowhere"},
    )
    uid = report(master, task)
    assert {path.name for path in trap.iterdir()} - {"sitecustomize.py", "__pycache__"} == {str(uid)}


@needs_root
def test_a_link_in_the_spool_does_not_make_the_agent_read_for_its_user(master, agent, open_tmp):
    """The agent ships what a dead launcher left; a user must not make it ship root's files."""
    secret = open_tmp / "secret.jsonl"
    secret.write_text(json.dumps({"kind": "log", "seq": 900, "time": 1.0, "text": "root's secret"}) + "\n")
    secret.chmod(0o600)
    program = (
        "import json, os, signal\n"
        "task = os.environ['DET_TASK_DIR']\n"
        "logs = os.path.join(task, 'spool', 'logs.jsonl')\n"
        f"os.path.exists(logs) and os.unlink(logs); os.symlink({str(secret)!r}, logs)\n"
        f"os.symlink({str(secret)!r}, os.path.join(task, 'exit.json'))\n"
        "os.kill(json.load(open(os.path.join(task, 'launcher.json')))['pid'], signal.SIGKILL)\n"
    )
    task = master.launch([sys.executable, "-c", program])
    master.wait_for(exited(task))
    assert task.exits[0].reason == "launcher_lost"
    assert task.records["logs"] == []


@needs_root
def test_become_keeps_only_what_is_needed_behind_a_closed_directory(open_tmp):
    closed = open_tmp / "closed"
    (closed / "deep" / "tree").mkdir(parents=True)
    (closed / "deep" / "tree" / "needed").write_text("n")
    (closed / "private").write_text("p")
    (closed / "private").chmod(0o644)
    (closed / "writable").mkdir()
    os.chown(closed / "writable", 23050, 23050)
    (closed / "link").symlink_to("deep/tree")
    closed.chmod(0o700)
    look = (
        "import json, os, sys\n"
        "c = sys.argv[1]\n"
        "w = open(c + '/writable/x', 'w').write('x')\n"
        "try: open(c + '/deep/tree/x', 'w'); ro = False\n"
        "except OSError as e: ro = e.strerror\n"
        "print(json.dumps([os.getuid(), open(c + '/link/needed').read(), sorted(os.listdir(c)), ro]))\n"
    )
    command = [sys.executable, "-P", "-m", "detlab.launch.become", "--uid", "23050", "--gid", "23050"]
    command += ["--reach", f"{closed}/link", "--reach-rw", f"{closed}/writable", "--"]
    done = subprocess.run(
        [*command, sys.executable, "-c", look, str(closed)], capture_output=True, text=True, check=True, cwd="/"
    )
    uid, text, listing, read_only = json.loads(done.stdout)
    assert (uid, text) == (23050, "n")
    assert listing == ["deep", "link", "writable"]
    assert read_only in {"Read-only file system", "Permission denied"}
    assert (closed / "writable" / "x").stat().st_uid == 23050
    assert sorted(p.name for p in closed.iterdir()) == ["deep", "link", "private", "writable"]


@needs_root
@pytest.mark.parametrize(("uid", "gid"), [("0", "23050"), ("23050", "0")])
def test_become_never_runs_as_root(uid, gid):
    command = [sys.executable, "-P", "-m", "detlab.launch.become", "--uid", uid, "--gid", gid, "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 126
    assert "never runs as root" in done.stderr


@needs_root
def test_become_leaves_no_way_back_to_more_rights():
    look = "import json; print(json.dumps(dict(line.split(':', 1) for line in open('/proc/self/status'))))"
    command = [sys.executable, "-P", "-m", "detlab.launch.become", "--uid", "23050", "--gid", "23050", "--"]
    done = subprocess.run([*command, sys.executable, "-c", look], capture_output=True, text=True, check=True, cwd="/")
    found = {name: value.split() for name, value in json.loads(done.stdout).items()}
    assert found["NoNewPrivs"] == ["1"]
    assert (found["Uid"], found["Gid"]) == (["23050"] * 4, ["23050"] * 4)
    assert set(found["Groups"]) <= {"23050"}
    assert {name: int(found[name][0], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == dict.fromkeys(
        ("CapInh", "CapPrm", "CapEff", "CapAmb"), 0
    )


@needs_root
def test_without_the_right_to_mount_the_task_is_refused_with_the_way_out(open_tmp):
    closed = open_tmp / "closed"
    (closed / "needed").mkdir(parents=True)
    closed.chmod(0o700)
    command = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-all"]
    command += [sys.executable, "-P", "-m", "detlab.launch.become", "--uid", "23050", "--gid", "23050"]
    command += ["--reach", f"{closed}/needed", "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 126
    assert str(closed) in done.stderr
    assert "chmod o+x" in done.stderr


def unprivileged(master, open_tmp):
    """An agent as an ordinary user: setpriv, in a directory of that user's."""
    directory = open_tmp / "agent"
    directory.mkdir()
    return AgentProcess(master, directory, "--serves-user", "alice")


def test_an_agent_without_root_serves_one_user_and_refuses_others(master, open_tmp, monkeypatch):
    agent = unprivileged(master, open_tmp)
    if os.geteuid() == 0:
        os.chown(agent.directory, 23060, 23060)
        os.chown(agent.token_file, 23060, 23060)
        become = [sys.executable, "-P", "-m", "detlab.launch.become", "--uid", "23060", "--gid", "23060"]
        agent.prefix = [*become, "--reach-rw", str(agent.directory), "--"]
    agent.start()
    try:
        master.wait_for(master.connected)
        assert master.hellos[-1].serves_user == "alice"
        theirs = master.launch("true", owner="bob")
        master.wait_for(exited(theirs))
        assert theirs.exits[0].reason == "refused"
        assert "alice" in theirs.exits[0].message
        mine = master.launch([sys.executable, "-c", "import os; print(os.getuid())"], owner="alice")
        expected = 23060 if os.geteuid() == 0 else os.geteuid()
        assert report(master, mine) == expected
        wait_until(lambda: not agent.task_dir(mine).exists())
    finally:
        agent.end()


def test_a_slot_that_is_not_there_is_refused(master, agent):
    task = master.launch("true", slots=["cpu9"])
    master.wait_for(exited(task))
    assert task.exits[0].reason == "refused"
    assert "cpu9" in task.exits[0].message


@pytest.mark.parametrize("name", ["../x", "a/b", ".", ".."])
def test_an_allocation_cannot_name_another_directory(master, agent, name):
    task = master.launch("true", allocation_id=name)
    master.wait_for(exited(task))
    assert task.exits[0].reason == "refused"
