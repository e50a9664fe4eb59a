------------------------------- MODULE Leases -------------------------------
(* Pop, ack, extend, release, reject, expire, and restarts, of several messages.

     clients ── Send, Pop, Ack … ──▶ the writer (Writer.tla) ──▶ rows (Life.tla)
        ▲                                  │
        └────────── told ◀── Commit ───────┘

   The store is a row for each message. `promised` has the leases that clients were
   told of and whose time is not over: what they rely on. `coming` has those whose
   answers wait for the commit.                                                *)

EXTENDS Writer, TLC

CONSTANTS Messages, Clients, Delays, Snoozes, MaxAttempts, MaxPops

VARIABLES promised, coming

vars == <<writer, promised, coming>>

INSTANCE Life

Init == Starts([m \in Messages |-> Absent]) /\ promised = {} /\ coming = {}

Answer(kind, m, nonce) == [kind |-> kind, m |-> m, nonce |-> nonce]

(* What a client relies on once it has the answer of a Pop or an extend. *)
Promise(m, nonce, client, left) == [m |-> m, nonce |-> nonce, client |-> client, left |-> left]

Write(m, row) == [mem EXCEPT ![m] = row]

Handles == {a \in told : a.kind = "pop"}

Same(p, q) == p.m = q.m /\ p.nonce = q.nonce

(* Promises travel with their answers: they wait for the commit, or are made at once. *)
Promises(new) ==
  IF Has("commit before OK")
    THEN coming' = coming \cup new /\ UNCHANGED promised
    ELSE promised' = {p \in promised : \A q \in new : ~Same(p, q)} \cup new /\ UNCHANGED coming

(* The client asks for the end of its delivery: from now on it relies on nothing. *)
GivesUp(h) == /\ promised' = {p \in promised : ~Same(p, h)}
              /\ coming' = {p \in coming : ~Same(p, h)}

(* ── Calls ── *)

(* A request number is remembered with the message: a repeat stores nothing. *)
Send(m) ==
  /\ IF Has("request number") /\ mem[m] # Absent
       THEN Answer("send", m, 0) \notin told /\ Run(mem, Answer("send", m, 0))
       ELSE Run(Write(m, [mem[m] EXCEPT !.at = @ \cup {"ready"}]), Answer("send", m, 0))
  /\ UNCHANGED <<promised, coming>>

(* A client has one delivery at a time: it pops when it relies on no other one. *)
Pop(c, m) ==
  /\ CanPop(mem[m]) /\ \A p \in promised \cup coming : p.client # c
  /\ LET row == Popped(mem[m])
     IN /\ Run(Write(m, row), Answer("pop", m, row.nonce))
        /\ Promises({Promise(m, row.nonce, c, row.left)})

(* Calls about a delivery are made by whoever has its handle, also long after its lease. *)
Ack(h) ==
  /\ Lives(mem[h.m], h.nonce)
  /\ Run(Write(h.m, Acked(mem[h.m])), Answer("ack", h.m, h.nonce))
  /\ GivesUp(h)

Reject(h) ==
  /\ Lives(mem[h.m], h.nonce)
  /\ Run(Write(h.m, Rejected(mem[h.m])), Answer("reject", h.m, h.nonce))
  /\ GivesUp(h)

Release(h, delay) ==
  /\ Lives(mem[h.m], h.nonce)
  /\ RunAlone(Write(h.m, Released(mem[h.m], delay)))  \* nothing is promised by its answer
  /\ GivesUp(h)

(* As a release, and the attempt does not count. *)
Snooze(h, delay) ==
  /\ Lives(mem[h.m], h.nonce)
  /\ Run(Write(h.m, Uncounted(mem[h.m], delay)), Answer("snooze", h.m, h.nonce))
  /\ GivesUp(h)

(* It works until the lease has been expired, so after the deadline too if it comes before that. *)
Extend(h, c) ==
  /\ Lives(mem[h.m], h.nonce)
  /\ \A p \in promised \cup coming : Same(p, h) = (p.client = c)
  /\ RunAlone(Write(h.m, Extended(mem[h.m])))
  /\ Promises({Promise(h.m, h.nonce, c, 2)})

