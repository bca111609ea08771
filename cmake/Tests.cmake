# tutorial_chapter_tests(TARGET PREFIX QUICK FILTER ORDERS FILTER): the tests of a chapter, by GoogleTest's filters.
#
# QUICK: those for ThreadSanitizer, under which a thread of a kernel takes a millisecond. The others are labelled slow.
# ORDERS: those that run every kernel on odd shapes, widths and strides. In the emulator they run once more in each other
# order of threads and blocks. AddressSanitizer runs them in one order: what it looks for, an address outside an array,
# does not depend on the order, nor on the numbers that the other tests are about. Those are labelled slow there.
function(tutorial_chapter_tests target prefix)
  cmake_parse_arguments(PARSE_ARGV 2 tests "" "QUICK;ORDERS" "")
  set(discovered TEST_PREFIX ${prefix}. NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST)
  if(TUTORIAL_SANITIZER STREQUAL "thread")
    gtest_discover_tests(${target} ${discovered} TEST_FILTER "${tests_QUICK}")
    gtest_discover_tests(${target} ${discovered} TEST_FILTER "-${tests_QUICK}" PROPERTIES LABELS slow)
    return()
  endif()
  if(TUTORIAL_SANITIZER STREQUAL "address")
    gtest_discover_tests(${target} ${discovered} TEST_FILTER "${tests_ORDERS}")
    gtest_discover_tests(${target} ${discovered} TEST_FILTER "-${tests_ORDERS}" PROPERTIES LABELS slow)
    return()
  endif()
  gtest_discover_tests(${target} ${discovered})
  if(TUTORIAL_BACKEND STREQUAL "emulator")
    foreach(schedule reverse warps warps-reverse random:1)
      add_test(NAME ${prefix}.${schedule} COMMAND ${target} --gtest_filter=${tests_ORDERS})
      set_tests_properties(${prefix}.${schedule} PROPERTIES ENVIRONMENT EMULATOR_SCHEDULE=${schedule})
    endforeach()
  endif()
endfunction()
