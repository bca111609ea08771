"""How the book is made (docs/README.md). It takes what stages grow out of from tools/stages."""

from pathlib import Path
import sys

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
