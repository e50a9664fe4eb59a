------------------------------- MODULE Settle -------------------------------
(* A Settle acks a delivery and stores a message because of it, in one commit.

    in  ── Pop ──▶ handler ── Settle(handle, number) ──┬── ack ──▶ done
                                                       └── send ─▶ out

   Each message of the topic `in` leads to one of the topic `out`. Two consumers
   handle them; a client repeats a Settle until it is answered, so its request may
   arrive twice, and after the lease is over. A message of a Settle can also be one
   that its topic does not take: then all of it is refused.                     *)

EXTENDS Writer, TLC

CONSTANTS Messages, Clients, Bad, MaxPops

Init == Starts([at |-> [m \in Messages |-> "ready"], nonce |-> [m \in Messages |-> 0],
                out |-> [m \in Messages |-> 0], numbers |-> {}])

(* The number of a request is (client, delivery): each delivery is settled by its own request. *)
Answer(kind, c, m, nonce) == [kind |-> kind, client |-> c, m |-> m, nonce |-> nonce]
Request(h) == <<h.client, h.m, h.nonce>>

Lives(h) == mem.at[h.m] = "leased" /\ mem.nonce[h.m] = h.nonce

Pop(c, m) ==
  /\ mem.at[m] = "ready" /\ mem.nonce[m] < MaxPops
  /\ Run([mem EXCEPT !.at[m] = "leased", !.nonce[m] = @ + 1], Answer("pop", c, m, mem.nonce[m] + 1))

(* Leases end at any time: what a Settle guarantees does not depend on clocks. *)
Expire(m) == mem.at[m] = "leased" /\ RunAlone([mem EXCEPT !.at[m] = "ready"])

Acked(store, h) == [store EXCEPT !.at[h.m] = "done"]
Sent(store, h) == [store EXCEPT !.out[h.m] = IF @ < 2 THEN @ + 1 ELSE @]
Numbered(store, h) == [store EXCEPT !.numbers = @ \cup {Request(h)}]

Ok(h) == Answer("ok", h.client, h.m, h.nonce)

SettleOf(h) ==
  CASE Request(h) \in mem.numbers /\ Has("request number") ->     \* the first answer again
         Ok(h) \notin told /\ Run(mem, Ok(h))
    [] h.m \in Bad ->                                              \* refused by the topic `out`
         Run(IF Has("check everything first") \/ ~Lives(h) THEN mem ELSE Acked(mem, h),
             Answer("invalid", h.client, h.m, h.nonce))
    [] h.m \notin Bad /\ Lives(h) ->
         Run(IF Has("one transaction") THEN Numbered(Sent(Acked(mem, h), h), h) ELSE Sent(mem, h), Ok(h))
    [] OTHER ->                                                    \* HANDLE_LAPSED changes nothing, so it is
         Ok(h) \in told                                            \* left out unless it contradicts an OK
         /\ Run(mem, Answer("lapsed", h.client, h.m, h.nonce))

Next ==
  \/ \E m \in Messages : Expire(m) \/ \E c \in Clients : Pop(c, m)
  \/ \E h \in {a \in told : a.kind = "pop"} : SettleOf(h)
  \/ Commit
  \/ Crash(disk)

Spec == Init /\ [][Next]_writer

(* ── What is guaranteed (docs/settle.md) ── *)

Answers(kind) == {a \in told : a.kind = kind}

(* "each message exactly once in each topic" *)
OutOnce == \A m \in Messages : disk.out[m] <= 1

(* "the deliveries end and the messages are stored, or nothing happens at all" *)
AllOrNothing ==
  \A store \in {mem, disk} : \A m \in Messages : (store.at[m] = "done") = (store.out[m] = 1)

(* "an OK … is on disk" *)
OkIsOnDisk == \A a \in Answers("ok") : disk.at[a.m] = "done" /\ disk.out[a.m] >= 1

(* "a repeat with the same number gets the first answer and does nothing": HANDLE_LAPSED never follows an OK. *)
RepeatGetsTheFirstAnswer == Answers("lapsed") = {}

(* "nothing is sent then, and no delivery has ended" *)
RefusalChangesNothing == \A a \in Answers("invalid") : disk.out[a.m] = 0 /\ disk.at[a.m] # "done"

Alike == Permutations(Messages \ Bad) \cup Permutations(Clients)
=============================================================================
