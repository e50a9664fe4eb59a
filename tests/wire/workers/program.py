"""`popmq serve --engine rocketmq --workers N` with the second engine in its workers, and no cluster.

python -m tests.wire.workers.program serve …     the supervisor
python -m tests.wire.workers.program worker      what it starts
"""

import sys

from popmq_server import __main__ as serve
from popmq_server.clock import FakeClock
from popmq_server.errors import StartError
from popmq_server.options import Options
from popmq_server.process.engines import FACTORIES
from popmq_server.process.workers import worker, workers
from tests.wire.served import StubLife

PROGRAM = (sys.executable, "-c", "import sys; from tests.wire.workers.program import main; sys.exit(main())")
SERVE = (*PROGRAM, "serve")
#: While this file is beside the secret of the handles, no worker starts.
BROKEN = "broken"


def life(options: Options, *_: object) -> StubLife:
    assert options.handle_secret
    if options.handle_secret.with_name(BROKEN).exists():
        raise StartError("this cluster is broken: name another")
    return StubLife(FakeClock())


def main() -> int:
    FACTORIES["rocketmq"] = life
    if sys.argv[1] == "worker":
        return worker.main()
    workers.PROGRAM = (*PROGRAM, "worker")
    return serve.main(sys.argv[2:])
