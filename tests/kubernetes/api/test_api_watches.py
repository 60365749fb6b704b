"""Watches: what comes, in which order, and how they end."""

import threading

import httpx
import pytest

from testbed.kubernetes.api_client import Answer
from testbed.kubernetes.sites import FakeSite
from testbed.waiting import until

NOWHERE = {"nodeSelector": {"place": "nowhere"}}


def version(site):
    return site.admin.get(site.pods)["metadata"]["resourceVersion"]


def test_a_watch_goes_on_from_a_list(site):
    site.start("before", "true", **NOWHERE)
    since = version(site)
    site.start("pod", "true", **NOWHERE)
    site.admin.patch(f"{site.pods}/pod", {"metadata": {"labels": {"more": "yes"}}})
    site.admin.delete(f"{site.pods}/pod")
    seen = []
    with site.admin.watch(site.pods, resourceVersion=since, timeoutSeconds="20") as events:
        for event in events:
            assert event["object"]["metadata"]["name"] in {"pod", "before"}
            seen.append(
                (event["type"], event["object"]["metadata"]["name"], event["object"]["metadata"]["resourceVersion"])
            )
            if event["type"] == "DELETED":
                break
    of_pod = [kind for kind, name, _ in seen if name == "pod"]
    assert (of_pod[0], of_pod[-1]) == ("ADDED", "DELETED")
    assert set(of_pod[1:-1]) == {"MODIFIED"}
    versions = [int(number) for _, _, number in seen]
    assert versions == sorted(versions)
    assert len(set(versions)) == len(versions)


def test_a_watch_without_a_version_begins_with_what_is_there(site):
    site.start("pod", "true", **NOWHERE)
    with site.admin.watch(site.pods, timeoutSeconds="20") as events:
        first = next(events)
    assert (first["type"], first["object"]["metadata"]["name"], first["object"]["kind"]) == ("ADDED", "pod", "Pod")


def test_what_loses_a_label_is_deleted_for_who_watches_it(site):
    since = version(site)
    site.start("pod", "true", **NOWHERE)
    site.admin.patch(f"{site.pods}/pod", {"metadata": {"labels": {"app": "other"}}})
    with site.admin.watch(site.pods, resourceVersion=since, labelSelector="app=pod", timeoutSeconds="20") as events:
        kinds = []
        for event in events:
            kinds.append(event["type"])
            if event["type"] == "DELETED":
                break
    assert (kinds[0], kinds[-1]) == ("ADDED", "DELETED")
    assert site.admin.get(f"{site.pods}/pod")["metadata"]["labels"] == {"app": "other"}


def test_a_watch_ends_after_its_time(site):
    with site.admin.watch(site.pods, resourceVersion=version(site), timeoutSeconds="1") as events:
        assert list(events) == []


@pytest.mark.soak
def test_bookmarks_say_how_far_a_quiet_watch_is(site):
    since = version(site)
    query = {"resourceVersion": since, "allowWatchBookmarks": "true", "timeoutSeconds": "8"}
    with site.admin.watch(site.pods, labelSelector="app=none", **query) as events:
        site.start("pod", "true", **NOWHERE)
        marks = [event for event in events if event["type"] == "BOOKMARK"]
    assert marks
    assert marks[-1]["object"]["kind"] == "Pod"
    assert int(marks[-1]["object"]["metadata"]["resourceVersion"]) >= int(since)


def test_a_watch_from_what_is_forgotten_is_told_so(site):
    """In the stream: the request itself is answered with 200."""
    old = site.old_version()
    site.start("pod", "true", **NOWHERE)
    try:
        with site.admin.watch(site.pods, resourceVersion=old, timeoutSeconds="10") as events:
            event = next(events)
        status = event["object"]
        assert event["type"] == "ERROR"
    except Answer as refused:
        status = refused.status
    assert (status["code"], status["reason"]) == (410, "Expired")
    assert version(site)


def test_events_say_why_a_pod_waits(site):
    limits = {"resources": {"limits": {"nvidia.com/gpu": "64"}}}
    site.start("large", "true", container=limits)
    chosen = "involvedObject.kind=Pod,involvedObject.name=large"

    def said():
        found = site.admin.get(f"{site.at}/events", fieldSelector=chosen)["items"]
        return next((one["message"] for one in found if one["reason"] == "FailedScheduling"), None)

    message = until(said, "no event", 30)
    assert "0/1 nodes are available" in message
    assert "Insufficient nvidia.com/gpu" in message
    condition = next(one for one in site.status("large")["conditions"] if one["type"] == "PodScheduled")
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert "Insufficient nvidia.com/gpu" in condition["message"]


def test_many_watches_see_the_same(site):
    since, seen = version(site), [[], [], []]

    def follow(into):
        with site.admin.watch(site.pods, resourceVersion=since, timeoutSeconds="30") as events:
            for event in events:
                into.append((event["type"], event["object"]["metadata"]["resourceVersion"]))
                if event["type"] == "DELETED":
                    return

    threads = [threading.Thread(target=follow, args=(one,)) for one in seen]
    for thread in threads:
        thread.start()
    site.start("pod", "true", **NOWHERE)
    site.admin.delete(f"{site.pods}/pod")
    for thread in threads:
        thread.join(40)
    assert seen[0] == seen[1] == seen[2]
    assert seen[0][-1][0] == "DELETED"


class TestFaults:
    """What the fake server does on demand, which the real one does at times."""

    @pytest.fixture
    def site(self, fake):
        found = FakeSite(fake)
        yield found
        found.end()
        found.admin.http.close()

    def test_watches_are_cut(self, fake, site):
        with site.admin.watch(site.pods, resourceVersion=version(site)) as events:
            fake.cut_watches()
            with pytest.raises(httpx.HTTPError):
                list(events)
        assert version(site)

    def test_it_fails_as_often_as_it_is_told(self, fake, site):
        fake.failures.extend([500, 429, 503])
        codes = []
        for _ in range(3):
            with pytest.raises(Answer) as refused:
                site.admin.get(site.pods)
            codes.append(refused.value.code)
        assert codes == [500, 429, 503]
        fake.failures.append(0)
        with pytest.raises(httpx.HTTPError):
            site.admin.get(site.pods)
        assert version(site)

    def test_a_pod_may_be_made_without_its_maker_hearing_of_it(self, fake, site):
        fake.drop_replies = 1
        with pytest.raises(httpx.HTTPError):
            site.start("pod", "true", **NOWHERE)
        assert site.status("pod")["phase"] == "Pending"

    def test_it_is_away_and_back_with_all_it_knew(self, fake, site):
        site.start("pod", "sleep", "60")
        site.phase("pod", "Running")
        fake.stop()
        with pytest.raises(httpx.HTTPError):
            site.admin.get(site.pods)
        fake.restart()
        assert site.status("pod")["phase"] == "Running"
