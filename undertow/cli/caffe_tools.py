"""The small programs of Caffe as commands: `undertow caffe convert_imageset|extract_features|...`."""

from __future__ import annotations

from undertow.cli.messages import say
from undertow.cli.words import Command, Flag, UsageError, Words

_BACKENDS = ("lmdb", "leveldb")


def _backend(what: str, usual: str = "lmdb") -> Flag:
    return Flag("backend", "text", f"{what}: lmdb or leveldb ({usual})", "NAME", usual, choices=_BACKENDS)


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


def convert_annoset(words: Words) -> int:
    """caffe convert_annoset ROOTFOLDER LISTFILE DB_NAME"""
    from undertow.caffe.annosets import AnnosetOptions, convert_annoset
    from undertow.cli.progress import Counting

    flags = {name: value for name, value in words.flags.items() if name != "anno_type"}
    if words["anno_type"] != "detection":
        raise UsageError("anno_type classification: that is convert_imageset", remedy="undertow caffe convert_imageset")
    with Counting("pictures") as tick:
        result = convert_annoset(
            words["ROOTFOLDER"], words["LISTFILE"], words["DB_NAME"], AnnosetOptions(**flags), tick=tick
        )
    skipped = f" {result.skipped} could not be read and are left out." if result.skipped else ""
    say(f"Processed {result.stored} files.{skipped}")
    return 0


def get_image_size(words: Words) -> int:
    """caffe get_image_size ROOTFOLDER LISTFILE OUTFILE"""
    from undertow.caffe.annosets import get_image_size
    from undertow.cli.progress import Counting

    with Counting("pictures") as tick:
        count = get_image_size(
            words["ROOTFOLDER"], words["LISTFILE"], words["OUTFILE"], words["name_id_file"], tick=tick
        )
    say(f"Processed {count} files.")
    return 0


def convert_cifar(words: Words) -> int:
    """caffe convert_cifar INPUT_FOLDER OUTPUT_FOLDER DB_TYPE"""
    from undertow.caffe.tools import convert_cifar
    from undertow.cli.progress import Counting

    with Counting("files") as tick:
        train, test = convert_cifar(words["INPUT_FOLDER"], words["OUTPUT_FOLDER"], backend=_kind(words), tick=tick)
    say(f"Processed {train} files for training, {test} for testing.")
    return 0


def convert_mnist_siamese(words: Words) -> int:
    """caffe convert_mnist_siamese IMAGES LABELS DB_NAME"""
    from undertow.caffe.tools import convert_mnist_siamese
    from undertow.cli.progress import Counting

    with Counting("pairs") as tick:
        count = convert_mnist_siamese(
            words["IMAGES"], words["LABELS"], words["DB_NAME"], backend=words["backend"], seed=words["seed"], tick=tick
        )
    say(f"A total of {count} pairs.")
    return 0


def extract_features(words: Words) -> int:
    """caffe extract_features WEIGHTS MODEL BLOBS DATABASES BATCHES DB_TYPE [CPU/GPU] [DEVICE]"""
    from undertow.caffe.features import extract_features
    from undertow.caffe.layers_python import import_layer
    from undertow.caffe.proto.chosen import split_forks
    from undertow.cli.progress import Counting

    batches = words["BATCHES"]
    if not batches.isdigit() or not int(batches):
        raise UsageError(
            f"the number of mini-batches is a whole number from 1 on, not '{batches}'",
            remedy="give how often the net is run, such as 10",
        )
    if words["MODE"].upper() == "GPU":
        say("there is no GPU here: it is computed on the CPU")
    options = {"python": import_layer if words["python_layers"] else None, "fork": split_forks(words["fork"])}
    with Counting("batches") as tick:
        count = extract_features(
            words["WEIGHTS"], words["MODEL"], words["BLOBS"].split(","), words["DATABASES"].split(","), int(batches),
            backend=_kind(words), tick=tick, options=options,
        )  # fmt: skip
    say(f"Extracted features of {count} query images for feature blob {words['BLOBS'].split(',')[0]}")
    say("Successfully extracted the features!")
    return 0


def _kind(words: Words) -> str:
    kind = str(words["DB_TYPE"])
    if kind not in _BACKENDS:
        raise UsageError(f"there is no kind of database '{kind}'", remedy="lmdb or leveldb")
    return kind


def _upgrade(words: Words, what: str) -> int:
    from undertow.caffe.tools import upgrade_net_file, upgrade_solver_file

    source, target = words["OLD_FILE"], words["NEW_FILE"]
    if what == "SolverParameter text":
        done = upgrade_solver_file(source, target)
    else:
        done = upgrade_net_file(source, target, binary=what.endswith("binary"))
    for line in done or [f"File already in latest proto format: {source}"]:
        say(line)
    say(f"Wrote upgraded {what} proto to {target}")
    return 0


