"""`python -m undertow.caffe script.py ...`: runs a script that says `import caffe`, with Caffe's log on stderr."""

from __future__ import annotations

import os
import re
import runpy
import sys
import tempfile
import traceback
from itertools import takewhile
from pathlib import Path

from undertow.caffe import glog
from undertow.caffe.install import install
from undertow.caffe.proto.chosen import choose_forks
from undertow.caffe.proto.schema import known_forks
from undertow.errors import UndertowError, describe
from undertow.streams import run_to_end

# Names and methods that Python 3 has no more.
_OF_PYTHON_2 = {
    "xrange", "unicode", "unichr", "long", "raw_input", "basestring", "reduce", "reload", "execfile", "cmp", "apply",
    "iteritems", "itervalues", "iterkeys", "has_key", "next", "sort", "maxint", "getcwdu", "letters", "izip", "imap",
    "ifilter", "cPickle", "cStringIO", "StringIO", "urllib2", "urlparse", "httplib", "ConfigParser", "Queue",
    "commands", "Tkinter", "__builtin__",
}  # fmt: skip
_CONVERT = "if this is a script for Python 2, `2to3 -w {file}`, of Python up to 3.12, brings it to Python 3"

_TABS = "`expand -t 8 {file}` makes blanks of tabs, as Python 2 read them"
_NO_LIST = re.compile(r"'(dict_keys|dict_values|dict_items|map|filter|zip|range)'")
_LISTS = (
    "If this is a script for Python 2: a list there is none here. `2to3 -w FILE`, of Python up to 3.12, "
    "puts list(...) around it."
)
_ONE_NUMBER = (
    "NumPy from 2.4 on makes a number only of an array without axes, such as the loss of Caffe's own layers. One of "
    "shape (1,), as loss layers in Python make: `float(net.blobs['loss'].data.item())`, or pip install 'numpy<2.4'."
)


def main(arguments: list[str]) -> int:
    """Run the script named first, with the other words as its own; `-m module` and `-c program` as Python has them.

    `--fork=NAMES` before them: forks whose fields prototxts and caffemodels may have.
    """
    if arguments and arguments[0].startswith("--fork="):
        try:
            choose_forks(arguments[0].partition("=")[2])
        except UndertowError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        arguments = arguments[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: python -m undertow.caffe SCRIPT [words of the script]")
        print("       python -m undertow.caffe -m MODULE [words of the module]")
        print("       python -m undertow.caffe -c PROGRAM [words of the program]")
        print(f"       --fork=NAMES before these: fields of forks (ssd); there is {', '.join(known_forks())}")
        return 0 if arguments else 2
    install()
    glog.start()
    try:
        return run(arguments)
    except UndertowError as error:
        print("\n".join([f"error: {error}", *_places(error)]), file=sys.stderr)
        return 1  # as Python ends with any exception
    except (SyntaxError, NameError, AttributeError, ImportError) as error:
        # Most scripts for pycaffe are of Python 2's time. A SyntaxError has no name of what is missing.
        if not isinstance(error, SyntaxError) and error.name not in _OF_PYTHON_2:
            raise
        file, line, reason = _where(error)
        remedy = _TABS if isinstance(error, TabError) else _CONVERT
        print(f"error: {describe(reason, file, line, remedy=remedy.format(file=file))}", file=sys.stderr)
        return 1
    except TypeError as error:
        if "0-dimensional arrays" in str(error):
            error.add_note(_ONE_NUMBER)
        elif _NO_LIST.search(str(error)):
            error.add_note(_LISTS)
        raise


def _places(error: Exception) -> list[str]:
    """The lines of the script that led to an error, the outermost first, up to the call into this package."""
    frames = traceback.extract_tb(error.__traceback__)
    outer = max((n for n, frame in enumerate(frames) if frame.filename == "<frozen runpy>"), default=-1)
    package = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
    own = takewhile(lambda frame: not os.path.abspath(frame.filename).startswith(package), frames[outer + 1 :])
    return [f"  {frame.filename}:{frame.lineno}: {frame.line}" for frame in own]


def _where(error: Exception) -> tuple[str, int | None, str]:
    """File, line and reason: where a SyntaxError lies, and where others were raised."""
    if isinstance(error, SyntaxError) and error.filename is not None and not error.filename.startswith("<"):
        code = f": {error.text.strip()}" if error.text else ""
        # That of `-c` is gone already.
        file = error.filename if os.path.exists(error.filename) else os.path.basename(error.filename)
        return file, error.lineno, f"{error.msg}{code}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    code = f": {last.line}" if last.line else ""
    return last.filename, last.lineno, f"{error}{code}"


def run(arguments: list[str]) -> int:
    """Run what the words name, in this process."""
    if arguments[0] == "-m" and len(arguments) > 1:
        sys.argv = arguments[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return 0
    if arguments[0] == "-c" and len(arguments) > 1:
        return run_program(arguments)
    script = arguments[0]
    if not os.path.exists(script):
        print(f"error: there is no script {script}", file=sys.stderr)
        return 2
    sys.argv = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")
    return 0


def run_program(arguments: list[str]) -> int:
    """Run a program that is one of the words, from a file of its own, so that its errors show their lines."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.py")
        path.write_text(arguments[1], encoding="utf-8")
        sys.argv = [str(path), *arguments[2:]]
        sys.path[0] = os.getcwd()
        runpy.run_path(str(path), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(run_to_end(lambda: main(sys.argv[1:])))
