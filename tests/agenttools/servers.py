"""MCP servers for tests, each a program: `python servers.py KIND [WORD ...]`."""

import json
import os
import sys
import time

PNG = "iVBORw0KGgo="  # how every such image begins


def say(text, stream=None):
    stream = stream or sys.stdout
    stream.write(f"{text}\n")
    stream.flush()


def honest():
    import anyio
    from mcp.server import MCPServer
    from mcp_types import ImageContent, TextContent, ToolAnnotations

    server = MCPServer("honest")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool(annotations=ToolAnnotations(idempotent_hint=True))
    def put(key: str) -> str:
        return f"put {key}"

    @server.tool()
    def environment() -> dict[str, str]:
        return dict(os.environ)

    @server.tool()
    def picture() -> list[TextContent | ImageContent]:
        return [TextContent(type="text", text="here"), ImageContent(type="image", data=PNG, mime_type="image/png")]

    @server.tool()
    def fail(why: str) -> str:
        raise ValueError(why)

    @server.tool()
    async def meet(count: int) -> int:
        """Answers when so many have called it."""
        nonlocal waiting
        waiting += 1
        while waiting < count:  # noqa: ASYNC110 - the others come when they come
            await anyio.sleep(0.005)
        return waiting

    @server.tool()
    def pid() -> int:
        return os.getpid()

    @server.tool()
    def large(size: int) -> str:
        return "x" * size

    waiting = 0
    return server


def stdio():
    honest().run("stdio")


def http(port_file):
    import socket

    import uvicorn

    app = honest().streamable_http_app()
    guard = GuardedByKey(app)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    with open(f"{port_file}.new", "w") as file:
        file.write(str(listening.getsockname()[1]))
    listening.listen()
    os.rename(f"{port_file}.new", port_file)
    uvicorn.Server(uvicorn.Config(guard, log_level="error")).run(sockets=[listening])


class GuardedByKey:
    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http" and dict(scope["headers"]).get(b"x-api-key") != b"sesame-open":
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"no"})
            return
        await self.app(scope, receive, send)


def messages():
    for line in sys.stdin:
        yield json.loads(line)


def answer(message, **parts):
    say(json.dumps({"jsonrpc": "2.0", "id": message["id"], **parts}))


def greet(message):
    """Whether it was one of the messages of a handshake, which were answered."""
    if message["method"] == "initialize":
        about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
        answer(message, result={**about, "serverInfo": {"name": "raw", "version": "1"}})
        return True
    if message["method"] == "server/discover":
        answer(message, error={"code": -32601, "message": "unknown"})
        return True
    return "id" not in message


def raw(tools, calls="{}"):  # noqa: C901, PLR0912 - one evil after the other
    """Lists what it is told to; a call gives what it is told to, or does something bad."""
    tools, calls = json.loads(tools), json.loads(calls)
    for message in messages():
        if greet(message):
            continue
        if message["method"] == "tools/list":
            answer(message, result=tools)
            continue
        told = calls[message["params"]["name"]]
        if told == "endless line":
            while True:
                sys.stdout.write("x" * 65536)
        elif told == "noise":
            note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
            for number in range(5000):
                say(f"chatter {number}", sys.stderr)
                say(f"not json {number}")
                say(json.dumps(note))
            answer(message, result={"content": [{"type": "text", "text": "quiet again"}]})
        elif told == "pings unread":
            number = 0
            while True:
                number += 1
                say(json.dumps({"jsonrpc": "2.0", "id": f"p{number}", "method": "ping"}))
        elif told == "pings":
            for number in range(300):
                say(json.dumps({"jsonrpc": "2.0", "id": f"p{number}", "method": "ping"}))
                assert "result" in json.loads(sys.stdin.readline())
            answer(message, result={"content": [{"type": "text", "text": "300 answered"}]})
        elif told in ("endless notes", "endless chatter", "endless blanks"):
            note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}
            while True:
                say({"endless notes": json.dumps(note), "endless chatter": "chatter", "endless blanks": ""}[told])
        elif told == "many values":
            answer(message, result={"content": [], "structuredContent": {"a": [0] * 250_000}})
        elif told == "many commas":
            answer(message, result={"content": [{"type": "text", "text": 'a,"b",\\' * 100_000}]})
        elif told == "many parts":
            answer(message, result={"content": [{"type": "text", "text": "x"}] * 1500})
        elif told == "hang":
            pass
        elif told == "crash":
            say("the disk is on fire", sys.stderr)
            raise SystemExit(3)
        elif told == "strangers":
            answer({"id": 987654}, result={"content": []})
            answer({"id": "x"}, error={"code": 1, "message": "?"})
            answer(message, result={"content": [{"type": "text", "text": "mine"}]})
        else:
            answer(message, **told)


def raw_of_file(path):
    with open(path) as file:
        raw(file.read())


def endless_pages():
    for message in messages():
        if not greet(message):
            answer(message, result={"tools": [], "nextCursor": "again"})


def mute():
    say("I say nothing", sys.stderr)
    sys.stdin.read()


def deaf(pid_file):
    """Does not end by itself, whatever it is told, and has a child that does not either."""
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = os.fork()
    if child == 0:
        os.close(1)
        while True:
            time.sleep(3600)
    with open(pid_file, "w") as file:
        file.write(f"{os.getpid()} {child}")
    raw('{"tools": []}')
    while True:
        time.sleep(3600)


def leaves_a_child(pid_file):
    child = os.fork()
    if child == 0:
        while True:
            time.sleep(3600)
    with open(pid_file, "w") as file:
        file.write(str(child))
    raw('{"tools": []}')


def leaves_a_daemon(pid_file):
    """It is in a session of its own, and its parent is gone: nothing of it tells where it came from."""
    middle = os.fork()
    if middle == 0:
        os.setsid()
        daemon = os.fork()
        if daemon == 0:
            for stream in (0, 1, 2):
                os.close(stream)
            while True:
                time.sleep(3600)
        with open(pid_file, "w") as file:
            file.write(f"{os.getppid()} {daemon}")
        os._exit(0)
    os.waitpid(middle, 0)
    raw('{"tools": []}')


def broken():
    say(f"cannot open /etc/thing; my key is {os.environ.get('THING_API_KEY')}", sys.stderr)
    raise SystemExit(2)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
