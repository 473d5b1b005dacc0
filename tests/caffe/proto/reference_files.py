"""Caffe's files among the reference data, with the type of message that each holds."""

from __future__ import annotations

from pathlib import Path

BINARY = {
    "*.caffemodel": "NetParameter",
    "*.solverstate": "SolverState",
    "*.binaryproto": "BlobProto",
    "datum_*.pb": "Datum",
}
# Refused on purpose, or made of several messages in one.
ODD = {"vector.binaryproto": "BlobProtoVector"}


def folders(reference_data: Path) -> list[Path]:
    return [reference_data / "goldens/caffe", reference_data / "data/caffe", reference_data / "data/db"]


def prototxts(reference_data: Path) -> list[tuple[Path, str]]:
    """All prototxts with their types; those with a field that no schema has are left out."""
    paths = [path for folder in folders(reference_data) for path in sorted(folder.rglob("*.prototxt"))]
    refused = {"field_unknown.prototxt", "yufacedetectnet-open-v1.solver.prototxt"}
    return [(path, _text_type(path)) for path in paths if path.name not in refused]


def _text_type(path: Path) -> str:
    return "SolverParameter" if "solver" in path.name else "NetParameter"


def binaries(reference_data: Path) -> list[tuple[Path, str]]:
    """All binary messages with their types."""
    found = []
    for folder in folders(reference_data):
        for pattern, message in BINARY.items():
            found += [(path, ODD.get(path.name, message)) for path in sorted(folder.rglob(pattern))]
    return found
