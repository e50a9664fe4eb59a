"""A task queue with results: the caller sends numbers, and gets their sums, each kept for an hour by the broker.

popmq serve, then: python examples/results.py (Ctrl-C ends it)
"""

import threading

import popmq
from popmq.errors import ResultFailed

worker = popmq.Worker()


@worker.on("sums", group="adder")
def add(numbers: list[int]) -> popmq.Result:
    """What it returns is kept in the commit of the ack."""
    if not numbers:
        raise popmq.Reject("there is nothing to add")
    return popmq.Result({"sum": sum(numbers)})


def ask(client: popmq.Client) -> None:
    tasks = client.send("sums", [popmq.Message.json(each) for each in ([1, 2], [3, 4, 5], [])])
    results = client.results([task.message_id for task in tasks], "adder", wait="30s")
    for task in tasks:
        try:
            print(task.message_id, results[task.message_id].json())
        except ResultFailed as error:
            print(task.message_id, "failed:", error)


if __name__ == "__main__":
    with popmq.Client() as client:
        client.topics.create("sums")
        client.groups.create("adder", results_keep="1h")
        threading.Thread(target=ask, args=[client]).start()
        worker.run()
