"""Draw every figure into a folder, as PNG and SVG."""

import argparse
import os
from pathlib import Path

from marginpursuit.experiments import calibration_curves, loss_shapes

FIGURES = {"figure1": loss_shapes, "figure2": calibration_curves}


def main() -> None:
    """Draw the figures and say where they are."""
    parser = argparse.ArgumentParser(
        prog="python -m marginpursuit.experiments", description="Draw the figures of the paper."
    )
    parser.add_argument("folder", type=Path, help="where to write; made if missing")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, module in FIGURES.items():
        figure = module.draw()
        for kind in ("png", "svg"):
            path = folder / f"{name}.{kind}"
            # Written under another name first: an interrupted run leaves no half a picture.
            partial = path.with_suffix(f".{kind}.partial")
            figure.savefig(partial, format=kind, dpi=150)
            os.replace(partial, path)
            print(path.resolve())


if __name__ == "__main__":
    main()
