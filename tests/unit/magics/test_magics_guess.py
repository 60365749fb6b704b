"""%det says when the cluster was guessed."""

from dataclasses import replace

from detlab.client import Client
from detlab_magics.kernel import KernelSession
from detlab_magics.tables import StatusTable
from testbed.fake_master.api import FakeMaster


def test_det_tells_a_guessed_cluster_from_a_named_one() -> None:
    with FakeMaster() as master, Client(master.url, master.token) as named:
        assert "guess" not in repr(StatusTable.collect(KernelSession(connected=named), []))
        guessed = replace(named.address, guess="the cluster started last, /x/.detlab")
        with Client(address=guessed) as client:
            shown = StatusTable.collect(KernelSession(connected=client), []).lines
    assert shown[1] == "a guess (the cluster started last, /x/.detlab): name it by DET_URL to change anything there"
