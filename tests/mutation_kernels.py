"""Mutation testing of the C kernels: change one operator or number; does the harness notice?

    python tests/mutation_kernels.py [--sample 20] [--seed 0] [--processes 2] [newton.c loss.h ...]

The files that a mutant changes are compiled for the baseline SIMD level, without optimisation, and
`harness/kernels.c` runs on them up to its first failure. A check that fails, a crash and a run over
the time limit count as killed. Survivors are printed; some are equivalent to the original (a limit
on steps, a prefetch, a choice for speed).
"""

import argparse
import random
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import TimeoutError as NotReadyError
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
KERNELS = ROOT / "src" / "marginpursuit" / "_kernels"
HARNESS = ROOT / "tests" / "harness" / "kernels.c"
BUILT = ROOT / "build" / "mutation"
FLAGS = [
    *("gcc", "-std=c11", "-D_GNU_SOURCE", "-ffp-contract=fast", "-fno-math-errno", "-O0", "-w"),
    *("-DLEVEL=baseline", "-DFIRST_FAILURE"),
]

#: Files that are mutated, and the files to compile for them.
FILES = {
    **dict.fromkeys(
        ("loss.h", "vec_math.h", "joint.h", "vectors.h", "sweep.h"),
        "sweep newton kernel_newton lbfgs",
    ),
    **dict.fromkeys(("sweep.c", "products.h", "short_rows.h", "tiles.h", "spread.h"), "sweep"),
    **dict.fromkeys(("descent.h", "dual_pass.h", "task_lanes.h", "class_tiles.h"), "sweep"),
    **{
        "csr_passes.h": "sweep",
        "newton.c": "newton",
        "newton_system.h": "newton",
        "kernel_newton.c": "kernel_newton",
        "cholesky.h": "newton kernel_newton",
        "coupling.c": "coupling",
        "intervals.c": "intervals",
        "lbfgs.c": "lbfgs",
        "link.c": "link",
        "small_table.c": "small_table",
        "csr.c": "csr",
    },
}
OBJECTS = (
    *("sweep", "newton", "kernel_newton", "lbfgs", "link", "small_table", "coupling"),
    *("csr", "intervals"),
)

SWAPS = {
    **{"+": "-", "-": "+", "*": "/", "/": "*", "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*="},
    **{"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "==", "&&": "||", "||": "&&"},
}
#: Operators with spaces on both sides, and numbers that are no part of a name.
SITE = re.compile(
    r"(?<= )([-+*/]=?|[<>]=?|==|!=|&&|\|\|)(?= )"
    r"|(?<![\w.])(\d+(?:\.\d+)?(?:e-?\d+)?)\b(?!\.)"
)
SKIPPED = re.compile(r"/\*[\s\S]*?\*/|^#[^\n]*$", flags=re.MULTILINE)


class Site(NamedTuple):
    """A place in a file, and what it becomes."""

    file: str
    start: int
    end: int
    new: str


def sites(file: str) -> list[Site]:
    """Return the places that can be changed: no comments, no first lines of directives."""
    text = (KERNELS / file).read_text(encoding="utf-8")
    blank = SKIPPED.sub(_blanked, text)
    found = []
    for match in SITE.finditer(blank):
        old = match.group()
        new = SWAPS.get(old) or ("1" if float(old) == 0.0 else f"({old} * 2)")
        found.append(Site(file, match.start(), match.end(), new))
    return found


def _blanked(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group())


def describe(site: Site) -> str:
    """Return the line of a site, with its change."""
    text = (KERNELS / site.file).read_text(encoding="utf-8")
    line = text.count("\n", 0, site.start) + 1
    old, whole = text[site.start : site.end], text.splitlines()[line - 1].strip()
    return f"line {line}: {old} -> {site.new} in: {whole}"


def outcome(site: Site | None, seconds: float = 60.0) -> str:
    """Return "killed", "survived" or "not compiled" for a mutant, or for the original (None)."""
    with tempfile.TemporaryDirectory() as folder:
        sources, program = Path(folder, "sources"), str(Path(folder, "kernels"))
        shutil.copytree(KERNELS, sources, ignore=shutil.ignore_patterns("*.so", "*.py*"))
        if site is not None:
            text = (KERNELS / site.file).read_text(encoding="utf-8")
            changed = text[: site.start] + site.new + text[site.end :]
            (sources / site.file).write_text(changed, encoding="utf-8")
        wanted = FILES[site.file].split() if site else []
        objects = [
            str((Path(folder) if name in wanted else BUILT) / f"{name}.o") for name in OBJECTS
        ]
        for name in wanted:
            if _compile(sources / f"{name}.c", Path(folder), sources).returncode:
                return "not compiled"
        link = ["gcc", *map(str, BUILT.glob("harness*.o")), *objects, "-lm", "-lpthread"]
        subprocess.run([*link, "-o", program], check=True, capture_output=True)
        try:
            run = subprocess.run([program], capture_output=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return "killed"
        return "killed" if run.returncode else "survived"


def _compile(
    source: Path, folder: Path, include: Path = KERNELS, prefix: str = ""
) -> subprocess.CompletedProcess[bytes]:
    """Compile a file into a folder."""
    target = str(folder / f"{prefix}{source.stem}.o")
    command = [*FLAGS, f"-I{include}", "-c", str(source), "-o", target]
    return subprocess.run(command, capture_output=True)


def _build() -> None:
    """Compile what no mutant changes, and check that the harness passes."""
    BUILT.mkdir(parents=True, exist_ok=True)
    for name in OBJECTS:
        _compile(KERNELS / f"{name}.c", BUILT).check_returncode()
    for source in (HARNESS, KERNELS / "levels.c"):
        _compile(source, BUILT, prefix="harness_").check_returncode()
    if outcome(None) != "survived":
        raise SystemExit("the harness fails without a change")


def _outcomes(sample: list[Site], chosen: argparse.Namespace) -> Iterator[tuple[Site, str]]:
    """Yield the outcome of each mutant, until the time is over."""
    end = time.monotonic() + chosen.seconds
    with get_context("fork").Pool(chosen.processes) as pool:
        results = [(site, pool.apply_async(outcome, (site,))) for site in sample]
        for site, result in results:
            left = max(0.0, end - time.monotonic())
            try:
                yield site, result.get(left)
            except NotReadyError:
                yield site, "not run"


def main() -> None:
    """Sample mutants of each file, and print those that the harness does not notice."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="*", default=list(FILES))
    parser.add_argument("--sample", type=int, default=20, help="mutants of each file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600.0, help="of all mutants")
    chosen = parser.parse_args()
    _build()
    sample: list[Site] = []
    for file in chosen.file:
        places = sites(file)
        sample += random.Random(chosen.seed).sample(places, min(len(places), chosen.sample))
    random.Random(chosen.seed).shuffle(sample)  # all files have mutants when the time is over
    found = list(_outcomes(sample, chosen))
    for file in chosen.file:
        own = {what: [s for s, x in found if s.file == file and x == what]
               for what in ("killed", "survived", "not compiled", "not run")}  # fmt: skip
        counts = ", ".join(f"{len(some)} {what}" for what, some in own.items() if some)
        print(f"{file} ({len(sites(file))} places): {counts}", flush=True)
        for site in sorted(own["survived"], key=lambda s: s.start):
            print(f"  survivor, {describe(site)}", flush=True)


if __name__ == "__main__":
    main()
