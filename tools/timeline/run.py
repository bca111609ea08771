"""Runs a stage, and keeps beside its trace what it was: the stage, the card, the date, and the time with and without a trace."""

from dataclasses import dataclass, field
import datetime
import json
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


def times(report: dict) -> dict[str, float | None]:
    """Of the only stage of a report, in milliseconds: in a graph, and one call with a cold cache."""
    stage = report["results"][0]["stages"][0]
    time = stage["time_ms"] or {}
    return {"graph": time.get("graph"), "cold": time.get("median")}


def run_program(program: Path, arguments: list[str], report: Path) -> tuple[int, dict | None]:
    """Its status, and what it has reported."""
    report.unlink(missing_ok=True)
    done = subprocess.run([program, *arguments, "--json", report], stdout=subprocess.DEVNULL, check=False)
    if not report.is_file():
        return done.returncode, None
    result = json.loads(report.read_text(encoding="utf-8"))
    report.unlink()
    return done.returncode, result


def write_down(stage: Stage, build: Path, untraced: Path | None, base: Path, blocks: int) -> int:
    """Writes BASE.json. Returns the status of the program."""
    base.parent.mkdir(parents=True, exist_ok=True)
    file, report = base.with_suffix(".json"), base.with_suffix(".run.json")
    file.unlink(missing_ok=True)
    is_emulated = untraced is None
    once = ["--repeat", "1", "--warmup", "0"] if is_emulated and not {"--repeat", "--warmup"} & set(stage.options) else []
    status, result = run_program(
        stage.program(build), [*stage.arguments, *once, "--trace", str(file), "--trace-blocks", str(blocks)], report
    )
    if status > 1 or not file.is_file():
        if status > 2 or status < 0:
            raise RunError(f"{stage.program(build).name} ended with status {status}")
        return status or 1
    about = {"chapter": stage.chapter, "stage": stage.name, "date": datetime.date.today().isoformat()}
    if result:
        about |= {"operator": result["results"][0]["operator"], "problem": result["results"][0]["problem"], "device": result["device"]}
        about["traced_ms"] = times(result)
    if not is_emulated:
        status_of_other, other = run_program(stage.program(untraced), stage.arguments, report)
        if other and status_of_other == 0:
            about["untraced_ms"] = times(other)
    text = file.read_text(encoding="utf-8")
    file.write_text('{"about": ' + json.dumps(about) + ",\n " + text.removeprefix("{"), encoding="utf-8")
    return status
