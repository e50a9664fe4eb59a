"""`popmq apply`: a broker has what a file says, once and again."""

from __future__ import annotations

import signal
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import popmq
from popmq.testing import Broker
from popmq_cli.applying import bounds, planning
from tests.cli.conftest import Cli

WHOLE = b"""
topics:
  orders: {type: FIFO, queues: 4, retention: {keep: 7d, by_age: true, max_bytes: 10GiB}, unique_ids: 10m}
  parcels:
    quota: {send_messages_per_s: 100, message_bytes: 64KiB}
    permission: READ_ONLY
  chats: {type: LITE, lite: {ttl: 12h}}
groups:
  billing: {max_attempts: 5, backoff: [10s, 1m], invisible: 5m, start: 2026-01-31, filters: {orders: {tag: paid}}}
  audit:
schedules:
  nightly: {cron: "0 3 * * *", tz: Europe/Berlin, topic: orders, message: {body: close, message_group: g}, paused: true}
"""


def test_a_file_is_applied_once_and_changes_nothing_when_it_is_applied_again(broker: Broker, run: Cli) -> None:
    first = run("apply", "-", stdin=WHOLE)
    assert first.code == 0, first.err
    assert [line.partition(" (")[0] for line in first.out.splitlines()] == [
        *("+ topic orders", "+ topic parcels", "+ topic chats", "+ group billing"),
        *("~ filter of group billing in topic orders", "+ group audit", "+ schedule nightly"),
    ]
    with broker.client() as client:
        orders, billing = client.topics.get("orders"), client.groups.get("billing")
        assert (orders.type, orders.queues, orders.unique_ids) == ("FIFO", 4, 600.0)
        assert orders.retention == popmq.Retention("7d", by_age=True, max_bytes=10 << 30)
        assert client.topics.get("parcels").quota.message_bytes == 64 << 10
        assert (billing.max_attempts, billing.backoff, billing.invisible) == (5, (10.0, 60.0), 300.0)
        assert client.groups.subscriptions("billing")[0].tag == "paid"
        assert client.schedules.get("nightly").paused
    again = run("apply", "-", stdin=WHOLE)
    assert (again.code, again.out, again.err) == (0, "", "nothing to change\n")


@pytest.mark.parametrize(
    "settings",
    [
        "groups: {g: {filters: {orders: {tag: paid||cancelled}}}}",
        "groups: {g: {filters: {orders: {tag: ' * '}}}}",
        "groups: {g: {filters: {orders: {sql: ' amount > 5 '}}}}",
        "schedules: {s: {cron: '@daily', topic: orders, missed: ALL, message: {body: x}}}",
        "schedules: {s: {cron: '@daily', topic: orders, message: {body: x, ttl: 1h30m}}}",
        "schedules: {s: {cron: '@daily', topic: orders, message: {body: x, more_keys: [a, b]}}}",
        "schedules: {s: {cron: '@daily', topic: orders, message: {body: x, born_ms: 5}}}",
    ],
)
def test_another_way_to_write_the_same_changes_nothing_when_it_is_applied_again(
    broker: Broker, run: Cli, settings: str
) -> None:
    raw = f"topics: {{orders: {{}}}}\n{settings}".encode()
    assert run("apply", "-", stdin=raw).code == 0
    again = run("apply", "-", stdin=raw)
    assert (again.code, again.out, again.err) == (0, "", "nothing to change\n")


def test_what_differs_is_shown_and_changed_and_the_rest_stays(broker: Broker, run: Cli) -> None:
    run("apply", "-", stdin=WHOLE)
    other = b"""
topics: {orders: {queues: 4, retention: {keep: 3d}}, parcels: {queues: 16}}
groups: {billing: {backoff: 30s, filters: {orders: {sql: "amount > 5"}}}}
schedules: {nightly: {cron: "0 4 * * *", topic: orders, message: {body: close, message_group: g}}}
"""
    shown = run("apply", "-", "--dry-run", stdin=other)
    assert shown.out.splitlines() == [
        "~ topic orders (retention.keep: 7d → 3d)",
        "~ topic parcels (queues: 8 → 16)",
        "~ group billing (backoff: 10s, 1m → 30s)",
        "~ filter of group billing in topic orders (paid → amount > 5)",
        "~ schedule nightly (cron: 0 3 * * * → 0 4 * * *)",
    ]
    assert shown.err == "5 changes to make\n"
    with broker.client() as client:
        assert client.topics.get("parcels").queues == 8, "a dry run changes nothing"
        assert run("apply", "-", stdin=other).code == 0
        assert client.topics.get("orders").retention == popmq.Retention("3d", by_age=True, max_bytes=10 << 30)
        assert client.topics.get("parcels").permission == "READ_ONLY"
        assert client.groups.get("billing").max_attempts == 5
        nightly = client.schedules.get("nightly")
        assert (nightly.cron, nightly.tz, nightly.paused) == ("0 4 * * *", "UTC", True)
    assert run("apply", "-", stdin=other).err == "nothing to change\n"


