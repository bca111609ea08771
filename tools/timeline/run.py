"""Runs a stage with a trace, and on a GPU without one, too."""

from dataclasses import dataclass, field
from pathlib import Path
import subprocess


class RunError(Exception):
    """Why there is no trace, in a line."""


@dataclass
class Stage:
    """What is traced."""

    chapter: str  # its folder
    name: str  # STAGE or OPERATOR/STAGE
    options: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> list[str]:
        operator, _, stage = self.name.rpartition("/")
        return [*(["--operator", operator] if operator else []), "--stage", stage, *self.options]

    def program(self, build: Path) -> Path:
        return build / self.chapter / self.chapter.split("_", 1)[1]


def targets(stages: list[Stage]) -> list[str]:
    """What is built to run them."""
    return list(dict.fromkeys(str(stage.program(Path())) for stage in stages))


def run_program(program: Path, arguments: list[str], report: Path) -> int:
    """Its status. What it has measured goes to the report."""
    report.unlink(missing_ok=True)
    return subprocess.run([program, *arguments, "--json", report], stdout=subprocess.DEVNULL, check=False).returncode


def write_down(stage: Stage, build: Path, untraced: Path | None, base: Path, blocks: int) -> int:
    """Writes BASE.json, and beside it what the chapter reports: BASE.run.json and, on a GPU, BASE.untraced.json of the program
    without a trace. Returns the worst status of a program."""
    base.parent.mkdir(parents=True, exist_ok=True)
    file = base.with_suffix(".json")
    file.unlink(missing_ok=True)
    once = []
    if untraced is None and not {"--repeat", "--warmup"} & set(stage.options):
        once = ["--repeat", "1", "--warmup", "0"]
    traced = [*stage.arguments, *once, "--timeline", str(file), "--timeline-blocks", str(blocks)]
    status = run_program(stage.program(build), traced, base.with_suffix(".run.json"))
    base.with_suffix(".untraced.json").unlink(missing_ok=True)
    if status not in (0, 1, 2):
        raise RunError(f"{stage.program(build).name} ended with status {status}")
    if not file.is_file():
        return max(status, 1)
    if untraced is not None:
        status = max(status, run_program(stage.program(untraced), stage.arguments, base.with_suffix(".untraced.json")))
    return status
