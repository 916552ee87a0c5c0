"""From the name of a model to the server that has it, and the key that may be sent there. Pure: the environment is
given."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from ..errors import InvalidInput, ModelError
from ..http.address import Address, default_port
from .providers import PROVIDERS, Provider, meant

if TYPE_CHECKING:
    from collections.abc import Mapping


class Key:
    """A secret that no repr, log or error shows."""

    __slots__ = ("_text", "source")

    def __init__(self, text: str, source: str) -> None:
        self.source = source
        self._text = text.strip()
        if not self._text.isascii() or not self._text.isprintable() or " " in self._text:
            raise InvalidInput(f"The API key in {source} has characters that no key has: was something else pasted?")

    def reveal(self) -> str:
        return self._text

    def hidden_in(self, text: str) -> str:
        """A text without the key."""
        return text.replace(self._text, "***")

    def __repr__(self) -> str:
        return f"<key from {self.source}>"

    def __reduce__(self) -> str:
        raise TypeError("A key is not pickled: it would be written somewhere.")


class Endpoint(NamedTuple):
    """`model` is what the server calls it, `owner` whose host it is, if it is one that is known."""

    model: str
    address: Address
    owner: Provider | None
    key: Key | None


def is_compatible(name: str, base_url: str | None) -> bool:
    """Whether the built-in client speaks to this model; LiteLLM does to the others."""
    prefix, slash, _ = name.partition("/")
    return prefix != "litellm" and (not slash or prefix in PROVIDERS or base_url is not None)


def find_endpoint(name: str, base_url: str | None, api_key: str | None, environment: Mapping[str, str]) -> Endpoint:
    """Where a model is and with which key to ask it.

    A key from the environment goes only to the host of the provider whose variable it is, or, for `$OPENAI_API_KEY`,
    to `$OPENAI_BASE_URL`. `api_key` and `$ATOLL_API_KEY` go wherever the URL says, but never in clear over a network.

    Raises: InvalidInput for a URL or key that cannot be used; ModelError when a key is missing, with a hint.
    """
    prefix, slash, rest = name.partition("/")
    provider = PROVIDERS.get(prefix) if slash else PROVIDERS["openai"]
    model = rest if slash and provider else name
    theirs = environment.get("OPENAI_BASE_URL") if provider is PROVIDERS["openai"] else None
    url = base_url or environment.get("ATOLL_BASE_URL") or theirs or (provider.url if provider else None)
    if url is None:  # only a caller that did not ask is_compatible gets here
        raise InvalidInput(f"Nothing is known of {prefix!r}; give base_url, too.")
    named = "base_url" if base_url else "$ATOLL_BASE_URL" if environment.get("ATOLL_BASE_URL") else "$OPENAI_BASE_URL"
    address = parse_url(url, named)
    owner = _owner(address, provider)
    agreed = url == theirs and not base_url and not environment.get("ATOLL_BASE_URL")
    key = _find_key(api_key, owner or (PROVIDERS["openai"] if agreed else None), environment)
    if key is not None and address.scheme == "http" and not address.is_loopback:
        raise InvalidInput(
            f"{named} is {address}, and the key from {key.source} would go there in clear over the network. Write "
            "https://, reach the server through a tunnel on localhost, or give no key."
        )
    if key is None and owner is not None and owner.key is not None:
        other = None if slash else meant(name)
        guess = "" if other is None else f"Did you mean {other!r}? A name without a provider is OpenAI's. Else: "
        raise ModelError(
            f"There is no API key for {owner.name}.",
            hint=f"{guess}{'s' if guess else 'S'}et ${owner.key} or $ATOLL_API_KEY, or give api_key.",
        )
    return Endpoint(model, address, owner, key)


def parse_url(url: str, named: str) -> Address:
    """The parts of a base URL. Raises: InvalidInput."""
    example = f"{named} should look like https://api.example.com/v1"
    if not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidInput(f"{example}, without spaces, line breaks and letters that are not ASCII.")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidInput(f"{example}; it cannot be read: {error}.") from None
    if parts.username is not None or parts.password is not None:
        raise InvalidInput(f"{example}; it has a user name or password in it. Give a key as api_key or $ATOLL_API_KEY.")
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidInput(f"{example}; it begins with neither http:// nor https://, or has no host.")
    if parts.query or parts.fragment:
        raise InvalidInput(f"{example}, with nothing after a ? or #.")
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    return Address(parts.scheme, host, port or default_port(parts.scheme), path)


def _owner(address: Address, wanted: Provider | None) -> Provider | None:
    """The provider whose host it is; of several names of one host the one that was asked for."""
    found = None
    for provider in PROVIDERS.values():
        theirs = urlsplit(provider.url)
        if (theirs.scheme, theirs.hostname, theirs.port or default_port(theirs.scheme)) == address[:3]:
            if provider is wanted:
                return provider
            found = found or provider
    return found


def _find_key(api_key: str | None, owner: Provider | None, environment: Mapping[str, str]) -> Key | None:
    if api_key:
        return Key(api_key, "api_key")
    for variable in ("ATOLL_API_KEY", owner.key if owner else None):
        if variable and environment.get(variable, "").strip():
            return Key(environment[variable], f"${variable}")
    return None
