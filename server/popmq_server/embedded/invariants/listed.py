"""All invariants: the name that the metric and the log have, one sentence that holds, and what an operator does.

docs/invariants.md is written from this table (`python -m scripts.invariants`), and tests/engine/invariants breaks each
of them. A name is never given to another invariant: alerts and searches in logs use it.
"""

from typing import NamedTuple


class Invariant(NamedTuple):
    """One invariant. `repair`: what an operator does; one of the four below."""

    name: str
    sentence: str
    repair: str


#: It is a row that a start compares too, and `popmq check --repair` mends.
MENDED = "stop the broker, mend the store by `popmq check --repair`, and report this with the broker's log"
#: It is a row that nothing mends by itself: the operator decides between a backup and what the check names.
STORED = "stop the broker, see what `popmq check` names, start on a backup, and report this with the broker's log"
#: It is a number that memory keeps and a start counts again from the rows.
COUNTED = "restart the broker, which counts this again from its store, and report this with the broker's log"
#: It is about one step of a command: the state is as it was.
STEP = "report this with the broker's log; the store is as it was before the call"

LEASES = (
    Invariant("lease_ends_later", "A lease begins before its deadline.", STEP),
    Invariant("lease_inside_members", "A lease holds members of its CheckPoint only.", MENDED),
    Invariant("lease_part_of_a_member", "A part that was split off a lease holds the one member it is for.", STORED),
    Invariant("lease_parts_counted", "The number of parts of a lease is not negative.", COUNTED),
    Invariant("lease_holds_something", "A lease that is not an owner's holds at least one message.", MENDED),
    Invariant("lease_holds_what_leaves", "Only a message that is under a lease leaves it, and once.", STEP),
    Invariant("lease_deadline_of_owner", "Exactly the leases of owners have no deadline of their own.", MENDED),
    Invariant("lease_has_checkpoint", "Each lease has its CheckPoint.", MENDED),
    Invariant("lease_row_whole", "The row of a lease has a bit for each member.", MENDED),
    Invariant("checkpoint_has_lease", "Each CheckPoint has a lease.", MENDED),
    Invariant("released_not_done", "A message that its owner released is not done.", MENDED),
    Invariant("released_has_a_place", "A message that its owner released has a number in the retry topic.", MENDED),
    Invariant("torn_no_longer_held", "A message that another reader took is no longer its owner's.", MENDED),
    Invariant("leased_counted", "The number of messages that a group has leased is not negative.", COUNTED),
    Invariant("owned_counted", "The number of messages that owners of a group hold is not negative.", COUNTED),
    Invariant("backoff_counted", "The number of messages of a group in backoff is not negative.", COUNTED),
    Invariant("queue_leases_counted", "The number of leased messages of a queue is not negative.", COUNTED),
    Invariant("client_leases_counted", "The number of messages leased to a client is not negative.", COUNTED),
    Invariant("chunk_leases_counted", "The number of leased messages of a chunk is not negative.", COUNTED),
    Invariant("group_chunk_leases_counted", "The number of a group's leases in a chunk is not negative.", COUNTED),
    Invariant("fair_key_leases_counted", "The number of leased messages of a fair key is not negative.", COUNTED),
    Invariant("dead_blocked_counted", "The number of dead letters without room is not negative.", COUNTED),
    Invariant("session_has_its_leases", "A lease bound to a session is of the client of that session.", COUNTED),
    Invariant("sorted_number_new", "A number is added to a sorted list that does not have it.", COUNTED),
    Invariant("sorted_number_known", "A number is removed from a sorted list that has it.", COUNTED),
    Invariant("history_row_of_its_members", "A row of history is about members of one run.", STEP),
)

