"""What `check` makes of single values: numbers, flags, sizes, devices, images, variables, entrypoints."""

from __future__ import annotations

import datetime
import math
from typing import Any

import pytest
from schemas_problems import errors, hints, warnings

from detlab.schemas.expconf import check, errors_of, parse

# --- scalars ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [True, "5", 2.5, [1], {}, math.inf, -1])
def test_integers_are_strict(value: object) -> None:
    assert "max_restarts" in errors({"max_restarts": value})


@pytest.mark.parametrize(("value", "meant"), [(0, 0), (7, 7), (1e3, 1000), (None, 5)])
def test_integers_are_friendly(value: object, meant: int) -> None:
    assert parse({"max_restarts": value}).max_restarts == meant


def test_quoted_number_is_explained() -> None:
    assert hints({"max_restarts": "5"})["max_restarts"] == "remove the quotes"
    assert hints({"name": 5})["name"] == "put it in quotes"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "place",
    [
        lambda value: {"data": {"x": [value]}},
        lambda value: {"hyperparameters": {"lr": value}},
        lambda value: {"hyperparameters": {"lr": {"type": "categorical", "vals": [value]}}},
        lambda value: {"resources": {"weight": value}},
        lambda value: {"hyperparameters": {"lr": {"type": "double", "minval": 0, "maxval": value}}},
    ],
)
def test_non_finite_numbers_are_refused_once(value: float, place: Any) -> None:
    found = errors_of(check(place(value)))
    assert len(found) == 1
    assert "finite" in found[0].message


@pytest.mark.parametrize("value", [datetime.date(2020, 1, 1), b"bytes", {1, 2}, object()])
def test_only_json_values(value: object) -> None:
    assert "data.x" in errors({"data": {"x": value}})


def test_keys_must_be_texts() -> None:
    assert errors({"data": {1: "x"}}) != {}
    assert errors({1: "x"}) != {}


def test_deep_and_huge_values_are_refused_quickly() -> None:
    deep: Any = 1
    for _ in range(100):
        deep = {"a": deep}
    assert "deep" in errors({"data": deep})[""]
    wide: Any = ["x"] * 10
    for _ in range(9):
        wide = [wide] * 10  # 10^10 values in a few objects
    assert "more than" in errors({"data": wide})[""]
    loop: list[Any] = []
    loop.append(loop)
    assert "deep" in errors({"data": loop})[""]


@pytest.mark.parametrize("value", ["true", 1, 0, "yes", []])
def test_flags_are_true_or_false(value: object) -> None:
    assert "debug" in errors({"debug": value})


def test_null_means_not_set() -> None:
    raw = dict.fromkeys(("name", "resources", "searcher", "labels", "environment", "hyperparameters", "slurm"))
    assert check(raw) == []
    assert parse({"resources": {"slots_per_trial": None}}).resources.slots_per_trial == 1


# --- shorthands ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "amount"),
    [
        (1024, 1024),
        ("1.5G", 1610612736),
        ("512 MiB", 536870912),
        ("10k", 10240),
        ("2gb", 2 << 30),
        ("7", 7),
        ("7b", 7),
        (".5K", 512),
        (4e9, 4_000_000_000),
    ],
)
def test_shm_size(size: object, amount: int) -> None:
    assert parse({"resources": {"shm_size": size}}).resources.shm_size == amount


@pytest.mark.parametrize("size", ["1Gi", "big", "-1G", "", True, -5, "1.G.", "1e3"])
def test_bad_shm_size(size: object) -> None:
    assert "resources.shm_size" in errors({"resources": {"shm_size": size}})


def test_devices_as_text_or_mapping() -> None:
    raw = {
        "resources": {
            "devices": ["/h:/c", "/h2:/c2:r", {"host_path": "/h3", "container_path": "/c3"}],
        }
    }
    devices = parse(raw).resources.devices
    assert [(device.host_path, device.container_path, device.mode) for device in devices] == [
        ("/h", "/c", "mrw"),
        ("/h2", "/c2", "r"),
        ("/h3", "/c3", "mrw"),
    ]
    assert set(errors({"resources": {"devices": ["/h", "/a:/b:r:x", {"host_path": "/h"}]}})) == {
        "resources.devices[0]",
        "resources.devices[1]",
        "resources.devices[2].container_path",
    }


def test_image_as_text_or_map_with_gpu_as_cuda() -> None:
    image = parse({"environment": {"image": "mine"}}).environment.image
    assert (image.cpu, image.cuda, image.rocm) == ("mine", "mine", "mine")
    image = parse({"environment": {"image": {"gpu": "g"}}}).environment.image
    assert image.cuda == "g"
    assert image.cpu.startswith("determinedai/pytorch-ngc-dev:")
    image = parse({"environment": {"image": {"gpu": "g", "cuda": "c"}}}).environment.image
    assert image.cuda == "c"


def test_environment_variables_as_list_or_map() -> None:
    variables = parse({"environment": {"environment_variables": ["A=1"]}}).environment.environment_variables
    assert (variables.cpu, variables.cuda, variables.rocm) == (["A=1"], ["A=1"], ["A=1"])
    raw = {"environment": {"environment_variables": {"gpu": ["G=1"], "cpu": ["C=1"]}}}
    variables = parse(raw).environment.environment_variables
    assert (variables.cpu, variables.cuda, variables.rocm) == (["C=1"], ["G=1"], [])
    assert parse({"environment": {"environment_variables": {}}}).environment.environment_variables.cpu == []


def test_environment_variable_mistake_is_reported_once() -> None:
    found = check({"environment": {"environment_variables": [{"A": 1}]}})
    assert [problem.path for problem in found] == ["environment.environment_variables"]
    assert found[0].hint == "write NAME=VALUE, not NAME: VALUE"
    (mapping,) = check({"environment": {"environment_variables": {"FOO": "secret"}}})
    assert mapping.path == "environment.environment_variables.FOO"
    assert "write NAME=VALUE texts, all in a list" in (mapping.hint or "")
    assert "[FOO=…]" in (mapping.hint or "")
    assert "secret" not in (mapping.hint or "")


@pytest.mark.parametrize("entrypoint", ["python3 x.py", "./x.sh", ["python3", "x.py"], "model_def:Trial"])
def test_entrypoint_forms(entrypoint: object) -> None:
    assert errors({"entrypoint": entrypoint}) == {}
    assert parse({"entrypoint": entrypoint}).entrypoint == entrypoint


@pytest.mark.parametrize("entrypoint", ["", "  ", [], 3, {"a": 1}, True])
def test_bad_entrypoints(entrypoint: object) -> None:
    assert "entrypoint" in errors({"entrypoint": entrypoint})


def test_entrypoint_word_that_is_not_a_text() -> None:
    assert errors({"entrypoint": ["python3", 3]}) == {"entrypoint[1]": "must be a text, not the number 3"}


def test_trial_class_entrypoint_is_deprecated() -> None:
    assert "entrypoint" in warnings({"entrypoint": "model_def:MNistTrial"})
    assert warnings({"entrypoint": "python3 train.py"}) == {}


# --- named regressions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [10**30, -(10**30), 10**5000], ids=["30 digits", "negative", "5000 digits"])
def test_numbers_beyond_64_bits_are_refused_not_crashed_on(number: int) -> None:
    for raw in ({"data": {"x": number}}, {"max_restarts": number}, {"resources": {"weight": number}}):
        [problem] = errors_of(check(raw))
        assert "64 bits" in problem.message


def test_integers_of_fields_fit_a_database() -> None:
    assert "max_restarts" in errors({"max_restarts": 2**63})
    assert "max_restarts" in errors({"max_restarts": 1e19})
