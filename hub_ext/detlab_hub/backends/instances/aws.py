"""Instances of Amazon EC2. They are found by their tags, and are launched with a token, so that none is made twice."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from detlab.errors import DetlabError
from detlab.trust import parse_fingerprint
from detlab_hub.backends.instances.base import InstanceOrder, ProviderError, Trouble
from detlab_hub.backends.instances.startup import startup_script
from detlab_hub.core.provisioning import Instance, InstanceState

CLUSTER_TAG, POOL_TAG, AGENT_TAG = "detlab:cluster", "detlab:pool", "detlab:agent"
_STATES = {
    "pending": InstanceState.PENDING,
    "running": InstanceState.RUNNING,
    "stopping": InstanceState.ENDING,
    "stopped": InstanceState.STOPPED,
    "shutting-down": InstanceState.ENDING,
}
"""Their names in EC2; terminated ones are listed for an hour and are ignored."""
_CAPACITY = {
    "InsufficientInstanceCapacity": "EC2 has no {type} left in this zone now",
    "InsufficientHostCapacity": "EC2 has no host for {type} left in this zone now",
    "InsufficientFreeAddressesInSubnet": "the subnet has no free address left for {type}",
    "InsufficientReservedInstanceCapacity": "the reservation has no {type} left",
    "SpotMaxPriceTooLow": "the highest spot price that you pay is below that of {type} now",
    "Unsupported": "{type} is not offered in this zone",
}
_QUOTA = {
    "InstanceLimitExceeded": "the account has as many instances as it may have of {type}",
    "VcpuLimitExceeded": "the account has as many CPUs as it may have for instances like {type}",
    "MaxSpotInstanceCountExceeded": "the account has as many spot instances as it may have",
}
_CREDENTIALS = {
    "AuthFailure": "AWS does not recognise the master's credentials",
    "InvalidClientTokenId": "AWS does not recognise the master's credentials",
    "UnrecognizedClientException": "AWS does not recognise the master's credentials",
    "SignatureDoesNotMatch": "AWS refuses the signature: the secret key is wrong, or this machine's clock is",
    "ExpiredToken": "the master's credentials have expired",
    "RequestExpired": "AWS refuses the request as too old: the credentials expired, or this machine's clock is wrong",
    "UnauthorizedOperation": "the master's credentials do not allow this",
    "AccessDenied": "the master's credentials do not allow this",
    "OptInRequired": "the account has not been activated for EC2",
}
_BUSY = {"RequestLimitExceeded", "Throttling", "ServiceUnavailable", "Unavailable", "InternalError"}
_HINTS = {
    Trouble.CAPACITY: "the launch is retried; another instance_type or subnet may have some",
    Trouble.QUOTA: "ask AWS for a higher quota, or lower max_instances",
    Trouble.CREDENTIALS: "the master finds them as every AWS program does; it needs ec2:RunInstances,"
    " ec2:CreateTags, ec2:DescribeInstances and ec2:TerminateInstances",
    Trouble.CONFIGURATION: "correct this pool's provider in the master's configuration",
}


@dataclass(frozen=True, slots=True)
class AwsSettings:
    """The settings of a pool's instances.

    Attributes:
        region: Such as eu-central-1.
        instance_type: Such as g5.xlarge.
        image_id: An AMI on which detlab is installed, or where `setup` installs it.
        subnet_id: The subnet; "" for the account's default.
        security_group_ids: Decide who may reach it; empty for the default one.
        key_name: SSH key of the administrators; "" for none.
        iam_instance_profile: Name of its role, or its ARN; "" for none.
        public_ip: Whether it has a public address; None as the subnet says.
        name: Its tag `Name`; "" for one with the names of pool and agent.
        spot: Whether it is a spot instance, which costs less and may be reclaimed.
        spot_max_price: The most that one may cost per hour; "" for the on-demand price.
        root_volume_gb: Size of its disk; None for the image's own.
        root_device: Name of the disk in the image.
        tags: Further tags.
        setup: Shell commands that root runs before the agent.
        agent_command: The command that starts the agent there.
        agent_arguments: Further options of `det agent run`.
        endpoint_url: Another service with EC2's API; "" for AWS.
        fingerprint: Fingerprint of the master's certificate, which instances pin (`det status` prints it); "" if an
            authority in the image has signed it.
    """

    region: str
    instance_type: str
    image_id: str
    subnet_id: str = ""
    security_group_ids: tuple[str, ...] = ()
    key_name: str = ""
    iam_instance_profile: str = ""
    public_ip: bool | None = None
    name: str = ""
    spot: bool = False
    spot_max_price: str = ""
    root_volume_gb: int | None = None
    root_device: str = "/dev/sda1"
    tags: Mapping[str, str] = field(default_factory=dict)
    setup: str = ""
    agent_command: tuple[str, ...] = ("det", "agent", "run")
    agent_arguments: tuple[str, ...] = ()
    endpoint_url: str = ""
    fingerprint: str = ""

    def __post_init__(self) -> None:
        if self.fingerprint:
            try:
                parse_fingerprint(self.fingerprint)
            except DetlabError as error:
                raise ValueError(error.message) from error


class AwsProvider:
    """The EC2 instances of one pool of one cluster.

    Args:
        settings: Settings of the instances.
        cluster: The cluster's id: other clusters of the account are left alone.
        pool: The pool's name.
        master: Address of the service, as agents reach it.
    """

    def __init__(self, settings: AwsSettings, cluster: str, pool: str, master: str) -> None:
        self._settings = settings
        self._cluster = cluster
        self._pool = pool
        self._master = master
        self._client: Any = None

    def launch(self, order: InstanceOrder) -> Instance:
        """Run an instance; EC2 recognizes the order by its client token, we by its tag. See `Provider`."""
        for known in self.list():
            if known.agent_id == order.agent_id:
                return known
        with self._words():
            reply = self._ec2().run_instances(**self._request(order))
        return _instance(reply["Instances"][0])

    def list(self) -> tuple[Instance, ...]:
        """List all instances that have our tags. See `Provider`."""
        filters = [
            {"Name": f"tag:{CLUSTER_TAG}", "Values": [self._cluster]},
            {"Name": f"tag:{POOL_TAG}", "Values": [self._pool]},
            {"Name": "instance-state-name", "Values": sorted(_STATES)},
        ]
        with self._words():
            pages = self._ec2().get_paginator("describe_instances").paginate(Filters=filters)
            found = [each for page in pages for group in page["Reservations"] for each in group["Instances"]]
        return tuple(_instance(each) for each in found)

    def terminate(self, ids: Collection[str]) -> None:
        """End instances that have our tags. See `Provider`."""
        ours = sorted({instance.id for instance in self.list()} & set(ids))
        if ours:
            with self._words():
                self._ec2().terminate_instances(InstanceIds=ours)

    def _ec2(self) -> Any:
        """Return the client, made at its first use: without boto3 only this pool has a problem.

        Raises:
            ProviderError: boto3 is not installed.
        """
        if self._client is None:
            boto3 = _boto3()
            from botocore.config import Config

            # Once only: of several tries boto3 tells the last one's refusal, and an earlier one may have been heeded.
            once = {"total_max_attempts": 1, "mode": "standard"}
            config = Config(connect_timeout=10, read_timeout=30, retries=once)
            self._client = boto3.session.Session(region_name=self._settings.region).client(
                "ec2", endpoint_url=self._settings.endpoint_url or None, config=config
            )
        return self._client

    def _request(self, order: InstanceOrder) -> dict[str, Any]:
        chosen = self._settings
        tags = {
            "Name": chosen.name or f"detlab {order.pool} {order.agent_id}",
            **chosen.tags,
            CLUSTER_TAG: self._cluster,
            POOL_TAG: self._pool,
            AGENT_TAG: order.agent_id,
        }
        named = [{"Key": key, "Value": value} for key, value in tags.items()]
        wish: dict[str, Any] = {
            "ClientToken": hashlib.sha256(f"{self._cluster} {order.agent_id}".encode()).hexdigest(),
            "ImageId": chosen.image_id,
            "InstanceType": chosen.instance_type,
            "MinCount": 1,
            "MaxCount": 1,
            "UserData": self.user_data(order),
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
            "TagSpecifications": [{"ResourceType": kind, "Tags": named} for kind in ("instance", "volume")],
        }
        optional = {
            **self._network(),
            "KeyName": chosen.key_name,
            "IamInstanceProfile": _role(chosen.iam_instance_profile) if chosen.iam_instance_profile else None,
            "InstanceMarketOptions": _spot(chosen.spot_max_price) if chosen.spot else None,
            "BlockDeviceMappings": _disk(chosen.root_device, chosen.root_volume_gb) if chosen.root_volume_gb else None,
        }
        return wish | {name: value for name, value in optional.items() if value}

    def _network(self) -> dict[str, Any]:
        """Return where it is: EC2 takes a public address only with a description of the network interface."""
        chosen = self._settings
        where = {"SubnetId": chosen.subnet_id, "Groups": list(chosen.security_group_ids)}
        if chosen.public_ip is None:
            return {"SubnetId": where["SubnetId"], "SecurityGroupIds": where["Groups"]}
        interface = {"DeviceIndex": 0, "AssociatePublicIpAddress": chosen.public_ip}
        return {"NetworkInterfaces": [interface | {name: value for name, value in where.items() if value}]}

    def user_data(self, order: InstanceOrder) -> str:
        """Return the script that root runs on the instance once."""
        chosen = self._settings
        return startup_script(
            order,
            self._master,
            fingerprint=chosen.fingerprint,
            setup=chosen.setup,
            command=chosen.agent_command,
            arguments=chosen.agent_arguments,
        )

    @contextmanager
    def _words(self) -> Iterator[None]:
        """Convert an error of AWS, or of the connection to it, to a `ProviderError`."""
        _boto3()
        from botocore import exceptions as boto
        from botocore.parsers import ResponseParserError

        try:
            yield
        except boto.ClientError as error:
            raise self._explain(error.response) from error
        except (boto.NoCredentialsError, boto.PartialCredentialsError) as error:
            text = "the master has no credentials for AWS"
            raise ProviderError(Trouble.CREDENTIALS, text, _HINTS[Trouble.CREDENTIALS]) from error
        except (boto.CredentialRetrievalError, boto.TokenRetrievalError, boto.SSOError) as error:
            text = f"the master gets no credentials for AWS: {error}"
            raise ProviderError(Trouble.CREDENTIALS, text, _HINTS[Trouble.CREDENTIALS]) from error
        except (boto.HTTPClientError, boto.ConnectionError) as error:
            raise ProviderError(Trouble.UNREACHABLE, f"AWS cannot be reached: {error}") from error
        except (boto.IncompleteReadError, ResponseParserError) as error:
            raise ProviderError(Trouble.UNREACHABLE, f"AWS's answer cannot be read: {error}") from error
        except (
            boto.ParamValidationError,
            boto.ValidationError,
            boto.BaseEndpointResolverError,
            boto.EndpointProviderError,
            boto.ProfileNotFound,
            boto.DataNotFoundError,
        ) as error:  # raised before anything is sent
            text = f"boto3 refuses the call: {error}"
            raise ProviderError(Trouble.CONFIGURATION, text, _HINTS[Trouble.CONFIGURATION]) from error
        except boto.BotoCoreError as error:
            raise ProviderError(Trouble.OTHER, f"boto3 fails: {error}") from error

    def _explain(self, response: Mapping[str, Any]) -> ProviderError:
        said, status = response.get("Error", {}), response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        code, text = str(said.get("Code", "")), str(said.get("Message", "")).strip()
        for trouble, known in (
            (Trouble.CAPACITY, _CAPACITY),
            (Trouble.QUOTA, _QUOTA),
            (Trouble.CREDENTIALS, _CREDENTIALS),
        ):
            if code in known:
                words = known[code].format(type=self._settings.instance_type)
                return ProviderError(trouble, f"{words}: {text} [{code}]", _HINTS[trouble])
        if code in _BUSY:
            return ProviderError(Trouble.UNREACHABLE, f"AWS is busy: {text} [{code}]", "it is tried again")
        if code.startswith(("Invalid", "Missing", "Unknown", "Malformed")):
            message = f"AWS refuses the request: {text} [{code}]"
            return ProviderError(Trouble.CONFIGURATION, message, _HINTS[Trouble.CONFIGURATION])
        refused = isinstance(status, int) and 400 <= status < 500
        return ProviderError(Trouble.OTHER, f"AWS says: {text} [{code}]", may_be_done=not refused)


def _boto3() -> Any:
    """Import boto3 when it is first needed.

    Raises:
        ProviderError: It is not installed.
    """
    try:
        import boto3
    except ImportError as error:
        hint = "pip install 'detlab[aws]' beside the master"
        raise ProviderError(Trouble.CONFIGURATION, f"AWS needs boto3: {error}", hint) from error
    return boto3


def _spot(price: str) -> dict[str, Any]:
    options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    return {"MarketType": "spot", "SpotOptions": options | ({"MaxPrice": price} if price else {})}


def _role(profile: str) -> dict[str, str]:
    return {"Arn" if profile.startswith("arn:") else "Name": profile}


def _disk(device: str, gigabytes: int) -> list[dict[str, Any]]:
    return [{"DeviceName": device, "Ebs": {"VolumeSize": gigabytes, "DeleteOnTermination": True}}]


def _instance(said: Mapping[str, Any]) -> Instance:
    tags = {tag["Key"]: tag["Value"] for tag in said.get("Tags", ())}
    return Instance(
        id=said["InstanceId"],
        agent_id=tags.get(AGENT_TAG, said["InstanceId"]),
        state=_STATES.get(said["State"]["Name"], InstanceState.ENDING),
        launched_at=said["LaunchTime"].timestamp(),
        spot=said.get("InstanceLifecycle") == "spot",
    )
