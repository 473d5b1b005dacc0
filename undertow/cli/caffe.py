"""`undertow caffe train|test|time|convert_imageset|...`: the words and flags of Caffe's programs.

Flags are gflags': one dash or two, `--flag=value` or `--flag value`, switches also as `--flag=false` and `--noflag`.
"""

from __future__ import annotations

from collections.abc import Sequence

from undertow import __version__
from undertow.cli.caffe_brew import BREW
from undertow.cli.caffe_tools import TOOLS
from undertow.cli.words import Flag, UsageError, nearest

_TRUE, _FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")

COMMANDS = (*BREW, *TOOLS)
# The programs' own names.
ALIASES = {
    "convert_mnist_data": "convert_mnist",
    "convert_cifar_data": "convert_cifar",
    "convert_mnist_siamese_data": "convert_mnist_siamese",
}
VERSION = "1.0.0"  # of Caffe, whose words and numbers these are


def run_caffe(arguments: Sequence[str]) -> int:
    """`undertow caffe ...`; the exit status. Raises UsageError for words that cannot be understood."""
    from undertow.cli.commands import call

    if not arguments or arguments[0] in ("help", "-help", "--help", "-h"):
        print(caffe_help())
        return 0 if arguments else 2
    if arguments[0] in ("-version", "--version", "version"):
        print(f"caffe version {VERSION} (undertow {__version__})")
        return 0
    commands = {command.name.split()[-1]: command for command in COMMANDS}
    name = ALIASES.get(arguments[0], arguments[0])
    if name not in commands:
        raise UsageError(
            f"caffe has no command '{name}'", remedy=nearest(name, commands) or f"there is {', '.join(commands)}"
        )
    return call(commands[name], plain_switches(commands[name].flags, arguments[1:]))


def caffe_help() -> str:
    """What `undertow caffe help` prints: every command with its flags."""
    from undertow.cli.commands import command_help

    return "\n\n".join(command_help(command) for command in COMMANDS)


def plain_switches(flags: Sequence[Flag], arguments: Sequence[str]) -> list[str]:
    """gflags' forms of switches made plain: `--x=true` is `-x`; `--x=false` and `--nox` are left out."""
    switches = {flag.name for flag in flags if flag.kind == "switch"}
    result = []
    for word in arguments:
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or not (name in switches or name.removeprefix("no") in switches):
            result.append(word)
        elif name in switches:
            if not equals or value.lower() in _TRUE:
                result.append(f"-{name}")
            elif value.lower() not in _FALSE:
                raise UsageError(f"-{name} is true or false, not '{value}'", remedy=f"--{name}=true")
    return result
