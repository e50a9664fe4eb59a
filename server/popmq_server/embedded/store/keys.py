"""Every key and every fixed value of the store.

    G group id [4] · T topic id [4] · Q queue [2] · numbers big-endian, so that key order is number or time order.
    Ids are never reused: a deleted and re-created topic never has old state.

    database  key                           value
    meta      text                          format number (formats.py), counters, and a few more
    name      kind [1] + name               id [4]
    topic     T                             JSON settings
    group     G                             JSON settings
    log       position [8]                  the records of one commit and topic, back to back: one chunk
    cq        T + Q + first offset [8]      n × (position [8], size [4], tag hash [8])
    idx       T + position [8]              index of a chunk: ranges of offsets, sorted hashes of ids and keys
    mark      T + time [8]                  position [8]: since then every group is past it (marks.py)
    queue     T + Q                         first readable offset [8], next offset when it was written [8]
    dedup     producer hash [16] + no. [8]  time [8], T, Q, first offset [8], count [4]; places (dedup.py)
    poff      G + T + Q                     next offset to pop [8]
    stat      G + T                         counters, 8 bytes each
    ck        ck_id [8]                     CheckPoint (checkpoint.py)
    due       due [8] + ck_id [8] + sub [2] done bitmap: the revive topic
    own       G + owner hash [16]           owner (owner.py)
    tok       G + T + token hash [16]       token (owner.py)
    rq        G + T + rseq [8]              retry entry: a pointer into the log
    pin       chunk position [8]            how many retry and waiting entries point into the chunk [4]
    kept      position [8]                  a record that outlived its chunk: chunk position [8], record
    hist      T + Q + offset [8] + ck_id [8] + sub [2]  outcomes of leases of these messages (history_rows.py)
    quar      T + Q + offset [8]            position [8], size [4] of a damaged record; a delayed or half one itself
    purge     id [4]                        a deleted topic or group whose ranges are not all removed yet
    sub       G + T                         JSON: filter, consume mode (records.Subscription)
    sweep     G + T                         JSON: remaining work of a reset or consume mode switch (sweep.py)
    tstat     T                             counters of a topic, 8 bytes each
    sched     clock [1] + due [8] + id [8] + T  crc32, stored ms, nonce, then the delayed message (delay.py)
    tsched    T + clock + due + id          hash of its message id [8]: the delayed messages of a topic
    half      T + txn id [8]                stored ms, nonce, delay, counted checks, next check (transaction.py)
    hmsg      T + txn id                    crc32, then the half message
    hdue      T + due [8] + txn id          the topic's T: next check of a half message; T 0: it is given up then
    tdone     time bucket [4] + txn id      how and when a transaction ended, and the answer to its caller
    fwait     G + T + message group [8] + offset [8]  FIFO: a message waiting in its message group (fifo.py)
    uid       T + time bucket [4] + id hash [16]      where a message id was stored (unique.py)
    gone      T + Q + offset [8]            when [8] a dead letter was redriven: it is no longer read (redrive.py)
    bare      T + position [8]              empty: a chunk of redriven messages that no queue refers to
    widx      T + position [8]              its end [8], merged names of many small index blocks (index.py)
    res       T + position + part [2]       where the results of some messages are (rules/results/places.py)
    lidx      T of the parent + position    T [4] of the lite topic: the chunks of a LITE topic (lite_chunks.py)
    begin     G + T + Q                     the offset [8] at which a group began, if not the first
    staged    sink hash [16] + stage hash [16]     a stage whose batch is not committed (stages.py)
    stage     number [8] + piece [4] + block [2]   crc32, then staged messages
    publish   order [8]                     a stage to be published, or dropped (publishing.py)
    batch     sink hash [16]                the last batch that a sink committed
    cron      name of a schedule            JSON settings, its next occurrence, counts (schedules.py)
    cronmsg   name of a schedule            crc32, then the message that it sends
    taken     G + T + Q + block [8]         fair keys: bits of the offsets of this block that were passed beyond poff

Widths in bytes are in brackets. A stored value also has a checksum at its end, unless it contains one: checksums.py.
"""

import hashlib
import struct

