"""The forks whose fields scripts for pycaffe may use without asking for them.

They are SSD's, unless others are named where the scripts are run: `python -m undertow.caffe --fork=segnet script.py`.
Only pycaffe's names read this; `undertow.caffe.net.Net` and the readers take `fork=`.
"""

from __future__ import annotations

from undertow.caffe.proto.schema import DEFAULT_FORK, ForkLike, get_schema

_chosen: list[ForkLike] = [DEFAULT_FORK]


def choose_forks(names: str) -> None:
    """From now on these, separated by commas. Raises UndertowError for one that is not known."""
    forks = split_forks(names)
    get_schema(forks)
    _chosen[0] = forks


def chosen_forks() -> ForkLike:
    """What was chosen last."""
    return _chosen[0]


def split_forks(names: str) -> tuple[str, ...]:
    """Names separated by commas."""
    return tuple(name.strip() for name in names.split(",") if name.strip())
