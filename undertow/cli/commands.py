"""The table of commands, and finding the one that a command line asks for."""

from __future__ import annotations

import os
from collections.abc import Sequence

from undertow import __version__
from undertow.cli.words import Command, UsageError, Words, nearest

# What people name for it to be written: words and flags.
_WRITTEN = frozenset(("OUT", "OUTFILE", "OUTPUT_FILE", "DB_NAME", "-html", "-out", "-out_filename", "-chart", "-cfg"))
# How people ask for help; the first stands only where a command would.
HELP = ("help", "-help", "--help", "-h")


def run(arguments: Sequence[str]) -> int:
    """Do what a command line says; the exit status. Raises UsageError for one that cannot be understood."""
    from undertow.cli.demo import COMMAND as DEMO

    if not arguments or arguments[0] in HELP:
        print(overview())
        return 0 if arguments else 2
    first, rest = arguments[0], arguments[1:]
    if first in ("--version", "-version", "version"):
        print(f"undertow {__version__}")
        return 0
    if first == "darknet":
        from undertow.cli.darknet import run_darknet

        return run_darknet(rest)
    if first == "caffe":
        from undertow.cli.caffe import run_caffe

        return run_caffe(rest)
    if first == "demo":
        return call(DEMO, rest)
    if first == "explain":
        from undertow.cli.explain import EXPLAIN

        return call(EXPLAIN, rest)
    if first == "trace":
        from undertow.cli.trace import TRACE

        return call(TRACE, rest)
    if first == "scope":
        from undertow.cli.scope import SCOPE

        return call(SCOPE, rest)
    if first == "check":
        from undertow.cli.check import CHECK

        return call(CHECK, rest)
    if first == "convert":
        from undertow.cli.convert import CONVERT

        return call(CONVERT, rest)
    known = ("darknet", "caffe", "demo", "explain", "trace", "scope", "check", "convert", "help")
    remedy = nearest(first, known) or "undertow help lists the commands"
    if first in ("detector", "detect"):
        remedy = f"undertow darknet {first} ..."
    raise UsageError(f"there is no command '{first}'", remedy=remedy)


def call(command: Command, arguments: Sequence[str]) -> int:
    """Take the words apart, answer flags that do nothing here, and run."""
    from undertow.cli.messages import say

    if any(word in HELP[1:] for word in arguments):
        print(command_help(command))
        return 0
    words = command.parse(arguments)
    check_outputs(words)
    for flag in words.given:
        if flag.answer is not None:
            say(f"-{flag.name}: {flag.answer}")
    return command.run(words)


def check_outputs(words: Words) -> None:
    """Raises UsageError where a file that is to be written is one that the same command reads.

    Programs that bring a file into today's form may be asked to do so in place: their NEW_FILE.
    """
    flags = {f"-{flag.name}": words[flag.name] for flag in words.given if flag.kind == "text"}
    plain = {**words.words, **{f"word {text}": text for text in words.more}}
    texts = {name: text for name, text in {**plain, **flags}.items() if text and name != "NEW_FILE"}
    read = {name: text for name, text in texts.items() if name not in _WRITTEN and os.path.isfile(text)}
    for name, text in texts.items():
        for path in (text, f"{text}.jpg", f"{text}.png") if name in _WRITTEN else ():
            other = next((own for own in read if os.path.isfile(path) and os.path.samefile(path, read[own])), None)
            if other is not None:
                what = f"{name} '{path}' would write over {other}, which this command reads"
                raise UsageError(what, remedy="give what is written another name")


def overview() -> str:
    """What `undertow help` prints."""
    return "\n".join(
        [
            "usage: undertow COMMAND ...",
            "",
            "  undertow demo [FOLDER]            a detector learns real pictures, in about three minutes",
            "  undertow darknet detector ...     train, test and measure detectors: the C program's words and flags",
            "  undertow darknet help             all of its functions and flags",
            "  undertow caffe ...                train, test, time, databases: the words and flags of Caffe's programs",
            "  undertow caffe help               all of its commands and flags",
            "  undertow explain NET              the way back of a cfg, a prototxt or module:function, with formulas",
            "  undertow trace NET                one batch forward and back in numbers; where two runs part",
            "  undertow scope NET | RUN [RUN]    the same in the browser, step by step; trainings and their curves",
            "  undertow check FILE ...           what is wrong with a cfg or prototxt, its data and weights",
            "  undertow convert CFG IN [OUT]     weights to safetensors and back, cut, averaged, listed",
            "  undertow --version",
        ]
    )


def command_help(command: Command) -> str:
    """Usage, summary and flags of one command."""
    lines = [f"undertow {command.usage}", f"    {command.summary}"]
    width = max((len(flag.usage) for flag in command.flags), default=0)
    lines += [f"    {flag.usage:<{width}}  {flag.help}" for flag in command.flags]
    return "\n".join(lines)
