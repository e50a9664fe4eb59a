"""Filters: which messages of a topic a group wants.

    ("tag", "a || b")      tag.py      hashes for the consume queue, then the exact text          ┐
    ("sql92", "n > 5")     sql92.lark  the grammar                                                ├─▶ filter.Filter
                           sql92.py    text → tree → closures;  logic.py  TRUE, FALSE and NULL    ┘

A filter is made once for each distinct text, and is wrong at that time or never: what it meets in messages later can
only make it TRUE, FALSE or NULL, and only TRUE lets a message through.
"""
