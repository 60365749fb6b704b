"""A container's user has a name, a home and a group to look up, at a real engine, whatever the image knows."""

import json
from pathlib import Path

from agent_docker import exited, in_container, python
from agent_helpers import wait_until

from detlab.schemas import wire
from testbed.containers import docker_images

LOOK = """
import getpass, grp, json, os, pwd, subprocess
me = pwd.getpwuid(os.getuid())
prompt = subprocess.run(["bash", "-c", "u='\\\\u'; echo ${u@P}"], capture_output=True, text=True).stdout.strip()
def can(path):
    try:
        open(path, "a").close()
        return True
    except OSError:
        return False
print(json.dumps({
    "names": [me.pw_name, getpass.getuser(), os.environ["USER"], os.environ["LOGNAME"], prompt,
              subprocess.run(["id", "-un"], capture_output=True, text=True).stdout.strip()],
    "home": [me.pw_dir, os.environ["HOME"], os.path.expanduser("~" + me.pw_name)],
    "shell": me.pw_shell, "uid": me.pw_uid == os.getuid(),
    "group": grp.getgrgid(os.getgid()).gr_name,
    "users": [user.pw_name for user in pwd.getpwall()],
    "may_write": [can("/etc/passwd"), can("/etc/group")],
}))
"""
ROOT = b"root:x:0:0:root:/root:/bin/bash\n"
ACCOUNTS = {
    "nothing": ({}, {}),
    "a-link": ({"etc/real": ROOT, "etc/group": b"root:x:0:\n"}, {"etc/passwd": "/etc/real"}),
    "no-newline": ({"etc/passwd": ROOT.strip(), "etc/group": b"root:x:0:"}, {}),
}


def look(master, **options):
    """What a task in a container sees of its own accounts."""
    task = in_container(master, python(LOOK), **options)
    master.wait_for(exited(task), timeout=40)
    assert task.exits[0].exit_code == 0, (task.exits, master.texts(task))
    return task, json.loads(master.texts(task)[-1])


def check(seen, name, home):
    assert set(seen["names"]) == {name}
    assert set(seen["home"]) == {str(home)}
    assert seen["uid"]
    assert "root" in seen["users"], "the image's own accounts are there"
    assert seen["may_write"] == [False, False]


def test_a_container_knows_its_users_name_home_and_group(master, docker_agent):
    task, seen = look(master)
    check(seen, "alice", docker_agent.task_dir(task) / "home")
    assert (seen["group"], seen["shell"]) == ("alice", "/bin/bash")
    tasks = docker_agent.directory / "tasks"
    wait_until(lambda: not [p for p in tasks.iterdir() if p.suffix in {".passwd", ".group"}], what="they are removed")
    _, seen = look(master, user_home=True)
    check(seen, "alice", docker_agent.directory / "homes" / "alice")


def test_images_with_odd_accounts_or_none_are_completed(master, docker_agent):
    for kind, accounts in ACCOUNTS.items():
        docker_images.build_with_accounts(docker_agent.engine, f"testbed/{kind}:1", *accounts)
        task, seen = look(master, image=f"testbed/{kind}:1")
        check(seen, "alice", docker_agent.task_dir(task) / "home")
        assert seen["users"] == ["root", "alice"], kind


def test_an_image_that_knows_the_uid_keeps_its_name(master, docker_agent):
    theirs = "".join(f"jovyan{uid}:x:{uid}:{uid}::/home/jovyan:/bin/zsh\n" for uid in range(23000, 23100))
    docker_images.build_with_accounts(docker_agent.engine, "testbed/known:1", {"etc/passwd": theirs.encode()}, {})
    task, seen = look(master, image="testbed/known:1")
    (name,) = set(seen["names"])
    assert name.startswith("jovyan23")
    assert len(seen["users"]) == 100
    assert (seen["home"][0], seen["shell"]) == ("/home/jovyan", "/bin/zsh")
    assert seen["home"][1] == str(docker_agent.task_dir(task) / "home"), "HOME is where the files are kept"


def test_a_hostile_or_taken_name_becomes_one_of_the_uid(master, docker_agent):
    for owner in ("../../x", "root", "a\nroot::0:0::/:/bin/sh"):
        _, seen = look(master, owner=owner)
        (name,) = set(seen["names"])
        assert name == f"user{master.uids[owner]}"
        assert len(seen["users"]) == len(set(seen["users"])), "one line more, and no second root"


def test_what_the_operator_mounts_there_is_left(master, docker_agents):
    docker_agents("--volume", "/etc/passwd:/etc/passwd:ro")
    master.wait_for(master.connected, what="the agent connects")
    program = "import os; print(os.environ['USER'], len(open('/etc/passwd').read()))"
    task = in_container(master, python(program))
    master.wait_for(exited(task), timeout=40)
    assert master.texts(task) == [f"alice {len(Path('/etc/passwd').read_text())}"]


def test_an_author_may_mount_accounts_of_their_own(master, docker_agent):
    docker_agent.shared.chmod(0o755)  # what is in a folder of everybody's is not mounted
    own = docker_agent.shared / "accounts"
    own.write_text("root:x:0:0::/:/bin/sh\nmine:x:23000:23000::/:/bin/sh\n")
    mount = wire.Mount(host_path=str(own), container_path="/etc/passwd", read_only=True)
    task = in_container(master, python("import pwd; print([user.pw_name for user in pwd.getpwall()])"), mounts=[mount])
    master.wait_for(exited(task), timeout=40)
    assert master.texts(task) == ["['root', 'mine']"]
