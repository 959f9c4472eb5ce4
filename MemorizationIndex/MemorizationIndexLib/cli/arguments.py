"""What can be said on the command line, and the help that teaches it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from MemorizationIndexLib.cli import commands, evaluate
from MemorizationIndexLib.encoders.registry import AUTO
from MemorizationIndexLib.images.slicing import PLANES
from MemorizationIndexLib.index.protocols import PROTOCOLS
from MemorizationIndexLib.index.verdict import ALPHA
from MemorizationIndexLib.version import __version__

_ABOUT = """\
Has a generative MRI model copied its training patients?

Two steps:
  memorization-index build training/ --cohort training.micohort
  memorization-index score synthetic/ --cohort training.micohort --out results/
and open results/report.html. To see it work on made-up patients first:
  memorization-index demo
"""

_INPUTS = """\
INPUT is any number of files, folders (searched through) or a manifest.csv:
  NIfTI, NRRD, MHA/MHD, DICOM, PNG, JPEG, TIFF, and .npy/.npz stacks (N, H, W).
A manifest.csv has the columns path, subject_id and, if wanted, slice_index; one that lies in a
folder, or beside a file, that is given counts too.

Who is who decides the calibration. The subject of an image is, in this order: what --subjects
finds in its path; the manifest; the DICOM PatientID; a BIDS name (sub-01); the parent folder, or
the file where all volumes lie in one folder. The run says what it found.
"""

_BUILD = f"""\
Encode the real training images and calibrate: how similar are slices of different patients, and
how similar are known copies in every disguise?

{_INPUTS}
examples:
  memorization-index build training/ --cohort training.micohort
  memorization-index build manifest.csv --cohort train.micohort
  memorization-index build scans/ --cohort scans.micohort --subjects '(P[0-9]+)_'
"""

_SCORE = f"""\
Compare every slice with the cohort and write into --out:
  report.html   the finding, pictures and what the audit cannot see, for reading and printing
  slices.csv    one row per slice: verdict, ONI, MI, p, q, nearest patient and slice
  volumes.csv   one row per volume
  summary.json  every number that must stand beside the result

Verdicts: 'copy' (as similar as known copies), 'suspicious' (more similar than slices of other
patients are), 'no evidence', 'not scored'. No copy found is not proof of privacy.

{_INPUTS}
exit codes: 0 done, 2 bad input, 3 a slice met --fail-on

examples:
  memorization-index score synthetic/ --cohort training.micohort --out results/
  memorization-index score fake.nii.gz --cohort c.micohort --out r/ --fail-on copy
"""

_EVALUATE = """\
How well does it work on your images? Splits each DATA by subject into reference and test, plants
copies in every disguise, and counts what is found, beside the field's own measures (FID, KID, C_T,
AuthPct, Vendi) and the figures published for the index. Each DATA (folder, file or manifest.csv)
is one dataset of at least 10 subjects. Writes into --out:
  evaluation.md  every table and figure on one page
  tables/        the tables as CSV and Markdown
  figures/       the figures as PDF, SVG and PNG
  trials/        finished trials: an interrupted run goes on from there

examples:
  memorization-index evaluate brain/ knee/ --out evaluation/
  memorization-index evaluate scans/ --out e/ --protocol calibrated --protocol reference
"""

_CURATE = """\
Write the set that 'score' looked at without the slices it dropped, into a new folder. The images
themselves are never touched. A 2D image with a dropped verdict is left out; of a NumPy stack the
slices with one; a volume, a DICOM folder or a file of several pages with one is left out as a
whole. Beside the images lie manifest.csv (what was kept) and dropped.csv (what was not, and why).

examples:
  memorization-index curate results/ --to cleaned/
  memorization-index curate results/ --to cleaned/ --drop copy --link
"""

_DUPLICATES = f"""\
Compare images with themselves: which slices, and which whole subjects, occur twice under different
names? Flips, small rotations and crops are seen through. Two slices of different subjects are one
if they are as alike as known copies are; within a subject only equal pixels count. Names that share
no slice but hold neighboring slices of one person are linked too, where subjects with several
slices teach what neighbors look like. Slices further apart, and other acquisitions of one person,
are not found.

{_INPUTS}
example:
  memorization-index duplicates training/ --out twice/
