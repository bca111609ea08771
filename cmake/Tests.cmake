# For the C++ of tests, which compute little themselves: the compiler takes two thirds of the time.
set(TUTORIAL_TEST_OPTIONS "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>")

# tutorial_shared_test(NAME...): NAME_test.cpp, of which the tests of several chapters take the same object: what it goes
# through is the table of contents that it is linked with.
function(tutorial_shared_test)
  foreach(name IN LISTS ARGN)
    add_library(${name}_test OBJECT ${name}_test.cpp)
    target_compile_options(${name}_test PRIVATE ${TUTORIAL_TEST_OPTIONS})
    target_compile_definitions(${name}_test PRIVATE PROJECT_FOLDER="${PROJECT_SOURCE_DIR}")
    target_link_libraries(${name}_test PRIVATE common GTest::gtest)
    tutorial_test_headers(${name}_test)
  endforeach()
endfunction()

# tutorial_test_headers(TARGET): it takes the headers that are compiled once. A compiler cache keeps nothing of such files.
function(tutorial_test_headers target)
  if(NOT CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache")
    target_precompile_headers(${target} REUSE_FROM test_headers)
  endif()
endfunction()

# tutorial_in_other_orders(TARGET NAME SEEDS [FILTER]): the target's tests once more for each of SEEDS, as one test called
# NAME.mixed:SEED, in which each launch of a kernel has an order of threads and blocks of its own. Many launches meet every
# kernel with every order, for a fifth of what five runs take; few launches need more seeds. Not with a sanitizer:
# ThreadSanitizer reports a race in any order.
function(tutorial_in_other_orders target name seeds)
  if(NOT TUTORIAL_BACKEND STREQUAL "emulator" OR NOT TUTORIAL_SANITIZER STREQUAL "none")
    return()
  endif()
  set(filter *)
  if(ARGN)
    set(filter ${ARGN})
  endif()
  foreach(seed IN LISTS seeds)
    add_test(NAME ${name}.mixed:${seed} COMMAND ${target} --gtest_filter=${filter})
    set_tests_properties(${name}.mixed:${seed} PROPERTIES ENVIRONMENT EMULATOR_SCHEDULE=mixed:${seed})
  endforeach()
endfunction()

# tutorial_grids_test(CHAPTER FILTER): the launches of the stages of a chapter on more heads than an axis of a grid takes. They
# depend on no sanitizer, and a GPU would run them.
function(tutorial_grids_test chapter filter)
  if(TUTORIAL_BACKEND STREQUAL "emulator" AND TUTORIAL_SANITIZER STREQUAL "none")
    add_executable(${chapter}_grids_test)
    target_link_libraries(${chapter}_grids_test PRIVATE grids_test ${chapter}_contents GTest::gtest_main)
    add_test(NAME ${chapter}.grids COMMAND ${chapter}_grids_test --gtest_filter=${filter})
  endif()
endfunction()

# tutorial_chapter_tests(TARGET PREFIX QUICK FILTER ORDERS FILTER): the tests of a chapter, by GoogleTest's filters.
#
# QUICK: those for ThreadSanitizer, under which a thread of a kernel takes a millisecond, and for the emulator's detector of
# races. The others are labelled slow.
# ORDERS: those that run every kernel on odd shapes, widths and strides. In the emulator each launch of theirs has an order
# of threads and blocks of its own; the other tests run `forward`. AddressSanitizer runs these alone, in other
# orders, and of these only the ones about shapes: an address outside an array does not depend on numbers. The others are
# labelled slow there.
function(tutorial_chapter_tests target prefix)
  cmake_parse_arguments(PARSE_ARGV 2 tests "" "QUICK;ORDERS" "")
  target_compile_options(${target} PRIVATE ${TUTORIAL_TEST_OPTIONS})
  if(TUTORIAL_SANITIZER STREQUAL "races")
    # Mutants of kernels run in the chapter's executable. They are a program of their own, which CI builds without the
    # other tests.
    get_target_property(sources ${target} SOURCES)
    list(REMOVE_ITEM sources barriers_test.cpp)
    set_target_properties(${target} PROPERTIES SOURCES "${sources}")
    add_executable(${prefix}_mutants barriers_test.cpp)
    target_link_libraries(${prefix}_mutants PRIVATE device GTest::gtest_main)
    get_target_property(definitions ${target} COMPILE_DEFINITIONS)
    target_compile_definitions(${prefix}_mutants PRIVATE ${definitions} EMULATOR_RACES_BUILD=1)
    add_dependencies(${prefix}_mutants ${prefix})
    if(NOT TARGET mutants)
      add_custom_target(mutants) # those of all chapters
    endif()
    add_dependencies(mutants ${prefix}_mutants)
    gtest_discover_tests(${prefix}_mutants TEST_PREFIX ${prefix}. NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST)
  endif()
  tutorial_test_headers(${target})
  # But for kernels, whose options are others.
  get_target_property(kernels ${target} SOURCES)
  list(FILTER kernels INCLUDE REGEX "\\.cu$")
  set_source_files_properties(${kernels} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  set(discovered TEST_PREFIX ${prefix}. NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST)
  if(TUTORIAL_SANITIZER MATCHES "^(thread|races)$")
    gtest_discover_tests(${target} ${discovered} TEST_FILTER "${tests_QUICK}")
    gtest_discover_tests(${target} ${discovered} TEST_FILTER "-${tests_QUICK}" PROPERTIES LABELS slow)
  elseif(TUTORIAL_SANITIZER STREQUAL "address")
    # The last four compute large problems on the CPU, for minutes.
    set(numbers "*Golden*:*Gates*:*Numbers*:*NormalizeKeysTest.Shapes:*MultiplesOf16:*AThousand*:*LengthOfAThousand*")
    gtest_discover_tests(${target} ${discovered} TEST_FILTER "${tests_ORDERS}:-${numbers}"
      PROPERTIES ENVIRONMENT EMULATOR_SCHEDULE=mixed:2)
    gtest_discover_tests(${target} ${discovered} TEST_FILTER "-${tests_ORDERS}:${numbers}" PROPERTIES LABELS slow)
    gtest_discover_tests(${target} ${discovered} TEST_FILTER "${numbers}" PROPERTIES LABELS slow)
  elseif(TUTORIAL_BACKEND STREQUAL "cuda")
    gtest_discover_tests(${target} ${discovered})
  else()
    gtest_discover_tests(${target} ${discovered} TEST_FILTER "${tests_ORDERS}"
      PROPERTIES ENVIRONMENT EMULATOR_SCHEDULE=mixed:1)
    gtest_discover_tests(${target} ${discovered} TEST_FILTER "-${tests_ORDERS}")
    # All problems on all cards, by `ctest -C full`: minutes, of which the other tests are a sample.
    add_test(NAME ${prefix}.cards CONFIGURATIONS full COMMAND ${target} --gtest_filter=*CardsTest*)
    set_tests_properties(${prefix}.cards PROPERTIES ENVIRONMENT TUTORIAL_ALL_CARDS=1)
  endif()
endfunction()