DATABASES = (
    "meta",
    "name",
    "topic",
    "group",
    "log",
    "cq",
    "idx",
    "mark",
    "queue",
    "dedup",
    "poff",
    "stat",
    "ck",
    "due",
    "own",
    "tok",
    "rq",
    "pin",
    "kept",
    "hist",
    "quar",
    "purge",
    "sched",
    "half",
    "fwait",
    "stage",
    "sub",
    "sweep",
    "tstat",
    "hdue",
    "tdone",
    "uid",
    "gone",
    "tsched",
    "hmsg",
    "bare",
    "widx",
    "lidx",
    "begin",
    "staged",
    "publish",
    "batch",
    "cron",
    "cronmsg",
    "res",
    "taken",
)

#: In `meta`: how far `lidx` has the chunks of lite topics; empty: it has all of them (lite_chunks.py).
LITE_INDEX = b"lite_index"

U16 = struct.Struct(">H")
U32 = struct.Struct(">I")
U64 = struct.Struct(">Q")
I64 = struct.Struct(">q")

#: T + Q + first offset.
CQ_KEY = struct.Struct(">IHQ")
#: position, size, tag hash: an entry of the consume queue, as in RocketMQ.
CQ_ENTRY = struct.Struct(">QIQ")
#: An entry of the consume queue with the tag hash as bytes.
CQ_WRITTEN = struct.Struct(">QI8s")
#: T + Q.
QUEUE_KEY = struct.Struct(">IH")
#: T + position, T + time.
TOPIC_AT = struct.Struct(">IQ")
#: first readable offset, next offset.
QUEUE_ENDS = struct.Struct(">QQ")
#: G + T + Q.
POFF_KEY = struct.Struct(">IIH")
#: G + T + Q + block of TAKEN_BLOCK offsets.
TAKEN_KEY = struct.Struct(">IIHQ")
#: Offsets of one row of `taken`: its bits have 512 bytes.
TAKEN_BLOCK = 4096
#: G + T.
STAT_KEY = struct.Struct(">II")
#: due + ck_id + sub.
DUE_KEY = struct.Struct(">QQH")
#: G + T + rseq.
RQ_KEY = struct.Struct(">IIQ")
#: position, size, attempts, origin queue, origin offset, past, bound ck_id (0 = none) and member; then the reason.
RQ_VALUE = struct.Struct(">QIHHQQQH")
#: clock, due, id, T. Messages that wait for both clocks (deliver_at_ms) come before those for ours (delay_ms).
SCHED_KEY = struct.Struct(">BQQI")
#: T, clock, due, id.
TSCHED_KEY = struct.Struct(">IBQQ")
#: T + txn id.
HALF_KEY = struct.Struct(">IQ")
#: T (0: given up) + due + txn id.
HDUE_KEY = struct.Struct(">IQQ")
#: time bucket + txn id.
TDONE_KEY = struct.Struct(">IQ")
#: G + T + message group hash + offset.
FWAIT_KEY = struct.Struct(">II8sQ")
#: position, size, attempts, queue, past, bound ck_id (0 = none) and member, stopped; then the reason.
FWAIT_VALUE = struct.Struct(">QIHHQQHB")
#: T + Q + offset + ck_id + sub.
HIST_KEY = struct.Struct(">IHQQH")
#: number of the stage, piece, block.
STAGE_KEY = struct.Struct(">QIH")
#: order.
PUBLISH_KEY = struct.Struct(">Q")
#: time, T, Q, first offset, count.
DEDUP_VALUE = struct.Struct(">QIHQI")

#: `sub` of an owner's key in `due`; a member that was split off has its index + 1, a whole CheckPoint 0.
SUB_OWNER = 0xFFFF
#: The due time of members without a deadline of their own: their owner's lease decides.
NEVER = 1 << 63


def following(prefix: bytes) -> bytes:
    """The first key after all keys that begin with `prefix`, whose bits are not all ones."""
    return (int.from_bytes(prefix) + 1).to_bytes(len(prefix))


def hash16(*parts: str | int) -> bytes:
    """A key field of fixed width for names of any length."""
    return hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=16).digest()
