"""Writes docs/darknet-commands.md from the table of commands: python -m tests.docs.darknet_commands"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from undertow.cli.darknet import ELSEWHERE, groups, singles
from undertow.cli.shared import COMMON, GPUS_IDLE, SHOWING
from undertow.cli.words import Command, Flag

PAGE = Path(__file__).parents[2] / "docs" / "darknet-commands.md"

HEAD = """# The commands of Darknet

`undertow darknet FUNCTION ...` takes the words and flags of the C program (its 2018 form, and what AlexeyAB's fork
added), in its order: plain words as they come, flags with one dash anywhere between them, before the function too.
`undertow darknet help` prints all of this page's flags; `undertow darknet detector train -h` those of one function.
Results go to stdout in the form the C program prints; what is said to people goes to stderr. The exit status is 0, 2
for anything wrong with what was given, 130 after Ctrl-C, 143 after SIGTERM and 141 when nobody reads the output any
more (`| head`).

This page is written from the program itself (`python -m tests.docs.darknet_commands`), and its examples run in the
tests.

## What the functions share

Paths in a `.data` file or a list are looked up from the working folder, then beside the file that names them.
Trainings stop at the first Ctrl-C with everything saved, and print the command that goes on bit for bit; their log
goes to `NAME_log.csv` and `chart_NAME.png` in the folder of the weights.

Every function that computes takes these flags:

{common}

There is no GPU, no window and no server here. Flags for them are accepted, so that old scripts run, and each is
answered with one line on stderr. `-gpus 0,1` in a training says what the C program would have done with so many: it
would take as many pictures again for each GPU in an iteration, at as many times the rate. One process trains here,
with the batch and the rate of the cfg; to come near a run on two GPUs, double `batch=`, `subdivisions=`
and `learning_rate=`.

