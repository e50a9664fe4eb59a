"""Filters: which messages of a topic a group reads.

    ("tag", "a || b")      tag.py      hashes for the consume queue, then the exact text          ┐
    ("sql92", "n > 5")     sql92.lark  the grammar                                                ├─▶ filter.Filter
                           sql92.py    text → tree → closures;  logic.py  TRUE, FALSE and NULL    ┘

A filter is built once for each distinct text. A wrong text is refused then; later, values in messages can only make the
filter TRUE, FALSE or NULL, and only TRUE lets a message through.
"""