def test_durations_that_differ_by_less_than_is_shown_elsewhere_differ_here(broker: Broker, run: Cli) -> None:
    run("apply", "-", stdin=b"groups: {billing: {invisible: 12.25s}}")
    shown = run("apply", "-", stdin=b"groups: {billing: {invisible: 12.5s}}")
    assert shown.out == "~ group billing (invisible: 12.25s → 12.5s)\n"


def test_fair_keys_are_set_changed_and_turned_off(broker: Broker, run: Cli) -> None:
    first = (
        b"groups: {g: {fair_keys: {property: tenant, in_flight_max: 5, exceptions: [{key: acme, in_flight_max: 50}]}}}"
    )
    assert run("apply", "-", stdin=first).code == 0
    with broker.client() as client:
        found = client.groups.get("g").fair_keys
        assert found is not None
        assert (found.property, found.in_flight_max, found.exceptions) == (
            "tenant",
            5,
            (popmq.FairKeyLimits("acme", 50),),
        )
        assert run("apply", "-", stdin=first).err == "nothing to change\n"
        changed = run("apply", "-", stdin=b"groups: {g: {fair_keys: {in_flight_max: 6}}}")
        assert changed.out == "~ group g (fair_keys.in_flight_max: 5 → 6)\n"
        off = b"groups: {g: {fair_keys: false}, new: {fair_keys: false}}"
        assert run("apply", "-", stdin=off).code == 0
        assert client.groups.get("g").fair_keys is None
        assert run("apply", "-", stdin=off).err == "nothing to change\n"


def test_prune_deletes_what_the_file_lacks_of_the_kinds_that_it_has(broker: Broker, run: Cli) -> None:
    run("apply", "-", stdin=WHOLE)
    left = b"topics: {orders: }\nschedules: {}\n"
    asked = run("apply", "-", "--prune", stdin=left)
    assert (asked.code, "--yes" in asked.err) == (2, True)
    with broker.client() as client:
        assert len(client.topics.list()) == 3
        done = run("apply", "-", "--prune", "--yes", stdin=left)
        assert done.out.splitlines() == ["- schedule nightly", "- topic chats", "- topic parcels"]
        assert [each.name for each in client.topics.list()] == ["orders"]
        assert [each.name for each in client.groups.list()] == ["audit", "billing"], "the file has no part of groups"


def test_everything_that_is_wrong_with_a_file_is_told_at_once_and_nothing_is_done(broker: Broker, run: Cli) -> None:
    wrong = b"""
topic: {}
topics:
  a: {type: FIFA, queue: 3, unique_ids: soon}
  5: {}
  b: {retention: {keep: , by_age: 1}}
  c: []
groups:
  g: {fifo: "yes", backoff: [1s, x], start: someday, filters: {a: {tag: x, sql: y}, b: {tags: z}}}
schedules:
  s: {topic: a, message: {text: hello}}
"""
    told = run("apply", "-", stdin=wrong)
    assert told.code == 2
    for place in (
        "topic is unknown: there are topics, groups, schedules",
        "topics.a.type: 'FIFA' is none of NORMAL, FIFO",
        "topics.a.queue is unknown: there are type, queues",
        "topics.a.unique_ids: 'soon' is not a duration",
        "topics.5 is no name",
        "topics.b.retention.keep has no value",
        "topics.b.retention.by_age: 1 is not true or false",
        "topics.c is no mapping",
        "groups.g.fifo: 'yes' is not true or false",
        "groups.g.backoff: 'x' is not a duration",
        "groups.g.start: 'someday' is neither",
        "groups.g.filters.a needs one of tag, sql",
        "groups.g.filters.b.tags is unknown",
        "schedules.s.cron is missing",
        "schedules.s.message: there is no field 'text'",
    ):
        assert place in told.err, place
    with broker.client() as client:
        assert client.topics.list() == []


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"topics: {a: {}, a: {}}", "'a' is there twice"),
        (b"topics: [", "not YAML"),
        (b"\xff\xfe\x00", "not YAML"),
        (b"!!python/object/apply:os.system [id]", "not YAML"),
        (b"- a", "the file is no mapping"),
        (b"topics:\n  orders: {{ settings }}", "a mapping or a list is no name"),
        (b"? [a, b]\n: {}", "a mapping or a list is no name"),
        (b"groups: {g: {start: 2026-02-30}}", "not YAML: day"),
    ],
)
def test_what_is_not_a_topology_is_refused(broker: Broker, run: Cli, raw: bytes, told: str) -> None:
    refused = run("apply", "-", stdin=raw)
    assert (refused.code, told in refused.err) == (2, True)


