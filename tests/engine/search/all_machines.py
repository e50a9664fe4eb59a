"""All random machines."""

from hypothesis.stateful import RuleBasedStateMachine

from tests.engine.search.machines import Aged, Everything, Forgetful, Moved, Ordered, Plain, Sinks, Timed
from tests.engine.search.sides.machine_fair import Fair
from tests.engine.search.sides.machine_full import Full
from tests.engine.search.sides.machine_lites import LiteLives
from tests.engine.search.sides.machine_results import Results
from tests.engine.search.sides.machine_schedules import Scheduled

#: Machines, and how many examples of each are searched when time is short.
MACHINES: dict[type[RuleBasedStateMachine], int] = {
    Plain: 15,
    Ordered: 20,
    Timed: 15,
    Moved: 15,
    Sinks: 12,
    Everything: 15,
    Forgetful: 12,
    Aged: 8,
    LiteLives: 15,
    Results: 15,
    Scheduled: 4,
    Fair: 12,
    Full: 4,
}
