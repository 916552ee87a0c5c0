"""What `packages=` takes, and what it does not."""

from __future__ import annotations

import pytest

from atoll.errors import InvalidInput
from atoll.policy.requirements import MAX_REQUIREMENTS, check_requirements, name_of
from atoll.policy.spec import make_spec, spec_from_json, spec_to_json


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("numpy", "numpy"),
        (" NumPy ", "numpy"),
        ("ruamel.yaml", "ruamel-yaml"),
        ("zope_interface", "zope-interface"),
        ("pandas >= 2, < 3", "pandas<3,>=2"),
        ("pandas(>=2)", "pandas>=2"),
        ("torch==2.1.0+cpu", "torch==2.1.0+cpu"),
        ("six==1.*", "six==1.*"),
        ("uvicorn[standard, Extra_x]~=0.30", "uvicorn[extra-x,standard]~=0.30"),
        ("tomli ; python_version < '3.11'", "tomli ; python_version < '3.11'"),
        ("tomli;python_version<'3.11'", "tomli ; python_version<'3.11'"),
        (
            "demo @ https://example.com/demo-1.0-py3-none-any.whl",
            "demo @ https://example.com/demo-1.0-py3-none-any.whl",
        ),
    ],
)
def test_a_requirement_has_one_spelling(written, normal):
    assert check_requirements([written]) == (normal,)
    assert check_requirements([normal]) == (normal,), "and that is one"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("", "no requirement"),
        ("a b", "no requirement"),
        ("numpy>=", "no requirement"),
        ("numpy $(id)", "no requirement"),
        ("numpy;`id`", "no requirement"),
        ("-r requirements.txt", "the option"),
        ("--index-url=https://example.com", "the option"),
        ("-e .", "the option"),
        ("numpy --hash=sha256:00", "no requirement"),
        ("numpy\n--index-url=https://example.com", "line breaks"),
        ("numpy\0", "line breaks"),
        ("./wheel.whl", "names a file"),
        ("/etc/passwd", "names a file"),
        ("~/x", "names a file"),
        ("demo-1.0-py3-none-any.whl", "names a file"),
        ("file:///etc/passwd", "names a file"),
        ("git+https://example.com/x", "of addresses only"),
        ("https://example.com/x.tar.gz#egg=x", "names a file|of addresses only"),
        ("demo @ git+ssh://example.com/x", "of addresses only"),
        ("demo @ file:///etc/passwd", "of addresses only"),
        ("demo @ http://example.com/x.whl", "of addresses only"),
        ("n" * 1001, "characters"),
        (1, "packages holds 1"),
        (b"numpy", "packages holds b'numpy'"),
        (None, "packages holds None"),
    ],
)
def test_anything_else_is_refused_with_a_sentence(wrong, words):
    with pytest.raises(InvalidInput, match=words):
        check_requirements(["numpy", wrong])


@pytest.mark.parametrize("wrong", ["numpy", b"numpy", 1])
def test_packages_is_a_list(wrong):
    with pytest.raises(InvalidInput, match="give a list"):
        check_requirements(wrong)


def test_order_and_doubles_do_not_matter():
    assert check_requirements(["pandas", "numpy", "Pandas"]) == check_requirements(iter(["numpy", "pandas"]))


def test_there_is_a_most():
    with pytest.raises(InvalidInput, match="at most"):
        check_requirements([f"p{n}" for n in range(MAX_REQUIREMENTS + 1)])


@pytest.mark.parametrize("requirement", ["a", "a[b]", "a>=1", "a @ https://example.com/x.whl", "a ; os_name == 'nt'"])
def test_the_name_of_a_requirement(requirement):
    assert name_of(check_requirements([requirement])[0]) == "a"


def test_a_spec_with_packages_survives_json():
    spec = make_spec(packages=["pandas>=2", "numpy"])
    assert spec.packages == ("numpy", "pandas>=2")
    assert spec_from_json(spec_to_json(spec)) == spec