(* ── What happens by itself ── *)

Expire(m) == CanExpire(mem[m]) /\ RunAlone(Write(m, Expired(mem[m]))) /\ UNCHANGED <<promised, coming>>

Wake(m) == CanWake(mem[m]) /\ RunAlone(Write(m, Woken(mem[m]))) /\ UNCHANGED <<promised, coming>>

(* Deadlines are points of time, so a tick shortens what is left of all of them alike. *)
Tick ==
  LET rows(store) == [m \in Messages |-> Ticked(store[m])]
      later(promises) == {[p EXCEPT !.left = p.left - 1] : p \in {q \in promises : q.left > 1}}
  IN /\ \E m \in Messages : mem[m].left > 0 \/ disk[m].left > 0
     /\ mem' = rows(mem) /\ disk' = rows(disk)
     /\ promised' = later(promised) /\ coming' = later(coming)
     /\ UNCHANGED <<waiting, told, gathered, crashes>>

(* What a start makes of a row: nothing, as leases are on disk, and the clock goes on where it was. *)
Started(row) ==
  IF "leased" \notin row.at THEN row
  ELSE IF Has("leases on disk")
         THEN IF Has("clock goes on") THEN row ELSE [row EXCEPT !.left = 0]
         ELSE Moved(row, "retry", 0)

Told == /\ promised' = {p \in promised : \A q \in coming : ~Same(p, q)} \cup coming
        /\ coming' = {}

Next ==
  \/ \E m \in Messages : Send(m) \/ Expire(m) \/ Wake(m) \/ \E c \in Clients : Pop(c, m)
  \/ \E h \in Handles : Ack(h) \/ Reject(h)
  \/ \E h \in Handles, delay \in Delays : Release(h, delay)
  \/ \E h \in Handles, delay \in Snoozes : Snooze(h, delay)
  \/ \E h \in Handles, c \in Clients : Extend(h, c)
  \/ Tick
  \/ Commit /\ Told
  \/ Crash([m \in Messages |-> Started(disk[m])]) /\ coming' = {} /\ UNCHANGED promised

Spec == Init /\ [][Next]_vars

(* ── What is guaranteed ── *)

HasTold(kind, m) == \E a \in told : a.kind = kind /\ a.m = m

(* "an OK to a send is on disk" *)
SendOkIsOnDisk == \A m \in Messages : HasTold("send", m) => disk[m] # Absent

(* "after an OK to an ack, the group does not get the message again" *)
AckOkIsFinal ==
  \A m \in Messages : HasTold("ack", m) => disk[m].at = {"done"} /\ mem[m].at = {"done"}

(* "a leased message is delivered to no other consumer before its lease ends" *)
LeasedToOne == \A p, q \in promised : p.m = q.m => p.nonce = q.nonce /\ p.client = q.client

(* "every message is done, a dead letter, … or still there" *)
IsSomewhereOnce ==
  \A store \in {mem, disk} : \A m \in Messages : store[m] # Absent => Cardinality(store[m].at) = 1

(* docs/protocol.md: "the handle stays valid when the lease is extended or the broker restarts" *)
HandleWorks == \A p \in promised : Lives(mem[p.m], p.nonce) /\ Lives(disk[p.m], p.nonce)

(* docs/protocol.md: "delivered again with the next attempt, until the group's max_attempts are used up" *)
Count(kind, m) == Cardinality({a \in told : a.kind = kind /\ a.m = m})
AttemptsAreCounted ==
  \A m \in Messages : /\ disk[m].attempts = Count("pop", m) - Count("snooze", m)
                      /\ disk[m].attempts <= MaxAttempts

(* docs/protocol.md: reject: "it is in the dead-letter topic" *)
RejectOkIsFinal == \A m \in Messages : HasTold("reject", m) => disk[m].at = {"dead"}

Alike == Permutations(Messages) \cup Permutations(Clients)
=============================================================================
