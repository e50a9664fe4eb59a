"""Invariants that the broker compares while it runs: a broken one ends the command that met it, and changes nothing.

    listed.py    the table: the name of each, one sentence, and what an operator does
    broken.py    what a comparison raises

A comparison stands in line where a value is written, and where it is read again; while it holds it calls nothing:

    if left < 0:
        broken("chunk_entries_counted", …)

See docs/decisions/0068-invariants.md; docs/invariants.md has the table.
"""
