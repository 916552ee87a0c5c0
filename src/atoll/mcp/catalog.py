"""The tools: what a client is told about each, and where its code is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from . import revisions
from .desk import Desk, Outcome
from .outputs import OUTPUTS
from .settings import MAX_TIMEOUT, PROFILES, WALLS, Settings

Schema = dict[str, Any]
Handler = Callable[[Desk, dict[str, Any]], Outcome]


class Tool(NamedTuple):
    """`home` is the module of its function, which has its name. The flags are MCP's annotations."""

    title: str
    description: str
    properties: Mapping[str, Schema]
    home: str
    required: tuple[str, ...] = ()
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False


def _text(description: str, **more: Any) -> Schema:
    return {"type": "string", "description": description, **more}


_SESSION = _text(
    "Which session: a sandbox with its own files and variables. A new name makes a new one.", default="default"
)
_EXISTING = _text("Which session.", default="default")
_CONTEXT = _text("Which Python process of the session; each has its own variables.", default="main")
_PATH = _text("A path inside the session, absolute or relative to /workspace.")
_LIMITS = {
    "timeout": {
        "type": "number",
        "description": f"Seconds until it is stopped with all that it started; at most {MAX_TIMEOUT:.0f}.",
    },
    "profile": _text(
        "How long it may take, where timeout is not given: "
        + ", ".join(f"{name} {limit:.0f} s" for name, limit in PROFILES.items())
        + ".",
        enum=list(PROFILES),
        default="default",
    ),
}
_MAKING = {
    "environment": _text("The wall of a new session; the server's own unless given.", enum=list(WALLS)),
    "source": _text("For a new session: a directory of the host to begin with, if the server's owner allows it."),
}
_RUN_ID = _text("The id that agent_run gave.")

TOOLS: dict[str, Tool] = {
    "execute_python": Tool(
        "Run Python",
        "Run Python in a sandboxed session. Variables, imports and functions stay for the next call. The value of the "
        "last expression is the result; figures come as images. Code that raises gives its traceback.",
        {"code": _text("The code."), "session_id": _SESSION, "context": _CONTEXT, **_LIMITS, **_MAKING},
        "execute",
        ("code",),
        destructive=True,
        open_world=True,
    ),
    "run_command": Tool(
        "Run a shell command",
        "Run a command with bash (else sh) in a sandboxed session, starting in /workspace. Gives exit code and output.",
        {
            "command": _text("The command, as for bash -c."),
            "session_id": _SESSION,
            "stdin": _text("What it reads."),
            "workdir": _text("Where it starts.", default="/workspace"),
            **_LIMITS,
            **_MAKING,
        },
        "commands",
        ("command",),
        destructive=True,
        open_world=True,
    ),
    "install_packages": Tool(
        "Install Python packages",
        "Install Python packages from the package index in a session, for its execute_python and run_command. Works "
        "without a network: wheels are fetched outside, and no code of theirs runs there.",
        {
            "packages": {
                "type": "array",
                "items": {"type": "string"},
                "description": "What to install, as pip takes it: pandas, numpy>=2, uvicorn[standard]==0.30.*",
            },
            "session_id": _SESSION,
        },
        "installing",
        ("packages",),
        idempotent=True,
        open_world=True,
    ),
    "get_repl_context": Tool(
        "Look at variables",
        "The Python variables of a session: all of them in short, or the value of one as JSON.",
        {
            "session_id": _EXISTING,
            "context": _CONTEXT,
            "name": _text("Give the value of this one. Without it all are listed, with type and size."),
        },
        "variables",
        read_only=True,
        idempotent=True,
    ),
    "set_repl_context": Tool(
        "Set variables",
        "Give Python variables of a session values, without running code.",
        {
            "name": _text("The variable. Or give `variables`."),
            "value": {"description": "Any JSON value."},
            "variables": {"type": "object", "description": "Several at once: names and their values."},
            "session_id": _SESSION,
            "context": _CONTEXT,
        },
        "variables",
        idempotent=True,
    ),
    "clear_repl_context": Tool(
        "Clear variables",
        "Forget the Python variables of a session: a fresh Python process takes the place of the old one, and all "
        "that it had started ends. Files stay. With names, only those variables are forgotten.",
        {
            "session_id": _EXISTING,
            "context": _CONTEXT,
            "names": {"type": "array", "items": {"type": "string"}, "description": "Only these variables."},
        },
        "variables",
        destructive=True,
        idempotent=True,
    ),
    "list_sessions": Tool(
        "List sessions",
        "The sessions that exist, also those of earlier runs of this server, newest first.",
        {},
        "sessiontools",
        read_only=True,
        idempotent=True,
    ),
    "destroy_session": Tool(
        "Destroy a session",
        "End a session, with its files, variables, snapshots and all that runs in it.",
        {"session_id": _text("Which session.")},
        "sessiontools",
        ("session_id",),
        destructive=True,
        idempotent=True,
    ),
    "read_file": Tool(
        "Read a file",
        "The content of a file of a session. Text comes as text, pictures as images, anything else as base64.",
        {
            "path": _PATH,
            "session_id": _EXISTING,
            "offset": {"type": "integer", "minimum": 0, "maximum": 1 << 60, "description": "Bytes to skip.",
                       "default": 0},
            "size": {"type": "integer", "minimum": 0, "maximum": 1 << 60, "description": "Bytes to read at most."},
        },
        "files",
        ("path",),
        read_only=True,
        idempotent=True,
    ),
    "write_file": Tool(
        "Write a file",
        "Write a file in a session. Missing directories are made; an old content is replaced when the new one is "
        "whole.",
        {
            "path": _PATH,
            "content": _text("The content."),
            "session_id": _SESSION,
            "encoding": _text("How content is written.", enum=["utf-8", "base64"], default="utf-8"),
            "append": {"type": "boolean", "description": "Add to the end instead.", "default": False},
        },
        "files",
        ("path", "content"),
        destructive=True,
        idempotent=True,
    ),
    "list_files": Tool(
        "List files",
        "The entries of a directory of a session.",
        {
            "path": _text("The directory.", default="."),
            "session_id": _EXISTING,
            "recursive": {"type": "boolean", "description": "All that is below, too.", "default": False},
        },
        "files",
        read_only=True,
        idempotent=True,
    ),
    "snapshot": Tool(
        "Keep a snapshot",
        "Keep the files and Python variables of a session as they are now, for rollback and fork.",
        {"name": _text("What to call it; a name is made up unless given."), "session_id": _EXISTING},
        "history",
    ),
    "fork": Tool(
        "Fork a session",
        "Make a new session that goes on where another one is, with its files and Python variables. What one does "
        "from then on, the other does not see.",
        {
            "session_id": _EXISTING,
            "new_session_id": _text("What the new session is called; a name is made up unless given."),
            "snapshot": _text("Begin with this snapshot of the session, instead of how it is now."),
        },
        "history",
    ),
    "rollback": Tool(
        "Roll back",
        "Have the files and Python variables of a session as in one of its snapshots. All that runs in it ends.",
        {"name": _text("The snapshot."), "session_id": _EXISTING},
        "history",
        ("name",),
        destructive=True,
        idempotent=True,
    ),
    "diff": Tool(
        "Show changes",
        "What a session has changed of the directory that it was made over.",
        {
            "session_id": _EXISTING,
            "paths": {"type": "array", "items": {"type": "string"}, "description": "Only these, and what is below."},
        },
        "review",
        read_only=True,
        idempotent=True,
    ),
    "apply": Tool(
        "Apply changes",
        "Take over what a session has changed into the directory that it was made over. Only where the server's owner "
        "allows it.",
        {
            "session_id": _EXISTING,
            "paths": {"type": "array", "items": {"type": "string"}, "description": "Only these, and what is below."},
            "on_conflict": _text(
                "For paths that have changed in the directory, too: ask applies nothing, keep keeps what the directory "
                "has, take takes what the session has.",
                enum=["ask", "keep", "take"],
                default="ask",
            ),
        },
        "review",
        destructive=True,
        open_world=True,
    ),
    "agent_run": Tool(
        "Start an agent",
        "Have a model work on a task in a sandbox of its own, in the background. Needs a model that the server's owner "
        "has configured.",
        {
            "task": _text("What to do."),
            "max_iterations": {"type": "integer", "minimum": 1, "maximum": 50, "description": "Rounds at most."},
            "token_budget": {"type": "integer", "minimum": 1, "maximum": 10_000_000, "description": "Tokens at most."},
            "max_cost": {"type": "number", "minimum": 0, "maximum": 10, "description": "US dollars at most."},
            "validate": _text("A command that is run in the sandbox; the answer counts only when it exits with 0."),
        },
        "agents",
        ("task",),
        destructive=True,
        open_world=True,
    ),
    "agent_status": Tool(
        "Look at an agent",
        "How far a run of agent_run is, and its answer once it has one.",
        {"id": _RUN_ID},
        "agents",
        ("id",),
        read_only=True,
        idempotent=True,
    ),
    "agent_cancel": Tool(
        "Cancel an agent",
        "End a run of agent_run. What it has done so far is kept.",
        {"id": _RUN_ID},
        "agents",
        ("id",),
        destructive=True,
        idempotent=True,
    ),
}  # fmt: skip