CHECKPOINTS = (
    Invariant("checkpoint_kind", "A CheckPoint has one of the four kinds.", MENDED),
    Invariant("checkpoint_has_its_place", "A CheckPoint names a group and a topic.", MENDED),
    Invariant("checkpoint_number_given", "A CheckPoint has a number that was given.", MENDED),
    Invariant("checkpoint_has_members", "A CheckPoint has at least one member.", MENDED),
    Invariant("checkpoint_counts_its_runs", "A CheckPoint has as many members as its runs have messages.", STEP),
    Invariant("checkpoint_runs_filled", "Each run of a CheckPoint has at least one message.", MENDED),
    Invariant("checkpoint_chunks_begin", "The first member of a CheckPoint lies in its first chunk.", MENDED),
    Invariant("checkpoint_chunks_inside", "The last chunk of a CheckPoint has a member.", MENDED),
    Invariant("checkpoint_message_groups", "In a FIFO topic each member has its message group.", STEP),
    Invariant("checkpoint_fair_keys", "Where fair keys have limits each member has its key.", STEP),
    Invariant("checkpoint_of_owner_never_in_backoff", "No owner's messages are in backoff.", MENDED),
    Invariant("attempts_counted", "The number of attempts of a message is not negative.", STEP),
    Invariant("pop_takes_no_more_than_asked", "A Pop leases no more messages than it asked for.", STEP),
    Invariant("pop_moves_on", "A Pop moves no position back.", STEP),
    Invariant("popped_message_in_a_chunk", "A message that is delivered lies in a chunk, which its lease holds.", STEP),
    Invariant("settle_ends_each_delivery", "A Settle ends as many deliveries as it names.", STEP),
)

POSITIONS = (
    Invariant("position_in_queue", "The position of a group lies between the begin and the end of its queue.", MENDED),
    Invariant("passed_is_a_sum", "A group has passed at least as much of a topic as of one queue.", COUNTED),
    Invariant("passed_within_the_ends", "A group has passed no more of a topic than was stored.", COUNTED),
    Invariant("passed_over_in_queue", "What fair keys pass out of order lies before the end of the queue.", STEP),
    Invariant("passed_ahead_of_position", "What was passed out of order lies behind the position.", MENDED),
    Invariant("floor_in_queue", "No group is past the end of a queue.", COUNTED),
    Invariant("reader_enters_once", "A group begins to read a topic once.", COUNTED),
    Invariant("reader_has_counters", "A group that reads a topic has counters there.", STORED),
    Invariant("retry_counted", "The number of a group's retry entries is not negative.", MENDED),
    Invariant("waiting_counted", "The number of a group's waiting messages is not negative.", MENDED),
    Invariant("finished_counted", "The numbers of messages that a group finished are not negative.", MENDED),
    Invariant("lite_returns_counted", "The returned messages of all lite topics are not negative.", MENDED),
    Invariant("lite_unread_counted", "The unread messages of all lite topics are not negative.", COUNTED),
    Invariant("marks_ascend", "What all groups have passed grows with time.", STORED),
    Invariant("mark_in_the_log", "What all groups have passed lies in the log.", STORED),
)

QUEUES = (
    Invariant("message_in_a_queue", "A message is stored in a queue that its topic has.", STEP),
    Invariant("ends_are_a_sum", "A topic has at least as many messages as one of its queues.", COUNTED),
    Invariant("queue_begins_before_its_end", "A queue begins at its end at the latest.", MENDED),
    Invariant("queue_entries_follow", "The messages that a commit adds to a queue have neighbouring offsets.", STEP),
    Invariant("queue_block_of_whole_entries", "A block of a queue has whole entries.", STORED),
    Invariant("queue_blocks_apart", "Blocks of a queue do not overlap.", STORED),
    Invariant("leased_message_in_its_queue", "A leased message has its entry in its queue.", STORED),
    Invariant("log_ends_before_next_position", "The log ends before the position of the next message.", MENDED),
    Invariant("numbers_ascend", "A number that was given is not given again.", STEP),
    Invariant("chunk_has_its_rows", "A chunk of the log has its records, its index block and its entries.", STORED),
    Invariant("chunk_has_the_reserved_bytes", "A chunk gets as many bytes as were reserved for it.", STEP),
    Invariant("open_chunk_bytes", "A chunk that grows has the bytes that were written into it.", STORED),
    Invariant("open_chunk_entries", "A chunk that grows has the entries that were written into it.", STORED),
    Invariant("open_chunk_continues_its_queues", "A chunk that grows goes on where its queues ended.", STORED),
    Invariant("chunk_entries_counted", "The number of entries that point into a chunk is not negative.", STORED),
    Invariant("dropped_chunk_is_free", "Retention drops no chunk into which something points.", STEP),
    Invariant("kept_record_in_its_chunk", "A record that outlives its chunk lay in it.", STEP),
    Invariant("topic_bytes_counted", "The bytes of a topic are not negative.", MENDED),
    Invariant("abandoned_counted", "The number of a topic's abandoned messages is not negative.", MENDED),
    Invariant("lite_topics_counted", "The number of a topic's lite topics is not negative.", COUNTED),
    Invariant("lite_messages_counted", "The number of messages of a topic's lite topics is not negative.", COUNTED),
    Invariant("quota_counted_by_now", "A quota was last counted before now.", COUNTED),
)

