#!/usr/bin/env bash
# Everything that only a GPU can tell: tools/check_on_gpu.sh OUTPUT [PART...]
#   build     configures and builds the cuda preset
#   test      its tests
#   sanitize  compute-sanitizer over the chapters, on small and odd problems
#   compare   only where it is named: the sweep behind docs/timings, into OUTPUT/compare.json and nothing else. It takes
#             MINUTES (8); `./tutorial compare --render OUTPUT/compare.json --publish` makes tables and pictures of it
# Without PARTs, the first three, in this order. CHAPTERS="02 03" restricts `sanitize` to these. Libraries outside
# the system are found through CMAKE_PREFIX_PATH. All parts run, also after one has failed; the status is 1 if any has.
set -uo pipefail

parts=(build test sanitize)
output=${1:-}
if [[ -z $output || $output == -* ]]; then
  echo "usage: $0 OUTPUT [${parts[*]} compare]" >&2
  exit 2
fi
if (($# > 1)); then parts=("${@:2}"); fi
mkdir -p "$output" || exit 2
output=$(readlink -f "$output")
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." || exit 2

if ! command -v nvcc >/dev/null; then PATH=$PATH:/usr/local/cuda/bin; fi
chapters=${CHAPTERS:-01 02 03 04 05 06}
linear_attention=build/cuda/01_linear_attention/linear_attention
chunkwise=build/cuda/02_chunkwise/chunkwise
gla=build/cuda/03_gla/gla
fused_chunk=build/cuda/04_fused_chunk/fused_chunk
deltanet_wy=build/cuda/05_deltanet_wy/deltanet_wy
scan=build/cuda/06_scan/scan

# Its pictures stay where it has drawn them.
compare_all() {
  local status=0
  PYTHONPATH=tools python3 -P -m compare --build build/cuda --backend cuda --minutes "${MINUTES:-8}" \
    --results build/compare/timings.json || status=1
  cp build/compare/timings.json "$output/compare.json" && return $status
}

build() { cmake --preset cuda && cmake --build --preset cuda --parallel "$(nproc)"; }

# A few at a time: every test takes memory on the GPU for its context.
test_all() { ctest --preset cuda --timeout 300 --parallel 4; }

# sanitized CHAPTER B H L Dk Dv [OPTION...]: a small problem under memcheck, racecheck and synccheck. racecheck (CUDA
# 13.0) follows an mbarrier only where each thread that reads or writes arrives itself. Where one lane arrives for
# its warp after __syncwarp(), and between bar.arrive and bar.sync, it reports races that are none; a kernel of ten
# lines shows it. So it reports the normaliser on Hopper, in chapter 04 the decays of both `specialized`, and Q S of
# `hopper_gradients` there, which four lanes hand over for their warps, those of simple_gla's `dispatch` as 12.0, and
# in chapter 05 the decays in the slots of `cluster` of gated_delta_rule, the blocks on the diagonal in `one_block` of
# both operators, and the sums and row products in `warpgroups` of gated_delta_rule --backward. ThreadSanitizer on the emulator
# checks these hand-overs.
# synccheck looks for the threads of a bar.sync at one place in the code. In the last kernels of `warpgroups` and
# `longer_chunks` of delta_rule --backward, two warpgroups wait for each other at a named barrier of 256 threads,
# each at its own line. PTX allows that: a barrier counts threads, whatever instruction they come from. synccheck
# reports "Divergent thread(s) in block" there, and nothing at the barriers of 128 threads, which all pass at one
# line. It is the same in `cluster` of kda.
sanitized() {
  local tool status=0
  for tool in memcheck racecheck synccheck; do
    echo "-- $tool: ${1##*/} B=$2 H=$3 L=$4 Dk=$5 Dv=$6 ${*:7}"
    compute-sanitizer --tool $tool --error-exitcode 1 "$1" -B "$2" -H "$3" -L "$4" --key-dim "$5" --value-dim "$6" \
      --repeat 1 --warmup 0 "${@:7}" || status=1
  done
  return $status
}

# Shapes: L that no tile divides; Dk in each tier of `lmha` and above the last; Dk and Dv odd.
sanitize_01() {
  local shape status=0
  local -a sizes
  for shape in "2 3 70 33 5" "2 3 65 64 64" "2 3 33 100 67" "2 3 31 201 30" "2 3 7 300 3"; do
    read -ra sizes <<<"$shape"
    sanitized "$linear_attention" "${sizes[@]}" || status=1
    sanitized "$linear_attention" "${sizes[@]}" --backward || status=1
  done
  return $status
}

# as_other_cards CHAPTER B H L Dk Dv [OPTION...]: what `dispatch` takes on cards without products of warpgroups, with bulk
# copies and without.
as_other_cards() {
  local card status=0
  for card in 12.0 8.9; do sanitized "$@" --stage dispatch --as "$card" || status=1; done
  return $status
}

# Shapes: each tile of the tensor-core stages, cut off in L, Dk and Dv; several segments; widths that they do not take.
sanitize_02() {
  local shape status=0
  local -a sizes
  for shape in "1 2 200 48 64" "1 2 200 64 144" "2 1 200 112 128" "1 1 200 208 64" "2 1 70 33 5"; do
    read -ra sizes <<<"$shape"
    sanitized "$chunkwise" "${sizes[@]}" || status=1
    sanitized "$chunkwise" "${sizes[@]}" --normalize || status=1
    sanitized "$chunkwise" "${sizes[@]}" --backward || status=1
    sanitized "$chunkwise" "${sizes[@]}" --backward --normalize || status=1
  done
  as_other_cards "$chunkwise" 2 2 200 128 96 || status=1
  as_other_cards "$chunkwise" 1 1 1000 64 64 || status=1  # in segments
  return $status
}

# Shapes: as chapter 02's, and a width of more than one slice for the kernel in front.
sanitize_03() {
  local shape status=0
  local -a sizes
  for shape in "1 2 200 48 64" "2 1 150 64 144" "1 1 200 112 128" "1 1 130 208 64" "2 1 70 33 5"; do
    read -ra sizes <<<"$shape"
    sanitized "$gla" "${sizes[@]}" --operator gla || status=1
    sanitized "$gla" "${sizes[@]}" --operator gla --backward || status=1
  done
  sanitized "$gla" 1 2 70 24 40 --operator retention || status=1
  echo "-- memcheck: gla_layer"
  compute-sanitizer --tool memcheck --error-exitcode 1 "$gla" --operator gla_layer --input golden/gla_layer.safetensors \
    --repeat 1 --warmup 0 || status=1
  return $status
}

# Shapes: as chapter 03's, and heads enough for tiles of 128 columns.
sanitize_04() {
  local shape status=0
  local -a sizes
  for shape in "1 2 200 48 64" "2 1 150 64 144" "1 1 200 112 128" "1 1 130 208 64" "2 1 70 33 5" "2 40 70 64 96"; do
    read -ra sizes <<<"$shape"
    sanitized "$fused_chunk" "${sizes[@]}" || status=1
    sanitized "$fused_chunk" "${sizes[@]}" --operator simple_gla --backward || status=1
  done
  sanitized "$fused_chunk" 1 1 1000 64 64 --operator simple_gla || status=1  # in segments
  as_other_cards "$fused_chunk" 1 1 1000 128 96 --operator simple_gla || status=1
  return $status
}

# Shapes: as chapter 03's; with and without the normalisation of keys; chunks that are no whole tile.
sanitize_05() {
  local shape status=0
  local -a sizes
  for shape in "1 2 200 48 64" "2 1 150 64 144" "1 1 200 112 128" "1 1 130 208 64" "2 1 70 33 5"; do
    read -ra sizes <<<"$shape"
    sanitized "$deltanet_wy" "${sizes[@]}" || status=1
    sanitized "$deltanet_wy" "${sizes[@]}" --normalize-keys || status=1
    sanitized "$deltanet_wy" "${sizes[@]}" --operator delta_rule --backward || status=1
    sanitized "$deltanet_wy" "${sizes[@]}" --operator delta_rule --backward --normalize-keys || status=1
    sanitized "$deltanet_wy" "${sizes[@]}" --operator gated_delta_rule --backward || status=1
    sanitized "$deltanet_wy" "${sizes[@]}" --operator gated_delta_rule --backward --normalize-keys || status=1
  done
  sanitized "$deltanet_wy" 1 2 100 48 64 --stage chunk_gpu --chunk 16 || status=1
  as_other_cards "$deltanet_wy" 1 1 1000 128 96 || status=1
  as_other_cards "$deltanet_wy" 1 1 100 128 128 --backward || status=1
  return $status
}

# Shapes: scans of both layouts with several tiles, cut off; for the matrices those of the chapters before.
sanitize_06() {
  local shape operator status=0
  local -a sizes
  for shape in "2 3 5000 0 1" "1 3 9001 0 1" "1 2 9004 0 1" "2 1 1000 0 40" "1 2 2500 0 3"; do
    read -ra sizes <<<"$shape"
    for operator in "scan" "scan --gate-dim 1" "scan --backward"; do
      # shellcheck disable=SC2086 # an option and its value
      sanitized_scan "${sizes[@]}" $operator || status=1
    done
  done
  for shape in "1 2 200 48 64" "2 1 150 64 144" "1 1 130 208 64" "2 1 70 33 5"; do
    read -ra sizes <<<"$shape"
    for operator in "simple_gla --variants" delta_rule; do
      # shellcheck disable=SC2086 # an operator, or one and an option
      sanitized "$scan" "${sizes[@]}" --operator $operator || status=1
    done
    for operator in "" --gla --delta-rule --gated-delta-rule --kda --normalized; do
      # shellcheck disable=SC2086 # none, or an option
      sanitized "$scan" "${sizes[@]}" --operator decode --prompt 64 $operator || status=1
    done
  done
  return $status
}

# sanitized_scan B H L - D OPERATOR [OPTION...]: the same for operators without Dk.
sanitized_scan() {
  local tool status=0
  for tool in memcheck racecheck synccheck; do
    echo "-- $tool: scan B=$1 H=$2 L=$3 D=$5 ${*:6}"
    compute-sanitizer --tool $tool --error-exitcode 1 "$scan" -B "$1" -H "$2" -L "$3" --value-dim "$5" \
      --repeat 1 --warmup 0 --operator "${@:6}" || status=1
  done
  return $status
}

sanitize() {
  local status=0
  if [[ $chapters == *01* ]]; then sanitize_01 || status=1; fi
  if [[ $chapters == *02* ]]; then sanitize_02 || status=1; fi
  if [[ $chapters == *03* ]]; then sanitize_03 || status=1; fi
  if [[ $chapters == *04* ]]; then sanitize_04 || status=1; fi
  if [[ $chapters == *05* ]]; then sanitize_05 || status=1; fi
  if [[ $chapters == *06* ]]; then sanitize_06 || status=1; fi
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
    compare) compare_all ;;
    *)
      echo "there is no part '$part'" >&2
      exit 2
      ;;
  esac || failed=1
  echo "==== $part took $((SECONDS - start)) s$( ((failed)) && echo '; something has FAILED' )"
done
exit $failed