_ECHO = Tool("Echo", "Gives back its text. For measuring.", {"text": _text("The text.")}, "", read_only=True)
_handlers: dict[str, Handler] = {}


def offered(settings: Settings) -> dict[str, Tool]:
    tools = TOOLS if settings.install else {name: tool for name, tool in TOOLS.items() if name != "install_packages"}
    return {**tools, "echo": _ECHO} if settings.echo else tools


def schemas(settings: Settings) -> dict[str, Schema]:
    """The schema of the arguments of every tool."""
    return {name: _input(tool) for name, tool in offered(settings).items()}


def listing(settings: Settings, revision: str) -> list[dict[str, Any]]:
    """What `tools/list` says, without what the revision does not know."""
    return [_described(name, tool, revision) for name, tool in offered(settings).items()]


def handler(name: str) -> Handler:
    """The function of a tool, imported when it is first called."""
    found = _handlers.get(name)
    if found is None:
        from importlib import import_module

        found = getattr(import_module(f"{__package__}.{TOOLS[name].home}"), name)
        _handlers[name] = found
    return found


def _input(tool: Tool) -> Schema:
    schema: Schema = {"type": "object", "properties": dict(tool.properties), "additionalProperties": False}
    if tool.required:
        schema["required"] = list(tool.required)
    return schema


def _described(name: str, tool: Tool, revision: str) -> dict[str, Any]:
    said: dict[str, Any] = {"name": name, "description": tool.description, "inputSchema": _input(tool)}
    if revisions.has_annotations(revision):
        said["annotations"] = {
            "title": tool.title,
            "readOnlyHint": tool.read_only,
            "destructiveHint": tool.destructive,
            "idempotentHint": tool.idempotent,
            "openWorldHint": tool.open_world,
        }
    if revisions.has_structure(revision):
        said["title"] = tool.title
        said["outputSchema"] = OUTPUTS[name]
    return said
