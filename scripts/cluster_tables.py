"""Writes the tables of gateways into docs/, from what gateways go by.

    docs/cluster-codes.md    the answers of RocketMQ, and what clients get for them     cluster/refusals.py
    docs/cluster.md          the settings of brokers                                    cluster/operating/judging.py

python scripts/cluster_tables.py            write the pages
python scripts/cluster_tables.py --check    write nothing; exit 1 when a page differs
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from popmq_proto.rocketmq import definition_pb2 as v2
from popmq_server.cluster.features import FLOOR
from popmq_server.cluster.operating.judging import RULES
from popmq_server.cluster.refusals import ANSWERS, BY_REMARK, Answer
from popmq_server.errors import Refused
from popmq_server.protocols.rocketmq.status import code_of

DOCS = Path(__file__).parent.parent / "docs"
CODES = "| code | name | popmq.v1 | v2 | action |\n|---|---|---|---|---|\n"
REMARKS = "| code | remark has one of | popmq.v1 | v2 | action |\n|---|---|---|---|---|\n"
SETTINGS = "| setting | set | default | without it | then |\n|---|---|---|---|---|\n"


def v2_code(code: str) -> str:
    """What a client of apache.rocketmq.v2 gets for a code of popmq.v1."""
    return v2.Code.Name(code_of(Refused(code, "")))


def _code(answer: Answer) -> str:
    if not answer.code:
        return f"| {answer.number} | {answer.name} | – | – | each call reads it itself |\n"
    action = answer.action.format(broker="NAME")
    return f"| {answer.number} | {answer.name} | {answer.code} | {v2_code(answer.code)} | {action} |\n"


def _remarks() -> Iterable[str]:
    for rule in BY_REMARK:
        words = ", ".join(f"`{word}`" for word in rule.words)
        action = rule.action.format(broker="NAME")
        yield f"| {rule.number} | {words} | {rule.code} | {v2_code(rule.code)} | {action} |\n"


def _settings() -> Iterable[str]:
    for rule in RULES:
        promise = f"{rule.promise}: " + ("weaker" if rule.is_met else "**not kept**")
        since = "" if rule.since == FLOOR else f" (from {'.'.join(map(str, rule.since))} on)"
        yield f"| `{rule.setting}`{since} | {rule.wanted} | {rule.default} | {rule.why} | {promise} |\n"


def _with(page: str, head: str, rows: Iterable[str]) -> str:
    return re.sub(rf"{re.escape(head)}(\|.*\n)*", lambda _: head + "".join(rows), page)


def written() -> dict[Path, str]:
    """The pages with the tables of today."""
    codes, cluster = DOCS / "cluster-codes.md", DOCS / "cluster.md"
    text = _with(codes.read_text(), CODES, map(_code, ANSWERS.values()))
    return {codes: _with(text, REMARKS, _remarks()), cluster: _with(cluster.read_text(), SETTINGS, _settings())}


def main() -> int:
    """Exit code: 0, or 1 when a page differs."""
    pages = written()
    differ = [path for path, text in pages.items() if path.read_text() != text]
    if "--check" not in sys.argv[1:]:
        for path in differ:
            path.write_text(pages[path])
        return 0
    for path in differ:
        print(f"{path} differs from the tables: run python scripts/cluster_tables.py", file=sys.stderr)
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main())
