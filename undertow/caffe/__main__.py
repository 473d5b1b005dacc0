"""`python -m undertow.caffe script.py ...`: runs a script that says `import caffe`, with Caffe's log on stderr."""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
from pathlib import Path

from undertow.caffe import glog
from undertow.caffe.install import install
from undertow.caffe.proto.chosen import choose_forks
from undertow.caffe.proto.schema import known_forks
from undertow.errors import UndertowError

_OF_PYTHON_2 = {
    "xrange", "unicode", "raw_input", "basestring", "reduce", "iteritems", "itervalues", "iterkeys", "has_key",
    "cPickle", "cStringIO", "StringIO", "urllib2", "ConfigParser", "Queue",
}  # fmt: skip


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
    except (SyntaxError, NameError, AttributeError, ImportError) as error:
        # Most scripts for pycaffe are of Python 2's time; SyntaxErrors have no name of what is missing.
        if isinstance(error, SyntaxError) or error.name in _OF_PYTHON_2:
            error.add_note(
                "If this is a script for Python 2: `2to3 -w FILE`, of Python up to 3.12, brings it to Python 3."
            )
        raise


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
    sys.exit(main(sys.argv[1:]))
