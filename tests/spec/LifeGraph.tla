----------------------------- MODULE LifeGraph ------------------------------
(* The next-state relation of one row, with a name for each step. TLC writes its
   whole graph to a file, and test_relation.py compares it with relation.py, whose
   functions replay.py uses to judge histories of a real broker.               *)

EXTENDS Life

VARIABLE row

Init == row = Absent

Send == row = Absent /\ row' = Moved(row, "ready", 0)
Pop == CanPop(row) /\ row' = Popped(row)

Held == Lives(row, row.nonce)
Ack == Held /\ row' = Acked(row)
Extend == Held /\ row' = Extended(row)
Reject == Held /\ row' = Rejected(row)
ReleaseNow == Held /\ row' = Released(row, 0)
ReleaseLater == Held /\ row' = Released(row, 1)
SnoozeNow == Held /\ row' = Uncounted(row, 0)
SnoozeLater == Held /\ row' = Uncounted(row, 1)

Expire == CanExpire(row) /\ row' = Expired(row)
Wake == CanWake(row) /\ row' = Woken(row)
Tick == row.left > 0 /\ row' = Ticked(row)

Next ==
  \/ Send \/ Pop \/ Ack \/ Extend \/ Reject
  \/ ReleaseNow \/ ReleaseLater \/ SnoozeNow \/ SnoozeLater
  \/ Expire \/ Wake \/ Tick

Spec == Init /\ [][Next]_row

IsSomewhereOnce == row # Absent => Cardinality(row.at) = 1
AttemptsStay == row.attempts \in 0..MaxAttempts
=============================================================================
