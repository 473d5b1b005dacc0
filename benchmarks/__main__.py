"""`python -m benchmarks train|inference|small|memory`: Undertow against PyTorch, both sides in one run."""

from __future__ import annotations

import argparse
import time

from benchmarks import inference, memory, small, train
from benchmarks.timing import Timing, machine, report

EAGER = ["torch contiguous", "torch channels_last"]


def main() -> None:
    """Parse the command line, measure, print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("what", choices=["train", "inference", "small", "memory", "peak"])
    parser.add_argument("rest", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--net", default="yolov3-tiny", help="yolov3-tiny, yolov3 or the path of a cfg")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--size", type=int, default=416)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cpu-time", action="store_true", help="processor time of one thread, for a busy machine")
    parser.add_argument("--compile", action="store_true", help="also torch.compile")
    given = parser.parse_args()
    if given.cpu_time and given.threads != 1:
        parser.error("--cpu-time needs --threads 1")
    if given.what == "peak":
        side, name, *numbers = given.rest
        print(memory.run_side(side, name, *map(int, numbers)))
        return
    print(machine())
    kinds = EAGER + (["torch channels_last, compile"] if given.compile else [])
    title = f"{given.what}: {given.net}, batch {given.batch}, {given.size}x{given.size}, {given.threads} threads"
    if given.what == "memory":
        _print_memory(title, given)
        return
    compare = train.compare if given.what == "train" else inference.compare
    timing = Timing(given.rounds, time.process_time if given.cpu_time else time.perf_counter)
    if given.what == "small":
        for name, batch in (("lenet", 64), ("cifar-quick", 100)):
            timed = small.compare(name, batch, given.threads, timing)
            print("\n".join(report(f"{name}, batch {batch}, {given.threads} threads", timed, "undertow")))
        return
    timed = compare(given.net, given.batch, given.size, given.threads, kinds, timing)
    print("\n".join(report(title, timed, "undertow")))


def _print_memory(title: str, given: argparse.Namespace) -> None:
    print(title)
    peaks = {
        side: memory.measure(side, given.net, given.batch, given.size, given.threads) for side in ("undertow", *EAGER)
    }
    for side, peak in peaks.items():
        print(f"  {side:28} {peak:8.0f} MB, ours / theirs {peaks['undertow'] / peak:5.2f}")


if __name__ == "__main__":
    main()
