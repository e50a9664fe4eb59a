"""`manage.py check` names what is wrong in TASKS, and asks no broker."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.integrations.django import project


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """What the check framework says about OPTIONS and QUEUES."""
    monkeypatch.delenv("POPMQ_ENDPOINT", raising=False)
    project.configure(checked=project.sqlite("shop.db"))
    from django.core import checks
    from django.test import override_settings

    def run(options: dict[str, Any], queues: list[str] | None = None) -> list[str]:
        given = {"endpoint": "127.0.0.1:1", "database": "checked", **options}
        params = {"OPTIONS": {name: value for name, value in given.items() if value is not None}}
        backend = {"BACKEND": "popmq_integrations.django.PopMQBackend", "QUEUES": queues or ["default"], **params}
        with override_settings(TASKS={"default": backend}):
            return [f"{each.id} {each.msg} {each.hint or ''}".strip() for each in checks.run_checks()]

    return run


def test_right_settings_are_right_without_a_broker(said: Callable[..., list[str]]) -> None:
    assert said({"max_attempts": 3, "results_keep": "1h", "topic_prefix": "", "group": "w" * 120}) == []


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"endpoint": None}, ["popmq.E002 TASKS['default'] has no endpoint of a broker.", "host:port"]),
        ({"endpoint": "broker"}, ["popmq.E003", "'broker' is not host:port"]),
        ({"endpont": "a:1"}, ["popmq.E001 TASKS['default'] has an unknown option 'endpont'.", "'endpoint'?"]),
        ({"shard": 1}, ["popmq.E001", "topic_prefix"]),
        ({"access_key": "key"}, ["popmq.E003", "secret"]),
        ({"max_attempts": 0}, ["popmq.E004", "max_attempts is 0"]),
        ({"results_keep": "1s"}, ["popmq.E004", "between 1 minute and 10 years"]),
        ({"results_keep": "soon"}, ["popmq.E004", "results_keep", "soon"]),
        ({"group": "a b"}, ["popmq.E004", "group is 'a b'"]),
        ({"group": "a" * 121}, ["popmq.E004", "group is 'aaa", "up to 120 letters, digits"]),
        ({"topic_prefix": 7}, ["popmq.E004", "topic_prefix is 7"]),
        ({"database": "none"}, ["popmq.E006", "database is 'none'", "DATABASES has 'default'"]),
        ({"database": "default"}, ["popmq.W001", "after its commit", "killed"]),
    ],
)
def test_each_wrong_option_is_named(said: Callable[..., list[str]], options: dict[str, Any], wanted: list[str]) -> None:
    (found,) = said(options)
    assert [text for text in wanted if text not in found] == []


def test_a_queue_that_is_no_topic_is_named(said: Callable[..., list[str]]) -> None:
    (found,) = said({}, ["mails", "big jobs"])
    assert "popmq.E005" in found
    assert "'big jobs'" in found
