# One source, two backends. With `cuda` a .cu file is compiled by nvcc. With `emulator` the same file is compiled as
# C++ by the host compiler, against the CUDA runtime of common/emulator.

set(TUTORIAL_WARNINGS -Wall -Wextra -Wpedantic)
if(TUTORIAL_WERROR)
  list(APPEND TUTORIAL_WARNINGS -Werror)
  set(TUTORIAL_CUDA_WERROR ",-Werror;-Werror=all-warnings")
endif()

if(TUTORIAL_BACKEND STREQUAL "cuda")
  if(NOT TUTORIAL_SANITIZER STREQUAL "none")
    message(FATAL_ERROR "TUTORIAL_SANITIZER=${TUTORIAL_SANITIZER} needs TUTORIAL_BACKEND=emulator; "
                        "on a GPU use compute-sanitizer")
  endif()
  # CMake 3.25 does not know that nvcc 13 speaks C++20 and would silently pass no flag at all.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  # Those of the GPUs that are there (`native` fails on a machine without a GPU), once it is known what the compiler can.
  # Until then one that every compiler from CUDA 12 on has, for CMake's own trial compilation.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80)
    enable_language(CUDA)
    include(CudaArchitectures)
    tutorial_architectures(architectures)
    unset(CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES ${architectures} CACHE STRING "GPU architectures to compile for")
  else()
    enable_language(CUDA)
  endif()
  # Not before: CMake's own trial compilation would then ask for C++20, whose flag it does not know.
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  find_package(CUDAToolkit 12.0 REQUIRED)
  foreach(library cuBLAS cuFFT)
    string(TOLOWER ${library} name)
    if(NOT TARGET CUDA::${name})
      set(package lib${name}-dev-${CUDAToolkit_VERSION_MAJOR}-${CUDAToolkit_VERSION_MINOR})
      message(FATAL_ERROR "The CUDA Toolkit of ${CUDAToolkit_BIN_DIR} has no ${library}; its package is ${package} "
                          "(Debian's: lib${name}-dev)")
    endif()
  endforeach()
  message(STATUS "Backend: cuda ${CUDAToolkit_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}")
elseif(TUTORIAL_BACKEND STREQUAL "emulator")
  find_package(Threads REQUIRED)
  find_package(Boost 1.74 CONFIG REQUIRED COMPONENTS context)
  message(STATUS "Backend: emulator (kernels run on the CPU), sanitizer ${TUTORIAL_SANITIZER}")
else()
  message(FATAL_ERROR "TUTORIAL_BACKEND is '${TUTORIAL_BACKEND}': cuda or emulator")
endif()

