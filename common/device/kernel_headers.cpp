// Of kernel_headers.hpp, which CMake compiles for a target that has a source.
