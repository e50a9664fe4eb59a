"""Which settings of brokers weaken a promise."""

import pytest

from popmq_server.cluster.operating.judging import RULES, Finding, findings
from popmq_server.cluster.operating.survey import Seen

GOOD = {rule.setting: rule.wanted for rule in RULES}
NEW = "V5_5_0"


def judged(
    version: str = NEW, replicas: int = 0, in_sync: int = 0, ahead_s: float = 0.0, **settings: str
) -> list[Finding]:
    return findings([Seen("a", 0, "10.0.0.1:10911", version, GOOD | settings, replicas, in_sync, ahead_s)])


def test_brokers_with_the_wanted_settings_have_no_finding() -> None:
    assert judged() == []
    assert judged(brokerRole="SYNC_MASTER", replicas=2, in_sync=2) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.setting)
def test_each_default_that_weakens_a_promise_is_found_with_what_to_set(rule: object) -> None:
    for version in (NEW, "V5_3_3"):
        settings = {name: value for name, value in GOOD.items() if name != rule.setting}  # type: ignore[attr-defined]  # private class
        found = findings([Seen("a", 0, "10.0.0.1:10911", version, settings)])
        named = {finding.setting: finding.wanted for finding in found}
        is_weak = rule.default != rule.wanted  # type: ignore[attr-defined]  # private class
        knows = version == NEW or rule.setting != "popConsumerKVServiceEnable"  # type: ignore[attr-defined]  # private class
        assert named == ({rule.setting: rule.wanted} if is_weak and knows else {})  # type: ignore[attr-defined]  # private class


@pytest.mark.parametrize(
    ("found", "setting", "is_met"),
    [
        (judged(flushDiskType="ASYNC_FLUSH"), "flushDiskType", False),
        (judged(flushConsumerOffsetInterval="5000"), "flushConsumerOffsetInterval", False),
        (judged(flushConsumerOffsetInterval="200"), "", True),
        (judged(timerWheelEnable="false"), "timerWheelEnable", False),
        (judged(autoCreateTopicEnable="true"), "autoCreateTopicEnable", True),
        (judged("V5_1_2"), "(version)", False),
        (judged("V5_3_3", brokerRole="SYNC_MASTER", replicas=1, in_sync=1), "(version)", False),
        (judged("V5_3_1", brokerRole="SYNC_MASTER", replicas=1, in_sync=1), "", True),
        (judged(ahead_s=60.0), "(clock)", True),
        (judged(ahead_s=-1.4), "", True),
        (judged(brokerRole="ASYNC_MASTER", replicas=1, in_sync=1), "brokerRole", False),
        (judged(brokerRole="SYNC_MASTER", replicas=2, in_sync=1), "(replicas in sync)", False),
        (judged(brokerRole="SYNC_MASTER"), "(replicas in sync)", False),
        (findings([Seen("a", 0, "10.0.0.1:10911", NEW, GOOD, shuts_out="no right")]), "(rights of the user)", True),
        (findings([Seen("a", 0, "10.0.0.1:10911", error="refused")]), "(no answer)", False),
        (findings([Seen("a", 1, "10.0.0.1:10911", error="refused")]), "(no answer)", True),
        (findings([Seen("a", 1, "10.0.0.1:10911", "V5_1_0")]), "", True),
    ],
)
def test_what_breaks_a_promise_is_told_from_what_only_weakens_it(
    found: list[Finding], setting: str, is_met: bool
) -> None:
    assert [(each.setting, each.is_met) for each in found] == ([(setting, is_met)] if setting else [])
    assert all(each.why and each.wanted and each.promise for each in found)
