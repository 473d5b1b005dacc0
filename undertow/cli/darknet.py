"""`undertow darknet ...`: the functions of the C program, and what is said about those that are not offered."""

from __future__ import annotations

from collections.abc import Sequence

from undertow.cli.words import Command, UsageError, nearest

_HELP = ("help", "-help", "--help", "-h")
_CAMERA = "give a video file or a folder of pictures to detector demo"
_WINDOW = "undertow explain and undertow trace show what is inside a network"
_IMAGES = "train and test with classifier or detector, whose files say what the pictures are"

# Functions of the C programs that are not offered, and what to use instead.
ELSEWHERE: dict[str, dict[str, str]] = {
    "": {
        "cifar": "list the pictures in a .data file for classifier train",
        "coco": "detector train, and detector valid with eval=coco in the .data file",
        "super": "darknet.load runs the cfg from Python",
        "lsd": "write the two networks as Undertow modules: docs/from-scratch.md",
        "go": "darknet.load runs the cfg from Python",
        "regressor": "darknet.load and Network.train_datum from Python, with numbers as the truth",
        "art": _CAMERA,
        "tag": "classifier train with tag=1 in the .data file",
        "3d": "any program that joins pictures",
        "test": "detector test, or classifier predict",
        "nightmare": "undertow.Variable and backward on a picture: docs/engine.md",
        "visualize": _WINDOW,
        "mkimg": _WINDOW,
        "imtest": "undertow.data.resize from Python",
        "captcha": _IMAGES,
        "dice": _IMAGES,
        "writing": _IMAGES,
        "voxel": _IMAGES,
        "swag": _IMAGES,
        "attention": _IMAGES,
        "vid": "rnn train",
        "compare": _IMAGES,
    },
    "detector": {
        "draw": "detector demo with a folder writes the pictures with their boxes",
        "extract": "detector demo -prefix NAME, or darknet.load(...).detect from Python",
        "censor": "darknet.load(...).detect from Python gives the boxes to paint over",
    },
    "yolo": {
        "demo": "detector demo with the .data file of the names",
    },
    "classifier": {
        "try": "classifier predict, or undertow trace for what each layer gives",
        "demo": "classifier csv over a list of pictures",
        "gun": "classifier csv over a list of pictures",
        "threat": "classifier csv over a list of pictures",
    },
    "segmenter": {
        "demo": "segmenter test, picture by picture",
    },
    "isegmenter": {
        "demo": "isegmenter test, picture by picture",
    },
    "rnn": {
        "validtactic": "rnn valid",
        "generatetactic": "rnn generate",
    },
}


def groups() -> dict[str, tuple[Command, ...]]:
    """Functions that have functions of their own."""
    from undertow.cli import anchors, classifier, detector, rnn, segmenter, video, yolo

    return {
        "detector": (*detector.COMMANDS, anchors.ANCHORS, video.DEMO),
        "classifier": classifier.COMMANDS,
        "segmenter": segmenter.SEGMENTER,
        "isegmenter": segmenter.ISEGMENTER,
        "yolo": yolo.COMMANDS,
        "rnn": rnn.COMMANDS,
    }


def singles() -> dict[str, Command]:
    """Functions that stand alone."""
    from undertow.cli import classifier, detector, weights

    commands = (detector.DETECT, classifier.CLASSIFY, *weights.TOOLS)
    return {command.name.split()[-1]: command for command in commands}


def run_darknet(arguments: Sequence[str]) -> int:
    """`undertow darknet ...`; the exit status. Raises UsageError for words that cannot be understood."""
    from undertow.cli.commands import call, command_help

    alone, grouped = singles(), groups()
    every = [command for group in grouped.values() for command in group] + list(alone.values())
    before, arguments = _flags_before("darknet", every, arguments)
    if len(arguments) > 1 and arguments[0] == "help":
        arguments = [*arguments[1:], "-help"]
    if not arguments or arguments[0] in _HELP:
        print(darknet_help())
        return 0 if arguments else 2
    function, rest = arguments[0], arguments[1:]
    if function in alone:
        return call(alone[function], [*before, *rest])
    if function not in grouped:
        raise _unknown(function, "", (*grouped, *alone, "help"))
    commands = {command.name.split()[-1]: command for command in grouped[function]}
    between, rest = _flags_before(f"darknet {function}", grouped[function], rest)
    if rest and rest[0] in _HELP:
        print("\n\n".join(map(command_help, grouped[function])))
        return 0
    if not rest:
        raise UsageError(f"{function}: which function?", remedy=f"one of {', '.join(commands)}")
    if rest[0] not in commands:
        raise _unknown(rest[0], function, commands)
    return call(commands[rest[0]], [*before, *between, *rest[1:]])


def _flags_before(
    name: str, commands: Sequence[Command], arguments: Sequence[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """Flags that stand before the word of a function, and the rest: the C program takes them out before it looks."""
    flags = {flag.name: flag for command in commands for flag in command.flags}
    asked = next((place for place, word in enumerate(arguments) if word in _HELP), len(arguments))
    count = Command(name, (), tuple(flags.values()), "", lambda _: 0).leading(arguments[:asked])
    return arguments[:count], arguments[count:]


def darknet_help() -> str:
    """What `undertow darknet help` prints: every function with its flags."""
    from undertow.cli.commands import command_help

    commands = [command for group in groups().values() for command in group] + list(singles().values())
    missing = [f"{group} {name}".strip() for group, names in ELSEWHERE.items() for name in names]
    last = f"Of the C programs' functions these are not offered; each answers with what to use: {', '.join(missing)}"
    return "\n\n".join([*map(command_help, commands), last])


def _unknown(word: str, group: str, known: Sequence[str] | dict[str, Command]) -> UsageError:
    asked = f"{group} {word}".strip()
    if word in ELSEWHERE[group]:
        return UsageError(f"'{asked}' of the C program is not offered", remedy=ELSEWHERE[group][word])
    remedy = nearest(word, known) or (f"there is {', '.join(known)}" if group else "undertow darknet help lists them")
    if not group:
        return UsageError(f"there is no function '{word}'", remedy=remedy)
    return UsageError(f"{group} has no function '{word}'", remedy=remedy)
