"""The task of a campaign on Django, in a module of its own: a worker imports it by its name. Settings come before."""

from popmq_integrations.django.seam import task
from tests.integrations.campaign.adapters import note


@task()
def campaign(number, due):  # type: ignore[no-untyped-def]
    note(number, due)
    return number
