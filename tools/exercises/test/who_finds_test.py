#!/usr/bin/env python3
"""How who_finds.py reads racecheck: a stand-in for compute-sanitizer prints what that prints, also late, and gets stuck."""

import contextlib
import io
import os
from pathlib import Path
import sys
import tempfile
import time
import unittest
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from exercises import mutants, variants, who_finds  # noqa: E402

# Mistake 0 is reported behind its status, 1 passes, 2 is wrong, at 3 the program that compute-sanitizer has started does not
# end, 4 ends the process, and behind 5 the GPU takes no more calls.
STAND_IN = """#!/usr/bin/env bash
while [[ $1 != --several ]]; do shift; done
shift
while (($#)); do
  place=$(grep -nxF "$1 $2" "$STAND_IN_LIST" | cut -d: -f1)
  echo "== $1 $2"
  case $place in
    1) echo "== status 1"; echo "========= Error: Race reported between Read access at <unnamed>::variant_$STAND_IN_FIRST::k(int)" ;;
    2) echo "== status 0" ;;
    4) sleep 60 & wait ;;
    5) exit 9 ;;
    6) echo "== status 1"; exit 4 ;;
    *) echo "== status 1" ;;
  esac
  shift 2
done
"""


class Racecheck(unittest.TestCase):
    def test_each_mistake_gets_its_outcome(self) -> None:
        part = mutants.parts()[0][:7]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "compute-sanitizer").write_text(STAND_IN)
            (folder / "compute-sanitizer").chmod(0o755)
            (folder / "list").write_text("".join(f"{one.number} {what}\n" for one, what in part))
            environment = {
                "PATH": f"{folder}:{os.environ['PATH']}",
                "STAND_IN_LIST": str(folder / "list"),
                "STAND_IN_FIRST": variants.space(*part[0]),
            }
            table = who_finds.Table()
            with (
                mock.patch.dict(os.environ, environment),
                mock.patch.object(who_finds, "RACECHECK_LIMIT_S", 0.5),
                contextlib.redirect_stdout(io.StringIO()) as said,
            ):
                who_finds.racecheck("program", part, time.monotonic() + 30, table)
        expected = ["reported", "passes", "noticed", "noticed", "noticed", "noticed", "noticed"]
        self.assertEqual([table.outcomes[one.number, what] for one, what in part], expected)
        self.assertIn(f"{part[1][0].number} {part[1][1]}: passes\n", said.getvalue())

    def test_all_that_racecheck_follows_is_dealt_out_once(self) -> None:
        dealt = [(one.number, name) for part in mutants.parts() for one, name in part]
        self.assertEqual(len(dealt), len(set(dealt)))
        kinds = [mutants.kind(*pair) for pair in mutants.mistakes()]
        self.assertEqual(len(dealt), sum(what in mutants.RACECHECK_KINDS for what in kinds))


if __name__ == "__main__":
    unittest.main()
