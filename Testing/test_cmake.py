"""What the extension factory sees: lists of files, metadata, and whether CMake configures."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cmake_lists import listed, resources, scripts

ROOT = Path(__file__).resolve().parents[1]
TOP = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")

# What Slicer's package provides, as far as this extension uses it. Like Slicer's own macro, it
# refuses files that are not there.
STUB = """
set(Slicer_FOUND TRUE)
set(Slicer_USE_FILE "${CMAKE_CURRENT_LIST_DIR}/UseSlicer.cmake")
set(Slicer_EXTENSION_GENERATE_CONFIG "${CMAKE_CURRENT_LIST_DIR}/GenerateConfig.cmake")
set(Slicer_EXTENSION_CPACK "${CMAKE_CURRENT_LIST_DIR}/CPack.cmake")
"""
USE_SLICER = """
include(CMakeParseArguments)
set(BUILD_TESTING ON)
macro(slicerMacroBuildScriptedModule)
  cmake_parse_arguments(MODULE "WITH_GENERIC_TESTS;WITH_SUBDIR" "NAME" "SCRIPTS;RESOURCES" ${ARGN})
  if(MODULE_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "unknown: ${MODULE_UNPARSED_ARGUMENTS}")
  endif()
  foreach(file ${MODULE_SCRIPTS} ${MODULE_RESOURCES})
    if(NOT EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
      message(FATAL_ERROR "missing: ${file}")
    endif()
    file(APPEND "${CMAKE_BINARY_DIR}/installed.txt" "${file}\\n")
  endforeach()
  if(MODULE_WITH_GENERIC_TESTS)
    add_test(NAME qSlicer${MODULE_NAME}ModuleGenericTest COMMAND true)
  endif()
endmacro()
macro(slicer_add_python_unittest)
  cmake_parse_arguments(TEST "" "SCRIPT" "SLICER_ARGS" ${ARGN})
  add_test(NAME py_${TEST_SCRIPT} COMMAND true)
endmacro()
enable_testing()
"""


def value(name: str) -> str:
    match = re.search(rf'^set\({name} "(.*)"\)$', TOP, re.M)
    assert match, f"set({name} …) must be one line with double quotes"
    return match.group(1)


def test_every_python_file_is_listed_and_no_other():
    assert listed("MODULE_PYTHON_SCRIPTS") == scripts(), "run Testing/cmake_lists.py --write"


def test_every_resource_is_listed_and_no_other():
    assert listed("MODULE_PYTHON_RESOURCES") == resources(), "run Testing/cmake_lists.py --write"


def test_the_metadata_pass_the_checks_of_the_extensions_index():
    assert re.search(r"project\((\w+)\)", TOP)[1] == "MemorizationIndex"
    assert value("EXTENSION_DEPENDS") == "PyTorch"
    repository = "MemorizationIndex/SlicerMemorizationIndex"
    assert value("EXTENSION_HOMEPAGE") == f"https://github.com/{repository}"
    raw = f"https://raw.githubusercontent.com/{repository}/main/"
    urls = [value("EXTENSION_ICONURL"), *value("EXTENSION_SCREENSHOTURLS").split()]
    assert len(urls) >= 2
    for url in urls:
        assert url.startswith(raw) and url.endswith(".png"), url
        content = (ROOT / url.removeprefix(raw)).read_bytes()
        assert content.startswith(b"\x89PNG"), url
    assert (ROOT / "LICENSE").is_file()
    for words in ("CONTRIBUTORS", "DESCRIPTION", "CATEGORY"):
        assert len(value(f"EXTENSION_{words}")) > 10


def test_the_icon_has_the_recommended_size():
    icon = ROOT / "MemorizationIndex" / "Resources" / "Icons" / "MemorizationIndex.png"
    header = icon.read_bytes()[16:24]
    assert (int.from_bytes(header[:4], "big"), int.from_bytes(header[4:], "big")) == (128, 128)


def test_files_end_their_lines_as_the_index_wants():
    for path in (ROOT / "CMakeLists.txt", ROOT / "MemorizationIndex" / "CMakeLists.txt"):
        assert b"\r" not in path.read_bytes()


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("needs cmake")
    folder = tmp_path_factory.mktemp("Slicer build")
    package = folder / "package"
    package.mkdir()
    (package / "SlicerConfig.cmake").write_text(STUB)
    (package / "UseSlicer.cmake").write_text(USE_SLICER)
    (package / "GenerateConfig.cmake").write_text("")
    (package / "CPack.cmake").write_text(
        "foreach(name HOMEPAGE CATEGORY CONTRIBUTORS DESCRIPTION ICONURL SCREENSHOTURLS DEPENDS)\n"
        "  if(NOT EXTENSION_${name})\n"
        '    message(FATAL_ERROR "EXTENSION_${name} is not set")\n'
        "  endif()\n"
        "endforeach()\n"
    )
    run = subprocess.run(
        [cmake, "-S", ROOT, "-B", folder / "build", f"-DSlicer_DIR={package}"],
        capture_output=True,
        text=True,
    )
    if "No CMAKE_C" in run.stderr or "could not find any instance" in run.stderr:
        pytest.skip("needs a C++ compiler, which CMake looks for")
    assert run.returncode == 0, run.stdout + run.stderr
    return folder / "build"


def test_cmake_configures_and_installs_the_whole_tree(build):
    installed = (build / "installed.txt").read_text().split("\n")
    assert set(installed) >= {"MemorizationIndex.py", *scripts(), *resources()}


def test_the_extension_factory_finds_the_tests(build):
    run = subprocess.run(
        ["ctest", "-N"], cwd=build, capture_output=True, text=True, check=True
    ).stdout
    assert "qSlicerMemorizationIndexModuleGenericTest" in run
    assert "py_MemorizationIndex.py" in run
