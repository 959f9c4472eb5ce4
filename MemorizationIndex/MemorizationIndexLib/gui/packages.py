"""Python packages: PyTorch through the PyTorch extension, the report's own on first use.

Nothing is imported to find out whether it is there: a package that is loaded cannot be replaced.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

MINIMUM_TORCH = "2.2"
REPORT_PACKAGES = ("jinja2>=3.1",)
REQUESTER = "MemorizationIndex"

RESTART_HINT = (
    "If PyTorch is installed but cannot be used, uninstall it in the module PyTorch Utils, restart "
    "Slicer and install it again."
)


class PackageError(ValueError):
    """A package cannot be installed; the message says why and what to do."""


class DeclinedError(PackageError):
    """The user said no."""


def installed_version(name: str) -> str | None:
    """Return the version of an installed package from its metadata; None without it."""
    importlib.invalidate_caches()
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def torch_problem() -> str:
    """Return why PyTorch cannot be used, as far as metadata tell; empty if all is well."""
    version = installed_version("torch")
    if version is None:
        return "PyTorch is not installed."
    if _numbers(version) < _numbers(MINIMUM_TORCH):
        return f"PyTorch {version} is too old; {MINIMUM_TORCH} or newer is needed."
    return ""


def pytorch_utils() -> Any | None:
    """Return the logic of the PyTorch extension, or None where it is not installed."""
    try:
        from PyTorchUtils import PyTorchUtilsLogic  # type: ignore[import-not-found]
    except ImportError:
        return None
    return PyTorchUtilsLogic()


def install_torch(*, logic: Callable[[], Any | None] = pytorch_utils) -> str:
    """Install PyTorch through the PyTorch extension, which asks the user.

    Returns:
        The version that is installed now.

    Raises:
        DeclinedError: The user said no.
        PackageError: It cannot be installed.
    """
    utils = logic()
    if utils is None:
        raise PackageError(
            "The PyTorch extension is not installed; get it with View › Extensions Manager › "
            "PyTorch, then restart Slicer."
        )
    _require_writable()
    try:
        installed = utils.installTorch(
            askConfirmation=True, torchVersionRequirement=f">={MINIMUM_TORCH}"
        )
    except CalledProcessError as error:
        raise PackageError(_pip_sentence("PyTorch", error)) from error
    except Exception as error:
        # The extension imports what it installed; a broken PyTorch fails in any way it likes.
        raise PackageError(f"PyTorch was not installed: {error}. {RESTART_HINT}") from error
    if installed is None:
        raise DeclinedError("PyTorch was not installed, as you declined.")
    problem = torch_problem()
    if problem:
        raise PackageError(f"{problem} {RESTART_HINT}")
    return str(installed_version("torch"))


def missing_report_packages() -> list[str]:
    """Return the packages that the HTML report needs and that are not installed."""
    return [
        requirement
        for requirement in REPORT_PACKAGES
        if installed_version(re.split(r"[<>=]", requirement)[0]) is None
    ]


def ensure_report_packages(confirm: Callable[[str], bool]) -> None:
    """Install what the HTML report needs, if the user agrees.

    Slicer's own ``slicer.packaging`` asks and installs where it exists (5.12 and later).

    Raises:
        DeclinedError: The user said no.
        PackageError: pip failed.
    """
    missing = missing_report_packages()
    if missing:
        ensure(missing, confirm)


def ensure(requirements: Sequence[str], confirm: Callable[[str], bool]) -> None:
    """Install packages after asking; see :func:`ensure_report_packages`."""
    _require_writable()
    names = " and ".join(re.split(r"[<>=]", requirement)[0] for requirement in requirements)
    try:
        try:
            import slicer.packaging
        except ImportError:
            _ensure_without_slicer_packaging(requirements, names, confirm)
        else:
            with tempfile.TemporaryDirectory(prefix="MemorizationIndex") as folder:
                slicer.packaging.pip_ensure(
                    list(requirements), constraints=_constraints(folder), requester=REQUESTER
                )
    except CalledProcessError as error:
        raise PackageError(_pip_sentence(names, error)) from error
    except RuntimeError as error:
        raise DeclinedError(f"Without {names} no report can be written.") from error


def _ensure_without_slicer_packaging(
    requirements: Sequence[str], names: str, confirm: Callable[[str], bool]
) -> None:
    import slicer.util

    if not confirm(f"The HTML report needs the Python packages {names}. Install them now?"):
        raise DeclinedError(f"Without {names} no report can be written.")
    with tempfile.TemporaryDirectory(prefix="MemorizationIndex") as folder:
        slicer.util.pip_install([*requirements, "--constraint", str(_constraints(folder))])


def _constraints(folder: str) -> Path:
    # What is bundled with Slicer stays as it is: replacing it has broken whole installations.
    kept = ("numpy", "scipy", "SimpleITK", "Pillow", "pydicom", "requests", "packaging")
    versions = {name: installed_version(name) for name in kept}
    path = Path(folder) / "constraints.txt"
    lines = [f"{name}=={version}" for name, version in versions.items() if version]
    path.write_text("\n".join(lines) + "\n", encoding="ascii")
    return path


def _require_writable() -> None:
    folder = Path(sysconfig.get_paths()["purelib"])
    try:
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        raise PackageError(
            f"Slicer cannot install packages into {folder} ({error.strerror or error}); ask "
            "whoever installed Slicer to install them, or start Slicer with the right to write "
            "there."
        ) from error


def _pip_sentence(what: str, error: CalledProcessError) -> str:
    output = error.output or error.stderr or ""
    if isinstance(output, bytes):
        output = output.decode("utf-8", "replace")
    reason = next(
        (line.strip() for line in reversed(output.splitlines()) if "error" in line.lower()),
        f"pip ended with status {error.returncode}",
    )
    return (
        f"{what} could not be installed: {reason}. Check the network and the proxy (HTTPS_PROXY), "
        "then try again; the whole log of pip is in Slicer's Python console."
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])
