"""Undertow against its peers, both sides in one run.

python -m benchmarks table --out FILE.md --json FILE.json     every row; --only ROW,... some of them
python -m benchmarks rows                                     the rows, and which can be measured here
python -m benchmarks scaling --out FILE.png                   cost against batch, image size, depth, threads
python -m benchmarks train|inference|memory --net NET|CFG     one net, by name or from a cfg
python -m benchmarks convergence DATA CFG [WEIGHTS]           whole trainings: precisions and PyTorch
python -m benchmarks digits MNIST_FOLDER                      LeNet to 99 %, by Caffe's solver and in PyTorch
python -m benchmarks loader                                   whether the loader keeps up with training
python -m benchmarks accuracy --net NET|CFG                   every precision against float64
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks import scaling, table
from benchmarks.rows import COMPILED, EAGER, ROWS, Settings, require_torch
from benchmarks.timing import Timing, machine, report
from undertow.errors import UndertowError
from undertow.streams import run_to_end


def main(argv: list[str] | None = None) -> None:
    """Parse the command line, measure, print; what cannot be measured is one line and status 1."""
    given = _parser().parse_args(argv)
    try:
        if _compares_with_torch(given):
            require_torch(f"benchmarks {given.what}")
        _run(given)
    except UndertowError as problem:
        raise SystemExit(f"error: {problem}") from None
    except OSError as problem:
        if problem.filename is None:
            raise
        remedy = "check the path and its permissions"
        raise SystemExit(f"error: {problem.filename}: {problem.strerror}. To mend it: {remedy}") from None


def _compares_with_torch(given: argparse.Namespace) -> bool:
    sides = {"convergence": lambda: given.sides, "peak": lambda: given.side.split()}.get(given.what)
    if sides is not None:
        return "torch" in sides()
    return given.what in ("train", "inference", "memory", "scaling", "digits")


def _run(given: argparse.Namespace) -> None:
    if given.what == "row":
        print(json.dumps(asdict(table.measure_here(given.key, _settings(given)))))
    elif given.what == "peak":
        from benchmarks import memory

        print(memory.run_side(given.side, given.net, given.batch, given.size, given.threads))
    elif given.what == "rows":
        for row in ROWS.values():
            print(f"{row.key:16} {row.work}{'' if row.missing() is None else f' -- {row.missing()}'}")
    elif given.what == "table":
        _table(given)
    elif given.what == "scaling":
        scaling.check(given.out)
        print(machine())
        scaling.draw(scaling.measure(given.threads, given.rounds or 5, lambda text: print(text, flush=True)), given.out)
    elif given.what == "convergence":
        from benchmarks import convergence

        print(machine())
        paths = (given.data, given.cfg, given.weights)
        convergence.compare(given.sides, *paths, given.seed, given.threads, lambda text: print(text, flush=True))
    elif given.what == "digits":
        from benchmarks import digits

        print(machine())
        digits.compare(given.folder, given.iterations, given.threads, lambda text: print(text, flush=True))
    elif given.what == "accuracy":
        from benchmarks import accuracy

        print(
            f"{given.net}, batch {given.batch}, {given.size}x{given.size}: distance to float64, as a share of its norm"
        )
        for distance in accuracy.compare(given.net, given.batch, given.size, given.threads):
            print(distance.line(), flush=True)
    elif given.what == "loader":
        from benchmarks import loader

        print(f"{machine()}\n{given.net}, batch {given.batch}, {given.size}x{given.size}, photos with augmentation")
        for threads in given.threads:
            rates = loader.measure(given.net, given.batch, given.size, threads, given.rounds)
            print("\n".join(rates.lines(threads)), flush=True)
    else:
        _one_net(given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="what", required=True, metavar="COMMAND")
    commands.add_parser("rows", help="list the rows of the table")
    whole = commands.add_parser("table", help="measure the rows of the table")
    whole.add_argument("--only", type=_keys, default=list(ROWS), metavar="ROW,...", help="only these rows")
    whole.add_argument("--out", type=Path, metavar="FILE.md", help="write the table (into a page that has the marks)")
    whole.add_argument("--json", type=Path, metavar="FILE", help="write results; with --only, other rows in it stay")
    chart = commands.add_parser("scaling", help="cost against batch size, image size, depth and threads")
    chart.add_argument("--out", type=Path, required=True, metavar="FILE.png")
    row = commands.add_parser("row", help="measure one row in this process and print it as JSON")
    row.add_argument("key", choices=list(ROWS))
    peak = commands.add_parser("peak", help="peak memory of one side, in this process")
    peak.add_argument("side", choices=["undertow", *EAGER])
    feeding = commands.add_parser("loader", help="images/s of the loader and of the training that it feeds")
    feeding.add_argument("--threads", type=_count, nargs="+", default=[1, 2])
    feeding.add_argument("--rounds", type=_count, default=7)
    whole_run = commands.add_parser("convergence", help="train a detector to the end, on several sides")
    whole_run.add_argument("data", type=Path)
    whole_run.add_argument("cfg", type=Path)
    whole_run.add_argument("weights", type=Path, nargs="?")
    whole_run.add_argument("--sides", type=_sides, default=["fast", "precise", "torch"])
    whole_run.add_argument("--seed", type=int, default=0)
    whole_run.add_argument("--threads", type=_count, default=2)
    nets = [commands.add_parser(name, help=f"{name} of one net") for name in ("train", "inference", "memory")]
    lenet = commands.add_parser("digits", help="LeNet on MNIST, by Caffe's solver and in PyTorch")
    lenet.add_argument("folder", type=Path, help="with MNIST's four files, gzipped")
    lenet.add_argument("--iterations", type=int, default=10_000)
    lenet.add_argument("--threads", type=_count, default=2)
    exact = commands.add_parser("accuracy", help="distance of outputs and gradients to float64, with every precision")
    exact.add_argument("--threads", type=_count, default=2)
    for command in (*nets, peak, feeding, exact):
        command.add_argument("--net", default="yolov3-tiny", help="yolov3-tiny, yolov3 or the path of a cfg")
        command.add_argument("--batch", type=int, default=4)
        command.add_argument("--size", type=int, default=416)
    for command in nets[:2]:
        command.add_argument("--cpu-time", action="store_true", help="processor time of one thread: busy machines")
    for command in (whole, chart, row, peak, *nets):
        command.add_argument("--threads", type=_count, default=2)
        command.add_argument("--rounds", type=_count, help="rounds of every measurement; default: each has its own")
    for command in (whole, row, nets[0]):
        command.add_argument("--compile", action="store_true", help="also torch.compile")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def _sides(text: str) -> list[str]:
    from benchmarks.convergence import SIDES

    sides = [side.strip() for side in text.split(",")]
    unknown = [side for side in sides if side not in SIDES]
    if unknown:
        raise argparse.ArgumentTypeError(f"no side {', '.join(map(repr, unknown))}; there are {', '.join(SIDES)}")
    return sides


def _keys(text: str) -> list[str]:
    keys = [key.strip() for key in text.split(",") if key.strip()]
    unknown = [key for key in keys if key not in ROWS]
    if unknown or not keys:
        raise argparse.ArgumentTypeError(f"no row {', '.join(unknown) or repr(text)}; there are {', '.join(ROWS)}")
    return keys


def _settings(given: argparse.Namespace) -> Settings:
    return Settings(given.threads, given.rounds, given.compile)


def _table(given: argparse.Namespace) -> None:
    print(machine())
    results = table.read_json(given.json) if given.json and given.only != list(ROWS) else {}
    for key in given.only:
        results |= table.measure([key], _settings(given), lambda text: print(text, flush=True))
        # After every row, so that a run that is cut short leaves what it has.
        in_order = {row: results[row] for row in ROWS if row in results}
        if given.json:
            table.write_json(given.json, in_order, given.threads)
        if given.out:
            table.write_markdown(given.out, table.markdown(in_order, given.threads))
    failed = [key for key in given.only if results[key].problem.startswith("failed")]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def _one_net(given: argparse.Namespace) -> None:
    from benchmarks import engines, inference, memory, train

    print(machine())
    title = f"{given.what}: {given.net}, batch {given.batch}, {given.size}x{given.size}, {given.threads} threads"
    if given.what == "memory":
        print(title)
        sides = ("undertow", *EAGER)
        peaks = {side: memory.measure(side, given.net, given.batch, given.size, given.threads) for side in sides}
        for side, peak in peaks.items():
            print(f"  {side:28} {peak:8.0f} MB, ours / theirs {peaks['undertow'] / peak:5.2f}")
        return
    if given.cpu_time and given.threads != 1:
        raise SystemExit("--cpu-time needs --threads 1")
    timing = Timing(given.rounds or 7, time.process_time if given.cpu_time else time.perf_counter)
    if given.what == "train":
        kinds = EAGER + ([COMPILED] if given.compile else [])
        timed = train.compare(given.net, given.batch, given.size, given.threads, kinds, timing)
    else:
        kinds = EAGER + engines.installed()
        timed = inference.compare(given.net, given.batch, given.size, given.threads, kinds, timing)
    print("\n".join(report(title, timed, "undertow")))


if __name__ == "__main__":
    sys.exit(run_to_end(main))
