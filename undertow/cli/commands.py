"""The table of commands, and finding the one that a command line asks for."""

from __future__ import annotations

from collections.abc import Sequence

from undertow import __version__
from undertow.cli.words import Command, UsageError, nearest

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
    for flag in words.given:
        if flag.answer is not None:
            say(f"-{flag.name}: {flag.answer}")
    return command.run(words)


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
