"""Instances of EC2, as moto has it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import (
    ClientError,
    CredentialRetrievalError,
    EndpointConnectionError,
    IncompleteReadError,
    NoCredentialsError,
    ParamValidationError,
    ReadTimeoutError,
)
from botocore.parsers import ResponseParserError
from moto import mock_aws
from provider_contract import ProviderContract, living, order

from detlab_hub.backends.instances import ProviderError, Trouble
from detlab_hub.backends.instances.aws import AwsProvider, AwsSettings
from detlab_hub.core.provisioning import InstanceState

REGION = "eu-central-1"
MASTER = "https://hub.example.org/services/detlab/"


@pytest.fixture(autouse=True)
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")  # a thousand, at each start
    with mock_aws():
        yield boto3.client("ec2", region_name=REGION)


@pytest.fixture
def settings(ec2: Any) -> AwsSettings:
    image = ec2.register_image(Name="detlab", Architecture="x86_64", RootDeviceName="/dev/sda1")["ImageId"]
    return AwsSettings(REGION, "g5.xlarge", image, tags={"team": "vision"}, agent_arguments=("--pool", "elastic"))


@pytest.fixture
def provider(settings: AwsSettings) -> AwsProvider:
    return AwsProvider(settings, "c1", "elastic", MASTER)


@pytest.fixture
def another(settings: AwsSettings) -> AwsProvider:
    return AwsProvider(settings, "c1", "elastic", MASTER)


class TestAws(ProviderContract):
    """The contract."""


def describe(ec2: Any, instance_id: str) -> dict[str, Any]:
    return ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]


def test_tags_say_whose_it_is_and_others_are_left_alone(ec2: Any, settings: AwsSettings, provider: AwsProvider) -> None:
    foreign = AwsProvider(settings, "c2", "elastic", MASTER).launch(order("theirs"))
    sibling = AwsProvider(settings, "c1", "other", MASTER).launch(order("of-another-pool", "other"))
    ours = provider.launch(order("ours"))
    tags = {tag["Key"]: tag["Value"] for tag in describe(ec2, ours.id)["Tags"]}
    assert tags == {
        "Name": "detlab elastic ours",
        "team": "vision",
        "detlab:cluster": "c1",
        "detlab:pool": "elastic",
        "detlab:agent": "ours",
    }
    assert living(provider) == {"ours": ours.id}
    provider.terminate([foreign.id, sibling.id])
    assert describe(ec2, foreign.id)["State"]["Name"] == "running"
    assert describe(ec2, sibling.id)["State"]["Name"] == "running"


def test_user_data_writes_the_token_into_a_file_and_says_it_nowhere_else(ec2: Any, provider: AwsProvider) -> None:
    wanted = order("n-1")
    made = provider.launch(wanted)
    said = ec2.describe_instance_attribute(InstanceId=made.id, Attribute="userData")["UserData"]["Value"]
    lines = base64.b64decode(said).decode().splitlines()
    with_token = [line for line in lines if wanted.enrolment_token in line]
    assert with_token == [
        f"(umask 077 && printf '%s\\n' {wanted.enrolment_token} > /var/lib/detlab/enrolment_token)",
    ]
    assert lines[-1] == (
        f"nohup det agent run --master {MASTER} --name n-1 --dir /var/lib/detlab/agent"
        " --enrolment-token-file /var/lib/detlab/enrolment_token --pool elastic >> /var/log/detlab-agent.log 2>&1 &"
    )


def test_a_spot_instance_is_asked_for_and_known_as_one(ec2: Any, settings: AwsSettings) -> None:
    spot = AwsProvider(
        AwsSettings(REGION, "g5.xlarge", settings.image_id, spot=True, spot_max_price="0.5", root_volume_gb=100),
        "c1",
        "spot",
        MASTER,
    )
    made = spot.launch(order("s-1", "spot"))
    assert made.spot
    assert spot.list()[0].spot
    assert spot._request(order("s-2"))["InstanceMarketOptions"]["SpotOptions"]["MaxPrice"] == "0.5"


def test_stopped_ones_are_listed_terminated_ones_are_not(ec2: Any, provider: AwsProvider) -> None:
    first, second = provider.launch(order("a")), provider.launch(order("b"))
    ec2.stop_instances(InstanceIds=[first.id])
    ec2.terminate_instances(InstanceIds=[second.id])  # as EC2 does with a spot instance
    assert [(i.id, i.state) for i in provider.list()] == [(first.id, InstanceState.STOPPED)]


def test_a_subnet_that_does_not_exist_is_said_in_words(settings: AwsSettings) -> None:
    wrong = AwsProvider(replace(settings, subnet_id="subnet-00000000"), "c1", "elastic", MASTER)
    with pytest.raises(ProviderError) as raised:
        wrong.launch(order("w"))
    assert raised.value.trouble is Trouble.CONFIGURATION
    assert "provider" in raised.value.hint


@pytest.mark.parametrize(
    ("code", "trouble", "words"),
    [
        ("InsufficientInstanceCapacity", Trouble.CAPACITY, "no g5.xlarge left"),
        ("SpotMaxPriceTooLow", Trouble.CAPACITY, "spot price"),
        ("VcpuLimitExceeded", Trouble.QUOTA, "as many CPUs as it may have"),
        ("AuthFailure", Trouble.CREDENTIALS, "does not recognise the master's credentials"),
        ("UnauthorizedOperation", Trouble.CREDENTIALS, "do not allow"),
        ("RequestLimitExceeded", Trouble.UNREACHABLE, "busy"),
        ("InvalidSubnetID.NotFound", Trouble.CONFIGURATION, "refuses the request"),
        ("Whatever", Trouble.OTHER, "AWS says"),
    ],
)
def test_errors_are_said_in_words(
    provider: AwsProvider, monkeypatch: pytest.MonkeyPatch, code: str, trouble: Trouble, words: str
) -> None:
    """moto never runs out of machines: the answers are those that EC2 documents."""

    def refuse(**_: Any) -> None:
        raise ClientError({"Error": {"Code": code, "Message": "no."}}, "RunInstances")

    monkeypatch.setattr(provider._ec2(), "run_instances", refuse)
    with pytest.raises(ProviderError) as raised:
        provider.launch(order("e"))
    assert raised.value.trouble is trouble
    assert words in raised.value.message
    assert code in raised.value.message


class Answers:
    """What EC2 answers to launches, one after the other, in its own language; an exception is none."""

    def __init__(self, provider: AwsProvider, *answers: tuple[int, str] | Exception) -> None:
        self.left = list(answers)
        provider._ec2().meta.events.register_first("before-send.ec2.RunInstances", self._answer)

    def _answer(self, request: Any, **_: Any) -> AWSResponse:
        answer = self.left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        status, code = answer
        said = f"<Response><Errors><Error><Code>{code}</Code><Message>no.</Message></Error></Errors></Response>"
        reply = AWSResponse(request.url, status, {}, None)
        reply._content = said.encode()
        return reply


@pytest.mark.parametrize(
    ("status", "code", "may_be_done"),
    [
        (400, "SomethingNew", False),
        (400, "InsufficientFreeAddressesInSubnet", False),
        (500, "InsufficientInstanceCapacity", False),
        (500, "SomethingNew", True),
        (500, "InternalError", True),
        (503, "RequestLimitExceeded", True),
    ],
)
def test_a_refusal_with_an_unknown_code_is_one(
    provider: AwsProvider, status: int, code: str, may_be_done: bool
) -> None:
    """Each unknown code was taken for a launch that may have been one, and counted for minutes."""
    Answers(provider, (status, code))
    with pytest.raises(ProviderError, match=code) as raised:
        provider.launch(order("e"))
    assert raised.value.may_be_done is may_be_done


def test_no_launch_is_tried_twice_at_once(provider: AwsProvider) -> None:
    """boto3 tried again by itself and told the second answer, a refusal: the first try may have been heeded."""
    answers = Answers(provider, ReadTimeoutError(endpoint_url="https://ec2"), (400, "InstanceLimitExceeded"))
    with pytest.raises(ProviderError) as raised:
        provider.launch(order("e"))
    assert raised.value.may_be_done
    assert len(answers.left) == 1


def test_what_fails_in_boto3_once_something_was_sent_may_be_done(
    provider: AwsProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of boto3's own errors were taken for mistakes in the configuration, and one got through."""
    for error, trouble, may_be_done in (
        (IncompleteReadError(actual_bytes=1, expected_bytes=2), Trouble.UNREACHABLE, True),
        (ResponseParserError("no XML"), Trouble.UNREACHABLE, True),
        (CredentialRetrievalError(provider="sso", error_msg="none"), Trouble.CREDENTIALS, False),
        (ParamValidationError(report="no"), Trouble.CONFIGURATION, False),
    ):

        def fail(_error: Exception = error, **_: Any) -> None:
            raise _error

        monkeypatch.setattr(provider._ec2(), "run_instances", fail)
        with pytest.raises(ProviderError) as raised:
            provider.launch(order("e"))
        assert (raised.value.trouble, raised.value.may_be_done) == (trouble, may_be_done)


