"""`undertow caffe train|test|time|convert_imageset|...`: the words and flags of Caffe's programs.

Flags are gflags': one dash or two, `--flag=value` or `--flag value`, switches also as `--flag=false` and `--noflag`.
"""

from __future__ import annotations

from collections.abc import Sequence

from undertow.cli.caffe_brew import BREW
from undertow.cli.messages import say
from undertow.cli.words import Command, Flag, UsageError, Words, nearest

_TRUE, _FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")
_BACKENDS = ("lmdb", "leveldb")


def _backend(what: str) -> Flag:
    return Flag("backend", "text", f"{what}: lmdb or leveldb (lmdb)", "NAME", "lmdb", choices=_BACKENDS)


def convert_imageset(words: Words) -> int:
    """caffe convert_imageset ROOTFOLDER LISTFILE DB_NAME"""
    from undertow.caffe.tools import ConvertOptions, convert_imageset
    from undertow.cli.progress import Counting

    options = ConvertOptions(**words.flags)
    if options.encode_type and not options.encoded:
        say("encode_type specified, assuming encoded=true.")
    if (options.resize_height > 0) != (options.resize_width > 0):
        say("pictures keep their size: resize_height and resize_width work together only")
    with Counting("pictures") as tick:
        result = convert_imageset(words["ROOTFOLDER"], words["LISTFILE"], words["DB_NAME"], options, tick=tick)
    skipped = f" {result.skipped} could not be read and are left out." if result.skipped else ""
    say(f"Processed {result.stored} files.{skipped}")
    return 0


def compute_image_mean(words: Words) -> int:
    """caffe compute_image_mean INPUT_DB [OUTPUT_FILE]"""
    from undertow.caffe.tools import channel_means, compute_image_mean
    from undertow.cli.progress import Counting

    with Counting("records") as tick:
        mean, count = compute_image_mean(
            words["INPUT_DB"], words["OUTPUT_FILE"] or None, backend=words["backend"], tick=tick
        )
    say(f"Processed {count} files.")
    if words["OUTPUT_FILE"]:
        say(f"Write to {words['OUTPUT_FILE']}")
    print(f"Number of channels: {len(mean)}")
    for number, value in enumerate(channel_means(mean)):
        print(f"mean_value channel [{number}]: {value:g}")
    return 0


def convert_mnist(words: Words) -> int:
    """caffe convert_mnist IMAGES LABELS DB_NAME"""
    from undertow.caffe.tools import convert_mnist
    from undertow.cli.progress import Counting

    with Counting("items") as tick:
        count = convert_mnist(words["IMAGES"], words["LABELS"], words["DB_NAME"], backend=words["backend"], tick=tick)
    say(f"Processed {count} files.")
    return 0


COMMANDS = (
    *BREW,
    Command(
        "caffe convert_imageset",
        ("ROOTFOLDER", "LISTFILE", "DB_NAME"),
        (
            Flag("gray", "switch", "read pictures as grey ones"),
            Flag("shuffle", "switch", "another order of the pictures and their labels"),
            Flag("seed", "whole", "of the shuffled order (0)", "N", 0, least=0),
            _backend("kind of database"),
            Flag("resize_width", "whole", "width that pictures are brought to (0: they stay)", "N", 0),
            Flag("resize_height", "whole", "height that pictures are brought to (0: they stay)", "N", 0),
            Flag("check_size", "switch", "refuse pictures that differ in size"),
            Flag("encoded", "switch", "store the pictures' files instead of their pixels"),
            Flag("encode_type", "text", "as what to store them: png, jpg, ... (as each file's name says)", "NAME", ""),
        ),
        "make a database of the pictures in a list (lines `path label`; ROOTFOLDER/ is put before each path)",
        convert_imageset,
    ),
    Command(
        "caffe compute_image_mean",
        ("INPUT_DB", "[OUTPUT_FILE]"),
        (_backend("kind of database"),),
        "the mean picture of a database, as a .binaryproto for mean_file, and the mean of each channel",
        compute_image_mean,
    ),
    Command(
        "caffe convert_mnist",
        ("IMAGES", "LABELS", "DB_NAME"),
        (_backend("kind of database"),),
        "make a database of MNIST's two files, gzipped or not (Caffe's convert_mnist_data)",
        convert_mnist,
    ),
)
# The programs' own names.
ALIASES = {"convert_mnist_data": "convert_mnist"}


def run_caffe(arguments: Sequence[str]) -> int:
    """`undertow caffe ...`; the exit status. Raises UsageError for words that cannot be understood."""
    from undertow.cli.commands import call

    if not arguments or arguments[0] in ("help", "-help", "--help", "-h"):
        print(caffe_help())
        return 0 if arguments else 2
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
