"""Properties and flags: which hold a field of popmq.v1.Message, which are the broker's, which the user's.

    message_id         UNIQ_KEY                        lite_topic           __LITE_TOPIC, only read
    tag                TAGS                            trace_context        TRACE_CONTEXT, __popmq_tracestate
    keys               KEYS, joined by blanks          born_host            __BORNHOST
    message_group      __SHARDINGKEY                   born_ms              the header; in a batch __popmq_born too
    deliver_at_ms      TIMER_DELIVER_MS                encoding             sysFlag, or __popmq_encoding
    delay_ms           TIMER_DELAY_MS                  transaction          TRAN_MSG, sysFlag 4; once committed 8
    priority           _SYS_MSG_PRIORITY_              check_after_ms       CHECK_IMMUNITY_TIME_IN_SECONDS
    dead_letter        DLQ_ORIGIN_TOPIC, __popmq_…

All other names that RocketMQ gives a meaning are the broker's, and not shown. What is left is the user's.
"""

from collections.abc import Mapping

from popmq_remoting.messages.properties import BYTES_MAX, OWN_NAMES, TRANSIENT_PREFIX

#: Properties that gateways write.
PREFIX = "__popmq_"
TRACE_STATE, BORN, ENCODING = f"{PREFIX}tracestate", f"{PREFIX}born", f"{PREFIX}encoding"
#: In messages that were sent back and in dead letters: the first place, the client that failed, and the reason.
ORIGIN_QUEUE, ORIGIN_OFFSET = f"{PREFIX}origin_queue", f"{PREFIX}origin_offset"
FIRST_POP, CLIENT, REASON = f"{PREFIX}first_pop", f"{PREFIX}client", f"{PREFIX}reason"
DEAD_ATTEMPTS, DEAD_MS = f"{PREFIX}dead_attempts", f"{PREFIX}dead_ms"
#: In a redriven message: the one group that it is for.
REDRIVEN_FOR = f"{PREFIX}redriven_for"
_PREFIXES = (PREFIX, TRANSIENT_PREFIX)

#: Bytes of all properties of a message: brokers add handles, places and names of topics, up to BYTES_MAX.
PROPERTIES_BYTES_MAX = BYTES_MAX - 1024

#: Numbers of popmq.v1.Encoding.
GZIP, ZSTD, LZ4, ZLIB = 1, 2, 3, 4
#: By encoding: the sysFlag that says so, and how the bytes begin that readers of this flag expect. The official gRPC
#: proxy marks gzip by the first bit alone.
FLAGS = {
    GZIP: (1, b"\x1f\x8b"),
    ZSTD: (1 | 2 << 8, b"\x28\xb5\x2f\xfd"),
    LZ4: (1 | 1 << 8, b"\x04\x22\x4d\x18"),
    ZLIB: (1 | 3 << 8, b"\x78"),
}
#: By the name that popmq_remoting gives a method of compression.
ENCODINGS = {"": 0, "gzip": GZIP, "zstd": ZSTD, "lz4": LZ4, "zlib": ZLIB}

#: After this time a broker asks about a half message first, if the producer says nothing.
CHECK_AFTER_S_DEFAULT = 6


def is_of_the_user(name: str) -> bool:
    """Whether a property has no meaning to RocketMQ or the gateways."""
    return name not in OWN_NAMES and not name.startswith(_PREFIXES)


def is_for_another(found: Mapping[str, str], group: str) -> bool:
    """Whether a message was redriven for another group. `found`: its properties; `group`: as PopMQ calls it."""
    redriven = found.get(REDRIVEN_FOR)
    return redriven is not None and redriven != group


def number(found: Mapping[str, str], name: str, otherwise: int = 0) -> int:
    """A property that is a number from 0; `otherwise` for any other, which another program may have written."""
    text = found.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else otherwise
