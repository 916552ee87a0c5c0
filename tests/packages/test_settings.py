"""pip's own settings on this host are honoured, wherever they stand."""

from __future__ import annotations

import os

import pytest

from atoll.errors import Unsupported
from atoll.packages import cache, settings


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host without any settings, whose home is empty."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "XDG_"))]:
        monkeypatch.delenv(name)
    for name in (*settings._PROXIES, *map(str.lower, settings._PROXIES), "NO_PROXY", "no_proxy", settings._PROXY):
        monkeypatch.delenv(name, raising=False)
    for name in settings._CERTIFICATES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(settings, "_files", lambda: [str(tmp_path / "one"), str(tmp_path / "two")])
    return tmp_path


def test_without_settings_the_public_index_is_asked(host):
    sources = settings.read()
    assert sources.options == ()
    assert not sources.is_local
    assert sources.shown() == ()


def test_files_are_read_and_the_environment_is_stronger(host, monkeypatch):
    (host / "one").write_text(
        "# words\n[global]\nindex-url = https://one.example/simple\nextra-index-url =\n    https://a.example\n"
        "    https://b.example\n[freeze]\nindex-url = https://no.example\n"
    )
    (host / "two").write_text(
        "[global]\nfind_links: /opt/two\n[install]\nindex-url = https://two.example/simple\npre = yes\n"
    )
    monkeypatch.setenv("PIP_INDEX_URL", "https://env.example/simple")
    monkeypatch.setenv("PIP_TARGET", "/somewhere")
    got = dict(settings.read().options)
    assert got == {
        "index-url": ("https://env.example/simple",),
        "extra-index-url": ("https://a.example", "https://b.example"),
        "find-links": ("/opt/two",),
        "pre": ("1",),
    }


def test_pip_s_own_files_are_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "own"))
    files = settings._files()
    assert f"{tmp_path}/.config/pip/pip.conf" in files
    assert "/etc/pip.conf" in files
    assert files[-1] == str(tmp_path / "own")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert settings._files() == []


def test_local_places_are_shown_and_renamed(host, monkeypatch):
    index, wheels = host / "index" / "simple", host / "wheels"
    index.mkdir(parents=True)
    wheels.mkdir()
    monkeypatch.setenv("PIP_INDEX_URL", index.as_uri())
    monkeypatch.setenv("PIP_FIND_LINKS", f"{wheels} https://more.example")
    sources = settings.read()
    assert sources.shown() == (str(host / "index"), str(wheels)), "an index links to files beside it"
    assert {name: values for name, *values in sources.inside()} == {
        "index-url": ["file:///shown/0/simple"],
        "find-links": ["/shown/1", "https://more.example"],
    }
    assert not sources.is_local
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    assert settings.read().is_local
    assert settings.read().remote().options == ()


def test_no_index_needs_no_network(host, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert settings.read().is_local
    monkeypatch.setenv("PIP_NO_INDEX", "0")
    assert not settings.read().is_local


@pytest.mark.parametrize("name", ["PIP_CONSTRAINT", "PIP_CLIENT_CERT", "PIP_REQUIRE_HASHES"])
def test_what_cannot_be_honoured_is_refused(host, monkeypatch, name):
    monkeypatch.setenv(name, "1")
    with pytest.raises(Unsupported, match="is not honoured"):
        settings.read()


def test_the_key_depends_on_what_decides_and_on_nothing_else(host, monkeypatch):
    def key(*packages):
        return cache.wanted("/home", packages).key

    plain = key("numpy")
    assert key("numpy") == plain
    assert key("numpy", "pandas") != plain
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "7")
    monkeypatch.setenv("PIP_TIMEOUT", "7")
    assert key("numpy") == plain
    monkeypatch.setenv("PIP_INDEX_URL", "https://user:secret@one.example/simple")
    private = key("numpy")
    assert private != plain
    monkeypatch.setenv("PIP_INDEX_URL", "https://user:other@one.example/simple")
    assert key("numpy") == private, "a new password brings no new packages"


@pytest.mark.parametrize("name", ["HTTP_PROXY", "https_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("value", ["http://me:secret@proxy:3128", "me:secret@proxy:3128", "socks5://token@proxy/"])
def test_a_proxy_s_password_is_shown_to_no_package(host, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(Unsupported, match=f"{name} has a password") as caught:
        settings.proxies()
    assert "secret" not in str(caught.value) + str(caught.value.hint)
    monkeypatch.setenv(name, "http://proxy:3128/a@b")
    monkeypatch.setenv("NO_PROXY", "here")
    assert settings.proxies() == {name: "http://proxy:3128/a@b", "NO_PROXY": "here"}


def test_pip_s_proxy_with_a_password_is_refused_too_and_its_environments_stay(host, monkeypatch):
    monkeypatch.setenv("PIP_PROXY", "http://proxy:3128")
    plain = cache.wanted("/home", ("numpy",)).key
    assert settings.read().inside() == [["proxy", "http://proxy:3128"]]
    monkeypatch.setenv("PIP_PROXY", "http://me:secret@proxy:3128")
    assert cache.wanted("/home", ("numpy",)).key == plain, "what was built with it is still there"
    with pytest.raises(Unsupported, match="'proxy' has a password"):
        settings.read().inside()


def test_a_proxy_is_shown_to_packages_when_it_is_meant_for_them(host, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@proxy:3128")
    monkeypatch.setenv("PIP_PROXY", "http://me:secret@proxy:3128")
    monkeypatch.setenv("ATOLL_PACKAGES_PROXY", "http://build:known@proxy:3128")
    assert set(settings.proxies().values()) == {"http://build:known@proxy:3128"}
    assert settings.read().inside() == [["proxy", "http://build:known@proxy:3128"]]
    monkeypatch.setenv("ATOLL_PACKAGES_PROXY", "")
    assert settings.proxies() == {}
    assert settings.read().inside() == []
