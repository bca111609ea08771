#!/usr/bin/env bash
# What only the compiler can tell of the kernels for Hopper: tools/check_hopper_code.sh [FILE.cu...]
# Compiles them for sm_90a, and fails where
#   - ptxas waits between products of warpgroups, which then run one after the other (its messages C7510 to C7519),
#   - registers are spilled to local memory,
#   - there is no product of a warpgroup or no bulk load in the code.
# Two kernels may spill some registers: `cluster` of gated_delta_rule in segments (docs/notebook/05_gated_delta_rule.md),
# and `one_anchor` of kda where it goes from chunk to chunk (docs/notebook/05_kda.md).
# Without FILEs: the stages on warpgroups of all chapters and the kernels behind their dispatch; --list prints their
# names. Needs nvcc ($CUDACXX, if it is set), but no GPU.
set -uo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." || exit 2

files=("$@")
if ((${#files[@]} == 0)) || [[ $1 == --list ]]; then
  stages=02_chunkwise/linear_attention
  files=("$stages"/1[1-4]_*.cu "$stages"{,_backward}/dispatch/hopper_*.cu "$stages"/dispatch/cluster.cu 03_gla/gla/9_warpgroup_walk.cu)
  files+=(03_gla/gla_backward/{4_anchored_pairs,5_one_anchor}.cu)
  files+=(04_fused_chunk/gla/{4_specialized,5_score_levels,6_segments,dispatch/bounded_segments}.cu)
  files+=(04_fused_chunk/simple_gla/{4_specialized,5_register_scores,6_bounded_start,dispatch/hopper_walk}.cu)
  files+=(04_fused_chunk/simple_gla_backward/5_hopper_gradients.cu)
  files+=(05_deltanet_wy/chunk/prepare_inverses.cu 05_deltanet_wy/delta_rule/{1[0-4]_*,dispatch/one_*}.cu 05_deltanet_wy/delta_rule_backward/{5_warpgroups,dispatch/longer_chunks}.cu)
  files+=(05_deltanet_wy/gated_delta_rule/{4_*,dispatch/segments,dispatch/cluster,dispatch/one_block}.cu 05_deltanet_wy/gated_delta_rule_backward/dispatch/warpgroups.cu)
  files+=(05_deltanet_wy/kda/{4_*,5_*,dispatch/cluster,dispatch/segments,dispatch/middle_anchor}.cu)
  files+=(05_deltanet_wy/kda_backward/dispatch/{prepare_chunks,warpgroups}.cu)
fi
if [[ ${1-} == --list ]]; then
  printf '%s\n' "${files[@]}"
  exit
fi
nvcc=${CUDACXX:-$(command -v nvcc /usr/local/cuda/bin/nvcc | head -n 1)}
if [[ -z $nvcc ]]; then
  echo "there is no nvcc" >&2
  exit 2
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# check FILE: prints what is wrong with it.
check() {
  local name messages kept
  name=$(basename "$1" .cu)
  kept=$(mktemp -d "$folder/XXXXXX") # two chapters may have files of one name
  # The messages come without being asked for, and do not change the exit status.
  if ! messages=$("$nvcc" -std=c++20 -O3 -I. --keep --keep-dir "$kept" -gencode arch=compute_90a,code=sm_90a \
    -Xptxas -v -cubin -o "$kept/$name.cubin" "$1" 2>&1); then
    printf '%s\n%s\n' "$1: does not compile" "$messages"
    return
  fi
  grep -E 'C75[0-9]{2}' <<<"$messages" | sed "s|^|$1: |"
  grep -E '[1-9][0-9]* bytes (spill|stack frame)' <<<"$messages" | sed "s|^ *|$1: |"
  grep -q 'wgmma\.mma_async' "$kept/$name.ptx" || echo "$1: no product of a warpgroup"
  grep -q 'cp\.async\.bulk\.tensor' "$kept/$name.ptx" || echo "$1: no bulk load"
}

# Of `one_block`, `middle_anchor` and kda's `cluster` the forms for packed sequences spill, and only these; `longer_chunks` keeps
# two factors of marked chunks on its stack and spills nothing.
kernels='delta_rule_backward/dispatch/longer_chunks|gated_delta_rule/dispatch/(cluster|one_block)|kda/5_one_anchor|kda/dispatch/(cluster|middle_anchor)'
known="^05_deltanet_wy/($kernels)\.cu: [0-9]{1,2} bytes stack frame"

export -f check
export nvcc folder
# shellcheck disable=SC2016 # `check` expands it
mistakes=$(printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -I{} bash -c 'check "$1"' check {} | grep -vE "$known")
if [[ -n $mistakes ]]; then
  printf '%s\n' "$mistakes"
  exit 1
fi
echo "${#files[@]} files: products in parallel, nothing spilled"
