"""From the keywords of `Sandbox.create` to a checked `Spec`, and from there to JSON and back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import InvalidInput, Unsupported
from ..types import Permissions, Resources, Spec
from .codebases import check_codebase
from .env import check_env
from .labels import check_labels
from .limits import check_lifetime, check_resources, check_timeout
from .names import check_name
from .paths import check_path, host_path, workspace_path
from .requirements import check_requirements
from .text import kind_of, shown

NETWORKS = ("none", "all", "host")


def make_spec(
    *,
    image: str | os.PathLike[str] | None = None,
    source: str | os.PathLike[str] | None = None,
    network: str | Iterable[str] = "none",
    resources: Resources | Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    timeout: float | None = 60.0,
    lifetime: float = 3600.0,
    workdir: str = "/workspace",
    strict: bool = False,
    packages: Iterable[str] = (),
    fallback: Iterable[str] = (),
    preset: object = None,
    permissions: object = None,
    ignore: Iterable[str] = (),
    codebase: object = None,
    snapshot: object = None,
    audit: bool = False,
    gpu: object = None,
) -> Spec:
    """A `Spec` in which every value has been checked. Nothing on disk is looked at.

    A source without rules gets those of `presets.DEFAULT`; see `permissions.chosen`.

    Raises:
        InvalidInput: a value that cannot be, with what to write instead.
        Unsupported: a keyword that is known and not there yet; it is never ignored.
    """
    _refuse_what_is_not_there(fallback=fallback, gpu=gpu)
    _check_source(source, codebase, snapshot, preset=preset, permissions=permissions, ignore=ignore)
    for name, value in (("strict", strict), ("audit", audit)):
        if not isinstance(value, bool):
            raise InvalidInput(f"{name} is {shown(value)}; give True or False.")
    return Spec(
        image=None if image is None else _image(image),
        source=None if source is None else host_path(source, "source"),
        network=_network(network),
        resources=check_resources(resources),
        env=check_env(env),
        labels=check_labels(labels),
        timeout=check_timeout(timeout),
        lifetime=check_lifetime(lifetime),
        workdir=workspace_path(workdir),
        strict=strict,
        packages=check_requirements(packages),
        permissions=None if source is codebase is snapshot is None else _permissions(preset, permissions, snapshot),
        ignore=_ignore(ignore),
        codebase=None if codebase is None else check_codebase(codebase),
        snapshot=None if snapshot is None else check_name(snapshot, "snapshot"),
        audit=audit,
    )


def spec_to_json(spec: Spec) -> dict[str, Any]:
    """The spec as an object that `json.dumps` takes."""
    value = spec._asdict()
    value["resources"] = spec.resources._asdict()
    value["env"] = dict(spec.env)
    value["labels"] = dict(spec.labels)
    if spec.permissions is not None:
        from .permissions import to_json

        value["permissions"] = to_json(spec.permissions)
    return value


def spec_from_json(value: object) -> Spec:
    """What `spec_to_json` wrote, checked again: it may come from another process or version.

    An unknown field is refused, since it may be a restriction that this version would not honour.

    Raises:
        InvalidInput: it is no spec.
    """
    if not isinstance(value, Mapping):
        raise InvalidInput(f"A stored spec is {kind_of(value)} and not an object.")
    unknown = [key for key in value if key not in Spec._fields]
    if unknown:
        raise InvalidInput(
            f"A stored spec has the field {shown(unknown[0])}, which this version of atoll does not know."
        )
    permissions = value.get("permissions")
    spec = make_spec(**{name: each for name, each in value.items() if name != "permissions"})
    if permissions is not None:
        from .permissions import from_json

        permissions = from_json(permissions)
    # What has no rules was made so.
    return spec._replace(permissions=permissions)


def _check_source(source: object, codebase: object, snapshot: object, **about: object) -> None:
    """Rules are about the files of a source: without one they would hold for nothing."""
    if source is not None and codebase is not None:
        raise InvalidInput("source= and codebase= are both given; a workspace begins with one of them.")
    for name, value in about.items():
        if value is not None and value not in ((), []) and source is codebase is snapshot is None:
            raise InvalidInput(f"{name}= is about the files of a source; give source= or codebase= too.")


# Most sandboxes have no rules, and should not wait for their modules.
def _permissions(preset: object, permissions: object, snapshot: object) -> Permissions | None:
    from .permissions import chosen

    # A snapshot has the rules of what it was made of.
    return chosen(preset, permissions, default=snapshot is None)


def _ignore(value: object) -> tuple[str, ...]:
    if value == ():
        return ()
    from .ignores import check_ignore

    return check_ignore(value)


def _image(image: object) -> str:
    """A path, where it looks like one; else a name, which only a driver can tell from a relative path."""
    if isinstance(image, str) and image and not image.startswith(("/", ".")):
        return check_path(image, "image")
    return host_path(image, "image")


def with_image_as_path(spec: Spec) -> Spec:
    """The spec for a driver to which every image is a path. Raises InvalidPath."""
    return spec if spec.image is None else spec._replace(image=host_path(spec.image, "image"))


def _network(network: object) -> str:
    if isinstance(network, str):
        if network not in NETWORKS:
            raise InvalidInput(f"network is {shown(network)}; give 'none', 'all' or 'host'.")
        return network
    if isinstance(network, Iterable):
        raise Unsupported("A list of allowed hosts as network is not there yet; give 'none', 'all' or 'host'.")
    raise InvalidInput(f"network is {kind_of(network)}; give 'none', 'all' or 'host'.")


def _refuse_what_is_not_there(**values: object) -> None:
    for name, value in values.items():
        if value is not None and value not in ((), [], {}):
            raise Unsupported(f"{name}= is not there yet; leave it out.")
