#include "exercise/test/variants.hpp"

#include <cstdio>
#include <map>

namespace exercise {
namespace {

struct Entry {
  const char* number;
  const std::type_info* type;
  void (*run)();
};

std::map<std::string, Entry>& variants() {
  static std::map<std::string, Entry> all;
  return all;
}

}  // namespace

void Variant::add(const char* number, const char* name, const std::type_info& type, void (*run)()) {
  variants().emplace(std::string(number) + " " + name, Entry{number, &type, run});
}

}  // namespace exercise

/// Usage: exercise_variants NUMBER VARIANT
int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: exercise_variants NUMBER VARIANT\n");
    return 2;
  }
  const auto found = exercise::variants().find(std::string(argv[1]) + " " + argv[2]);
  if (found == exercise::variants().end()) {
    std::fprintf(stderr, "there is no variant '%s' of exercise %s\n", argv[2], argv[1]);
    return 2;
  }
  const auto& [number, type, run] = found->second;
  return exercise::check_exercise(number, found->first, *type, run);
}
