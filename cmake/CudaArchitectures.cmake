# Which architectures kernels are compiled for, where CMAKE_CUDA_ARCHITECTURES does not say so.

# What is compiled without a GPU. Real code for Ampere runs on Ada, too (8.6 and 8.9). Hopper has instructions that exist
# only as 90a, whose code runs nowhere else. Cards after Hopper compile the PTX of 9.0 when a program starts. The PTX of
# 8.0, which they would take otherwise, has no bulk copies: where a stage needs these, it ends in a trap.
set(TUTORIAL_ARCHITECTURES_WITHOUT_GPU 80 90a-real 90-virtual)

# tutorial_architecture(RESULT CAPABILITY COMPILER KNOWN...): what a compiler, which knows the virtual architectures KNOWN
# (compute_80 ...), compiles for a GPU. Nothing for a GPU before Ampere: the executables say so when they meet it.
# Features that only one architecture has are used of Hopper alone (100a or 120a would bring nothing).
function(tutorial_architecture result capability compiler)
  set(${result} "" PARENT_SCOPE)
  string(REPLACE "." "" wanted ${capability})
  if(wanted LESS 80)
    return()
  endif()
  set(newest 80)
  foreach(known IN LISTS ARGN)
    string(REGEX REPLACE "^compute_" "" known ${known})
    if(known LESS_EQUAL wanted AND known GREATER newest)
      set(newest ${known})
    endif()
  endforeach()
  if(wanted EQUAL 90)
    set(newest 90a) # products of warpgroups, and registers that change hands
  elseif(NOT newest EQUAL wanted)
    string(REGEX REPLACE "(.)$" ".\\1" dotted ${newest})
    message(STATUS "${compiler} does not know this GPU's compute capability ${capability}: it makes PTX of ${dotted}, which "
                   "the driver compiles when a program starts")
    string(APPEND newest -virtual)
  endif()
  set(${result} ${newest} PARENT_SCOPE)
endfunction()

# tutorial_architectures(RESULT): those of the GPUs that are there. Needs the language CUDA.
function(tutorial_architectures result)
  set(architectures)
  find_program(NVIDIA_SMI nvidia-smi)
  if(NVIDIA_SMI)
    execute_process(COMMAND ${NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
                    OUTPUT_VARIABLE capabilities ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]+" capabilities "${capabilities}")
    list(REMOVE_DUPLICATES capabilities)
    execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET)
    string(REGEX MATCHALL "compute_[0-9]+" known "${known}")
    foreach(capability IN LISTS capabilities)
      tutorial_architecture(architecture ${capability} "nvcc ${CMAKE_CUDA_COMPILER_VERSION}" ${known})
      list(APPEND architectures ${architecture})
    endforeach()
    list(REMOVE_DUPLICATES architectures)
  endif()
  if(NOT architectures)
    set(architectures ${TUTORIAL_ARCHITECTURES_WITHOUT_GPU})
  endif()
  set(${result} ${architectures} PARENT_SCOPE)
endfunction()
