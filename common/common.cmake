# The host side: tensors, files, measurements, and the runner that turns a list of stages into a table.

add_library(common STATIC)
tutorial_sources(common
  atomic_file.cpp
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
  units.cpp
  chapter/attention.cpp
  chapter/call.cpp
  chapter/chapter.cpp
  chapter/draw.cpp
  chapter/evaluate.cpp
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
  chapter/table.cpp)
if(TUTORIAL_BACKEND STREQUAL "cuda")
  tutorial_sources(common roofline_gpu.cu)
endif()
tutorial_instrument(common)
find_package(Threads REQUIRED)
target_link_libraries(common PUBLIC device tile PRIVATE fmt::fmt CLI11::CLI11 nlohmann_json::nlohmann_json Threads::Threads)

if(BUILD_TESTING)
  add_subdirectory(test)
endif()
