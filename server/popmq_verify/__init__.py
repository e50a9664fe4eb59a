"""`popmq verify`: tests the broker's guarantees on this machine, under kills, power cuts, a full and a slow disk.

    load clients ──▶ a broker on a scratch folder ◀── kills, power cuts, a full disk, slow syncs, jumps of the clock
         │ histories: every call and its answer
         ▼
    judging/facts.py joins them ──▶ judging/checker.py compares them with each other, and with the messages of
                                    the broker at rest ──▶ findings

process/                     a broker that can be killed, one whose retention runs constantly, the files below it
load/                        programs with a random behaviour from a seed, which record every call and its answer
judging/                     joins and judges the records; sealed judges the owner's reads
campaign, rest               kill -9 under load; a broker is brought to rest and read whole
powercut, shim.c             the files that a power cut leaves, made from a log of all writes and syncs
full                         a store without room
stages, verifying, report    the parts of a run, its settings, and its report

The load and the checker are also those of a simulation: docs/decisions/0067-one-seeded-scheduler.md.
The same histories are replayed against a specification in TLA+: docs/decisions/0065-specification.md.
"""
