"""The one table of statuses, and bodies that tell callers enough and strangers nothing."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from tornado import web

from detlab import errors
from detlab.schemas.wire import CreateExperiment
from detlab_hub.web.base import error_view, status_of


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.AuthError("x"), 401),
        (errors.Forbidden("x"), 403),
        (errors.NotFound("x"), 404),
        (errors.Conflict("x"), 409),
        (errors.StaleAttempt("x"), 409),
        (errors.Unavailable("x"), 503),
        (errors.ConfigError([]), 422),
        (errors.ResourcesError("x"), 422),
        (errors.BundleTooLarge("x"), 413),
        (errors.BundleError("x"), 422),
        (errors.DetlabError("x"), 400),
        (errors.ApiError("x", status=418), 418),
        (web.HTTPError(405), 405),
        (RuntimeError("x"), 500),
    ],
)
def test_status(error: Exception, status: int) -> None:
    assert status_of(error) == status


def test_store_troubles_are_503() -> None:
    from detlab_hub.store.errors import LeaseLost, StoreBroken

    assert {status_of(LeaseLost("gone")), status_of(StoreBroken("disk"))} == {503}


def test_all_mistakes_of_a_config_travel() -> None:
    error = errors.ConfigError(
        [
            errors.Problem("searcher.name", "unknown", hint="one of …"),
            errors.Problem("bind_mounts", "ignored", level="warning"),
        ]
    )
    view = error_view(error)
    assert view.code == "config.invalid"
    assert [(p.path, p.level) for p in view.problems] == [("searcher.name", "error"), ("bind_mounts", "warning")]
    back = errors.from_reply(422, view.model_dump())
    assert isinstance(back, errors.ConfigError)
    assert [str(p) for p in back.problems] == [str(p) for p in error.problems]


def test_a_stale_attempt_keeps_its_code() -> None:
    assert error_view(errors.StaleAttempt("run 2 owns it")).code == "stale_attempt"


def test_an_unexpected_error_says_nothing_of_itself() -> None:
    view = error_view(RuntimeError("password is hunter2"))
    assert "hunter2" not in view.model_dump_json()
    assert view.code == "internal"


def test_a_body_that_is_no_model_names_the_fields() -> None:
    with pytest.raises(ValidationError) as caught:
        CreateExperiment.model_validate({"activate": "perhaps", "config": 3})
    assert {problem.path for problem in error_view(caught.value).problems} == {"activate", "config"}
