"""Fair keys: a group takes turns by key, so that one tenant with a million messages does not hold up the others.

                    scanned ▼                                  a Pop
    queue  ■ ■ · ■ · · · · │ · ·        keys        ring of keys ──▶ one message of each key in turn
             poff ▲  taken ▲            acme  ▪ ▪ ▪ ▪ ▪ ▪ ▪ …        less those that are at a limit
                     reading.py ──────▶ bolt  ▪                      round.py: a plan, by reading only
    retry topic ─────────────────────▶  cove  ▪ ▪                    fair_pick.py: reads, passes, leases
                                        waiting.py

keys.py        the fair key of a stored message, and its hash
waiting.py     what waits, by key: packed numbers in arrays, and the rings
limits.py      the limits of each key: leased messages, messages a second
round.py       the turns of one plan
index.py       all this for one group in one topic, and what it has read ahead
reading.py     reads the queues and the retry topic ahead, in bounded pieces
fair_pick.py   the Pick of a Pop

In the store there is only what the group has passed (`taken`, `poff`: readers.py) and, where keys have a limit of
leased messages, the hash of the key of each leased message (CheckPoint.fair_keys). What waits by key is in memory only.
It is made from these when a Pop needs it: after a start, an aborted transaction, a reset, another filter or other
settings. So it may be dropped at any time, and each message is compared with the store again before it is leased.

See docs/decisions/0056-fair-keys.md.
"""
