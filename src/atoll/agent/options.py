"""What an agent is made with, and the settings of a run that come of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import config, registry, store
from ..errors import InvalidInput, ModelError, UnknownDriver
from ..policy.text import shown
from . import checks, prompts
from .limits import Limits
from .toolspec import Tool

if TYPE_CHECKING:
    pass

KINDS = ("completion", "agent")
_WISHES = ("driver", "network", "packages")


class Options(NamedTuple):
    """What an agent was made with, checked. `tools` are Python functions, `servers` MCP servers by name."""

    settings: config.Settings
    api_key: str | None
    sandbox: dict[str, Any]
    tools: tuple[Tool, ...]
    servers: dict[str, Any]
    system: str | None
    validate: checks.Check | None
    keep: bool | None


def options(
    model: str | None,
    base_url: str | None,
    api_key: str | None,
    sandbox: Any,
    tools: Iterable[Callable[..., Any] | Tool],
    mcp_servers: Mapping[str, Any] | None,
    system: str | None,
    validate: checks.Check | None,
    *,
    keep: bool | None,
    config_file: str | None,
    limits: Mapping[str, Any],
) -> Options:
    """Raises InvalidInput for what cannot be, with what to write instead."""
    from .functions import tools_of

    given = {"model": model, "base_url": base_url, **limits}
    arguments = {name: value for name, value in given.items() if value is not None}
    settings = config.load(arguments, path=config_file)
    check = validate if validate is not None else settings["validate"]
    checks.described(check)
    servers = dict(mcp_servers if mcp_servers is not None else settings["mcp_servers"])
    return Options(
        settings,
        api_key,
        _sandbox(sandbox, settings),
        tuple(tools_of(tools)),
        {**_snipara(settings), **servers},
        system,
        check,
        keep,
    )


def run_settings(
    made: Options, kind: object, prompt: object, context: Any, validate: checks.Check | None
) -> dict[str, Any]:
    """The settings of a new run, without its tools.

    Raises:
        InvalidInput: there is no prompt, or a context that is no JSON.
        ModelError: no model was chosen.
    """
    if not isinstance(prompt, str) or not prompt.strip():
        raise InvalidInput(f"The prompt is {shown(prompt)}; say what is to be done, as text.")
    if kind not in KINDS:
        raise InvalidInput(f"kind is {shown(kind)}; give one of {', '.join(KINDS)}.")
    settings = made.settings
    if not settings["model"]:
        raise ModelError(
            "No model was chosen.",
            hint='Give one, as in Agent(model="openai/gpt-4o-mini") or -m openai/gpt-4o-mini; or set ATOLL_MODEL, or '
            "`model` in an atoll.toml that is trusted.",
        )
    check = checks.described(validate if validate is not None else made.validate)
    limits = _limits(settings, kind)
    told = None if context is None else prompts.about(context)
    workspace = bool(made.sandbox.get("source") or made.sandbox.get("codebase"))
    system = prompts.system_prompt(
        kind,
        context=told,
        workspace=workspace,
        checked=check is not None,
        deeper=limits.max_depth > 1,
        more=made.system,
    )
    return {
        "prompt": prompt,
        "model": settings["model"],
        "base_url": settings["base_url"],
        "system": system,
        "limits": limits._asdict(),
        "strict_cost": _source(settings, "max_cost") != "default",
        "sandbox": made.sandbox,
        "keep": workspace if made.keep is None else made.keep,
        "validate": check,
    }


def changed(settings: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What of a run's settings is another when it goes on so.

    Raises:
        InvalidInput: a name that cannot be changed, or a value that cannot be.
    """
    changes: dict[str, Any] = {}
    limits = dict(settings["limits"])
    for name, value in wanted.items():
        if name in limits:
            limits[name] = config.check(name, value)
            changes["limits"] = limits
            if name == "max_cost":
                changes["strict_cost"] = True
        elif name in ("model", "base_url"):
            changes[name] = config.check(name, value)
        elif name == "keep":
            changes[name] = bool(value)
        else:
            known = ", ".join([*limits, "model", "base_url", "keep"])
            raise InvalidInput(f"{name} of a run cannot be changed; {known} can.")
    return changes


def _limits(settings: config.Settings, kind: str) -> Limits:
    budget = settings["agent_token_budget" if kind == "agent" else "token_budget"]
    if kind == "agent" and _source(settings, "token_budget") == "argument":
        budget = settings["token_budget"]
    names = (name for name in Limits._fields if name != "token_budget")
    return Limits(token_budget=budget, **{name: settings[name] for name in names})


def _source(settings: config.Settings, name: str) -> str:
    return next(each.source for each in settings.items() if each.name == name)


def _sandbox(given: Any, settings: config.Settings) -> dict[str, Any]:
    """The keywords of `Sandbox.create`, or the id of a sandbox that is lent to the agent."""
    id = given if isinstance(given, str) else getattr(given, "id", None)
    if isinstance(id, str) and not isinstance(given, Mapping):
        store.shared().get(id)  # raises SandboxNotFound
        return {"lent": id}
    if given is not None and not isinstance(given, Mapping):
        raise InvalidInput(
            f"sandbox is {shown(given)}; give a mapping such as {{'driver': 'jail'}}, a sandbox, or the id of one."
        )
    wishes = {name: settings[name] for name in _WISHES if settings[name]}
    if settings["memory"]:
        wishes["resources"] = {"memory": settings["memory"]}
    wishes.update(given or {})
    if wishes.get("source") is not None:
        wishes["source"] = os.path.abspath(os.fspath(wishes["source"]))
    if "packages" in wishes:
        wishes["packages"] = list(wishes["packages"])
    _check_json(wishes)
    _check_wishes(wishes)
    return wishes


def _check_wishes(wishes: dict[str, Any]) -> None:
    """Raises before a model is asked, and paid, for what could never be run."""
    from ..client.choosing import names_in
    from ..hints import meant_by
    from ..policy.spec import make_spec

    known = [*(make_spec.__kwdefaults__ or ()), "driver"]
    for name in wishes:
        if name not in known:
            meant = meant_by(str(name), known)
            guess = f" Did you mean {meant!r}?" if meant else f" There are {', '.join(known)}."
            raise InvalidInput(f"sandbox has {name!r}, which is no keyword of Sandbox.create.{guess}")
    make_spec(**{name: value for name, value in wishes.items() if name != "driver"})
    for name in names_in(wishes.get("driver")):
        if name not in registry.names():
            raise UnknownDriver(f"There is no driver {name!r}.", hint=f"There are {', '.join(registry.names())}.")
    if wishes.get("source") is not None and not os.path.isdir(wishes["source"]):
        raise InvalidInput(f"source={wishes['source']!r} is not a directory.")


def _check_json(wishes: dict[str, Any]) -> None:
    import json

    try:
        json.dumps(wishes)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"sandbox has something that cannot be written down for a later resume: {error}.",
            hint="Give plain values, as in {'resources': {'memory': '1G'}}, or make the sandbox yourself and lend it.",
        ) from None


def _snipara(settings: config.Settings) -> dict[str, Any]:
    from . import snipara

    server = snipara.server_from(os.environ, settings["snipara_project_slug"])
    return {} if server is None else {"snipara": server}
