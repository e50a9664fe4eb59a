------------------------------- MODULE Writer -------------------------------
(* One writer thread with an embedded store, under every module of this folder.

     command ──▶ mem ──────── Commit ───────▶ disk        Crash: mem becomes disk again,
        answer ──▶ waiting ── Commit ───────▶ told        and answers that wait are gone

   mem      what the writer's transaction sees: all commands so far
   disk     what a process finds that starts now: all commits
   waiting  answers of commands that are not committed yet
   told     answers that have left the broker, for ever

   Clients and the network need no variables. A client may make any request that
   the answers in `told` allow, at any time and as often as it likes; so a repeated
   request, one that arrives late, one that never arrives and an answer that nobody
   reads are all among the behaviours.

   `Without` names the mechanisms that are taken out. It is empty but for mutations
   (checking.py), each of which must break an invariant.                       *)

EXTENDS Naturals, FiniteSets

CONSTANTS Without,      \* names of mechanisms
          MaxCrashes,   \* how often the process is killed
          MaxBatch      \* commands of one commit batch

VARIABLES disk, mem, waiting, told, gathered, crashes

writer == <<disk, mem, waiting, told, gathered, crashes>>

Has(mechanism) == mechanism \notin Without

Starts(store) == /\ disk = store /\ mem = store
                 /\ waiting = {} /\ told = {} /\ gathered = 0 /\ crashes = 0

Gather == gathered < MaxBatch /\ gathered' = gathered + 1

(* A command: `new` is the store after it. Its answer waits for the commit. *)
Run(new, answer) ==
  /\ Gather /\ mem' = new
  /\ IF Has("commit before OK")
       THEN waiting' = waiting \cup {answer} /\ UNCHANGED told
       ELSE told' = told \cup {answer} /\ UNCHANGED waiting
  /\ UNCHANGED <<disk, crashes>>

(* What the broker does by itself: nobody waits for an answer. *)
RunAlone(new) == Gather /\ mem' = new /\ UNCHANGED <<disk, waiting, told, crashes>>

Commit ==
  /\ gathered > 0 /\ gathered' = 0
  /\ disk' = mem /\ told' = told \cup waiting /\ waiting' = {}
  /\ UNCHANGED <<mem, crashes>>

(* The process is killed and starts again: `found` is what it makes of the disk. *)
Crash(found) ==
  /\ crashes < MaxCrashes /\ crashes' = crashes + 1
  /\ disk' = found /\ mem' = found /\ waiting' = {} /\ gathered' = 0
  /\ UNCHANGED told

(* Nothing changed without a commit that wrote it, and answers are not taken back. *)
AnswersStay == [][told \subseteq told']_told
=============================================================================
