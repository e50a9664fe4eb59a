------------------------------- MODULE Owners -------------------------------
(* An owner reads epochs under sealed tokens, beside other consumers of its group.

   ready ── Seal(epoch) ──▶ bound ───── AckUpTo ──────▶ done
     ▲                       │  ▲                        ▲
     │    the owner's lease  ▼  │ Again: taken back      │
     │    ended             freed ────── AckUpTo ────────┘
     │                       │
     └── its lease ends ── other ◀── OtherPop ── ready

   A token is (owner, epoch) here; parts and chunks of an epoch are more tokens of
   the same kind. Clients are processes of the one owner: each AttachOwner gives a
   new generation, and a process may call with an old one, whenever it likes.  *)

EXTENDS Writer, TLC

CONSTANTS Messages, Clients, MaxEpoch, MaxGeneration

VARIABLES promised   \* who relies on which message: [m, who], until the next tick

vars == <<writer, promised>>

Epochs == 1..MaxEpoch
None == {"no token"}

Init == /\ Starts([generation |-> 0, acked |-> 0, left |-> 0,
                   token |-> [e \in Epochs |-> None],
                   at |-> [m \in Messages |-> "ready"],
                   of |-> [m \in Messages |-> 0],
                   otherLeft |-> [m \in Messages |-> 0]])
        /\ promised = {}

Attached == {a \in told : a.kind = "attach"}
Newest == IF Attached = {} THEN 0 ELSE CHOOSE g \in 1..MaxGeneration :
            /\ \E a \in Attached : a.number = g
            /\ \A a \in Attached : a.number <= g

(* `set`: the messages that an answer to a Pop accounts for. `stray`: those of them that it calls torn although
   nobody took them. `late`: the request came after another process was told that it is the owner now. *)
Late(g) == g < Newest
Answer(kind, number, set, stray, late) ==
  [kind |-> kind, number |-> number, set |-> set, stray |-> stray, late |-> late]
Taken == UNION {a.set : a \in {b \in told \cup waiting : b.kind = "other"}}

Put(place, ms, where) == [m \in Messages |-> IF m \in ms THEN where ELSE place[m]]
In(places) == {m \in Messages : mem.at[m] \in places}