"""

# Example lines by command; a line that begins with ! is shown and not run, for the reason after |.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "detector train": (
        "undertow darknet detector train obj.data obj.cfg -map -gpus 0,1",
        "undertow darknet detector train obj.data obj.cfg obj.weights -clear -backup_every 50 -dont_show",
    ),
    "detector test": (
        "undertow darknet detector test obj.data obj.cfg obj.weights photo.jpg -thresh 0.25 -ext_output",
    ),
    "detector map": ("undertow darknet detector map obj.data obj.cfg obj.weights -points 101",),
    "detector valid": ("undertow darknet detector valid obj.data obj.cfg obj.weights",),
    "detector valid2": ("undertow darknet detector valid2 obj.data obj.cfg obj.weights -out mirrored_",),
    "detector recall": ("undertow darknet detector recall obj.data obj.cfg obj.weights",),
    "detector calc_anchors": (
        "undertow darknet detector calc_anchors obj.data -num_of_clusters 6 -width 416 -height 416",
    ),
    "detector demo": (
        "undertow darknet detector demo obj.data obj.cfg obj.weights photos -prefix found",
        "!undertow darknet detector demo obj.data obj.cfg obj.weights street.mp4 -out_filename found.mp4"
        "|needs PyAV, pip install 'undertow[video]', and a video",
    ),
    "classifier train": (
        "undertow darknet classifier train class.data class.cfg -topk",
        "undertow darknet classifier train class.data class.cfg class.weights -clear -save_every 10",
    ),
    "classifier valid": ("undertow darknet classifier valid class.data class.cfg class.weights -t 2",),
    "classifier valid10": ("undertow darknet classifier valid10 class.data class.cfg class.weights",),
    "classifier validcrop": ("undertow darknet classifier validcrop class.data class.cfg class.weights",),
    "classifier validfull": ("undertow darknet classifier validfull class.data class.cfg class.weights",),
    "classifier validmulti": ("undertow darknet classifier validmulti class.data class.cfg class.weights",),
    "classifier predict": ("undertow darknet classifier predict class.data class.cfg class.weights photo.jpg -t 3",),
    "classifier label": ("undertow darknet classifier label class.data class.cfg class.weights",),
    "classifier csv": ("undertow darknet classifier csv class.data class.cfg class.weights -t 2",),
    "classifier test": ("undertow darknet classifier test class.data class.cfg class.weights",),
    "classifier fout": ("undertow darknet classifier fout class.data class.cfg class.weights class.list",),
    "segmenter train": (
        "!undertow darknet segmenter train parts.data parts.cfg|needs pictures with masks, whose form stands below",
    ),
    "segmenter test": (
        "!undertow darknet segmenter test parts.data parts.cfg backup/parts.weights photo.jpg -out parts.png"
        "|needs a net that has learned masks",
    ),
    "isegmenter train": (
        "!undertow darknet isegmenter train parts.data instances.cfg|needs pictures with masks, as segmenter train",
    ),
    "isegmenter test": (
        "!undertow darknet isegmenter test parts.data instances.cfg backup/instances.weights photo.jpg"
        "|needs a net that has learned masks",
    ),
    "yolo train": ("undertow darknet yolo train obj.cfg -data obj.data",),
    "yolo test": ("undertow darknet yolo test obj.cfg obj.weights photo.jpg -data obj.data",),
    "yolo valid": ("undertow darknet yolo valid obj.cfg obj.weights -data obj.data",),
    "yolo recall": ("undertow darknet yolo recall obj.cfg obj.weights -data obj.data",),
    "rnn train": (
        "undertow darknet rnn train letters.cfg -file text.txt",
        "undertow darknet rnn train letters.cfg backup/letters.backup -file text.txt -clear",
    ),
    "rnn generate": (
        "undertow darknet rnn generate letters.cfg backup/letters_final.weights -srand 7 -len 60 -seed 'the '",
    ),
    "rnn valid": (
        "!undertow darknet rnn valid letters.cfg backup/letters_final.weights < text.txt|the shell gives it its input",
    ),
    "rnn vec": (
        "!undertow darknet rnn vec letters.cfg backup/letters_final.weights < text.txt|the shell gives it its input",
    ),
    "detect": ("undertow darknet detect obj.cfg obj.weights photo.jpg",),
    "classify": ("undertow darknet classify class.cfg class.weights photo.jpg",),
    "partial": ("undertow darknet partial obj.cfg obj.weights obj.conv.2 2",),
    "average": ("undertow darknet average obj.cfg mean.weights obj.weights backup/obj_final.weights",),
    "statistics": ("undertow darknet statistics obj.cfg obj.weights",),
    "ops": ("undertow darknet ops obj.cfg",),
    "speed": ("undertow darknet speed obj.cfg 10",),
    "denormalize": ("undertow darknet denormalize obj.cfg obj.weights folded.weights -cfg folded.cfg",),
    "reset": ("undertow darknet reset obj.cfg obj.weights reset.weights",),
    "normalize": ("undertow darknet normalize folded.cfg folded.weights normal.weights -cfg normal.cfg",),
    "rescale": ("undertow darknet rescale folded.cfg folded.weights rescaled.weights",),
    "rgbgr": ("undertow darknet rgbgr obj.cfg obj.weights swapped.weights",),
    "oneoff": ("undertow darknet oneoff region.cfg small.weights region.weights",),
    "oneoff2": ("undertow darknet oneoff2 obj.cfg obj.weights again.weights 0",),
    "print": ("undertow darknet print obj.cfg obj.weights 0",),
}

# What a reader of the C program would not expect.
NOTES: dict[str, str] = {
    "detector valid": (
        "`eval=` in the `.data` file chooses the form: `voc` (comp4 files, the default), `coco` (json) or `imagenet`."
    ),
    "detector valid2": (
        "The C program takes a place within a cell, seen from the other side, for its negative, and mixes up the maps "
        "of anchors, so that boxes are shifted; where the mean has more boxes than the picture alone, it writes beyond "
        "its memory. Here the place is 1 - x; `-dialect darknet-cpu` gives the original's numbers."
    ),
    "segmenter train": (
        "Each picture of `train=` has a file of masks, `images/a.jpg` that of `mask/a.txt`. A line for each "
        "object: its class, and lengths of runs over the pixels of the picture, row by row, outside and inside it "
        "in turn, outside first: `3 120,5,35,5`. The net ends in `[logistic]`, `[softmax]` or `[cost]`, with a map "
        "for each class; how many there are, the cfg says (80 in the C program). Pictures are zoomed until the "
        "shorter side has `min_crop` to `max_crop` pixels."
    ),
    "isegmenter train": (
        "Files of masks as for `segmenter train`, up to 90 objects in a picture. The net ends in `[iseg]`, with "
        "`classes + ids` filters before it."
    ),
    "isegmenter test": "Draws the classes; what tells objects apart are the `ids` maps behind them, from Python: "
    "`net.predict`.",
    "detector calc_anchors": (
        "The fork's k-means begins anywhere, so each of its runs gives others. Here the same labels give the "
        "same anchors, with an average IoU at least as high. They go into `anchors=` of the `[yolo]` "
        "sections."
    ),
    "detector demo": (
        "Of a video, what the heads give is averaged over three frames, as in the 2018 program (`-avg 1` "
        "turns it off); of a folder, each picture stands for itself. With neither `-prefix` nor "
        "`-out_filename`, a video becomes `demo.mp4` and pictures `demo_00000000.jpg` and so on."
    ),
    "classifier train": (
        "The class of a picture is the one whose label (`labels=`) stands in its path; with `tag=1` the "
        "numbers in `labels/NAME.txt` count. `tree=` names a class hierarchy. As in the original "
        "`NAME_1.weights` is written after the first round through the pictures, and so on, and "
        "`NAME.weights` at the end; `NAME.backup` comes every 100 iterations instead of 1,000. "
        "`max_batches=0`, with which the original never ends, is refused."
    ),
    "classifier valid": (
        "Pictures of `valid=`; a picture of no class counts as wrong. For each, a line with its path, class "
        "and first two values, and one with the shares so far. With `tree=` in the cfg only leaves count, and"
        " `leaves=` chooses them."
    ),
    "classifier validcrop": ("The original divides by zero with fewer than 1,000 pictures; here they are one part."),
    "classifier validmulti": (
        "The net must be one that any size fits: no `[connected]` layer. In a class tree the original adds up"
        " unlike numbers for mirrored pictures; here both are probabilities."
    ),
    "classifier predict": (
        "A picture is fitted in with grey bars; for nets of the fork its middle is cut out, as there."
    ),
    "yolo train": (
        "The C program's lists, names and folder are written into it; here `-data` names a `.data` file. Nets that "
        "end in `[detection]` learn as there: pictures are cropped and stretched, a grid of cells is the truth, and "
        "each cell has room for one object. `detector train`, `test`, `map`, `valid` and `recall` take such nets too."
    ),
    "yolo recall": "Overlapping proposals are counted once, as in `detector recall`; the C program keeps them all.",
    "rnn train": (
        "The C program writes to its author's home folder; here `-backup` names one. Its lines go to stderr, "
        "as there. In `exact` every pass begins without a state; the other dialects carry it on as their "
        "program does, and checkpoints hold it."
    ),
    "rnn generate": (
        "With the same `-srand` the text is the one that the C program on Linux writes, down to the numbers "
        "its `rand()` gives while it makes the net. `batch=` and `time_steps=` of the cfg may stay as they "
        "were for training."
    ),
    "rnn vec": "Each line begins without a state, as in the GPU program; the CPU program lets it go on.",
    "average": (
        "All arrays are averaged; the original leaves out batch normalisation of connected layers, and all "
        "other layers."
    ),
    "statistics": (
        "For every layer; the original does it for connected ones and gru, and looks at the first weights only."
    ),
    "speed": "Kernels and plans are made ready before the clock starts.",
    "normalize": ("Variances are 1; the original writes 0, after which every output is a million times too large."),
    "rescale": "As in the original, batch normalisation of that layer is not looked at: `denormalize` first.",
    "oneoff": "The original is made for one net with 11,921 classes; here the cfg says how many.",
}
_SHARED = (*COMMON, *SHOWING, GPUS_IDLE)


def page() -> str:
    """The whole page."""
    parts = [HEAD.format(common=_table([flag for flag in COMMON if flag.answer is None]))]
    for title, commands in (*groups().items(), ("The rest", tuple(singles().values()))):
        parts.append(f"## {title if title == 'The rest' else f'`{title}`'}\n\n")
        parts += map(_section, commands)
    lines = [
        f"| `{group} {name}`".replace("` ", "`") + f" | {instead} |"
        for group, names in ELSEWHERE.items()
        for name, instead in names.items()
    ]
    parts.append(
        "## Not offered\n\nThese functions of the C programs answer with one line that says what to use instead.\n\n"
        "| function | instead |\n|---|---|\n" + "\n".join(lines) + "\n"
    )
    return "".join(parts)


def _section(command: Command) -> str:
    name = command.name.removeprefix("darknet ")
    text = f"### `{name}`\n\n`undertow {command.name} {' '.join(command.words)}`: {command.summary}.\n\n"
    if name in NOTES:
        text += f"{NOTES[name]}\n\n"
    own = [flag for flag in command.flags if flag not in _SHARED]
    if own:
        text += _table(own) + "\n\n"
    others = [flag for flag in command.flags if flag in _SHARED and (flag in SHOWING or flag is GPUS_IDLE)]
    if others:
        text += f"Accepted and answered: {', '.join(f'`-{flag.name}`' for flag in others)}.\n\n"
    runs = [line for line in EXAMPLES[name] if not line.startswith("!")]
    if runs:
        text += "```sh\n" + "\n".join(runs) + "\n```\n\n"
    for line in EXAMPLES[name]:
        if line.startswith("!"):
            shown, _, reason = line[1:].partition("|")
            text += f"<!-- not run: {reason} -->\n```sh\n{shown}\n```\n\n"
    return text


def _table(flags: list[Flag]) -> str:
    rows = [f"| `{flag.usage}` | {flag.help} |" for flag in flags]
    return "\n".join(["| flag | meaning |", "|---|---|", *rows])


def prepare() -> dict[str, Any]:
    """What the page's examples begin with: a detector, a classifier, a recurrent net, and little of everything."""
    from PIL import Image

    from tests.cli.test_classifier import CFG as CLASSIFIER
    from tests.cli.test_classifier import Pictures
    from tests.cli.test_rnn import CFG as LETTERS
    from tests.cli.test_rnn import TEXT
    from tests.darknet.test_weight_tools import DETECTOR
    from tests.darknet.training.scenes import make_scene
    from undertow import darknet

    folder = Path.cwd()
    make_scene(folder / "scene")
    (folder / "obj.cfg").write_text(
        (folder / "scene" / "tiny.cfg").read_text().replace("max_batches=6", "max_batches=4")
    )
    data = (
        (folder / "scene" / "obj.data").read_text().replace("=train", "=scene/train").replace("=valid", "=scene/valid")
    )
    (folder / "obj.data").write_text(
        data.replace("=obj", "=scene/obj").replace(str(folder / "scene" / "backup"), "backup")
    )
    Path("photos").mkdir()
    for number in range(2):
        shutil.copy(folder / "scene" / "images" / f"{number}.png", "photos")
    classes = Pictures(folder / "colours")
    (folder / "class.data").write_text(classes.data.read_text().replace(str(folder / "colours" / "backup"), "backup"))
    (folder / "class.cfg").write_text(CLASSIFIER.format(max_batches=6, random=0))
    (folder / "class.list").write_text((folder / "colours" / "all.list").read_text())
    (folder / "text.txt").write_text(TEXT)
    (folder / "letters.cfg").write_text(LETTERS.format(kind="gru", max_batches=4, inputs=256))
    (folder / "region.cfg").write_text(DETECTOR.format(filters=21))
    (folder / "small.cfg").write_text(DETECTOR.format(filters=2).partition("[region]")[0] + "[softmax]\n")
    Path("cfg").mkdir()
    (folder / "cfg" / "coco.data").write_text("names=scene/obj.names\n")
    (folder / "cfg" / "imagenet1k.data").write_text(f"names={folder}/colours/names.list\n")
    for name in ("obj", "class", "small"):
        net = darknet.load(f"{name}.cfg", seed=1)
        net.layers[0].weights[...] += np.float32(0.01)
        net.save_weights(f"{name}.weights")
    Image.open(folder / "photos" / "0.png").save(folder / "photo.jpg")
    return {}


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
