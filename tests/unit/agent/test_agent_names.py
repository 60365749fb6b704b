"""What a container's user and groups are called: hostile names, images that know the ids, images that know nothing."""

import grp
import io
import os
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from detlab.launch.host.identity import Identity
from detlab_agent.runtimes.docker.accounts import (
    GROUP,
    LARGEST,
    PASSWD,
    Accounts,
    ImageAccounts,
    Naming,
    forget_names,
    name_user,
    sweep_names,
    write_names,
)
from detlab_agent.runtimes.docker.engine import EngineRefused, Gone

HOME = Path("/var/lib/detlab/homes/ada")
IMAGE = Accounts(
    b"root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/sbin/nologin\njovyan:x:1000:100::/home/jovyan:/bin/zsh\n",
    b"root:x:0:\nusers:x:100:\n",
)


def ada(name="ada", uid=23000, gid=23000, groups=()):
    return Identity(name, uid, gid, None, groups)


def lines(naming, path):
    return naming.files[path].decode().splitlines()


def test_a_line_is_added_with_the_home_and_the_shell_of_the_image():
    named = name_user(IMAGE, ada(), HOME)
    assert named.user == "ada"
    assert lines(named, PASSWD)[:-1] == IMAGE.passwd.decode().splitlines(), "the image's own stay as they are"
    assert lines(named, PASSWD)[-1] == "ada:x:23000:23000:ada:/var/lib/detlab/homes/ada:/bin/bash"
    assert lines(named, GROUP) == ["root:x:0:", "users:x:100:", "ada:x:23000:"]


def test_an_image_that_knows_the_uid_keeps_its_name_and_knows_the_group_too():
    assert name_user(IMAGE, ada(uid=1000, gid=100), HOME) == Naming("jovyan", {})


def test_groups_have_the_names_that_they_have_on_this_node():
    group = grp.getgrgid(os.getgid() or grp.getgrall()[1].gr_gid)
    named = name_user(Accounts(group=b"root:x:0:"), ada(groups=(100_001, 100_002)), HOME)
    assert lines(named, GROUP) == ["root:x:0:", "ada:x:23000:", "group100001:x:100001:", "group100002:x:100002:"]
    here = name_user(Accounts(group=b""), ada(gid=100_001, groups=(group.gr_gid,)), HOME)
    assert lines(here, GROUP) == ["ada:x:100001:", f"{group.gr_name}:x:{group.gr_gid}:"]


@pytest.mark.parametrize(
    "name",
    [
        *("root", "jovyan", "", "a:b", "a\nroot::0:0::/:/bin/sh", "../../x", "1234", "4ada", "-rf", "a b", "x" * 65),
        *("\u202eada", "a\x1b[31m", "a,b", "$(id)", "a\\w", "é" * 33, "\udcff"),
    ],
)
def test_names_that_cannot_stand_there_or_are_anothers_are_made_from_the_uid(name):
    named = name_user(IMAGE, ada(name), HOME)
    assert named.user == "user23000"
    assert len(lines(named, PASSWD)) == 4
    assert lines(named, PASSWD)[-1].startswith("user23000:x:23000:")
    assert len(lines(named, GROUP)) == 3


@pytest.mark.parametrize("name", ["ada", "ada.lovelace@example.org", "_a", "zoë", "a+b-c", "A1"])
def test_names_that_people_have_are_kept(name):
    assert name_user(IMAGE, ada(name), HOME).user == name


def test_even_the_name_made_from_the_uid_may_be_taken():
    image = Accounts(b"user23000:x:5:5::/:/bin/sh\n", b"")
    assert name_user(image, ada("a:b"), HOME).user == "user23000_"


@pytest.mark.parametrize("content", [b"", b"root:x:0:0:root:/root:/bin/sh", b"+::::::\n\xff\xfe\n::::\na\n#\nx:y:z\n"])
def test_whatever_an_image_has_there_is_kept_byte_for_byte(content):
    named = name_user(Accounts(content, content), ada(), HOME)
    added = named.files[PASSWD].removeprefix(content).lstrip(b"\n")
    assert named.files[PASSWD].startswith(content)
    assert added == b"ada:x:23000:23000:ada:/var/lib/detlab/homes/ada:\n"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("/bin/bash", "/bin/bash"), ("/usr/bin/fish", "/usr/bin/fish")]
    + [(shell, "") for shell in ("/bin/sh", "", "/sbin/nologin", "/usr/bin/false")],
)
def test_the_shell_is_what_root_has_unless_nobody_would_choose_it(theirs, ours):
    named = name_user(Accounts(f"root:x:0:0:root:/root:{theirs}\n".encode()), ada(), HOME)
    assert lines(named, PASSWD)[-1].rpartition(":")[2] == ours


