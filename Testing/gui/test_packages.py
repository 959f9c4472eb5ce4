"""PyTorch and the report's packages: declined, failed, broken, not writable, half installed."""

from __future__ import annotations

import sys
from subprocess import CalledProcessError
from types import ModuleType, SimpleNamespace

import pytest

from MemorizationIndexLib.gui import packages
from MemorizationIndexLib.gui.packages import DeclinedError, PackageError


class Torch:
    """Plays the PyTorch extension."""

    def __init__(self, returns=None, raises=None, installs=None):
        self.returns, self.raises, self.installs = returns, raises, installs
        self.asked = []

    def installTorch(self, **options):  # noqa: N802
        self.asked.append(options)
        if self.raises:
            raise self.raises
        if self.installs:
            versions["torch"] = self.installs
        return self.returns


versions: dict[str, str] = {}


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch):
    versions.clear()
    monkeypatch.setattr(packages, "installed_version", versions.get)


def test_torch_is_installed_through_the_extension_after_asking():
    utils = Torch(returns=ModuleType("torch"), installs="2.9.1")
    assert packages.install_torch(logic=lambda: utils) == "2.9.1"
    assert utils.asked[0]["askConfirmation"] is True
    assert utils.asked[0]["torchVersionRequirement"] == ">=2.2"


def test_without_the_extension_the_remedy_is_told():
    with pytest.raises(PackageError, match="Extensions Manager"):
        packages.install_torch(logic=lambda: None)
    assert packages.pytorch_utils() is None


def test_declining_is_no_error():
    with pytest.raises(DeclinedError, match="you declined"):
        packages.install_torch(logic=lambda: Torch(returns=None))


def test_the_reason_of_pip_is_told_not_only_its_status():
    output = b"Collecting torch\nERROR: Could not reach proxy.example: 407 M\xfcller\nbye"
    failing = Torch(raises=CalledProcessError(1, "pip", output=output))
    with pytest.raises(PackageError, match=r"Could not reach proxy.*HTTPS_PROXY"):
        packages.install_torch(logic=lambda: failing)


@pytest.mark.parametrize(
    "error", [ImportError("DLL"), AttributeError("_ARRAY_API"), OSError("c10")]
)
def test_a_torch_that_breaks_when_loaded_is_told_with_its_remedy(error):
    with pytest.raises(PackageError, match=r"uninstall it .* restart\s+Slicer"):
        packages.install_torch(logic=lambda: Torch(raises=error))


def test_an_old_torch_is_not_taken_for_a_good_one():
    utils = Torch(returns=ModuleType("torch"), installs="1.13.1+cu117")
    with pytest.raises(PackageError, match="too old"):
        packages.install_torch(logic=lambda: utils)
    assert "too old" in packages.torch_problem()
    versions["torch"] = "2.13.0+cpu"
    assert packages.torch_problem() == ""


def test_a_folder_that_cannot_be_written_is_told_before_anything_is_tried(monkeypatch, tmp_path):
    monkeypatch.setattr(packages.sysconfig, "get_paths", lambda: {"purelib": tmp_path / "none"})
    utils = Torch(returns=ModuleType("torch"))
    with pytest.raises(PackageError, match="cannot install packages into"):
        packages.install_torch(logic=lambda: utils)
    assert utils.asked == []


# The report's packages


@pytest.fixture
def util(monkeypatch):
    """Plays slicer.util as in Slicer 5.10, where slicer.packaging is absent."""
    slicer, calls = ModuleType("slicer"), []
    slicer.__path__ = []
    slicer.util = ModuleType("slicer.util")
    slicer.util.pip_install = lambda arguments: calls.append(
        (arguments, open(arguments[-1]).read())  # noqa: SIM115, PTH123
    )
    monkeypatch.setitem(sys.modules, "slicer", slicer)
    monkeypatch.setitem(sys.modules, "slicer.util", slicer.util)
    monkeypatch.setitem(sys.modules, "slicer.packaging", None)
    return SimpleNamespace(slicer=slicer, calls=calls)


def test_nothing_is_asked_where_nothing_is_missing(util):
    versions.update(jinja2="3.1")
    packages.ensure_report_packages(lambda _: pytest.fail("asked"))
    assert util.calls == []


def test_on_5_10_it_asks_and_installs_under_constraints(util):
    versions.update(numpy="2.0.2", SimpleITK="2.5.5")
    questions = []
    packages.ensure_report_packages(lambda text: questions.append(text) or True)
    assert "jinja2" in questions[0]
    arguments, constraints = util.calls[0]
    assert arguments[:2] == ["jinja2>=3.1", "--constraint"]
    assert constraints.split() == ["numpy==2.0.2", "SimpleITK==2.5.5"]


def test_on_5_10_a_no_installs_nothing(util):
    with pytest.raises(DeclinedError):
        packages.ensure_report_packages(lambda _: False)
    assert util.calls == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [(RuntimeError("declined"), DeclinedError), (CalledProcessError(2, "pip"), PackageError)],
)
def test_where_slicer_packaging_exists_it_is_used_and_its_errors_are_words(
    util, monkeypatch, error, kind
):
    packaging, asked = ModuleType("slicer.packaging"), []

    def pip_ensure(requirements, **options):
        asked.append((requirements, options))
        raise error

    packaging.pip_ensure = pip_ensure
    monkeypatch.setitem(sys.modules, "slicer.packaging", packaging)
    util.slicer.packaging = packaging
    with pytest.raises(kind):
        packages.ensure_report_packages(lambda _: pytest.fail("Slicer asks itself"))
    assert asked[0][0] == ["jinja2>=3.1"]
    assert asked[0][1]["requester"] == "MemorizationIndex" and util.calls == []
