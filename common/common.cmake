# The host side: tensors, files, measurements, and the runner that turns a list of stages into a table.

# What only describes: it reads options and prints tables, and nothing that it does is timed. The headers that it includes
# take the compiler longer than its own lines, so several files are compiled at once.
add_library(runner OBJECT
  chapter/attention.cpp
  chapter/call.cpp
  chapter/chapter.cpp
  chapter/draw.cpp
  chapter/evaluate.cpp
  chapter/foreign_tensors.cpp
  chapter/grouped.cpp
  chapter/input_rounding.cpp
  chapter/json_report.cpp
  chapter/machine.cpp
  chapter/operator.cpp
  chapter/options.cpp
  chapter/stage_tensors.cpp
  chapter/problem.cpp
  chapter/progress.cpp
  chapter/report.cpp
  chapter/run_chapter.cpp
  chapter/run_operator.cpp
  chapter/selection.cpp
  chapter/summary.cpp
  chapter/table.cpp)
target_compile_options(runner PRIVATE ${TUTORIAL_RUNNER_OPTIONS})
set_target_properties(runner PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 10)
tutorial_instrument(runner)
if(TUTORIAL_TRACE)
  target_compile_definitions(runner PRIVATE ${TUTORIAL_TRACE_DEFINITIONS})
endif()
find_package(Threads REQUIRED)
target_link_libraries(runner PUBLIC device tile PRIVATE fmt::fmt CLI11::CLI11 nlohmann_json::nlohmann_json Threads::Threads)

add_library(common STATIC $<TARGET_OBJECTS:runner>)
tutorial_sources(common
  atomic_file.cpp
  chapter/head_sums.cu
  compare.cpp
  dtype.cpp
  small_float.cpp
  roofline_cpu.cpp
  parallel.cpp
  parts.cpp
  random.cpp
  safetensors.cpp
  tensor.cpp
  terminal.cpp
  timing.cpp
  units.cpp)
set_target_properties(common PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 7)
# The products of the CPU stages.
target_sources(common PRIVATE small_product.cpp)
set_source_files_properties(small_product.cpp chapter/head_sums.cu PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
target_link_libraries(common PRIVATE Eigen3::Eigen)
if(TUTORIAL_BACKEND STREQUAL "cuda")
  tutorial_sources(common roofline_gpu.cu)
endif()
tutorial_instrument(common)
target_link_libraries(common PUBLIC device tile PRIVATE fmt::fmt CLI11::CLI11 nlohmann_json::nlohmann_json Threads::Threads)

add_library(chapter_main OBJECT chapter/main.cpp) # of the chapters' programs
target_compile_options(chapter_main PRIVATE ${TUTORIAL_RUNNER_OPTIONS})
target_link_libraries(chapter_main PUBLIC common)

if(BUILD_TESTING)
  add_subdirectory(test)
endif()
