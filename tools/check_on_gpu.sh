#!/usr/bin/env bash
# Everything that only a GPU can tell: tools/check_on_gpu.sh OUTPUT [PART...]
#   build     configures and builds the cuda preset
#   test      its tests
#   sanitize  compute-sanitizer over the chapters, on small and odd problems
#   time      the timings of the chapters' tables, one JSON object a line, into OUTPUT/timings.jsonl
# Without PARTs, all of them, in this order. Libraries outside the system are found through CMAKE_PREFIX_PATH. All parts
# run, also after one has failed; the status is 1 if any has.
set -uo pipefail

parts=(build test sanitize time)
output=${1:-}
if [[ -z $output || $output == -* ]]; then
  echo "usage: $0 OUTPUT [${parts[*]}]" >&2
  exit 2
fi
if (($# > 1)); then parts=("${@:2}"); fi
mkdir -p "$output" || exit 2
output=$(readlink -f "$output")
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." || exit 2

if ! command -v nvcc >/dev/null; then PATH=$PATH:/usr/local/cuda/bin; fi
chapter=build/cuda/01_linear_attention/linear_attention

build() { cmake --preset cuda && cmake --build --preset cuda --parallel "$(nproc)"; }

# A few at a time: every test takes memory on the GPU for its context.
test_all() { ctest --preset cuda --timeout 300 --parallel 4; }

# Shapes: L that no tile divides; Dk in each tier of `lmha` and above the last; Dk and Dv odd.
sanitize() {
  local tool shape status=0
  local -a sizes
  for tool in memcheck racecheck; do
    for shape in "70 33 5" "65 64 64" "33 100 67" "31 201 30" "7 300 3"; do
      read -ra sizes <<<"$shape"
      echo "-- $tool: L=${sizes[0]} Dk=${sizes[1]} Dv=${sizes[2]}"
      compute-sanitizer --tool $tool --error-exitcode 1 "$chapter" -B 2 -H 3 -L "${sizes[0]}" \
        --key-dim "${sizes[1]}" --value-dim "${sizes[2]}" --repeat 1 --warmup 0 || status=1
    done
  done
  return $status
}

# The shapes at which fast-transformers was measured.
time_all() {
  local shape L status=0
  local -a sizes
  : >"$output/timings.jsonl"
  for shape in "4 8 64" "8 8 64" "4 8 128" "8 8 128"; do
    read -ra sizes <<<"$shape"
    for L in 512 2048 8192 16384; do
      echo "-- B=${sizes[0]} H=${sizes[1]} Dk=Dv=${sizes[2]} L=$L"
      "$chapter" --operator causal_dot_product --stage atomic,lmha,lmha_low_occupancy,dispatch \
        -B "${sizes[0]}" -H "${sizes[1]}" -L $L --key-dim "${sizes[2]}" --value-dim "${sizes[2]}" --json - |
        tr -d '\n' >>"$output/timings.jsonl" || status=1
      echo >>"$output/timings.jsonl"
    done
  done
  return $status
}

failed=0
for part in "${parts[@]}"; do
  start=$SECONDS
  echo "==== $part"
  case $part in
    build) build ;;
    test) test_all ;;
    sanitize) sanitize ;;
    time) time_all ;;
    *)
      echo "there is no part '$part'" >&2
      exit 2
      ;;
  esac || failed=1
  echo "==== $part took $((SECONDS - start)) s$( ((failed)) && echo '; something has FAILED' )"
done
exit $failed
