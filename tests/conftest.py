"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import numpy as np
import pytest

# No deadlines: a busy machine is no fault of the code. In CI the same inputs in every run; elsewhere new ones.
hypothesis.settings.register_profile("undertow", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("undertow")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run the tests that take minutes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        return
    for item in items:
        if "long" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="takes minutes; run with --long"))


@pytest.fixture(scope="session")
def reference_data() -> Path:
    """The folder with goldens, cases and data, named by UNDERTOW_REFERENCE_DATA; skips where it is absent."""
    folder = os.environ.get("UNDERTOW_REFERENCE_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("UNDERTOW_REFERENCE_DATA does not name a folder with the reference data")
    return Path(folder)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240607)