@pytest.mark.parametrize("home", ["/a:b", "/a\nb", "/a\x1bb"])
def test_a_home_that_cannot_stand_there_leaves_the_image_as_it_is(home):
    named = name_user(IMAGE, ada(), Path(home))
    assert named.user == "ada"
    assert PASSWD not in named.files


@pytest.mark.parametrize(
    ("taken", "files"),
    [("/etc/passwd", set()), ("/etc", set()), ("/etc/group", {PASSWD}), ("/etc/ssl", {PASSWD, GROUP})],
)
def test_what_a_mount_covers_is_left_to_it(taken, files):
    named = name_user(IMAGE, ada(), HOME, {"/data", taken})
    assert named.user == "ada"
    assert set(named.files) == files


def test_without_the_images_accounts_nothing_changes():
    assert name_user(None, ada(), HOME) == Naming("ada", {})


def test_files_are_beside_the_record_readable_whatever_the_umask_and_go_with_it(tmp_path):
    record = tmp_path / "command-1.2.json"
    before = os.umask(0o077)
    try:
        mounts = write_names(record, Naming("ada", {PASSWD: b"p", GROUP: b"g"}))
    finally:
        os.umask(before)
    assert [(m["Target"], m["Source"], m["ReadOnly"]) for m in mounts] == [
        (PASSWD, str(tmp_path / "command-1.2.passwd"), True),
        (GROUP, str(tmp_path / "command-1.2.group"), True),
    ]
    assert (tmp_path / "command-1.2.passwd").stat().st_mode & 0o777 == 0o644
    sweep_names(tmp_path, lambda allocation: allocation == "command-1.2")
    assert (tmp_path / "command-1.2.group").read_bytes() == b"g"
    forget_names(record)
    assert list(tmp_path.iterdir()) == []


def test_files_of_tasks_that_are_no_more_are_swept(tmp_path):
    write_names(tmp_path / "old.json", Naming("ada", {PASSWD: b"p", GROUP: b"g"}))
    (tmp_path / "dir.passwd").mkdir()
    sweep_names(tmp_path, lambda allocation: False)
    assert [path.name for path in tmp_path.iterdir()] == ["dir.passwd"]


class Image:
    """What an engine says of an image: files by path; a link has its target's path."""

    def __init__(self, files):
        self.files = files
        self.labels = {"detlab.agent": "a"}
        self.made = []
        self.gone = False
        self.asked = 0

    def ask(self, question):
        return question(SimpleNamespace(api=self))

    def create_container(self, image, command, *, labels, network_disabled):
        self.made.append((image, labels))
        return {"Id": "c1"}

    def get_archive(self, container, path):
        self.asked += 1
        if self.gone or path not in self.files:
            raise Gone(path)
        content, mode, link = self.files[path]
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            info = tarfile.TarInfo(path.rpartition("/")[2])
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        return (part for part in [buffer.getvalue()]), {"size": len(content), "mode": mode, "linkTarget": link}

    def inspect(self, container):
        if self.gone:
            raise Gone(container)
        return {}

    def remove(self, container):
        self.made.remove(next(made for made in self.made))


def test_the_accounts_of_an_image_are_read_once_through_a_link_and_the_container_is_gone():
    image = Image(
        {PASSWD: (b"", 1 << 27 | 0o777, "/nix/passwd"), "/nix/passwd": (b"p", 0o644, ""), GROUP: (b"g", 0o644, "")}
    )
    accounts = ImageAccounts(image)
    assert accounts.of("sha256:1") == accounts.of("sha256:1") == Accounts(b"p", b"g")
    assert image.asked == 3
    assert image.made == []


def test_an_image_without_the_files_knows_root_alone():
    assert ImageAccounts(Image({})).of("sha256:1") == Accounts()


@pytest.mark.parametrize(
    "entry", [(b"x" * (LARGEST + 1), 0o644, ""), (b"", 1 << 31 | 0o755, ""), (b"", 1 << 26 | 1 << 21 | 0o600, "")]
)
def test_what_is_no_small_plain_file_is_not_read(entry):
    image = Image({PASSWD: entry, GROUP: (b"g", 0o644, "")})
    assert ImageAccounts(image).of("sha256:1") is None
    assert image.made == []


def test_a_container_that_goes_meanwhile_or_is_refused_is_tried_again_with_the_next_task():
    image = Image({PASSWD: (b"p", 0o644, ""), GROUP: (b"g", 0o644, "")})
    image.gone = True
    accounts = ImageAccounts(image)
    assert accounts.of("sha256:1") is None
    image.gone = False
    image.create_container = lambda *a, **k: (_ for _ in ()).throw(EngineRefused("no room"))
    assert accounts.of("sha256:1") is None
    del image.create_container
    assert accounts.of("sha256:1") == Accounts(b"p", b"g")