NAMES = (
    Invariant("topic_has_its_name", "A name leads to the topic that has it.", MENDED),
    Invariant("group_has_its_name", "A name leads to the group that has it.", MENDED),
    Invariant("lite_topic_has_its_name", "The name of a lite topic leads to it, and it names its parent.", STORED),
    Invariant("ids_given", "Each topic and group has an id that was given.", MENDED),
    Invariant("topic_id_new", "A new topic has an id that no topic has had.", STEP),
    Invariant("group_id_new", "A new group has an id that no group has had.", STEP),
    Invariant("topic_name_free", "A new topic has a name that no topic has.", STEP),
    Invariant("group_name_free", "A new group has a name that no group has.", STEP),
    Invariant("lite_topic_name_free", "A new lite topic has a name that no other one of its topic has.", STEP),
    Invariant("topic_has_queues", "A topic has at least one queue.", STEP),
    Invariant("queues_stay", "A topic loses no queue.", STEP),
    Invariant("removed_is_gone", "A topic or group whose rows are removed is not known any more.", STEP),
)

RETURNS = (
    Invariant("retry_entry_was_there", "A retry entry that is taken was in the retry topic.", STORED),
    Invariant("retry_number_given", "A retry entry has a number that was given.", STORED),
    Invariant("released_is_in_the_retry_topic", "A released message is in the retry topic until it is taken.", STORED),
    Invariant("released_waits_in_its_message_group", "A released message waits in its message group.", STORED),
    Invariant("message_waits_once", "A message waits in its message group once.", STORED),
    Invariant("waiting_entry_was_there", "A waiting message that is taken was waiting.", STORED),
    Invariant("message_group_leases_counted", "The number of a message group's leases is not negative.", COUNTED),
    Invariant("message_group_waiting_counted", "A message group waits with no negative number of messages.", COUNTED),
    Invariant(
        "message_group_tied_counted", "A message group has no negative number of messages tied to owners.", COUNTED
    ),
    Invariant("message_group_has_one_reader", "A message group is leased to one reader at a time.", COUNTED),
    Invariant("message_group_was_free", "A Pop takes messages of message groups that no lease locks.", COUNTED),
    Invariant("stop_was_noted", "A message group goes on after a stop that was noted.", COUNTED),
    Invariant("stopped_groups_counted", "The number of stopped message groups is not negative.", COUNTED),
    Invariant("redriven_in_its_queue", "A dead letter that is redriven is in its queue.", STEP),
    Invariant("redriven_once", "A dead letter is redriven once.", STEP),
    Invariant("redriven_counted", "The number of redriven dead letters is not negative.", MENDED),
    Invariant("fair_key_waiting_counted", "A Pop takes no more messages of a fair key than wait.", COUNTED),
    Invariant("fair_messages_counted", "A Pop takes no more messages than wait by fair key.", COUNTED),
    Invariant("fair_label_counted", "A label has as many fair keys as were added to it.", COUNTED),
    Invariant("fair_key_has_its_slot", "A fair key is found where it was put.", COUNTED),
    Invariant("fair_place_in_its_queue", "A message that waits by fair key is in its queue.", COUNTED),
    Invariant("fair_turn_of_each_message", "Each message that a Pop takes by fair key has a turn and a key.", STEP),
)

