"""Attackers by name, and the source that brings one inside: alone, it needs nothing but Python there."""

import inspect
import platform

from tests.attack.inside import crowds, hopping, instance, machine, matter, plain

_MACHINE_CODE = (
    hopping.hop, hopping.rewrite, hopping.rewrite_in_a_crowd, hopping.spoil, hopping.wait_in_vfork,
    hopping.leave_a_dead_leader,
)  # fmt: skip
_ANYWHERE = (
    hopping.exec_storm, hopping.churn, crowds.crowd, crowds.bomb, crowds.stop_each_other, crowds.trace_each_other,
    crowds.filter_calls, crowds.ask_a_supervisor, crowds.fill_pipes, crowds.say_nonsense, matter.remap,
    matter.hold_files, matter.rename, matter.dig, matter.fill, matter.search_proc,
)  # fmt: skip
_IN_WEBASSEMBLY = (
    instance.climb, instance.speak, instance.forge_state, instance.spin, instance.grow, instance.poke, instance.hoard,
    instance.lie,
)  # fmt: skip
_NATIVE = (*_MACHINE_CODE, *_ANYWHERE) if platform.machine() == "x86_64" else _ANYWHERE
NATIVE, INSTANCE = (tuple(each.__name__ for each in functions) for functions in (_NATIVE, _IN_WEBASSEMBLY))
KINDS = {function.__name__: function for function in (*_NATIVE, *_IN_WEBASSEMBLY)}

# These are after the memory of a context, or what is done to one: in a command they would be less.
IN_CONTEXTS = ("rewrite", "rewrite_in_a_crowd", "say_nonsense")

_BUNDLE = """
def begin(source):
    import sys, types, random
    for name, text in {modules!r}:
        module = sys.modules[name] = types.ModuleType(name)
        exec(compile(text, name, "exec"), module.__dict__)
        if "." in name:
            above, _, last = name.rpartition(".")
            setattr(sys.modules[above], last, module)
    if {machine!r} in sys.modules:
        sys.modules[{machine!r}].name_task({tag!r})
    plain = sys.modules[{plain!r}]
    plain.try_marker({marker!r})
    plain.try_secrets({secrets!r})
    getattr(sys.modules[{home!r}], {kind!r})(random.Random({seed!r}), dict({options!r}, source=source))
"""


def source(kind, seed, tag, marker, options, secrets=()):
    """Python that begins an attack and returns, while the attack goes on for `options["seconds"]`.

    `tag` is the name that its tasks have, `marker` the host's file that it tries to write, and `secrets` those that it
    tries to read. The same arguments give the same source.
    """
    home = inspect.getmodule(KINDS[kind])
    parts = [("tests", ""), ("tests.attack", ""), ("tests.attack.inside", ""), _text(plain)]
    parts += [_text(each) for each in dict.fromkeys([machine, home] if home is not instance else [home])]
    options = {**options, "tag": tag, "marker": marker}
    bundle = _BUNDLE.format(
        modules=parts,
        machine=machine.__name__,
        plain=plain.__name__,
        tag=tag,
        marker=marker,
        secrets=list(secrets),
        home=home.__name__,
        kind=kind,
        seed=seed,
        options=options,
    )
    return _PROGRAM % (bundle, _PROGRAM)


# It has its own text, for those that exec themselves.
_PROGRAM = """\
text, program = %r, %r
place = {}
exec(text, place)
place["begin"](program %% (text, program))
del text, program, place
"""


def as_command(text, seconds):
    """The same as a program that stays until the attack is over."""
    return ["python3", "-I", "-c", f"{text}\nimport time\ntime.sleep({seconds})\n"]


def _text(module):
    return module.__name__, inspect.getsource(module)
