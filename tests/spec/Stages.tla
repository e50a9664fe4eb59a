------------------------------- MODULE Stages -------------------------------
(* A sink stages the messages of a batch and commits them; the broker publishes them.

   Stage ──▶ staged ── CommitBatch ──▶ decided ── Publish, message by message ──▶ topic
                │ DropStages, or a commit of the same or a later batch
                ▼
              gone

   A stage is one attempt of a task; its messages are its pieces, one each. Two
   drivers, as of a program that was started twice, commit each batch, perhaps
   with other stages. StageBatch has the batch for which a stage is.          *)

EXTENDS Writer, TLC

CONSTANTS StageIds, MaxBatchNumber, Pieces

Batches == 1..MaxBatchNumber
Messages == StageIds \X Pieces
StageBatch == [s \in StageIds |-> 1 + ((s - 1) % MaxBatchNumber)]

Init == Starts([staged |-> {}, decided |-> {}, topic |-> [m \in Messages |-> 0], last |-> 0, known |-> {}])

Answer(kind, batch, stages) == [kind |-> kind, batch |-> batch, stages |-> stages]

Of(s) == {m \in Messages : m[1] = s}
Whole(s) == Of(s) \subseteq mem.staged

(* `known` is a ghost: the stages that were committed, in all time. *)

(* ── Calls ── *)

(* A repeated piece changes nothing. A sink whose batch is over may still stage: a late task does. *)
Stage(m) ==
  /\ m \notin mem.staged
  /\ RunAlone([mem EXCEPT !.staged = @ \cup {m}])  \* nothing is promised by its answer that CommitBatch does not check

Drop(s) ==
  /\ Of(s) \cap mem.staged # {}
  /\ RunAlone([mem EXCEPT !.staged = @ \ Of(s)])

(* Stages of this and of earlier batches that nobody committed are in the way of no later batch. *)
Leftovers(b, named) ==
  IF Has("drop leftovers") THEN {m \in mem.staged : StageBatch[m[1]] <= b} ELSE UNION {Of(s) : s \in named}

CommitBatch(b, named) ==
  IF b <= mem.last /\ Has("last batch")
    THEN (* again: OK, and nothing is committed *)
         Run([mem EXCEPT !.staged = @ \ {m \in mem.staged : StageBatch[m[1]] <= b}], Answer("commit", b, {}))
    ELSE /\ \A s \in named : StageBatch[s] = b
         /\ \A s \in named : Whole(s) \/ ~Has("whole stages")
         /\ Run([mem EXCEPT !.last = IF b > @ THEN b ELSE @,
                            !.decided = @ \cup (UNION {Of(s) : s \in named} \cap mem.staged),
                            !.staged = @ \ Leftovers(b, named),
                            !.known = @ \cup named],
                Answer("commit", b, named))

(* ── What happens by itself ── *)

(* A message is appended, and is no longer to be published, in one transaction. *)
Publish(m) ==
  /\ (m \in mem.decided \/ (m \in mem.staged /\ ~Has("decision")))
  /\ mem.topic[m] < 2
  /\ RunAlone([mem EXCEPT !.topic[m] = @ + 1,
                          !.decided = IF Has("one transaction") THEN @ \ {m} ELSE @])

Next ==
  \/ \E m \in Messages : Stage(m) \/ Publish(m)
  \/ \E s \in StageIds : Drop(s)
  \/ \E b \in Batches : \E named \in SUBSET {s \in StageIds : StageBatch[s] = b} : CommitBatch(b, named)
  \/ Commit
  \/ Crash(disk)

Spec == Init /\ [][Next]_writer

(* ── What is guaranteed (docs/sinks.md) ── *)

Commits(b) == {a \in told : a.kind = "commit" /\ a.batch = b /\ a.stages # {}}

(* "each of their messages will be in its topic once" *)
StoredOnce == \A m \in Messages : disk.topic[m] <= 1

(* "a commit is durable when it is answered": its messages are in the topic, or wait to be published. *)
CommitIsDurable ==
  \A b \in Batches : \A a \in Commits(b) :
    disk.last >= b /\ \A s \in a.stages : \A m \in Of(s) : disk.topic[m] = 1 \/ m \in disk.decided

(* "CommitBatch of the same or an earlier batch … commits nothing" *)
BatchIsCommittedOnce == \A b \in Batches : \A a, c \in Commits(b) : a.stages = c.stages

(* "CommitBatch of an incomplete stage is refused": nothing of it is visible. *)
NothingIsHalf ==
  \A s \in disk.known : \A m \in Of(s) : disk.topic[m] >= 1 \/ m \in disk.decided

(* "they are on disk and invisible": what was not committed is never seen. *)
UncommittedIsInvisible == \A m \in Messages : disk.topic[m] >= 1 => m[1] \in disk.known

(* "the broker drops the stage with the next commit of its sink for the same or a later batch" *)
LeftoversGo ==
  [][\A b \in Batches : (Cardinality(Commits(b)') > Cardinality(Commits(b)) /\ Has("commit before OK"))
       => \A m \in disk'.staged : StageBatch[m[1]] > b \/ m \notin disk.staged]_writer

Alike == Permutations(Pieces)
=============================================================================
