"""Path rules as the prose has them: segment by segment, one character after the other, slow and without any `re`."""

from __future__ import annotations

KINDS = ("file", "directory", "glob")


def names_of(text):
    return [name for name in text.split("/") if name not in ("", ".")]


def tokens_of(name):
    """The characters and wildcards of one name: a str stands for itself, a tuple is a wildcard."""
    found = []
    while name:
        if name[0] == "*":
            rest = name.lstrip("*")
            found.append(("*",) if len(name) - len(rest) == 1 else ("**",))
            name = rest
        elif name[0] == "?":
            found.append(("?",))
            name = name[1:]
        elif name[0] == "[":
            wanted = name[1] not in "!^"
            start = 1 if wanted else 2
            end = name.index("]", start + 1)
            found.append(("[", wanted, name[start:end]))
            name = name[end + 1 :]
        elif name[0] == "\\":
            found.append(name[1])
            name = name[2:]
        else:
            found.append(name[0])
            name = name[1:]
    return found


def spellings(segments):
    """`x**y` inside a name is `x*y`, or `x*/**/*y`: every way to write the segments with `**` only on its own."""
    if not segments:
        yield []
        return
    first, *rest = segments
    for tail in spellings(rest):
        if ("**",) in first and len(first) > 1:
            at = first.index(("**",))
            left, right = first[:at], first[at + 1 :]
            yield from spellings([[*left, ("*",), *right], *tail])
            yield from spellings([[*left, ("*",)], [("**",)], [("*",), *right], *tail])
        else:
            yield [first, *tail]


def in_set(character, members):
    if len(members) >= 3 and members[1] == "-":
        return members[0] <= character <= members[2] or in_set(character, members[3:])
    return bool(members) and (character == members[0] or in_set(character, members[1:]))


def name_matches(tokens, name):
    if not tokens:
        return not name
    first, *rest = tokens
    if first == ("*",):
        return any(name_matches(rest, name[skipped:]) for skipped in range(len(name) + 1))
    if not name:
        return False
    if isinstance(first, str):
        fits = first == name[0]
    elif first == ("?",):
        fits = True
    else:
        fits = in_set(name[0], first[2]) == first[1]
    return fits and name_matches(rest, name[1:])


def names_match(segments, names):
    if not segments:
        return not names
    first, *rest = segments
    if first == [("**",)]:
        return any(names_match(rest, names[skipped:]) for skipped in range(len(names) + 1))
    return bool(names) and name_matches(first, names[0]) and names_match(rest, names[1:])


def glob_names(pattern, names):
    """Whether a glob is about exactly this path."""
    segments = [tokens_of(name) for name in names_of(pattern)]
    if pattern == "*":
        return True
    if "/" not in pattern.rstrip("/") and segments:
        segments = [[("**",)], *segments]
    return any(names_match(spelling, names) for spelling in spellings(segments))


def holds_below(rule):
    if rule.level == "none" or rule.kind == "directory":
        return True
    if rule.kind == "file":
        return False
    last = names_of(rule.pattern)[-1:]
    return rule.pattern == "*" or rule.pattern.endswith("/") or last != ["*"]


def is_about(rule, names):
    if rule.kind == "glob":
        return glob_names(rule.pattern, names)
    return names_of(rule.pattern) == names


def matches(rule, path):
    names = path.split("/") if path else []
    above = range(len(names)) if holds_below(rule) else ()
    return is_about(rule, names) or any(is_about(rule, names[:count]) for count in above)


def specificity(rule):
    """(has no literal character, wildcards, minus the literal characters): smaller is more specific."""
    names = names_of(rule.pattern)
    if rule.kind != "glob":
        literal = sum(map(len, names))
        return literal == 0, 0, -literal
    segments = [tokens_of(name) for name in names]
    # Several `**/` in a row are one.
    segments = [each for at, each in enumerate(segments) if at == 0 or each != [("**",)] or each != segments[at - 1]]
    if len(segments) > 1 and segments[0] == [("**",)]:
        segments = segments[1:]
    tokens = [token for segment in segments for token in segment]
    literal = sum(isinstance(token, str) for token in tokens)
    return literal == 0, len(tokens) - literal, -literal


def winner(rules, path):
    matching = [(-rule.priority, KINDS.index(rule.kind), specificity(rule), -at, rule)
                for at, rule in enumerate(rules) if matches(rule, path)]  # fmt: skip
    return min(matching)[-1] if matching else None


def level(rules, path):
    rule = winner(rules, path)
    return "none" if rule is None else rule.level
