#!/usr/bin/env bash
# Fuzzes the reader of safetensors files with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer: a minute, or as
# long as libFuzzer's options say, such as -runs=1000000. Seeds are the smallest of the golden files. Needs Debian's clang
# and libclang-rt-dev; it builds in build/fuzz, apart from all else.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

build=build/fuzz
mkdir -p $build/corpus $build/seeds
clang++ -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I. -o $build/safetensors_fuzzer \
  common/test/safetensors_fuzzer.cpp common/{atomic_file,dtype,parallel,safetensors,small_float,tensor}.cpp -lfmt -pthread
find golden -name '*.safetensors' -size -17k -exec cp -t $build/seeds {} +
if (($# == 0)); then set -- -max_total_time=60; fi
exec $build/safetensors_fuzzer -max_len=16384 -timeout=10 -artifact_prefix=$build/ -print_final_stats=1 "$@" \
  $build/corpus $build/seeds
