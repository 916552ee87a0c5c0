"""Refuses what a wall does not offer: fields of a spec, and calls on a sandbox, by one table each.

Drivers check nothing of this: a field that a wall has never heard of must not depend on its remembering to refuse it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import Unsupported
from ..types import Capability, Offers, Spec

FIELDS: Mapping[str, Capability] = {
    "image": Capability.IMAGE,
    "source": Capability.SOURCE,
    "packages": Capability.PACKAGES,
    "ignore": Capability.PERMISSIONS,
    "codebase": Capability.REVIEW,
    "snapshot": Capability.SNAPSHOT,
    "audit": Capability.AUDIT,
    "resources": Capability.LIMITS,
    "strict": Capability.LIMITS,
}
"""What a field of a spec takes that says something else than its default."""

NETWORKS = {
    "none": Capability.NETWORK_NONE,
    "all": Capability.NETWORK_ALL,
    "host": Capability.NETWORK_HOST,
}

OPERATIONS: Mapping[str, Capability] = {
    "exec": Capability.COMMANDS,
    "session": Capability.COMMANDS,
    "open_session": Capability.COMMANDS,
    "code": Capability.CODE,
    "create_context": Capability.CODE,
    "watch": Capability.WATCH,
}
"""What an operation of the guest takes. The others are asked of every guest."""

_WORDS = {
    Capability.COMMANDS: "cannot run commands",
    Capability.CODE: "cannot run code",
    Capability.PTY: "has no terminals",
    Capability.WATCH: "cannot watch files",
    Capability.NETWORK_NONE: "cannot take the network away",
    Capability.NETWORK_ALL: "has no network of its own to give",
    Capability.NETWORK_HOST: "cannot give the host's network",
    Capability.LIMITS: "cannot hold limits",
    Capability.LIFETIME: "cannot change a lifetime",
    Capability.SOURCE: "cannot begin with a source",
    Capability.IMAGE: "cannot begin with an image",
    Capability.PAUSE: "cannot pause",
    Capability.STOP: "cannot keep a sandbox beyond its end",
    Capability.METRICS: "has no metrics",
    Capability.PACKAGES: "cannot install packages",
    Capability.PERMISSIONS: "has no path permissions",
    Capability.LIVE_RULES: "cannot change the rules of a sandbox that runs",
    Capability.REVIEW: "cannot show changes",
    Capability.SNAPSHOT: "has no snapshots",
    Capability.FORK: "cannot fork",
    Capability.AUDIT: "cannot tell what the kernel refuses",
}
_HINTS = {
    Capability.SOURCE: "Leave it out, and copy files in with sandbox.files.upload(); or use another driver.",
    Capability.NETWORK_NONE: "Say which network it may have (network=), or use another driver.",
}
_OTHERWISE = "Leave it out, or use another driver; `atoll providers` lists what each can do."


def demand(wall: str, offers: Offers, capability: Capability, what: str = "") -> None:
    """Raises Unsupported where a wall does not offer this; `what` names the keyword that wants it."""
    if capability in offers.capabilities:
        return
    reason, hint = offers.reasons.get(capability, (None, None))
    refused = f"The {wall} driver {_WORDS.get(capability, f'has no {capability.value}')}"
    raise Unsupported(
        reason or f"{refused}{f' ({what})' if what else ''}.", hint=hint or _HINTS.get(capability, _OTHERWISE)
    )


def check_spec(wall: str, offers: Offers, spec: Spec, chosen: Iterable[str] = ()) -> None:
    """Refuse what a spec asks for and a wall does not offer; `chosen` are the keywords that the caller gave.

    What has no wall at all lets the network be that nobody asked for: everybody gets "none" who says nothing.

    Raises:
        Unsupported: the message names the field.
    """
    plain = Spec()
    for field, capability in FIELDS.items():
        if getattr(spec, field) != getattr(plain, field):
            demand(wall, offers, capability, f"{field}=")
    if spec.network != "none" or Capability.ISOLATION in offers.capabilities:
        demand(wall, offers, NETWORKS[spec.network], f"network={spec.network!r}")
    if spec.permissions is not None and Capability.PERMISSIONS not in offers.capabilities:
        named = {"preset", "permissions"} & set(chosen)
        reason, hint = offers.reasons.get(Capability.PERMISSIONS, (f"The {wall} driver has no path permissions.", None))
        raise Unsupported(
            f"{reason.rstrip('.')}: it cannot hold code to the rules for a source"
            f"{'' if named else f' (without others, those of the preset {spec.permissions.name})'}.",
            hint=hint
            or 'Say preset="full-access" (--preset full-access) to have it see and change all of its copy, or take '
            "the jail.",
        )


def check_operation(wall: str, offers: Offers, request: Mapping[str, Any]) -> None:
    """Raises Unsupported for an operation of the guest that a wall does not offer."""
    capability = OPERATIONS.get(str(request.get("op")))
    if capability is not None and capability not in offers.capabilities:
        demand(wall, offers, capability)
    if request.get("pty") is not None and Capability.PTY not in offers.capabilities:
        demand(wall, offers, Capability.PTY)


def narrowed(offers: Offers, without: Iterable[Capability], reason: str, hint: str | None) -> Offers:
    """Offers without some capabilities, for a reason that who asks for them is told."""
    lost = frozenset(without)
    reasons = {**offers.reasons, **dict.fromkeys(lost, (reason, hint))}
    return offers._replace(capabilities=offers.capabilities - lost, reasons=reasons)


def to_json(offers: Offers) -> dict[str, Any]:
    """The offers as an object that `json.dumps` takes."""
    return {
        "capabilities": sorted(capability.value for capability in offers.capabilities),
        "names_images": offers.names_images,
        "reasons": {capability.value: list(said) for capability, said in offers.reasons.items()},
    }


def from_json(value: Mapping[str, Any]) -> Offers:
    """What `to_json` wrote, of a newer version, too: a capability that this one does not know is left out."""
    known = {capability.value: capability for capability in Capability}
    reasons = {known[name]: (str(said[0]), said[1]) for name, said in value.get("reasons", {}).items() if name in known}
    return Offers(
        frozenset(known[name] for name in value.get("capabilities", ()) if name in known),
        bool(value.get("names_images", False)),
        reasons,
    )