def test_a_change_that_no_broker_can_make_is_refused_before_the_others(broker: Broker, run: Cli) -> None:
    run("apply", "-", stdin=b"topics: {orders: {queues: 4}}")
    for part, told in ((b"type: FIFO", "a type never changes"), (b"queues: 2", "queues are only added")):
        refused = run("apply", "-", stdin=b"topics: {new: {}, orders: {%b}}" % part)
        assert (refused.code, told in refused.err) == (2, True)
    with broker.client() as client:
        assert [each.name for each in client.topics.list()] == ["orders"]


def test_a_refusal_of_the_broker_says_what_was_changed_and_what_was_not(
    broker: Broker, run: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(
        "topics: {orders: {type: FIFO}}\ngroups: {billing: {}}\n"
        'schedules: {nightly: {cron: "@daily", topic: orders, message: {body: no group}}, late: '
        '{cron: "@daily", topic: orders, message: {body: close, message_group: g}}}'
    )
    refused = run("apply", str(path))
    assert refused.code == 1
    assert refused.out.splitlines() == ["+ topic orders (type: FIFO)", "+ group billing"], "only what was done"
    note, first, second, error = refused.err.splitlines()[:4]
    assert note == "2 changes made; not made, or not known to be:"
    assert (first[:18], second[:15]) == ("+ schedule nightly", "+ schedule late")
    assert "schedule nightly: " in error


def test_a_schedule_stays_if_what_is_to_replace_it_is_refused(broker: Broker, run: Cli) -> None:
    first = b"""
topics: {orders: {type: FIFO}}
schedules: {s: {cron: "@daily", tz: Europe/Berlin, topic: orders, message: {body: a, message_group: g}, paused: true}}
"""
    assert run("apply", "-", stdin=first).code == 0
    refused = run("apply", "-", stdin=b"schedules: {s: {cron: '@hourly', topic: orders, message: {body: no group}}}")
    assert refused.code == 1
    assert run("apply", "-", stdin=first).err == "nothing to change\n"


def test_an_interrupt_leaves_no_schedule_deleted_that_is_to_be_replaced(
    broker: Broker, run: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = planning._create_schedule

    def interrupted(*given: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        create(*given)

    run("apply", "-", stdin=b"topics: {o: {}}\nschedules: {s: {cron: '@daily', topic: o, message: {body: a}}}")
    monkeypatch.setattr(planning, "_create_schedule", interrupted)
    assert run("apply", "-", stdin=b"schedules: {s: {cron: '@hourly', topic: o, message: {body: a}}}").code == 130
    with broker.client() as client:
        assert client.schedules.get("s").cron == "@hourly"


WRONG = [
    ("topics: {'a b': {}}", "topics.a b: a name may only have"),
    (f"groups: {{{'g' * 121}: {{}}}}", "the name has 121 characters, at most 120 are allowed"),
    ("topics: {a: {retention: {keep: 1s}}}", "topics.a.retention.keep: '1s' is out of range: it must be 1m – 3650d"),
    ("topics: {a: {queues: 1KiB}}", "topics.a.queues: '1KiB' is not a whole number"),
    ("topics: {a: {quota: {message_bytes: 5MiB}}}", "topics.a.quota.message_bytes: '5MiB' is out of range"),
    ("topics: {a: {lite: {ttl: 1h}}}", "topics.a.lite: a NORMAL topic has no lite topics"),
    ("topics: {a: {type: LITE, queues: 2}}", "topics.a.queues: a LITE topic has one queue"),
    ("topics:", "topics has no value: write {} for none"),
    ("groups: {g: {max_attempts: many}}", "groups.g.max_attempts: 'many' is not a whole number"),
    ("groups: {g: {max_attempts: 0}}", "groups.g.max_attempts: 0 is out of range: it must be 1 – 1000"),
    ("groups: {g: {max_attempts: 5000}}", "groups.g.max_attempts: 5000 is out of range"),
    ("groups: {g: {backoff: [10s, 13h]}}", "groups.g.backoff: ['10s', '13h'] is out of range: it must be 0s – 12h"),
    ("groups: {g: {fair_keys: {in_flight_max: 3}}}", "groups.g.fair_keys needs one of property, message_key"),
    ("groups: {g: {fair_keys: {exceptions: [{in_flight_max: 3}]}}}", "groups.g.fair_keys.exceptions[0].key is missing"),
    (
        "groups: {g: {filters: {gone: {tag: a}}}}",
        "groups.g.filters.gone: there is no topic gone, and the file makes none",
    ),
    ("groups: {g: {filters: {ok: {sql: 'a == 1'}}}}", "groups.g.filters.ok: "),
    ('schedules: {s: {cron: "0 3 * *", topic: ok, message: {body: x}}}', "schedules.s.cron: '0 3 * *' has 4 fields"),
    ('schedules: {s: {cron: "@daily", tz: Berlin, topic: ok, message: {body: x}}}', "schedules.s.tz: there is no time"),
    ('schedules: {s: {cron: "@daily", topic: gone, message: {body: x}}}', "schedules.s.topic: there is no topic gone"),
    (
        'schedules: {s: {cron: "@daily", topic: ok, message: {body: x, key: 5}}}',
        "schedules.s.message: key is 5, of type",
    ),
    (
        'schedules: {s: {cron: "@daily", topic: ok, message: {body: x, properties: {a: 1}}}}',
        "schedules.s.message: properties['a'] is 1, of type int: give a str",
    ),
    (
        'schedules: {s: {cron: "@daily", topic: ok, message: {body: x, more_keys: 5}}}',
        "schedules.s.message.more_keys: 5 is",
    ),
    ('schedules: {s: {cron: "@daily", topic: ok, message: {body: x, ttl: soon}}}', "message.ttl: 'soon' is not a dur"),
    ('schedules: {s: {cron: "@daily", topic: ok, tz: "", message: {body: x}}}', "schedules.s.tz is empty"),
    ("groups: {g: {backoff: []}}", "groups.g.backoff is empty"),
    ("groups: {g: {filters: {ok: {tag: }}}}", "groups.g.filters.ok.tag has no value"),
    ("groups: {g: {filters: {ok: {tag: on}}}}", "groups.g.filters.ok.tag: True is not a text"),
]


@pytest.mark.parametrize(("wrong", "told"), WRONG, ids=[told[:40] for _, told in WRONG])
@pytest.mark.parametrize("options", [(), ("--dry-run",)], ids=["run", "dry run"])
def test_what_the_broker_would_refuse_is_refused_before_anything_is_changed(
    broker: Broker, run: Cli, wrong: str, told: str, options: tuple[str, ...]
) -> None:
    part = "topics" if not wrong.startswith("topics") else "groups"
    refused = run("apply", "-", *options, stdin=f"{part}: {{ok: {{}}}}\n{wrong}".encode())
    assert (refused.code, refused.out) == (2, "")
    assert told in refused.err
    with broker.client() as client:
        assert client.topics.list() == []
        assert client.groups.list() == []


def test_a_topic_that_prune_deletes_cannot_be_named(broker: Broker, run: Cli) -> None:
    run("apply", "-", stdin=b"topics: {a: {}, b: {}}")
    named = b"topics: {a: {}}\ngroups: {g: {filters: {b: {tag: x}}}}"
    assert "there is no topic b" in run("apply", "-", "--prune", "--dry-run", stdin=named).err
    assert run("apply", "-", "--dry-run", stdin=named).code == 0


#: Makes a topic or a group with one setting, by the class that has it.
MAKERS: dict[type[Any], Callable[..., object]] = {
    popmq.Topic: lambda client, name, **setting: client.topics.create(name, **setting),
    popmq.Group: lambda client, name, **setting: client.groups.create(name, **setting),
    popmq.Retention: lambda client, name, **setting: client.topics.create(name, retention=popmq.Retention(**setting)),
    popmq.Quota: lambda client, name, **setting: client.topics.create(name, quota=popmq.Quota(**setting)),
    popmq.LiteTopics: lambda client, name, **setting: client.topics.create(
        name, type="LITE", lite=popmq.LiteTopics(**setting)
    ),
    popmq.FairKeys: lambda client, name, **setting: client.groups.create(
        name, fair_keys=popmq.FairKeys("p", **setting)
    ),
    popmq.FairKeyLimits: lambda client, name, **setting: client.groups.create(
        name, fair_keys=popmq.FairKeys("p", exceptions=[popmq.FairKeyLimits("k", **setting)])
    ),
}


@pytest.mark.parametrize(
    ("kind", "field", "bound"),
    [(kind, field, bound) for kind, fields in bounds.BOUNDS.items() for field, bound in fields.items()],
    ids=[f"{kind.__name__}.{field}" for kind, fields in bounds.BOUNDS.items() for field in fields],
)
def test_the_bounds_of_a_number_are_those_of_the_broker(
    broker: Broker, kind: type[Any], field: str, bound: bounds.Bound
) -> None:
    step = 1 if typing.get_type_hints(kind)[field] is int else 0.001
    with broker.client() as client:
        for number, value in enumerate([bound.least, bound.most, *([0] if bound.or_zero else [])]):
            MAKERS[kind](client, f"n{number}", **{field: value})
        wrong = [bound.least - step, bound.most + step]
        for value in wrong[field == "snoozes_max" :]:  # whose 0 the broker takes for its default
            with pytest.raises((popmq.errors.InvalidField, ValueError)):
                MAKERS[kind](client, "wrong", **{field: value})
