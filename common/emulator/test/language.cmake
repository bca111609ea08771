# What the emulator makes of CUDA's language. With the cuda backend the same tests run on a GPU, so that they say what
# CUDA does and not what we think that it does.
include_guard(GLOBAL)

add_executable(emulator_language_test)
foreach(part atomics bits fences math reductions shuffles small_float vector_types votes)
  tutorial_sources(emulator_language_test ${CMAKE_CURRENT_LIST_DIR}/language_${part}_test.cu)
endforeach()
target_link_libraries(emulator_language_test PRIVATE device GTest::gtest_main)
if(compiled_headers)
  target_compile_options(emulator_language_test PRIVATE ${TUTORIAL_TEST_OPTIONS})
  target_precompile_headers(emulator_language_test REUSE_FROM kernel_test_headers)
endif()
gtest_discover_tests(emulator_language_test DISCOVERY_MODE PRE_TEST)
tutorial_in_other_orders(emulator_language_test emulator_language_test "1;2;3;4")