OWNERS = (
    Invariant("owner_id_new", "A new owner has an id that no owner has.", STEP),
    Invariant("owner_has_its_key", "An owner is stored under the key that leads to it.", STORED),
    Invariant("owner_has_its_name", "A name leads to the owner that has it.", STORED),
    Invariant("owners_counted", "The number of a group's owners is not negative.", COUNTED),
    Invariant("owner_leases_counted", "The number of messages that an owner holds is not negative.", COUNTED),
    Invariant("owner_loose_counted", "The number of an owner's released messages is not negative.", COUNTED),
    Invariant("generations_ascend", "The generation of an owner does not fall.", STEP),
    Invariant("acked_epochs_ascend", "The acked epoch of an owner does not fall.", STEP),
    Invariant("owner_has_its_tokens", "Each token that an owner is known to have is stored.", COUNTED),
    Invariant("token_has_its_owner", "A token belongs to the owner that is known to have it.", COUNTED),
    Invariant("token_is_sealed_once", "A token is sealed once.", STEP),
    Invariant("token_has_its_checkpoint", "A token that sealed messages has their CheckPoint.", MENDED),
    Invariant("sealed_set_has_its_lease", "A sealed set that can be read again has its lease.", STORED),
    Invariant("sealed_set_has_its_owner", "The CheckPoint of a token is of the token's owner.", STORED),
    Invariant(
        "sealed_set_keeps_its_members", "A sealed set has the number of messages with which it was sealed.", STORED
    ),
)

SENDING = (
    Invariant("first_answer_is_whole", "The first answer to a request has a place for each message.", STORED),
    Invariant("first_answer_names_a_queue", "The first answer to a request names a queue of its topic.", STORED),
    Invariant("delayed_counted", "The number of a topic's delayed messages is not negative.", MENDED),
    Invariant("delayed_number_given", "A delayed message has a number that was given.", STORED),
    Invariant("delayed_is_stored", "A delayed message that leaves was stored.", STORED),
    Invariant("delayed_is_listed", "A delayed message is in the list of its topic.", STORED),
    Invariant("delayed_never_early", "A delayed message is not delivered before its time.", STEP),
    Invariant("half_counted", "The number of a topic's half messages is not negative.", MENDED),
    Invariant("half_number_given", "A half message has a number that was given.", STORED),
    Invariant("half_checks_bounded", "A half message is checked 15 times at most.", STORED),
    Invariant("half_has_its_next_check", "A half message has the time of its next check.", STORED),
    Invariant("transaction_ends_once", "A transaction ends once.", STORED),
    Invariant("sums_over_topics", "The delayed and half messages of all topics are not negative.", COUNTED),
    Invariant("stage_number_given", "A stage has a number that was given.", STORED),
    Invariant("stage_leaves_once", "A stage is committed or dropped once.", STEP),
    Invariant("stage_block_was_there", "A block of a stage is published or dropped once.", STEP),
    Invariant(
        "published_stage_has_messages", "A stage of a committed batch has messages until all are visible.", MENDED
    ),
    Invariant("schedule_has_its_name", "A name leads to the schedule that has it.", MENDED),
    Invariant("schedule_paused_has_no_time", "A paused schedule has no next time.", MENDED),
    Invariant("schedule_goes_on", "The next time of a schedule is not before the one it had.", STEP),
    Invariant("schedule_never_early", "A schedule sends no message before its time.", STEP),
    Invariant("schedule_sends_counted", "The number of messages that a schedule sent does not fall.", STEP),
    Invariant("generation_has_its_end", "A directory of results ends with what it has.", STORED),
    Invariant("generation_reaches_on", "A directory of results reaches beyond its begin and has names.", STORED),
    Invariant("result_part_of_whole_entries", "A part of a directory of results has whole entries.", STORED),
    Invariant("result_within_its_generation", "A result lies within the directory that names it.", STORED),
)

#: By subject, as the page shows them.
SUBJECTS = {
    "Leases": LEASES,
    "CheckPoints, and what a Pop takes": CHECKPOINTS,
    "Positions and counts of groups": POSITIONS,
    "Queues and the log": QUEUES,
    "Names and ids": NAMES,
    "Retries, FIFO, dead letters, fair keys": RETURNS,
    "Owners and tokens": OWNERS,
    "Sends, delays, transactions, stages, schedules, results": SENDING,
}
INVARIANTS = tuple(one for several in SUBJECTS.values() for one in several)
BY_NAME = {one.name: one for one in INVARIANTS}
