-------------------------------- MODULE Life --------------------------------
(* The life of one message for one group: what each call makes of its row.

     Send ─▶ ready ──┐              ┌─ Ack ───────────────────────────▶ done
                     ├─ Pop ─▶ leased ─ Reject, or no attempt left ───▶ dead
             retry ──┘              ├─ Expire, or Release ─▶ retry
               ▲                    └─ Release with a delay ─▶ backoff
               └────────────────────────── Wake ───────────────┘

   A row says where the message is, how many attempts were counted, which delivery
   was the last one (its nonce), and how much time the lease or the delay has left.
   Time is counted in ticks: a lease has 1, one that was extended 2, a delay 1.

   `at` is a set, so that a message may be lost or be in two places: a broker that
   is right always has exactly one.  relation.py has the same functions in Python,
   and a test compares both graphs, state by state and step by step.           *)

EXTENDS Naturals, FiniteSets

CONSTANTS MaxAttempts,  \* of the group
          MaxPops,      \* a bound of the exploration: deliveries that do not count may repeat
          Without       \* as in Writer

Absent == [at |-> {}, attempts |-> 0, nonce |-> 0, left |-> 0]

Moved(row, place, left) == [row EXCEPT !.at = {place}, !.left = left]

(* ── Calls ── *)

CanPop(row) == row.at \cap {"ready", "retry"} # {} /\ row.nonce < MaxPops

Popped(row) ==
  [at |-> {"leased"}, nonce |-> row.nonce + 1, left |-> 1,
   attempts |-> IF "attempts" \in Without THEN row.attempts ELSE row.attempts + 1]

(* A handle names one delivery: the message, and the nonce of its lease. *)
Lives(row, nonce) ==
  "leased" \in row.at /\ (row.nonce = nonce \/ "nonce" \in Without)

Acked(row) == Moved(row, "done", 0)
Extended(row) == Moved(row, "leased", 2)
Rejected(row) == Moved(row, "dead", 0)

OutOfAttempts(row) == row.attempts >= MaxAttempts

Released(row, delay) ==
  IF OutOfAttempts(row) THEN Moved(row, "dead", 0)
  ELSE IF delay = 0 THEN Moved(row, "retry", 0) ELSE Moved(row, "backoff", delay)

(* A snooze: the attempt does not count, so the last one may be given back too. *)
Uncounted(row, delay) ==
  [Moved(row, IF delay = 0 THEN "retry" ELSE "backoff", delay) EXCEPT !.attempts = row.attempts - 1]

(* ── Time ── *)

CanExpire(row) == "leased" \in row.at /\ (row.left = 0 \/ "deadline" \in Without)

(* Not in one transaction: the lease is deleted, and the entry of the retry topic not written yet. *)
Expired(row) ==
  IF "one transaction" \in Without THEN [row EXCEPT !.at = {}]
  ELSE IF OutOfAttempts(row) THEN Moved(row, "dead", 0) ELSE Moved(row, "retry", 0)

CanWake(row) == "backoff" \in row.at /\ row.left = 0
Woken(row) == Moved(row, "retry", 0)

Ticked(row) == [row EXCEPT !.left = IF row.left = 0 THEN 0 ELSE row.left - 1]
=============================================================================
