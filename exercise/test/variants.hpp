#pragma once
/// @file
/// The variants of all exercises, by name.

#include <string>
#include <typeinfo>

#include "exercise/checker.hpp"

namespace exercise {

/// Registers a variant: "1.1 solution", "1.1 skeleton", "1.1 wrong 2".
class Variant {
 public:
  template <class Run>
  Variant(const char* number, const char* name, Run* run) {
    add(number, name, typeid(Run*), reinterpret_cast<void (*)()>(run));
  }

 private:
  static void add(const char* number, const char* name, const std::type_info& type, void (*run)());
};

}  // namespace exercise
