#!/usr/bin/env bash
# Compiles the kernels and their C harness for one target, with warnings as errors, and runs it.
#
# usage: run.sh address|thread|clang|musl|aarch64|windows|windows-arm|macos|plain
#
# address: AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer. thread: ThreadSanitizer,
# four threads. musl needs musl-gcc; aarch64 needs aarch64-linux-gnu-gcc and qemu-aarch64; windows
# needs x86_64-w64-mingw32-gcc and runs under wine where it is installed. windows-arm and macos, both
# for Arm, are compiled and linked only, by the package ziglang of PYTHON.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${1:-plain}
kernels=src/marginpursuit/_kernels
out=build/harness-$target
mkdir -p "$out"

compiler=("${CC:-gcc}") optimise=-O1 sanitize=() libraries=(-lm) arguments=() runner=()
is_x86=$([ "$(uname -m)" = x86_64 ] && echo 1 || echo 0)
case $target in
  plain) optimise=-O3 ;;
  address) sanitize=(-g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all) ;;
  thread) sanitize=(-g -fsanitize=thread) arguments=(4) ;;
  clang) compiler=(clang) optimise=-O2 ;;
  musl) compiler=(musl-gcc) optimise=-O2 libraries+=(-static) ;;
  aarch64) compiler=(aarch64-linux-gnu-gcc) optimise=-O2 is_x86=0 libraries+=(-static)
    runner=(qemu-aarch64) ;;
  windows) compiler=(x86_64-w64-mingw32-gcc) optimise=-O2 is_x86=1 libraries+=(-static) ;;
  windows-arm) compiler=("${PYTHON:-python3}" -m ziglang cc -target aarch64-windows) optimise=-O2 is_x86=0 ;;
  macos) compiler=("${PYTHON:-python3}" -m ziglang cc -target aarch64-macos) optimise=-O2 is_x86=0 ;;
  *) sed -n 's/^# usage: /run.sh: usage: /p' "$0" >&2; exit 2 ;;
esac
version=$(cd "$out" && "${compiler[@]}" --version 2>&1 | head -1) || # zig writes an empty object file
  { echo "run.sh: ${compiler[*]} does not run: $version" >&2; exit 3; }

flags=(-std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -ffp-contract=fast -fno-math-errno "$optimise"
  ${sanitize[@]+"${sanitize[@]}"} "-I$kernels")
levels=(baseline)
if [ "$is_x86" = 1 ]; then
  flags+=(-DMARGINPURSUIT_X86)
  levels+=(avx2 avx512)
fi
avx2=(-mavx2 -mfma -mf16c)
objects=()
for level in "${levels[@]}"; do
  simd=()
  [ "$level" = baseline ] || simd=("${avx2[@]}")
  [ "$level" != avx512 ] || simd+=(-mavx512f -mavx512bw -mavx512dq -mavx512vl)
  for file in sweep newton kernel_newton lbfgs link; do
    object=$out/$file-$level.o
    "${compiler[@]}" "${flags[@]}" ${simd[@]+"${simd[@]}"} "-DLEVEL=$level" -c "$kernels/$file.c" -o "$object"
    objects+=("$object")
  done
done
"${compiler[@]}" "${flags[@]}" tests/harness/kernels.c "$kernels"/{coupling,csr,intervals,levels,small_table}.c "${objects[@]}" \
  "${libraries[@]}" $([[ $target == windows* ]] || echo -lpthread) -o "$out/kernels.exe"

echo "$target: $version"
case $target in windows-arm | macos) echo "compiled; not run: it is for another system"; exit 0 ;; esac
if [ "$target" = windows ]; then
  wine=$(command -v wine || command -v wine64 || ls /usr/lib/wine/wine64 2>/dev/null || true)
  [ -n "$wine" ] || { echo "compiled; not run: wine is not installed"; exit 0; }
  runner=(env WINEDEBUG=-all "$wine")
fi
${runner[@]+"${runner[@]}"} "$out/kernels.exe" ${arguments[@]+"${arguments[@]}"}
