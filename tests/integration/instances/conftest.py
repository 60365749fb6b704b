"""Providers of instances. EC2 is moto's: boto3 needs another python-dateutil than CI's pins, so `make aws` runs its
tests in an environment of their own; elsewhere they are not collected."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("moto") else ["test_aws_provider.py"]
