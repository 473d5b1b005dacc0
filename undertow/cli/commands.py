"""The table of commands, and finding the one that a command line asks for."""

from __future__ import annotations

from collections.abc import Sequence

from undertow import __version__
from undertow.cli.words import Command, UsageError, nearest

# Functions of the C program that have no counterpart here yet.
MISSING = {
    "detector": ("calc_anchors", "demo", "valid2", "draw"),
    "": (
        "classifier", "classify", "cifar", "coco", "yolo", "super", "lsd", "go", "rnn", "regressor", "segmenter",
        "isegmenter", "art", "tag", "3d", "nightmare", "rgbgr", "reset", "denormalize", "normalize", "statistics",
        "rescale", "ops", "speed", "oneoff", "oneoff2", "print", "average", "visualize", "mkimg", "imtest",
    ),
}  # fmt: skip


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
    known = ("darknet", "caffe", "demo", "explain", "trace", "help")
    remedy = nearest(first, known) or "undertow help lists the commands"
    if first in ("detector", "detect"):
        remedy = f"undertow darknet {first} ..."
    raise UsageError(f"there is no command '{first}'", remedy=remedy)


def run_darknet(arguments: Sequence[str]) -> int:
    """`undertow darknet ...`: the words of the C program."""
    from undertow.cli import detector, weights

    if not arguments or arguments[0] in HELP:
        print(darknet_help())
        return 0 if arguments else 2
    function, rest = arguments[0], arguments[1:]
    alone = {"detect": detector.DETECT, "partial": weights.PARTIAL}
    if function in alone:
        return call(alone[function], rest)
    if function != "detector":
        if function in MISSING[""]:
            raise UsageError(
                f"'{function}' of the C program is not there yet", remedy="undertow darknet help lists what is"
            )
        raise UsageError(
            f"there is no function '{function}'",
            remedy=nearest(function, ("detector", *alone, "help")) or "undertow darknet help lists what there is",
        )
    commands = {command.name.split()[-1]: command for command in detector.COMMANDS}
    if rest and rest[0] in HELP:
        print("\n\n".join(map(command_help, detector.COMMANDS)))
        return 0
    if not rest or rest[0] not in commands:
        raise _no_subcommand(rest[0] if rest else "", commands)
    return call(commands[rest[0]], rest[1:])


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
            "  undertow --version",
        ]
    )


def darknet_help() -> str:
    """What `undertow darknet help` prints: every function with its flags."""
    from undertow.cli import detector, weights

    blocks = [command_help(command) for command in (*detector.COMMANDS, detector.DETECT, weights.PARTIAL)]
    missing = ", ".join([f"detector {name}" for name in MISSING["detector"]] + list(MISSING[""]))
    return "\n\n".join([*blocks, f"Of the C program's functions these are not there yet: {missing}"])


def command_help(command: Command) -> str:
    """Usage, summary and flags of one command."""
    lines = [f"undertow {command.usage}", f"    {command.summary}"]
    width = max((len(flag.usage) for flag in command.flags), default=0)
    lines += [f"    {flag.usage:<{width}}  {flag.help}" for flag in command.flags]
    return "\n".join(lines)


def _no_subcommand(word: str, commands: dict[str, Command]) -> UsageError:
    if not word:
        return UsageError("detector: which function?", remedy=f"one of {', '.join(commands)}")
    if word in MISSING["detector"]:
        return UsageError(f"'detector {word}' is not there yet", remedy=f"there is {', '.join(commands)}")
    return UsageError(
        f"detector has no function '{word}'", remedy=nearest(word, commands) or f"there is {', '.join(commands)}"
    )