def upgrade_net_proto_text(words: Words) -> int:
    """caffe upgrade_net_proto_text OLD_FILE NEW_FILE"""
    return _upgrade(words, "NetParameter text")


def upgrade_net_proto_binary(words: Words) -> int:
    """caffe upgrade_net_proto_binary OLD_FILE NEW_FILE"""
    return _upgrade(words, "NetParameter binary")


def upgrade_solver_proto_text(words: Words) -> int:
    """caffe upgrade_solver_proto_text OLD_FILE NEW_FILE"""
    return _upgrade(words, "SolverParameter text")


_OLD_NEW = ("OLD_FILE", "NEW_FILE")
TOOLS = (
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
        "make a database of the pictures in a list (lines `path label`; ROOTFOLDER, ending with /, is put before each)",
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
    Command(
        "caffe convert_annoset",
        ("ROOTFOLDER", "LISTFILE", "DB_NAME"),
        (
            Flag("anno_type", "text", "detection; of classification there is convert_imageset", "NAME", "detection",
                 choices=("classification", "detection")),
            Flag("label_type", "text", "form of the annotations: xml (Pascal VOC), json (COCO) or txt (xml)", "NAME",
                 "xml", choices=("xml", "json", "txt")),
            Flag("label_map_file", "text", "the LabelMap prototxt: names and numbers of the classes", "FILE", ""),
            Flag("check_label", "switch", "refuse a label map that names a class twice"),
            Flag("check_size", "switch", "refuse pictures that differ in size"),
            Flag("gray", "switch", "read pictures as grey ones"),
            Flag("shuffle", "switch", "another order of the pictures"),
            Flag("seed", "whole", "of the shuffled order (0)", "N", 0, least=0),
            _backend("kind of database"),
            Flag("min_dim", "whole", "length that shorter sides are brought to (0: they stay)", "N", 0),
            Flag("max_dim", "whole", "length that longer sides may have (0: any)", "N", 0),
            Flag("resize_width", "whole", "width that pictures are brought to (0: they stay)", "N", 0),
            Flag("resize_height", "whole", "height that pictures are brought to (0: they stay)", "N", 0),
            Flag("encoded", "switch", "store the pictures' files instead of their pixels"),
            Flag("encode_type", "text", "as what to store them: png, jpg, ... (as each file's name says)", "NAME", ""),
        ),
        "make a database of pictures with boxes for AnnotatedData (SSD); lines `picture annotation`; "
        "ROOTFOLDER, ending with /, is put before both",
        convert_annoset,
    ),
    Command(
        "caffe get_image_size",
        ("ROOTFOLDER", "LISTFILE", "OUTFILE"),
        (Flag("name_id_file", "text", "lines `name id`: write ids in place of the pictures' names", "FILE", ""),),
        "write the sizes of the pictures in a list (lines `picture annotation`), for DetectionEvaluate (SSD)",
        get_image_size,
    ),
    Command(
        "caffe convert_cifar",
        ("INPUT_FOLDER", "OUTPUT_FOLDER", "DB_TYPE"),
        (),
        "make databases of CIFAR-10's binary batches (Caffe's convert_cifar_data)",
        convert_cifar,
    ),
    Command(
        "caffe convert_mnist_siamese",
        ("IMAGES", "LABELS", "DB_NAME"),
        (_backend("kind of database", "leveldb"), Flag("seed", "whole", "of the pairs (0)", "N", 0, least=0)),
        "make a database of random pairs of MNIST's pictures (Caffe's convert_mnist_siamese_data)",
        convert_mnist_siamese,
    ),
    Command(
        "caffe extract_features",
        ("WEIGHTS", "MODEL", "BLOBS", "DATABASES", "BATCHES", "DB_TYPE", "[MODE]", "[DEVICE]"),
        (
            Flag("python_layers", "switch", "import and run the Python layers that the prototxt names"),
            Flag("fork", "text", "forks whose fields the files have, such as segnet,nvidia (ssd)", "NAMES", "ssd"),
        ),
        "run a net and put blobs into databases, item by item; names of both separated by commas",
        extract_features,
    ),
    Command(
        "caffe upgrade_net_proto_text",
        _OLD_NEW,
        (),
        "write the prototxt of a net of any version of Caffe in today's form",
        upgrade_net_proto_text,
    ),
    Command(
        "caffe upgrade_net_proto_binary",
        _OLD_NEW,
        (),
        "the same for a caffemodel",
        upgrade_net_proto_binary,
    ),
    Command(
        "caffe upgrade_solver_proto_text",
        _OLD_NEW,
        (),
        "the same for the prototxt of a solver",
        upgrade_solver_proto_text,
    ),
)  # fmt: skip
