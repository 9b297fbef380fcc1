"""Run the comparison, draw the figures, and write everything into a folder."""

import argparse
import io
import os
from pathlib import Path

from marginpursuit.experiments import calibration_curves, demo, loss_shapes, method_losses

FIGURES = {
    "figure1": loss_shapes.draw,
    "figure2": calibration_curves.draw,
    "method_losses": method_losses.draw,
}


def main() -> None:
    """Write the figures and the report, and say where they are."""
    parser = argparse.ArgumentParser(
        prog="python -m marginpursuit.experiments",
        description="Compare on data that ships with scikit-learn; draw figures.",
    )
    parser.add_argument("folder", type=Path, help="where to write; made if missing")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)

    results, margins = demo.compare()
    for result in results:
        print(
            f"{result.data:15} {result.model:42} test error {result.test_error:.4f}  "
            f"{result.seconds:.3f} s"
        )
    for name, draw in FIGURES.items():
        for kind in ("png", "svg"):
            buffer = io.BytesIO()
            draw().savefig(buffer, format=kind, dpi=150)
            write(folder / f"{name}.{kind}", buffer.getvalue())
    path = write(folder / "report.html", demo.report(results, margins).encode())
    print(f"\nfigures in {folder.resolve()}\nreport at  {path.resolve()}")


def write(path: Path, content: bytes) -> Path:
    """Write a file under another name first: an interrupted run leaves no half of one."""
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(content)
    os.replace(partial, path)
    return path


if __name__ == "__main__":
    main()
