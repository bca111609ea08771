# The operators as libraries for other programs (docs/use.md): `cmake --install` gives their headers, a library for each, and
# a CMake package with the targets linear_attention::gla and its like. A library has the kernels of its operator and what
# chooses among them, as the chapters have compiled them. The runner, the CPU stages and the references stay behind, and
# with them what they need: CLI11, fmt, nlohmann_json, Eigen, OpenMP.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_headers ${CMAKE_INSTALL_INCLUDEDIR}/linear_attention)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/linear_attention)

# package_library(NAME): a target linear_attention::NAME, in this build and where it is installed.
function(package_library name)
  add_library(package_${name} STATIC)
  add_library(linear_attention::${name} ALIAS package_${name})
  set_target_properties(package_${name} PROPERTIES
    EXPORT_NAME ${name} OUTPUT_NAME linear_attention_${name} LINKER_LANGUAGE CXX)
  target_compile_features(package_${name} INTERFACE cxx_std_20)
  target_include_directories(package_${name} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${package_headers}>)
  install(TARGETS package_${name} EXPORT linear_attention ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

# package_header(FILE...): below the project's folder; programs include them by this path.
function(package_header)
  foreach(file IN LISTS ARGN)
    cmake_path(GET file PARENT_PATH folder)
    install(FILES ${PROJECT_SOURCE_DIR}/${file} DESTINATION ${package_headers}/${folder})
  endforeach()
endfunction()

# What all operators share: launches, memory, tiles, estimates, and the emulator where kernels run on the CPU.
package_library(runtime)
target_sources(package_runtime PRIVATE
  $<TARGET_OBJECTS:device> $<TARGET_OBJECTS:tile> $<TARGET_OBJECTS:estimate> $<TARGET_OBJECTS:trace>
  ${PROJECT_SOURCE_DIR}/common/parallel.cpp ${PROJECT_SOURCE_DIR}/common/parts.cpp)
target_include_directories(package_runtime PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(package_runtime PUBLIC Threads::Threads)
package_header(common/view.hpp common/packed_sequences.hpp common/device/error.hpp common/device/stream.hpp
  common/device/walked_heads.hpp common/device/workspace.hpp)
if(TUTORIAL_BACKEND STREQUAL "cuda")
  target_link_libraries(package_runtime PUBLIC CUDA::cudart)
else()
  set(emulator_headers ${package_headers}/common/emulator/include)
  target_sources(package_runtime PRIVATE $<TARGET_OBJECTS:emulator>)
  target_link_libraries(package_runtime PUBLIC Boost::context)
  target_compile_definitions(package_runtime PUBLIC TUTORIAL_EMULATOR=1)
  target_include_directories(package_runtime SYSTEM INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/common/emulator/include> $<INSTALL_INTERFACE:${emulator_headers}>)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/common/emulator/include/ DESTINATION ${emulator_headers})
endif()

# package_operator(NAME STAGES FOLDERS USES operator... HEADERS file...)
# STAGES is the chapter's library, FOLDERS a regular expression for the folders in it. Of the .cpp files there, CPU stages,
# references and counts of operations are left out.
function(package_operator name stages folders)
  cmake_parse_arguments(PARSE_ARGV 3 given "" "" "USES;HEADERS")
  package_library(${name})
  set(objects "$<FILTER:$<TARGET_OBJECTS:${stages}>,INCLUDE,${stages}\\.dir/(\\./)?(${folders})/>")
  set(left_out "/([0-9]+_[a-z0-9_]+|recurrent|recurrent_eigen|eigen|reference|work|definition|matches_chapter_02|products_of_gates|tokens|trace|sequential_backward|direct)\\.cpp\\.o")
  target_sources(package_${name} PRIVATE "$<FILTER:${objects},EXCLUDE,${left_out}>")
  list(TRANSFORM given_USES PREPEND package_)
  target_link_libraries(package_${name} PUBLIC ${given_USES} package_runtime)
  package_header(${given_HEADERS})
endfunction()

package_operator(causal_dot_product linear_attention_stages "causal_dot_product|causal_dot_product_backward"
  HEADERS 01_linear_attention/causal_dot_product.hpp 01_linear_attention/causal_dot_product_backward.hpp)
package_operator(linear_attention chunkwise_stages "linear_attention|linear_attention_[a-z_]+" USES causal_dot_product
  HEADERS 02_chunkwise/linear_attention.hpp 02_chunkwise/linear_attention_backward.hpp 02_chunkwise/normalized.hpp
          02_chunkwise/normalized_backward.hpp 02_chunkwise/packed.hpp 02_chunkwise/packed_backward.hpp)
package_operator(gla gla_stages "gla|gla_backward|gla_packed|gla_packed_backward"
  HEADERS 03_gla/gla.hpp 03_gla/gla_backward.hpp 03_gla/packed.hpp 03_gla/packed_backward.hpp)
package_operator(retention gla_stages "retention|retention_backward" USES gla
  HEADERS 03_gla/retention.hpp 03_gla/retention/requirements.hpp 03_gla/retention_backward.hpp)
package_operator(fused_gla fused_chunk_stages "gla|gla_packed" USES gla
  HEADERS 04_fused_chunk/fused_gla.hpp 04_fused_chunk/packed_gla.hpp)
package_operator(simple_gla fused_chunk_stages
  "simple_gla|simple_gla_backward|simple_gla_packed|simple_gla_packed_backward" USES gla
  HEADERS 04_fused_chunk/simple_gla.hpp 04_fused_chunk/simple_gla_backward.hpp 04_fused_chunk/packed_simple_gla.hpp
          04_fused_chunk/packed_backward.hpp)
package_operator(delta_rule deltanet_wy_stages "delta_rule|delta_rule_backward|delta_rule_packed|delta_rule_packed_backward|chunk"
  USES gated_delta_rule
  HEADERS 05_deltanet_wy/delta_rule.hpp 05_deltanet_wy/delta_rule_backward.hpp 05_deltanet_wy/packed_delta_rule.hpp
          05_deltanet_wy/packed_backward.hpp)
package_operator(gated_delta_rule deltanet_wy_stages
  "gated_delta_rule|gated_delta_rule_backward|gated_delta_rule_packed|gated_delta_rule_packed_backward" USES delta_rule
  HEADERS 05_deltanet_wy/gated_delta_rule.hpp 05_deltanet_wy/gated_delta_rule_backward.hpp
          05_deltanet_wy/packed_gated_delta_rule.hpp 05_deltanet_wy/packed_backward.hpp)
package_operator(kda deltanet_wy_stages "kda|kda_backward|kda_packed|kda_packed_backward" USES delta_rule
  HEADERS 05_deltanet_wy/kda.hpp 05_deltanet_wy/kda_backward.hpp 05_deltanet_wy/packed_kda.hpp
          05_deltanet_wy/packed_backward.hpp)

package_operator(scan scan_stages "scan"
  HEADERS 06_scan/scan.hpp 06_scan/scan_backward.hpp 06_scan/scan/requirements.hpp)
package_operator(short_convolution scan_stages "short_convolution" HEADERS 06_scan/short_convolution.hpp)
package_operator(decode scan_stages "decode|decode_pool" USES linear_attention simple_gla gated_delta_rule kda
  HEADERS 06_scan/decode.hpp 06_scan/decode_pool.hpp)

install(EXPORT linear_attention NAMESPACE linear_attention:: FILE linear_attention-targets.cmake
  DESTINATION ${package_folder})
set(config ${PROJECT_BINARY_DIR}/package/linear_attention-config.cmake)
configure_file(${CMAKE_CURRENT_LIST_DIR}/linear_attention-config.cmake.in ${config} @ONLY)
install(FILES ${config} DESTINATION ${package_folder})
# From the tree: -Dlinear_attention_DIR=BUILD/package.
export(EXPORT linear_attention NAMESPACE linear_attention:: FILE ${PROJECT_BINARY_DIR}/package/linear_attention-targets.cmake)