(* Whether the owner's call with this generation is served, or is refused with FENCED. *)
Served(g) == g <= mem.generation /\ (g = mem.generation \/ ~Has("generation"))
Open(e) == e > mem.acked \/ ~Has("acked epoch")

(* ── Calls of the owner ── *)

Attach(c) ==
  /\ mem.generation < MaxGeneration
  /\ LET g == mem.generation + 1
     IN Run([mem EXCEPT !.generation = g, !.left = 1], Answer("attach", g, {}, {}, FALSE))
  /\ UNCHANGED promised

Relies(rows, who) ==
  promised' = (IF Has("commit before OK") THEN promised ELSE promised \cup [m : rows, who : {who}])

(* The first Pop with a token seals a set of messages, which may be empty. *)
Seal(g, e) ==
  /\ Served(g) /\ Open(e) /\ mem.token[e] = None
  /\ \E rows \in SUBSET In({"ready"}) :
       Run([mem EXCEPT !.left = 1, !.token[e] = rows, !.at = Put(@, rows, "bound"), !.of = Put(@, rows, e)],
           Answer("pop", e, rows, {}, Late(g)))
       /\ Relies(rows, "owner")

(* A later one returns the same set. What the owner lost comes back to it, unless another consumer took it. *)
Again(g, e) ==
  /\ Served(g) /\ Open(e) /\ mem.token[e] # None
  /\ LET mine == {m \in mem.token[e] : mem.of[m] = e}
         lost == {m \in mine : mem.at[m] = "freed"}
         taken == {m \in mem.token[e] : mem.at[m] = "other"}
         back == (IF Has("binding") THEN lost ELSE {}) \cup (IF Has("what nobody took") THEN {} ELSE taken)
         rows == {m \in mine : mem.at[m] = "bound"} \cup back
     IN /\ Run([mem EXCEPT !.left = 1, !.at = Put(@, back, "bound"), !.of = Put(@, back, e)],
               Answer("pop", e, mem.token[e], (mem.token[e] \ rows) \ Taken, Late(g)))
        /\ Relies(rows, "owner")

AckUpTo(g, e) ==
  /\ Served(g) /\ e > mem.acked
  /\ LET rows == {m \in In({"bound", "freed"}) : mem.of[m] \in 1..e}
     IN Run([mem EXCEPT !.acked = e, !.at = Put(@, rows, "done"),
                        !.token = [f \in Epochs |-> IF f <= e THEN None ELSE @[f]]],
            Answer("ack", e, {}, {}, Late(g)))
  /\ UNCHANGED promised

(* ── Other consumers of the group ── *)

OtherPop(m) ==
  /\ mem.at[m] \in {"ready", "freed"}
  /\ Run([mem EXCEPT !.at[m] = "other", !.of[m] = 0, !.otherLeft[m] = 1], Answer("other", 0, {m}, {}, FALSE))
  /\ Relies({m}, "other")

(* ── Time ── *)

OwnerLeaseEnds ==
  /\ In({"bound"}) # {} /\ (mem.left = 0 \/ ~Has("deadline"))
  /\ RunAlone([mem EXCEPT !.at = Put(@, In({"bound"}), "freed")])
  /\ UNCHANGED promised

(* An owner that has come back gets what it lost also without asking for each token. *)
Reclaim ==
  /\ mem.left = 1 /\ In({"freed"}) # {}
  /\ RunAlone([mem EXCEPT !.at = Put(@, In({"freed"}), "bound")])
  /\ UNCHANGED promised

OtherLeaseEnds(m) ==
  /\ mem.at[m] = "other" /\ mem.otherLeft[m] = 0
  /\ RunAlone([mem EXCEPT !.at[m] = "ready"])
  /\ UNCHANGED promised

Tick ==
  LET over(store) == [store EXCEPT !.left = 0, !.otherLeft = [m \in Messages |-> 0]]
  IN /\ over(mem) # mem \/ over(disk) # disk
     /\ mem' = over(mem) /\ disk' = over(disk) /\ promised' = {}
     /\ UNCHANGED <<waiting, told, gathered, crashes>>

(* A commit tells of its Pops, and whoever pops relies on a lease that has not ended meanwhile. *)
Told ==
  LET owners == UNION {a.set : a \in {b \in waiting : b.kind = "pop"}} \cap In({"bound"})
      others == UNION {a.set : a \in {b \in waiting : b.kind = "other"}} \cap In({"other"})
  IN promised' = promised \cup [m : {m \in owners : mem.left = 1}, who : {"owner"}]
                          \cup [m : {m \in others : mem.otherLeft[m] = 1}, who : {"other"}]

(* Tokens are stored in the transaction of the Pop that seals them. *)
Found == IF Has("token on disk") THEN disk ELSE [disk EXCEPT !.token = [e \in Epochs |-> None]]

Next ==
  \/ \E c \in Clients : Attach(c)
  \/ \E a \in Attached, e \in Epochs :
       Seal(a.number, e) \/ Again(a.number, e) \/ AckUpTo(a.number, e)
  \/ \E m \in Messages : OtherPop(m) \/ OtherLeaseEnds(m)
  \/ OwnerLeaseEnds \/ Reclaim \/ Tick
  \/ Commit /\ Told
  \/ Crash(Found) /\ UNCHANGED promised

Spec == Init /\ [][Next]_vars

(* ── What is guaranteed ── *)

Pops == {a \in told : a.kind = "pop"}
(* "every later Pop with the token returns the same set" *)
TokenIsOneSet == \A a, b \in Pops : a.number = b.number => a.set = b.set

(* "it gets back those that were not popped" *)
TornWasTaken == \A a \in Pops : a.stray = {}

(* "requests of older generations get FENCED from now on" *)
OldGenerationIsFenced == \A a \in told : ~a.late

(* "all tokens of epochs up to it are done" *)
AckedEpochIsFinal ==
  \A a \in told : a.kind = "ack" => \A store \in {mem, disk} :
    store.acked >= a.number /\ \A m \in Messages : store.of[m] \in 1..a.number => store.at[m] = "done"

(* "a leased message is delivered to no other consumer before its lease ends" *)
LeasedToOne == \A p, q \in promised : p.m = q.m => p.who = q.who

(* A message is in two epochs only if another consumer had it in between. *)
EpochsShareNothing ==
  \A a, b \in Pops : a.number # b.number => a.set \cap b.set \subseteq Taken

Alike == Permutations(Messages) \cup Permutations(Clients)
=============================================================================