add_library(tutorial_flags INTERFACE)
target_include_directories(tutorial_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(tutorial_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${TUTORIAL_WARNINGS}>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 finds it in its own AVX-512 intrinsics, inlined through Eigen.
  target_compile_options(tutorial_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>")
  if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12) # it takes std::string(n, c) for an overflow
    target_compile_options(tutorial_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow>")
  endif()
endif()
if(TUTORIAL_BACKEND STREQUAL "cuda")
  target_compile_options(tutorial_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra${TUTORIAL_CUDA_WERROR};-lineinfo>")
endif()
if(TUTORIAL_BACKEND STREQUAL "emulator" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(tutorial_flags INTERFACE -Wno-unknown-pragmas) # `#pragma unroll` of the kernels
endif()
# Fused multiply-adds, as on a GPU: GCC leaves them out in strict C++20.
target_compile_options(tutorial_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=fast>")
if(TUTORIAL_NATIVE)
  target_compile_options(tutorial_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-march=native>")
endif()
# Two sets of flags, for half the time of a compiler that instruments everything. What computes on the CPU as a lesson or a
# reference is checked for its addresses only, and not for races: it runs on one thread. Kernels, and the targets named to
# tutorial_instrument(), have all checks.
# The compiler's calls for each access of memory, which common/emulator/race_hooks.cpp answers, and the lines of instructions
# for its reports.
set(TUTORIAL_TELL_ACCESSES -fsanitize=thread -g1)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND TUTORIAL_TELL_ACCESSES --param=tsan-instrument-func-entry-exit=0)
endif()
if(TUTORIAL_SANITIZER STREQUAL "address")
  set(sanitizer -fsanitize=address -fno-omit-frame-pointer)
  # Of undefined behaviour, what a kernel does wrong. The checks for null pointers and for an object's type and size
  # find nothing that AddressSanitizer does not, and would double the time that the compiler takes.
  set(instrumented
    -fsanitize=alignment,bounds,shift,signed-integer-overflow,integer-divide-by-zero,float-cast-overflow,bool,enum
    -fno-sanitize-recover=undefined)
  target_link_options(tutorial_flags INTERFACE ${sanitizer} ${instrumented})
elseif(TUTORIAL_SANITIZER STREQUAL "thread")
  set(sanitizer -fno-omit-frame-pointer)
  set(instrumented -fsanitize=thread)
  target_link_options(tutorial_flags INTERFACE ${instrumented})
elseif(TUTORIAL_SANITIZER STREQUAL "races")
  set(sanitizer -fno-omit-frame-pointer)
  set(instrumented ${TUTORIAL_TELL_ACCESSES})
endif()
if(DEFINED sanitizer)
  # Warnings do not stop this build: GCC 12 gives false ones in instrumented code, and the plain build gives all of them.
  target_compile_options(tutorial_flags INTERFACE ${sanitizer} -Wno-error)
endif()

# For what only describes, and is not timed: the compiler takes two thirds of the time.
set(TUTORIAL_RUNNER_OPTIONS "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>")

# tutorial_instrument(TARGET): all of its sources have the sanitizer's checks, and not only its kernels.
function(tutorial_instrument target)
  target_compile_options(${target} PRIVATE ${instrumented})
endfunction()

# tutorial_tell_accesses(TARGET): the compiler tells the emulator of each access of its sources, unless it already tells a
# sanitizer.
function(tutorial_tell_accesses target)
  if(TUTORIAL_BACKEND STREQUAL "emulator" AND TUTORIAL_SANITIZER STREQUAL "none")
    target_compile_options(${target} PRIVATE ${TUTORIAL_TELL_ACCESSES})
  endif()
endfunction()

# What the sources of a GPU's kernels are compiled with to be traced.
set(TUTORIAL_TRACE_DEFINITIONS TUTORIAL_TRACE=1 TUTORIAL_ROOT="${PROJECT_SOURCE_DIR}")

# tutorial_sources(TARGET FILE...): the sources of a target; .cu files go to the backend's compiler. The emulator's kernels
# are -O1: most of their time is the emulator's own, and with -O2 the compiler takes a quarter more.
function(tutorial_sources target)
  target_sources(${target} PRIVATE ${ARGN})
  if(TUTORIAL_BACKEND STREQUAL "emulator")
    set(kernels ${ARGN})
    list(FILTER kernels INCLUDE REGEX "\\.cu$")
    set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX
      COMPILE_OPTIONS "$<$<CONFIG:Release>:-O1>;${instrumented}")
  elseif(TUTORIAL_TRACE)
    cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE folder)
    foreach(source IN LISTS ARGN)
      if("${folder}/${source}" IN_LIST TUTORIAL_TRACE_SOURCES)
        set_source_files_properties(${source} PROPERTIES COMPILE_DEFINITIONS "${TUTORIAL_TRACE_DEFINITIONS}")
      endif()
    endforeach()
  endif()
endfunction()

# Whether headers are compiled once for many files. A compiler cache keeps nothing of files that use them.
set(compiled_headers OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND TUTORIAL_BACKEND STREQUAL "emulator" AND TUTORIAL_SANITIZER STREQUAL "none" AND
   NOT CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache")
  set(compiled_headers ON)
endif()

# tutorial_stages(TARGET FILE...): the stages of a chapter as a library. In the emulator reading the headers takes a
# third of a kernel's compilation and more, so those of common/device are compiled once (common/device/kernel_headers.hpp).
function(tutorial_stages target)
  add_library(${target} STATIC)
  tutorial_sources(${target} ${ARGN})
  if(compiled_headers)
    set(header ${PROJECT_BINARY_DIR}/common/device/CMakeFiles/kernel_headers.dir/cmake_pch.hxx)
    list(FILTER ARGN INCLUDE REGEX "\\.cu$")
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS -include ${header})
    set_property(SOURCE ${ARGN} APPEND PROPERTY OBJECT_DEPENDS ${header}.gch)
  endif()
endfunction()

# tutorial_at_once(TARGET NAME FILE...): files of a target that are compiled as one. Those of an operator's CPU stages use
# the same products of Eigen's, for which the compiler takes most of its time.
function(tutorial_at_once target name)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  set_source_files_properties(${ARGN} PROPERTIES UNITY_GROUP ${name})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # With a sanitizer GCC 12 finds it in its own AVX-512 intrinsics, inlined through Eigen's products.
    set_source_files_properties(${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/Unity/unity_${name}_cxx.cxx
      PROPERTIES COMPILE_OPTIONS -Wno-uninitialized)
  endif()
endfunction()

# tutorial_chapter(NAME): the program of a chapter, from the library NAME_stages and its main.cpp, the table of contents,
# which the chapter's tests take, too.
function(tutorial_chapter name)
  add_library(${name}_contents OBJECT main.cpp)
  target_compile_options(${name}_contents PRIVATE ${TUTORIAL_RUNNER_OPTIONS})
  target_link_libraries(${name}_contents PUBLIC ${name}_stages)
  add_executable(${name})
  target_link_libraries(${name} PRIVATE chapter_main ${name}_contents)
endfunction()
