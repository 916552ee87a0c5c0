"""Libraries are prepared when a cell imports them, and stay what they are."""

from tests.guest.showing import show


def test_a_prepared_module_has_its_own_loader_and_source():
    code = (
        "import matplotlib.figure as f, inspect, importlib.util\n"
        "(type(f.__loader__).__name__, type(f.__spec__.loader).__name__, inspect.getsource(f).startswith('\"'),"
        " importlib.util.find_spec('matplotlib.pyplot').name, 'matplotlib.pyplot' in __import__('sys').modules)"
    )
    (shown,) = show(code)
    assert shown.only["text/plain"].startswith("('SourceFileLoader', 'SourceFileLoader', True, 'matplotlib.pyplot'")


def test_a_module_of_the_cell_with_a_librarys_name_is_imported_as_it_is():
    write = (
        "import os, sys\nsys.path.insert(0, os.getcwd())\nos.makedirs('matplotlib')\n"
        "open('matplotlib/__init__.py', 'w').close()\nopen('matplotlib/pyplot.py', 'w').write('x = 5')\n"
        "open('matplotlib/figure.py', 'w').write('y = 6')"
    )
    _, pyplot, figure, after = show(
        write,
        "import matplotlib.pyplot\nmatplotlib.pyplot.x",
        "import matplotlib.figure\nmatplotlib.figure.y",
        "object()",
    )
    assert pyplot.only == {"text/plain": "5"}
    assert figure.main == {"text/plain": "6"}
    assert "matplotlib.figure cannot be prepared for a sandbox" in figure.text("err")
    assert after.main["text/plain"].startswith("<object object")


def test_an_import_that_fails_fails_as_ever():
    write = "import os, sys\nsys.path.insert(0, os.getcwd())\n"
    write += "os.makedirs('plotly')\nopen('plotly/__init__.py', 'w').close()"
    broken = "open('plotly/basedatatypes.py', 'w').write('1 / 0')\nimport plotly.basedatatypes"
    _, failing, missing = show(write, broken, "import PIL.ImageShow.nothing")
    assert failing.text("error") == "ZeroDivisionError: division by zero"
    assert "ModuleNotFoundError" in missing.text("error")


def test_a_library_that_is_there_already_is_prepared_too():
    (shown,) = show("import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()", preload=["matplotlib.pyplot"])
    assert shown.order == ["side"]
    assert "image/png" in shown.only