def test_a_profile_that_does_not_exist_is_said_in_words(provider: AwsProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop over all pools ended with boto3's own error."""
    monkeypatch.setenv("AWS_PROFILE", "nobody-s")
    with pytest.raises(ProviderError, match="nobody-s") as raised:
        provider.list()
    assert raised.value.trouble is Trouble.CONFIGURATION


def test_missing_credentials_and_no_network_are_said_in_words(
    provider: AwsProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error, trouble in (
        (NoCredentialsError(), Trouble.CREDENTIALS),
        (EndpointConnectionError(endpoint_url="https://ec2"), Trouble.UNREACHABLE),
    ):

        def refuse(_error: Exception = error, **_: Any) -> None:
            raise _error

        monkeypatch.setattr(provider._ec2(), "run_instances", refuse)
        with pytest.raises(ProviderError) as raised:
            provider.launch(order("e"))
        assert raised.value.trouble is trouble


def test_an_instance_pins_the_certificate_that_the_pool_names(settings: AwsSettings) -> None:
    pinned = replace(settings, fingerprint="AB" * 32)
    made = order("pins")
    script = AwsProvider(pinned, "c1", "elastic", MASTER).user_data(made)
    assert f"{made.enrolment_token}@sha256:{'ab' * 32}" in script
    assert "@sha256" not in AwsProvider(settings, "c1", "elastic", MASTER).user_data(made)
    with pytest.raises(ValueError, match="not a fingerprint"):
        replace(settings, fingerprint="sha256:12")
