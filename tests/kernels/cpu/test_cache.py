"""The folder of compiled kernels: found, filled, damaged, missing, and the notices about it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from undertow.kernels.cpu import cache, library

ADD = textwrap.dedent(
    """
    import sys
    import numpy as np
    from undertow.kernels import cpu
    from undertow.kernels.cpu import cache

    kinds = []
    cache.on_notice(lambda notice: kinds.append(notice.kind))
    y = cpu.broken_line(np.array([-1, 2], np.float32), 1.0, 0.5)
    assert y.tolist() == [-0.5, 2.0], y
    print("numba" in sys.modules, sorted(set(kinds)), flush=True)
    """
)


def _run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def _said(code: str, **environment: str) -> str:
    done = _run(code, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_undertow_imports_no_compiler():
    code = "import sys, undertow, undertow.kernels.cpu; print([m for m in ('numba', 'llvmlite') if m in sys.modules])"
    assert _said(code) == "[]"


def test_compiled_once_then_loaded_without_numba(tmp_path):
    assert _said(ADD, UNDERTOW_CACHE=str(tmp_path)) == "True ['compiled', 'compiling']"
    files = {file.name for file in tmp_path.rglob("*.kernel")}
    assert not list(tmp_path.rglob("trial*"))
    assert files <= {"activation.broken_line.kernel", "jobs.kernel"}  # the threads' own code comes with them
    assert "activation.broken_line.kernel" in files
    assert _said(ADD, UNDERTOW_CACHE=str(tmp_path)) == "False []"


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "foreign"])
def test_damaged_files_are_compiled_again(tmp_path, damage):
    _said(ADD, UNDERTOW_CACHE=str(tmp_path))
    (file,) = tmp_path.rglob("activation.*.kernel")
    good = file.read_bytes()
    flipped = good[:500] + bytes([good[500] ^ 1]) + good[501:]
    file.write_bytes({"cut": good[:-7], "flipped": flipped, "empty": b"", "foreign": b"\x7fELF" + good}[damage])
    assert _said(ADD, UNDERTOW_CACHE=str(tmp_path)) == "True ['compiled', 'compiling']"
    assert file.read_bytes() == good


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="needs /dev/null")
@pytest.mark.parametrize("chosen", [True, False])
def test_a_folder_that_cannot_be_made_gives_one_line(chosen):
    """Below a file no folder can be made, whoever runs this."""
    place = {"UNDERTOW_CACHE": "/dev/null/cache"} if chosen else {"UNDERTOW_CACHE": "", "XDG_CACHE_HOME": "/dev/null"}
    assert _said(ADD, **place) == "True ['compiled', 'unwritable']"
    quiet = ADD.replace("cache.on_notice", "(lambda hook: None)").replace("print(", "(lambda *a, **k: None)(")
    done = _run(quiet, **place)
    assert done.returncode == 0
    (line,) = done.stderr.strip().splitlines()
    assert "cannot be kept in /dev/null" in line
    assert "Not a directory" in line
    assert line.endswith("set UNDERTOW_CACHE to " + ("another folder" if chosen else "a folder that can be written"))


@pytest.mark.skipif(os.name == "nt", reason="homes are named otherwise")
def test_a_home_that_nobody_knows_gives_one_line(tmp_path):
    code = f"import os; os.chdir({str(tmp_path)!r})\n{ADD}"
    place = {"UNDERTOW_CACHE": "~no-such-user/cache"}
    assert _said(code, **place) == "True ['compiled', 'unwritable']"
    quiet = code.replace("cache.on_notice", "(lambda hook: None)")
    (line,) = _run(quiet, **place).stderr.strip().splitlines()
    assert "cannot be kept in ~no-such-user/cache (no such home folder is known)" in line
    assert not list(tmp_path.iterdir())  # no folder named "~no-such-user"


def test_a_full_disk_asks_for_room(monkeypatch, tmp_path):
    monkeypatch.setenv("UNDERTOW_CACHE", str(tmp_path))
    line = cache._unwritable(OSError(errno.ENOSPC, "No space left on device"))
    assert "To mend it: make room there, or set UNDERTOW_CACHE to another folder" in line


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs permissions that root ignores")
def test_a_read_only_folder_gives_one_notice(tmp_path):
    tmp_path.chmod(0o500)
    assert "unwritable" in _said(ADD, UNDERTOW_CACHE=str(tmp_path))


def test_where_the_folder_is(monkeypatch, tmp_path):
    monkeypatch.setenv("UNDERTOW_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.root() == tmp_path / "own"
    monkeypatch.delenv("UNDERTOW_CACHE")
    assert cache.root() == tmp_path / "xdg" / "undertow"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the specification says: ignore
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.root() == tmp_path / ".cache" / "undertow"


def test_the_folder_is_named_after_what_matters():
    name = cache.folder().name
    for part in ("numba", "llvmlite", "bit", cache.source_hash()):
        assert part in name


def test_on_notice_returns_the_hook_before(capsys):
    seen: list[cache.Notice] = []
    before = cache.on_notice(seen.append)
    try:
        cache.tell(cache.Notice("compiled", "compiled x", "x", 0.5))
        assert [n.kernel for n in seen] == ["x"]
        assert cache.on_notice(None) == seen.append
        cache.tell(cache.Notice("compiled", "compiled x", "x", 0.5))
        assert capsys.readouterr().err == ""
    finally:
        cache.on_notice(before)


def test_unknown_kernels_are_named():
    with pytest.raises(AttributeError, match="no_such"):
        library.load("activation.no_such")


def test_every_kernel_can_be_stored():
    """No kernel needs Numba's runtime; the second loading must not import it (see above)."""
    import importlib
    import pkgutil

    from undertow.kernels.cpu import source
    from undertow.kernels.cpu.source.compiler import SOURCES

    for module in pkgutil.iter_modules(source.__path__):
        importlib.import_module(f"{source.__name__}.{module.name}")
    assert len(SOURCES) > 50
    for name in SOURCES:
        library.load(name)
        assert cache.read(name) is not None, name
