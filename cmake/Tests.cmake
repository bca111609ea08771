# tutorial_chapter_tests(TARGET PREFIX QUICK FILTER ORDERS FILTER): the tests of a chapter, by GoogleTest's filters.
#
# QUICK: those for ThreadSanitizer, under which a thread of a kernel takes a millisecond. The others are labelled slow.
# ORDERS: those that in the emulator run once more in each other order of threads and blocks. With AddressSanitizer they
# are labelled slow: what it looks for, an address outside an array, does not depend on the order.
function(tutorial_chapter_tests target prefix)
  cmake_parse_arguments(PARSE_ARGV 2 tests "" "QUICK;ORDERS" "")
  set(discovered TEST_PREFIX ${prefix}. NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST)
  if(TUTORIAL_SANITIZER STREQUAL "thread")
    gtest_discover_tests(${target} ${discovered} TEST_FILTER "${tests_QUICK}")
    gtest_discover_tests(${target} ${discovered} TEST_FILTER "-${tests_QUICK}" PROPERTIES LABELS slow)
    return()
  endif()
  gtest_discover_tests(${target} ${discovered})
  if(TUTORIAL_BACKEND STREQUAL "emulator")
    foreach(schedule reverse warps warps-reverse random:1)
      add_test(NAME ${prefix}.${schedule} COMMAND ${target} --gtest_filter=${tests_ORDERS})
      set_tests_properties(${prefix}.${schedule} PROPERTIES ENVIRONMENT EMULATOR_SCHEDULE=${schedule})
      if(TUTORIAL_SANITIZER STREQUAL "address")
        set_tests_properties(${prefix}.${schedule} PROPERTIES LABELS slow)
      endif()
    endforeach()
  endif()
endfunction()
