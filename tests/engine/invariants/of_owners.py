"""Owners and tokens, broken."""

from typing import Any

from popmq_server.contract import commands as ask
from popmq_server.contract.operations import Operation
from popmq_server.embedded.state import owners
from popmq_server.embedded.store.keys import hash16
from popmq_server.values.records import Owner
from tests.engine.invariants.breaking import Scene, breaks
from tests.engine.rig import MINUTE, sealing

ACK_UP_TO = ask.AckUpTo("g", "o", 1, 1)


def owner_of(scene: Scene) -> Owner:
    return scene.state.owners[scene.group, hash16("o")]


def token(scene: Scene, **fields: Any) -> None:
    """Changes the token in memory."""
    (key, _), *_ = scene.state.tokens.items()
    scene.count(scene.state.tokens, key, **fields)


@breaks("owner_id_new")
def _(scene: Scene) -> Operation[Any]:
    scene.rig.pair()
    scene.state.owner_keys.load(scene.state.counters[""].entity, (scene.group, b""))
    return ask.AttachOwner("g", "o", MINUTE)


@breaks("owner_has_its_key")
def _(scene: Scene) -> None:
    scene.sealed("a")
    scene.count(scene.state.owners, (scene.group, hash16("o")), owner_id=99)
    scene.rig.skip(MINUTE)


@breaks("owner_has_its_key")
def _(scene: Scene) -> Operation[Any]:
    scene.sealed("a")
    other = owner_of(scene)._replace(owner_id=99)
    return scene.step(lambda tx: owners.put(tx, other))


@breaks("owner_has_its_name")
def _(scene: Scene) -> Operation[Any]:
    scene.sealed("a")
    scene.count(scene.state.owners, (scene.group, hash16("o")), name="other")
    return ask.RenewOwner("g", "o", 1, MINUTE)


@breaks("owners_counted")
def _(scene: Scene) -> Operation[Any]:
    scene.sealed("a")
    scene.clear(scene.state.owner_count)
    return scene.step(lambda tx: owners.forget(tx, owner_of(scene)))


@breaks("owner_leases_counted")
def _(scene: Scene) -> Operation[Any]:
    scene.sealed("a")
    scene.clear(scene.state.owned)
    return ACK_UP_TO


@breaks("owner_loose_counted")
def _(scene: Scene) -> Operation[Any]:
    scene.sealed("a")
    scene.rig.advance(MINUTE)
    scene.clear(scene.state.loose)
    return ACK_UP_TO


@breaks("generations_ascend")
def _(scene: Scene) -> Operation[Any]:
    scene.sealed("a")
    return scene.step(lambda tx: owners.put(tx, owner_of(scene)._replace(generation=0)))


@breaks("acked_epochs_ascend")
def _(scene: Scene) -> Operation[Any]:
    scene.sealed("a")
    scene.rig.ack_up_to(5)
    return scene.step(lambda tx: owners.put(tx, owner_of(scene)._replace(acked_epoch=4)))


@breaks("owner_has_its_tokens")
def _(scene: Scene) -> Operation[Any]:
    scene.sealed("a")
    scene.clear(scene.state.tokens)
    return ACK_UP_TO


@breaks("token_has_its_owner")
def _(scene: Scene) -> Operation[Any]:
    scene.sealed("a")
    token(scene, owner_id=99)
    return ACK_UP_TO


@breaks("token_has_its_owner")
def _(scene: Scene) -> Operation[Any]:
    scene.rig.pair()
    scene.rig.attach()
    scene.rig.seal(1)
    token(scene, owner_id=99, ck_id=1)
    scene.bug(owners, "checkpoint_of", lambda right, *_: None)
    return sealing(1)


@breaks("token_is_sealed_once")
def _(scene: Scene) -> Operation[Any]:
    scene.sealed("a")
    (known, *_), *_ = [scene.state.tokens.items()]
    return scene.step(lambda tx: owners.seal(tx, *known))


@breaks("token_has_its_checkpoint")
def _(scene: Scene) -> Operation[Any]:
    scene.sealed("a")
    scene.empty("ck")
    return ACK_UP_TO


@breaks("sealed_set_has_its_lease")
def _(scene: Scene) -> Operation[Any]:
    scene.sealed("a")
    scene.change("due", lambda _: None, -1)
    return sealing(1)


@breaks("sealed_set_has_its_owner")
def _(scene: Scene) -> Operation[Any]:
    scene.sealed("a")
    scene.checkpoint(owner_id=99)
    return ACK_UP_TO


@breaks("sealed_set_keeps_its_members")
def _(scene: Scene) -> Operation[Any]:
    scene.sealed("a")
    token(scene, members=9)
    return sealing(1)
