// A library needs a file: this one stands for the headers that are compiled once for all tests (cmake/Tests.cmake).
