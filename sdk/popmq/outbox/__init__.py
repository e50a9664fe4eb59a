"""The outbox: messages that are seen if and only if a transaction of your database commits, whoever dies when.

    outbox = popmq.Outbox(client, "postgresql://…")    # once in each process
    outbox.answer("orders")                            # in processes that keep running

    with outbox(session) as box:                       # SQLAlchemy, Django, psycopg, PyMySQL, sqlite3
        session.add(order)
        box.send("orders", "paid")

                     user's process            database               broker              a process that answers
    box.send ──▶ where am I? ────────────────▶ place
                 half message with the place ───────────────────────▶ half
    COMMIT   ────────────────────────────────▶ decides
    soon     ──▶ how did it end? ────────────▶ committed
                 EndTransaction ────────────────────────────────────▶ visible
    or it dies                                                       check-back ───────▶ how did it end?
                                              committed ◀──────────────────────────────┘
                                                                     visible ◀───────── COMMIT

`popmq._outbox` has what each kind of database is asked; `_async/outbox/` the boxes, the connections of each library,
and what ends messages in the background.
"""

from popmq._async.outbox.outbox import AsyncBox, AsyncOutbox
from popmq._sync.outbox.outbox import Box, Outbox

__all__ = ["AsyncBox", "AsyncOutbox", "Box", "Outbox"]
