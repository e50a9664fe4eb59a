"""`popmq verify`: what a broker promises, tested on this machine while it is killed, cut off, filled up, slowed down.

    load clients ──▶ a broker on a scratch folder ◀── kills, power cuts, a full disk, slow syncs, jumps of the clock
         │ histories: every call and its answer
         ▼
    judging/facts.py joins them ──▶ judging/checker.py compares them with each other, and with what the broker
                                    has at rest ──▶ findings

process/                     a broker that can be killed, one whose retention runs constantly, the files below it
load/                        programs with a random behaviour from a seed, which record every call and its answer
judging/                     what was recorded, joined, judged; sealed judges the owner's reads
campaign, rest               kill -9 under load; a broker is brought to rest and read whole
powercut, shim.c             the files that a power cut leaves, made from a log of all writes and syncs
full                         a store without room
stages, verifying, report    what `popmq verify` runs, with which settings, and what it says
"""
