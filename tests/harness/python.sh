#!/usr/bin/env bash
# The compiled module under AddressSanitizer and UndefinedBehaviorSanitizer, called from Python.
#
# usage: python.sh [PYTHON]   an interpreter with Cython, pytest and the requirements of the package
#
# A copy of the package gets an instrumented module of the baseline level, Cython's code included, and the
# tests of the kernels run on it. Python and NumPy are not instrumented, and leaks are not searched for.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$(realpath -s "$(command -v "${1:-python3}")")
out=$PWD/build/harness-python
rm -rf "$out"
mkdir -p "$out"
cp -r src/marginpursuit "$out"
kernels=$out/marginpursuit/_kernels
rm -f "$kernels"/*.so
flags=(-std=c11 -D_GNU_SOURCE -DPy_LIMITED_API=0x030B0000 -DCYTHON_LIMITED_API=1 -fPIC -g -O1
  -ffp-contract=fast -fno-math-errno -fno-omit-frame-pointer "-I$kernels"
  "-I$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')"
  -fsanitize=address,undefined -fno-sanitize-recover=all)
"$python" -m cython -3 "$kernels/_compiled.pyx" -o "$out/_compiled.c"
"${CC:-gcc}" "${flags[@]}" -c "$out/_compiled.c" -o "$out/_compiled.o"
for file in sweep newton kernel_newton lbfgs coordinates coupling csr intervals levels link small_table; do
  "${CC:-gcc}" "${flags[@]}" -DLEVEL=baseline -c "$kernels/$file.c" -o "$out/$file.o"
done
"${CC:-gcc}" "${flags[@]}" -shared "$out"/{_compiled,sweep,newton,kernel_newton,lbfgs,coordinates,coupling,csr,intervals,levels,link,small_table}.o -lm -o "$kernels/_compiled.abi3.so"

tests=(kernels kernel_inputs kernel_memory kernel_losses joint_kernel task_kernels vector_kernels
  coordinates descent newton dual_ascent label_links compiled_lbfgs small_table one_vs_one)
files=()
for name in "${tests[@]}"; do files+=("tests/test_$name.py"); done
libraries=$("${CC:-gcc}" -print-file-name=libasan.so):$("${CC:-gcc}" -print-file-name=libubsan.so)
echo "python: $("${CC:-gcc}" --version | head -1), $("$python" --version)"
env LD_PRELOAD="$libraries" ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc PYTHONPATH="$out" OMP_NUM_THREADS=1 \
  "$python" -m pytest -q -p no:cacheprovider -x "${files[@]}"
