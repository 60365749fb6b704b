"""Governed data at a real Docker engine: who is placed for it reads it, and nobody else gets to it by another path."""

from agent_docker import exited, in_container

from detlab.schemas import wire


def test_governed_data_is_read_by_who_is_placed_for_it_and_by_no_other_name(master, docker_agent):
    srv = docker_agent.shared
    srv.chmod(0o755)  # what others may rename is refused before
    (srv / "patients/2024").mkdir(parents=True)
    (srv / "patients/2024/x").write_text("secret")
    (srv / "public").mkdir()
    (srv / "public/link").symlink_to(srv / "patients/2024")
    (srv / "public/x").write_text("all may read this")

    def reads(host, closed):
        mount = wire.Mount(host_path=str(host), container_path="/data", read_only=True)
        task = in_container(master, "cat /data/x", mounts=[mount], closed=[str(srv / "patients")] if closed else [])
        master.wait_for(exited(task), timeout=60)
        (ended,) = task.exits
        return ended, master.texts(task)

    for host in (srv / "patients/2024", srv / "public/link"):
        ended, said = reads(host, closed=False)
        assert (ended.exit_code, said) == (0, ["secret"])
        ended, said = reads(host, closed=True)
        assert (ended.reason, "secret" in said) == ("setup", False)
        assert f"on this node it leads to {srv / 'patients'}, which is governed data" in ended.message
    assert reads(srv, closed=True)[0].reason == "setup"
    assert reads(srv / "public", closed=True)[1] == ["all may read this"]
