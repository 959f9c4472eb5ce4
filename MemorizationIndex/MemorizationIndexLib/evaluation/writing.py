"""What an evaluation leaves in a folder: tables, figures and one page that shows them."""

from __future__ import annotations

from pathlib import Path

from MemorizationIndexLib.evaluation.experiment import Experiment
from MemorizationIndexLib.evaluation.features import EvaluationError
from MemorizationIndexLib.evaluation.figures import CAPTIONS, FIGURES, write_figures
from MemorizationIndexLib.evaluation.tables import all_tables
from MemorizationIndexLib.report.writing import write_whole

TABLES, FIGURE_FOLDER, PAGE = "tables", "figures", "evaluation.md"


def write_evaluation(experiment: Experiment, folder: str | Path) -> Path:
    """Write tables (CSV and Markdown), figures (PDF, SVG, PNG) and the page with all of them.

    Args:
        experiment: All trials.
        folder: Where to; it is made if it is missing.

    Returns:
        The page, ``evaluation.md``.

    Raises:
        EvaluationError: A file cannot be written, or Matplotlib is missing.
    """
    folder = Path(folder)
    try:
        for name in (TABLES, FIGURE_FOLDER):
            (folder / name).mkdir(parents=True, exist_ok=True)
        page = [_head(experiment)]
        for table in all_tables(experiment):
            write_whole(folder / TABLES / f"{table.name}.csv", table.csv())
            text = f"## {table.title}\n\n{table.note}\n\n{table.markdown()}"
            write_whole(folder / TABLES / f"{table.name}.md", text)
            # Long tables are read in a spreadsheet; the page stays a page.
            if table.name != "set_levels":
                page.append(text)
        write_figures(experiment, folder / FIGURE_FOLDER)
        page.append("## Figures\n")
        page += [f"![{name}]({FIGURE_FOLDER}/{name}.png)\n\n{CAPTIONS[name]}\n" for name in FIGURES]
        write_whole(folder / PAGE, "\n".join(page))
    except OSError as error:
        raise EvaluationError(
            f"Nothing can be written in {folder} ({error.strerror or error}); choose another "
            "place with --out."
        ) from error
    return folder / PAGE


def _head(experiment: Experiment) -> str:
    lines = [
        "# Evaluation",
        "",
        f"Encoder: {experiment.encoder} ({experiment.encoder_description}; "
        f"{experiment.fingerprint}).",
        "",
    ]
    for facts in experiment.datasets:
        trial = next(one for one in experiment.trials if one.dataset == facts.name)
        lines.append(
            f"- {facts.name}: {facts.slices} slices, {facts.subject_rule}; each split has "
            f"{trial.reference_subjects} subjects in the reference and {trial.test_subjects} in "
            "the test."
        )
        lines += [f"  - Note: {sentence}" for sentence in facts.warnings]
        lines += [f"  - Not read: {place}: {why}" for place, why in facts.refused]
    notes = dict.fromkeys(
        f"{one.dataset}, {one.protocol}: {note}" for one in experiment.trials for note in one.notes
    )
    lines += ["", *(f"- Note on {note}" for note in notes), ""]
    return "\n".join(lines)