"""


class _Parser(argparse.ArgumentParser):
    """Ends a complaint about arguments with where to read on."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: error: {message}; '{self.prog} --help' explains.\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser; the chosen command is in ``run``."""
    top = _Parser(
        prog="memorization-index",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    sub = top.add_subparsers(title="commands", metavar="COMMAND", required=True)

    build = _command(sub, "build", "make a cohort of the real training images", _BUILD)
    build.set_defaults(run=commands.build)
    _add_inputs(build)
    build.add_argument(
        "--cohort",
        required=True,
        type=Path,
        metavar="C.micohort",
        help="where to put the cohort; .micohort is added, and a cohort there is replaced",
    )
    build.add_argument(
        "--encoder",
        default=AUTO,
        metavar="NAME",
        help="auto (MRI-CORE if its weights are there), builtin, mri-core, a TorchScript file or "
        "module:function (default: auto)",
    )
    build.add_argument(
        "--protocol",
        default="calibrated",
        choices=list(PROTOCOLS),
        help="; ".join(f"{p.name}: {p.description}" for p in PROTOCOLS.values()),
    )
    build.add_argument(
        "--plane", default="auto", choices=list(PLANES), help="how to cut volumes (default: auto)"
    )
    build.add_argument("--seed", type=int, default=0, help="of folds and known copies (default: 0)")
    build.add_argument(
        "--input-size", type=_positive, metavar="PIXELS", help="side of the encoded slices"
    )
    build.add_argument(
        "--robust",
        action=argparse.BooleanOptionalAction,
        help="search flips, small rotations and crops too (default: where the encoder makes it "
        "cheap)",
    )
    build.add_argument(
        "--position-embedding",
        choices=["checkpoint", "none"],
        help="MRI-CORE only; none is what the released code of the paper computes",
    )
    build.add_argument(
        "--pooling",
        choices=["channels", "rows"],
        help="MRI-CORE only; rows is what the released code of the paper computes",
    )
    build.add_argument(
        "--precision",
        choices=["float32", "bfloat16", "auto"],
        help="MRI-CORE only; the precision of its arithmetic",
    )
    build.add_argument(
        "--anonymize", action="store_true", help="store salted hashes in place of subject names"
    )
    build.add_argument(
        "--thumbnails",
        action="store_true",
        help="store small pictures, so that reports show them where the images are not at hand",
    )
    build.add_argument(
        "--parts",
        action="store_true",
        help="let 'score' find copied parts of slices too; for that, pictures of 112 pixels of all "
        "slices are stored",
    )
    _add_computing(build)

    score = _command(sub, "score", "compare synthetic images with a cohort", _SCORE)
    score.set_defaults(run=commands.score)
    _add_inputs(score)
    score.add_argument(
        "--cohort", required=True, type=Path, metavar="C.micohort", help="what to compare with"
    )
    score.add_argument("--out", required=True, type=Path, metavar="DIR", help="where results go")
    score.add_argument(
        "--alpha",
        type=float,
        default=ALPHA,
        help="share of innocent slices that may be called suspicious; a cohort with parts "
        f"tests each slice twice, as a whole and by parts (default: {ALPHA})",
    )
    score.add_argument(
        "--encoder",
        metavar="NAME",
        help="the cohort's encoder, if it is your own and lies elsewhere now (default: as the "
        "cohort remembers); another encoder is refused",
    )
    score.add_argument(
        "--plane", choices=list(PLANES), help="how to cut volumes (default: as the cohort was)"
    )
    score.add_argument(
        "--fail-on",
        choices=["copy", "suspicious"],
        help="exit with 3 if a slice has this verdict or a graver one",
    )
    score.add_argument(
        "--no-verify",
        action="store_true",
        help="do not lay the matches of flagged slices over them; quicker",
    )
    score.add_argument(
        "--no-parts",
        action="store_true",
        help="do not search copied parts, though the cohort was built with --parts; quicker",
    )
    score.add_argument(
        "--hide-subjects",
        action="store_true",
        help="leave subject names and pictures out of the report; the tables still hold names",
    )
    _add_computing(score)

    show = _command(sub, "show", "say what a cohort is", "Print the facts of a cohort.")
    show.set_defaults(run=commands.show)
    show.add_argument("cohort", type=Path, metavar="C.micohort")
    show.add_argument("--all", action="store_true", help="list all subjects, not only the first")
    show.add_argument("--json", action="store_true", help="as JSON")

    curate = _command(sub, "curate", "write a set without its copies", _CURATE)
    curate.set_defaults(run=evaluate.curate)
    curate.add_argument("result", type=Path, metavar="RESULT", help="the folder that score wrote")
    curate.add_argument(
        "--to", required=True, type=Path, metavar="DIR", help="a new folder for the cleaned set"
    )
    curate.add_argument(
        "--drop",
        type=evaluate.verdict_list,
        default="copy,suspicious",
        metavar="VERDICTS",
        help="verdicts to leave out, separated by commas (default: copy,suspicious)",
    )
    how = curate.add_mutually_exclusive_group()
    how.add_argument(
        "--link", action="store_true", help="link unchanged files; a change to one changes both"
    )
    how.add_argument("--copy", dest="link", action="store_false", help="copy files (the default)")
    _add_quiet(curate)

    duplicates = _command(
        sub, "duplicates", "find slices and subjects that occur twice", _DUPLICATES
    )
    duplicates.set_defaults(run=evaluate.duplicates)
    _add_inputs(duplicates)
    duplicates.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="write duplicates.csv, linked.csv and duplicates.json there",
    )
    duplicates.add_argument(
        "--encoder", default=AUTO, metavar="NAME", help="as for build (default: auto)"
    )
    duplicates.add_argument(
        "--plane", default="auto", choices=list(PLANES), help="how to cut volumes (default: auto)"
    )
    _add_computing(duplicates)

    trial = _command(sub, "evaluate", "measure how well it works on your images", _EVALUATE)
    trial.set_defaults(run=evaluate.evaluate)
    trial.add_argument("data", nargs="+", type=Path, metavar="DATA", help="one dataset each")
    trial.add_argument("--out", required=True, type=Path, metavar="DIR", help="where results go")
    trial.add_argument(
        "--encoder", default=AUTO, metavar="NAME", help="as for build (default: auto)"
    )
    trial.add_argument(
        "--protocol",
        action="append",
        choices=list(PROTOCOLS),
        help="may be given several times, to run protocols side by side (default: calibrated)",
    )
    trial.add_argument(
        "--seeds", type=_positive, default=5, metavar="N", help="splits of each DATA (default: 5)"
    )
    trial.add_argument(
        "--slices-per-subject",
        type=evaluate.whole_number,
        default=20,
        metavar="N",
        help="most slices of one subject, taken evenly; 0 for all (default: 20)",
    )
    trial.add_argument(
        "--subjects",
        metavar="PATTERN",
        help="regular expression that finds the subject in a path; its first group is the name",
    )
    trial.add_argument(
        "--plane", default="auto", choices=list(PLANES), help="how to cut volumes (default: auto)"
    )
    trial.add_argument(
        "--input-size", type=_positive, metavar="PIXELS", help="side of the encoded slices"
    )
    trial.add_argument(
        "--robust",
        action=argparse.BooleanOptionalAction,
        help="search flips, small rotations and crops too, where the protocol allows it (default: "
        "where the encoder makes it cheap)",
    )
    _add_computing(trial)

    demo = _command(
        sub,
        "demo",
        "audit made-up patients, to see how it works",
        "Make phantom patients and a synthetic volume with disguised copies of some of their "
        "slices,\naudit it, and leave everything in a folder to look at. Needs no images, no "
        "weights, no network.",
    )
    demo.set_defaults(run=commands.demo)
    demo.add_argument(
        "--out",
        type=Path,
        default=Path("memorization-index-demo"),
        metavar="DIR",
        help="where everything goes (default: memorization-index-demo)",
    )
    _add_quiet(demo)

    weights = _command(
        sub,
        "weights",
        "see, fetch, register or remove the weights of MRI-CORE",
        "Without an option: what weights are there, from where, under which license.",
    )
    weights.set_defaults(run=commands.weights)
    choice = weights.add_mutually_exclusive_group()
    choice.add_argument("--fetch", action="store_true", help="download them; asks first")
    choice.add_argument("--file", type=Path, metavar="PATH", help="use a copy that is here already")
    choice.add_argument("--remove", action="store_true", help="delete the fetched file")
    weights.add_argument("--yes", action="store_true", help="with --fetch: do not ask")
    weights.add_argument(
        "--forget",
        action="store_true",
        help="with --remove: forget the checksum of the first accepted file too",
    )
    _add_quiet(weights)

    cache = _command(
        sub,
        "cache",
        "see or clear the features kept from earlier runs",
        "Features of slices are kept, without pictures or names, so that the next run on the same "
        "images\nneed not encode them again.",
    )
    cache.set_defaults(run=commands.cache)
    cache.add_argument("--clear", action="store_true", help="delete them")
    return top


def _command(
    sub: argparse._SubParsersAction[_Parser], name: str, short: str, long: str
) -> argparse.ArgumentParser:
    return sub.add_parser(
        name,
        help=short,
        description=long,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_inputs(command: argparse.ArgumentParser) -> None:
    command.add_argument("inputs", nargs="+", metavar="INPUT", help="files, folders, manifest.csv")
    command.add_argument(
        "--subjects",
        metavar="PATTERN",
        help="regular expression that finds the subject in a path; its first group is the name",
    )
    command.add_argument(
        "--any-modality", action="store_true", help="take DICOM series other than MR too"
    )


def _add_computing(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)"
    )
    command.add_argument(
        "--no-cache", action="store_true", help="neither use nor keep features of earlier runs"
    )
    _add_quiet(command)


def _add_quiet(command: argparse.ArgumentParser) -> None:
    command.add_argument("--quiet", action="store_true", help="print nothing but errors")


def _positive(text: str) -> int:
    value = int(text) if text.isascii() and text.isdigit() else 0
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value
